//! The sections `[[class]]`: connections whose use of the paths differs from that of `[service]`.

use std::ops::RangeInclusive;

use crosslane_core::agent::MAX_CLASSES;
use crosslane_core::allocate::Mode;
use crosslane_core::wanted::ConnectionClass;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::Config;
use super::cgroup::Cgroup;
use super::checks::Complaint;
use crate::control::report::DEFAULT_CLASS;
use crate::tunnel::config::Prefix;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// A class of the connections that this machine opens. All conditions that it has must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Its name.
    pub name: String,
    /// How its connections use the paths.
    pub mode: ClassMode,
    /// Ports of the peer.
    pub port: Option<Ports>,
    /// Addresses of the peer.
    pub to: Option<Prefix>,
    /// User of the program, a name or a number.
    pub user: Option<String>,
    /// Mark of the socket (SO_MARK).
    pub mark: Option<u32>,
    /// Control group of the program, or one above it.
    pub cgroup: Option<Cgroup>,
}

/// How the connections of a class use the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ClassMode {
    /// As `[service]` with this mode.
    Managed(Mode),
    /// They have their first subflow only.
    Off,
}

impl TryFrom<String> for ClassMode {
    type Error = String;

    fn try_from(name: String) -> Result<ClassMode, String> {
        match name.as_str() {
            "off" => Ok(ClassMode::Off),
            name => name.parse().map(ClassMode::Managed).map_err(|cause: String| match name {
                "redundant" => cause,
                _ => cause + ", `off`",
            }),
        }
    }
}

/// A port, or a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Ports(pub RangeInclusive<u16>);

impl TryFrom<Value> for Ports {
    type Error = String;

    fn try_from(value: Value) -> Result<Ports, String> {
        let fault = |why: &str| Err(format!("`port` is {value}, {why}; write it as 443 or \"8000-8999\""));
        let range = match &value {
            Value::Integer(port) => u16::try_from(*port).ok().map(|port| port..=port),
            Value::String(text) => text
                .split_once('-')
                .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)),
            _ => None,
        };
        match range {
            None => fault("which is neither a port of 1 to 65535 nor a range"),
            Some(range) if *range.start() == 0 => fault("and there is no port 0"),
            Some(range) if range.is_empty() => fault("a range from a higher port to a lower one"),
            Some(range) => Ok(Ports(range)),
        }
    }
}

impl ClassConfig {
    fn has_condition(&self) -> bool {
        let has_owner = self.user.is_some() || self.mark.is_some() || self.cgroup.is_some();
        self.port.is_some() || self.to.is_some() || has_owner
    }

    /// Whether it matches every connection that the other matches.
    fn covers(&self, other: &ClassConfig) -> bool {
        fn holds<T>(one: Option<&T>, other: Option<&T>, covers: impl Fn(&T, &T) -> bool) -> bool {
            one.is_none_or(|one| other.is_some_and(|other| covers(one, other)))
        }
        let of_ports = |one: &Ports, other: &Ports| one.0.contains(other.0.start()) && one.0.contains(other.0.end());
        holds(self.port.as_ref(), other.port.as_ref(), of_ports)
            && holds(self.to.as_ref(), other.to.as_ref(), |one, other| one.0.contains(&other.0))
            && holds(self.user.as_ref(), other.user.as_ref(), PartialEq::eq)
            && holds(self.mark.as_ref(), other.mark.as_ref(), PartialEq::eq)
            && holds(self.cgroup.as_ref(), other.cgroup.as_ref(), Cgroup::contains_group)
    }
}

impl Config {
    /// Name and mode of the classes that the engine has, in the order of their numbers from 1 on.
    pub fn managed_classes(&self) -> impl Iterator<Item = (&str, Mode)> {
        self.classes.iter().map(Spanned::get_ref).filter_map(|class| match class.mode {
            ClassMode::Managed(mode) => Some((class.name.as_str(), mode)),
            ClassMode::Off => None,
        })
    }

    /// Control groups of classes that do not exist now, a sentence each.
    pub fn missing_groups(&self) -> Vec<String> {
        let classes = self.classes.iter().map(Spanned::get_ref);
        let missing =
            classes.filter_map(|class| Some((class, class.cgroup.as_ref().filter(|group| group.folder().is_none())?)));
        let sentence = |(class, group): (&ClassConfig, &Cgroup)| {
            let (name, group) = (&class.name, &group.0);
            format!("class {name:?} has the connections of the control group {group:?}, which does not exist now")
        };
        missing.map(sentence).collect()
    }

    /// The name of a class of the engine.
    pub fn class_name(&self, class: ConnectionClass) -> &str {
        let place = usize::from(class.0).checked_sub(1);
        place.and_then(|place| self.managed_classes().nth(place)).map_or(DEFAULT_CLASS, |(name, _)| name)
    }
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let classes = &config.classes;
    let Some(first) = classes.first() else { return Ok(()) };
    if classes.len() > MAX_CLASSES {
        let cause = format!("{} classes", classes.len());
        return Err((first.span().start, cause, "give at most 16 [[class]] sections"));
    }
    if config.strategy.is_none() {
        let cause = "there are classes, and no [strategy]".into();
        return Err((first.span().start, cause, "add one, as name = \"threshold\", or remove the classes"));
    }
    for (place, class) in classes.iter().enumerate() {
        let earlier = classes[..place].iter().map(Spanned::get_ref);
        check_class(config, class.get_ref(), earlier).map_err(|(cause, remedy)| (class.span().start, cause, remedy))?;
    }
    Ok(())
}

