//! What is observed: the sources, and their keys.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crosslane_core::assess::SAMPLE_INTERVAL;
use crosslane_core::path::Rat;
use serde::Deserialize;
use toml::Spanned;

use super::Config;
use super::checks::Complaint;
use crate::tun::check_name;

/// What is observed.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Observe {
    /// Where vanetza-nap's datagrams arrive; unset, none are expected.
    pub vanetza: Option<Spanned<SocketAddr>>,
    /// Addresses whose datagrams are accepted, whatever user sends them.
    pub vanetza_from: Vec<IpAddr>,
    /// Users of this machine whose datagrams are accepted, besides root and the
    /// agent's own user; names or numbers.
    pub vanetza_users: Vec<Spanned<String>>,
    /// Monitor interface on which the frames of an 802.11p radio arrive; unset, none are read.
    pub radiotap: Option<Spanned<String>>,
    /// Folder of a recorded run whose signals are replayed from the start on, for trials; unset, none.
    pub replay: Option<PathBuf>,
    /// Where gpsd reports the vehicle's position; unset, it is not known.
    pub gpsd: Option<Spanned<SocketAddr>>,
    /// Whether the kernel is asked for the signals of Wi-Fi and 802.11p.
    pub nl80211: Spanned<bool>,
    /// Whether ModemManager is asked for the signals of cellular paths.
    pub modem_manager: Spanned<bool>,
    /// Period in which the kernel is queried for its subflows' status, in ms (1 to 1000).
    pub transport_period_ms: Spanned<u32>,
}

impl Default for Observe {
    fn default() -> Observe {
        Observe {
            vanetza: None,
            vanetza_from: Vec::new(),
            vanetza_users: Vec::new(),
            radiotap: None,
            replay: None,
            gpsd: None,
            nl80211: Spanned::new(0..0, false),
            modem_manager: Spanned::new(0..0, false),
            transport_period_ms: Spanned::new(0..0, SAMPLE_INTERVAL.as_millis() as u32),
        }
    }
}

/// Checks what involves several keys.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    senders(config)?;
    frames(config)?;
    signals(config)
}

/// Frames need an interface that can exist, and a station whose frames count.
fn frames(config: &Config) -> Result<(), Complaint> {
    let Some(interface) = &config.observe.radiotap else { return Ok(()) };
    if let Err(rule) = check_name(interface.get_ref()) {
        return Err((interface.span().start, rule.into(), "name a monitor interface, as \"mon0\""));
    }
    let has_station = config.paths.iter().any(|path| !path.get_ref().stations.is_empty());
    if !has_station && config.roadside.is_none() && config.unit.is_none() {
        let cause = "`radiotap` is set, and no path has `stations`".to_owned();
        return Err((interface.span().start, cause, "give the `stations` of a path, or remove `radiotap`"));
    }
    Ok(())
}

/// If the whole network can send to the socket, the configuration must name the senders.
fn senders(config: &Config) -> Result<(), Complaint> {
    let observe = &config.observe;
    let Some(vanetza) = &observe.vanetza else {
        let Some(user) = observe.vanetza_users.first() else { return Ok(()) };
        let remedy = "set `vanetza`, or remove `vanetza_users`";
        return Err((user.span().start, "`vanetza_users` without `vanetza`".into(), remedy));
    };
    if !vanetza.get_ref().ip().is_loopback() && observe.vanetza_from.is_empty() {
        let cause = format!("`vanetza` is {}, where the whole network can send", vanetza.get_ref());
        let remedy = "name the senders, as vanetza_from = [\"192.0.2.7\"], or give an address as 127.0.0.1:5051";
        return Err((vanetza.span().start, cause, remedy));
    }
    Ok(())
}

/// A source of signals needs a path that it can report.
fn signals(config: &Config) -> Result<(), Complaint> {
    let is_any = |of: fn(Rat) -> bool| config.paths.iter().any(|path| of(path.get_ref().rat));
    let sources = [
        ("nl80211", &config.observe.nl80211, is_any(Rat::needs_signal), "`80211p` or `wifi`"),
        ("modem_manager", &config.observe.modem_manager, is_any(Rat::is_cellular), "`lte` or `nr`"),
    ];
    match sources.into_iter().find(|(_, is_on, has_path, _)| *is_on.get_ref() && !has_path) {
        Some((key, is_on, _, rats)) => {
            let cause = format!("`{key}` is true, and no path has the `rat` {rats}");
            Err((is_on.span().start, cause, "correct the `rat` of a path, or remove this key"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::agent::config::from_table;

    #[test]
    fn frames_need_an_interface_and_a_station() {
        let read = |stations: &str, interface: &str| {
            let path = format!("[[path]]\nname = \"a\"\nrat = \"80211p\"\n{stations}\n");
            let text = format!("{path}[strategy]\nname = \"threshold\"\n[observe]\nradiotap = \"{interface}\"\n");
            from_table("a test", &text.parse().unwrap()).err().map(|fault| fault.to_string())
        };
        assert_eq!(read("stations = [1001]", "mon0"), None);
        let fault = read("", "mon0").expect("without a station");
        assert!(fault.contains("`radiotap` is set, and no path has `stations`; give"), "{fault}");
        let fault = read("stations = [1001]", "a/b").expect("a name of no interface");
        assert!(fault.contains("name a monitor interface, as \"mon0\""), "{fault}");
    }

    #[test]
    fn a_source_of_signals_needs_a_path_of_its_radio() {
        let read = |rat: &str, key: &str| {
            let path = format!("[[path]]\nname = \"a\"\nrat = \"{rat}\"\n");
            let text = format!("{path}[strategy]\nname = \"threshold\"\n[observe]\n{key} = true\n");
            from_table("a test", &text.parse().unwrap()).err().map(|fault| fault.to_string())
        };
        for (rat, key, is_allowed) in [
            ("wifi", "nl80211", true),
            ("80211p", "nl80211", true),
            ("other", "nl80211", false),
            ("lte", "nl80211", false),
            ("nr", "modem_manager", true),
            ("wifi", "modem_manager", false),
        ] {
            let fault = read(rat, key);
            assert_eq!(fault.is_none(), is_allowed, "{rat} {key}: {fault:?}");
            assert!(fault.is_none_or(|fault| fault.contains(&format!("`{key}` is true, and no path has the `rat`"))));
        }
    }
}