fn check_class<'a>(
    config: &Config,
    class: &ClassConfig,
    mut earlier: impl Iterator<Item = &'a ClassConfig> + Clone,
) -> Result<(), (String, &'static str)> {
    let name = &class.name;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_word) {
        let remedy = "give it 1 to 32 lower-case letters, digits and hyphens";
        return Err((format!("{name:?} is no name of a class"), remedy));
    }
    if name == DEFAULT_CLASS {
        let cause = "`default` is the name of the connections of no class".into();
        return Err((cause, "choose another name, or set [service]"));
    }
    if earlier.clone().any(|other| other.name == *name) {
        return Err((format!("class {name:?} is defined twice"), "give each class a different name"));
    }
    if !class.has_condition() {
        let remedy = "give it `port`, `to`, `user`, `mark` or `cgroup`; [service] is for all other connections";
        return Err((format!("class {name:?} has no condition"), remedy));
    }
    if let Some(other) = earlier.find(|other| other.covers(class)) {
        let cause = format!("class {:?} has all connections of class {name:?}, and comes first", other.name);
        return Err((cause, "put the narrower class first, or remove one"));
    }
    match class.mode {
        ClassMode::Managed(mode) => config.lacks(mode).map_or(Ok(()), |cause| {
            Err((format!("class {name:?}: {cause}"), "choose another mode, or another strategy"))
        }),
        ClassMode::Off => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const REST: &str =
        "[[path]]\nname = \"lte\"\nrat = \"lte\"\n[strategy]\nname = \"threshold\"\n[[class]]\nname = \"a\"\n";

    fn read(text: &str) -> Result<Config, String> {
        parse(&format!("{REST}{text}"))
            .map_err(|fault| format!("line {}: {}; {}", fault.line, fault.cause, fault.remedy))
    }

    #[test]
    fn a_class_has_a_mode_and_conditions() {
        let config = read(
            "mode = \"off\"\nport = 443\n[[class]]\nname = \"b\"\nmode = \"handover\"\nport = \"8000-8999\"\n\
             to = \"2001:db8::/32\"\n[[class]]\nname = \"c\"\nmode = \"cost-first\"\nuser = \"its\"\nmark = 7",
        );
        let config = config.unwrap();
        let managed: Vec<_> = config.managed_classes().collect();
        assert_eq!(managed, [("b", Mode::Backup), ("c", Mode::CostFirst)]);
        let names = [0, 1, 2].map(|class| config.class_name(ConnectionClass(class)));
        assert_eq!(names, ["default", "b", "c"]);
        assert_eq!(config.classes[1].get_ref().port, Some(Ports(8000..=8999)));
    }

    #[test]
    fn a_fault_of_a_class_names_its_line_and_what_to_do() {
        let cases = [
            ("mode = \"off\"", "line 6: class \"a\" has no condition"),
            ("mode = \"redundant\"\nport = 1", "line 8: `mode`: `redundant` is a mode of the tunnel"),
            ("mode = \"fast\"\nport = 1", "`aggregate`, `backup`, `cost-first`, `interactive`, `off`"),
            ("mode = \"off\"\nport = 0", "line 9: `port` is 0, and there is no port 0"),
            ("mode = \"off\"\nport = 65536", "line 9: `port` is 65536, which is neither"),
            ("mode = \"off\"\nport = \"9-8\"", "line 9: `port` is \"9-8\", a range from a higher port to a lower one"),
            ("mode = \"off\"\nport = \"http\"", "line 9: `port` is \"http\", which is neither"),
            ("mode = \"off\"\nto = \"10.0.0.1/33\"", "line 9: `to`: \"10.0.0.1/33\" is no address with a prefix"),
            ("mode = \"off\"\ncgroup = \"x\"", "line 9: `cgroup` is \"x\", which is no path of a control group"),
            ("mode = \"off\"\ngroup = \"x\"", "line 9: unknown key `group`"),
            (
                "mode = \"off\"\ncgroup = \"/a\"\n[[class]]\nname = \"b\"\nmode = \"interactive\"\ncgroup = \"/a/b\"",
                "line 10: class \"a\" has all connections of class \"b\"",
            ),
            (
                "mode = \"off\"\nmark = 1\n[[class]]\nname = \"a\"\nmode = \"off\"\nmark = 2",
                "line 10: class \"a\" is defined twice",
            ),
            (
                "mode = \"off\"\nmark = 1\n[[class]]\nname = \"b\"\nmode = \"backup\"\nmark = 1",
                "line 10: class \"a\" has all connections of class \"b\"",
            ),
            (
                "mode = \"off\"\nport = \"1-99\"\n[[class]]\nname = \"b\"\nmode = \"off\"\nport = 99\nuser = \"0\"",
                "and comes first; put",
            ),
            (
                "mode = \"off\"\nto = \"10.0.0.0/8\"\n[[class]]\nname = \"b\"\nmode = \"off\"\nto = \"10.1.0.0/16\"",
                "and comes first",
            ),
            (
                "mode = \"off\"\nmark = 1\n[[class]]\nname = \"default\"\nmode = \"off\"\nmark = 2",
                "line 10: `default` is",
            ),
            (
                "mode = \"off\"\nmark = 1\n[[class]]\nname = \"A b\"\nmode = \"off\"\nmark = 2",
                "line 10: \"A b\" is no name",
            ),
        ];
        for (text, expected) in cases {
            let fault = read(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(fault.contains(expected), "{text}: {fault}");
        }
        let apart = "mode = \"off\"\nport = 99\nuser = \"0\"\n[[class]]\nname = \"b\"\nmode = \"off\"\nport = \"1-99\"";
        assert!(read(apart).is_ok(), "the narrower class is first");
    }
}
