//! Parses and checks the options.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chrono::DateTime;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use crosslane_core::time::Instant;
use crosslane_core::transfer::Late;
use crosslane_core::transfer::multipath::MAX_PATHS;
use nix::net::if_::{if_nameindex, if_nametoindex};

use super::Options;
use super::items::Item;
use crate::clock;
use crate::durations::{MAX_TIME, duration};
use crate::error::{Error, Result};
use crate::transfer::PORT;
use crate::transfer::files::Upload;
use crate::transfer::followed::Rules;
use crate::transfer::multipath::keys::SenderKeys;
use crate::transfer::multipath::sending::Path;
use crate::transfer_keys::{self, Clear};
use crate::tunnel::security::PrivateKey;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Deadline {
    /// A time after it is generated.
    After(Duration),
    /// A date and time, in seconds since 1970.
    At(f64),
}

/// Price of 10⁹ bytes over a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Price {
    pub path: String,
    pub per_gb: f64,
}

const READING: &str = "reading the command line";

/// A duration, or a time as in RFC 3339.
pub(super) fn deadline(text: &str) -> Result<Deadline, String> {
    if !text.contains(['T', 't', ' ']) {
        return duration(text).map(Deadline::After);
    }
    let time = DateTime::parse_from_rfc3339(text);
    let time = time.map_err(|cause| format!("{cause}; write 10s, or a time as 2026-01-31T12:00:00Z"))?;
    Ok(Deadline::At(time.timestamp_millis() as f64 / 1e3))
}

/// `lte-a=0.1/GB`.
pub(super) fn price(text: &str) -> Result<Price, String> {
    let (path, price) = text.split_once('=').ok_or("it has no `=`; write PATH=0.1/GB")?;
    let number = price.strip_suffix("/GB").unwrap_or(price);
    let per_gb: f64 = number.parse().map_err(|_| format!("{price:?} is not a price; write PATH=0.1/GB"))?;
    if !(0.0..=1e6).contains(&per_gb) {
        return Err(format!("{per_gb} per GB is outside 0 to 1000000; choose a price inside"));
    }
    Ok(Price { path: path.to_owned(), per_gb })
}

/// What to do with a file after its deadline.
pub(super) fn late() -> impl TypedValueParser<Value = Late> {
    let named = |name: String| if name == "continue" { Late::Continue } else { Late::GiveUp };
    PossibleValuesParser::new(["give-up", "continue"]).map(named)
}

/// Checks combinations of options.
pub(super) fn check(options: &Options) -> Result<()> {
    let invalid = |cause: String, remedy: &str| Err(Error::usage(READING, cause, remedy));
    let option = if options.prefer.is_empty() { "--cost" } else { "--prefer" };
    let names = names(options);
    if !names.is_empty() && options.deadline.is_empty() {
        return invalid(format!("{option} has no effect without --deadline"), "add a deadline, such as --deadline 10s");
    }
    if options.deadline.len() > options.files.len() {
        let cause = format!("there are {} deadlines for {} files", options.deadline.len(), options.files.len());
        return invalid(cause, "give at most one for each file");
    }
    check_paths(options, &names)?;
    (0..options.files.len()).try_for_each(|place| check_deadline(options, place))?;
    if options.follow { check_followed(options) } else { Ok(()) }
}

fn check_followed(options: &Options) -> Result<()> {
    let invalid = |cause: String, remedy: &str| Err(Error::usage(READING, cause, remedy));
    if let Some(folder) = options.files.iter().find(|file| file.is_dir()) {
        return invalid(format!("--follow with the folder {}", folder.display()), "name the files that grow");
    }
    if matches!(options.deadline.as_slice(), [Deadline::At(_)] | [_, _, ..]) {
        return invalid("--follow needs one deadline for what is appended".into(), "give one time, such as 10s");
    }
    Ok(())
}

/// How files that grow are followed.
pub(super) fn follow<'a>(options: &Options, end: &'a AtomicBool) -> Rules<'a> {
    let deadline = options.deadline.first().and_then(|deadline| match deadline {
        Deadline::After(time) => Some(*time),
        Deadline::At(_) => None,
    });
    Rules { deadline, idle: options.idle, end }
}

/// The keys; `None`: in the clear.
pub(super) fn keys(options: &Options) -> Result<Option<SenderKeys>> {
    match (&options.key, options.receiver_key, options.encryption) {
        (None, None, Some(Clear::None)) => Ok(None),
        (Some(_), None, _) => Err(transfer_keys::missing("--receiver-key", "the receiver's public key")),
        (None, ..) => Err(transfer_keys::missing("--key", "this sender's private key")),
        (Some(file), Some(receiver), _) => Ok(Some(SenderKeys { own: PrivateKey::read(file)?, receiver })),
    }
}

/// The paths of the transfer, the preferred first; without prices, the order counts.
pub(super) fn paths(options: &Options) -> Vec<Path> {
    let path = |(place, name): (usize, String)| {
        let price = options.cost.iter().find(|price| price.path == name);
        Path { interface: Some(name), unit_cost: price.map_or(place as f64, |price| price.per_gb / 1e9) }
    };
    let paths: Vec<Path> = names(options).into_iter().enumerate().map(path).collect();
    if paths.is_empty() { vec![Path { interface: None, unit_cost: 0.0 }] } else { paths }
}

/// The given paths, the preferred first, then by price.
fn names(options: &Options) -> Vec<String> {
    let mut by_price: Vec<&Price> = options.cost.iter().collect();
    by_price.sort_by(|one, other| one.per_gb.total_cmp(&other.per_gb));
    let mut names = options.prefer.clone();
    for price in by_price {
        if !names.contains(&price.path) {
            names.push(price.path.clone());
        }
    }
    names
}

/// The addresses of `HOST[:PORT]`.
pub(super) fn resolve(to: &str) -> Result<Vec<SocketAddr>> {
    let remedy = "give --to a host that exists, as 192.0.2.7, [2001:db8::7]:7411 or a name";
    let invalid = |cause: &dyn std::fmt::Display| Error::usage(format!("looking up {to}"), cause, remedy);
    let (host, port) = match (to.rsplit_once(':'), to.strip_prefix('[')) {
        (_, Some(bracketed)) => bracketed.split_once(']').ok_or_else(|| invalid(&"a `]` is missing"))?,
        // More than one colon: an IPv6 address without a port.
        (Some((host, port)), None) if !host.contains(':') => (host, port),
        _ => (to, ""),
    };
    let port = match port.trim_start_matches(':') {
        "" if !to.ends_with(':') || host == to => PORT,
        port => port.parse().map_err(|_| invalid(&format!("{port:?} is not a port")))?,
    };
    Ok((host, port).to_socket_addrs().map_err(|cause| invalid(&cause))?.collect())
}

/// The files in the order in which they are generated, the first now.
pub(super) fn uploads(options: &Options, items: &[Item], now: Instant) -> Vec<Upload> {
    let unix_s = clock::unix_s();
    let upload = |item: &Item| {
        let start = now + generated_after(options, item.argument);
        let deadline = deadline_of(options, item.argument).map(|deadline| match deadline {
            Deadline::After(time) => start + time,
            Deadline::At(at_s) => now + Duration::from_secs_f64((at_s - unix_s).clamp(0.0, MAX_TIME.as_secs_f64())),
        });
        Upload { path: item.path.clone(), name: item.name.clone(), start, deadline }
    };
    items.iter().map(upload).collect()
}

fn generated_after(options: &Options, place: usize) -> Duration {
    options.every.unwrap_or_default().saturating_mul(place as u32).min(MAX_TIME)
}

fn deadline_of(options: &Options, place: usize) -> Option<Deadline> {
    options.deadline.get(place).or(options.deadline.last()).copied()
}

fn check_deadline(options: &Options, place: usize) -> Result<()> {
    let Some(Deadline::At(at_s)) = deadline_of(options, place) else { return Ok(()) };
    let left_s = at_s - clock::unix_s() - generated_after(options, place).as_secs_f64();
    if left_s > 0.0 {
        return Ok(());
    }
    let file = options.files[place].display();
    let cause = match place {
        0 => format!("the --deadline of {file} is past"),
        _ => format!("the --deadline of {file} is {:.1} s before it is generated", -left_s),
    };
    Err(Error::usage(READING, cause, "give a later one, or a duration, such as 10s"))
}

fn check_paths(options: &Options, names: &[String]) -> Result<()> {
    let invalid = |cause: String, remedy: String| Err(Error::usage(READING, cause, remedy));
    for (place, name) in names.iter().enumerate() {
        if if_nametoindex(name.as_str()).is_err() {
            let cause = format!("there is no path (interface) {name:?}");
            return invalid(cause, format!("choose from {}", interface_names().join(", ")));
        }
        if names[..place].contains(name) {
            return invalid(format!("--prefer names {name:?} twice"), "name each path once".into());
        }
    }
    let mut priced = BTreeSet::new();
    if let Some(twice) = options.cost.iter().find(|price| !priced.insert(&price.path)) {
        return invalid(format!("{:?} has two prices", twice.path), "give it one".into());
    }
    if let Some(free) = names.iter().find(|name| !priced.is_empty() && !priced.contains(name)) {
        let remedy = format!("add {free}=PRICE/GB to --cost, or omit --cost");
        return invalid(format!("{free:?} has no price, but other paths have one"), remedy);
    }
    if names.len() > MAX_PATHS {
        return invalid(format!("there are {} paths", names.len()), format!("name at most {MAX_PATHS}"));
    }
    if let [only] = names {
        return invalid(format!("{only:?} is the only path"), "add a second path after it".into());
    }
    Ok(())
}

fn interface_names() -> Vec<String> {
    let Ok(interfaces) = if_nameindex() else { return Vec::new() };
    interfaces.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_time_from_now_or_a_time_of_day() {
        assert_eq!(deadline("2s"), Ok(Deadline::After(Duration::from_secs(2))));
        assert_eq!(deadline("1970-01-01T01:00:10.5+01:00"), Ok(Deadline::At(10.5)));
        assert!(deadline("2026-13-01T00:00:00Z").unwrap_err().contains("write 10s"));
    }

    #[test]
    fn a_price_is_a_number_from_zero_on() {
        assert_eq!(price("a=0.1/GB"), Ok(Price { path: "a".into(), per_gb: 0.1 }));
        for text in ["a", "a=", "a=x/GB", "a=-1/GB", "a=NaN/GB", "a=inf", "a=1/MB"] {
            assert!(price(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_receiver_is_a_host_with_or_without_a_port() {
        let first = |to| resolve(to).map(|found| found[0].to_string()).map_err(|fault| fault.to_string());
        assert_eq!(first("127.0.0.1"), Ok("127.0.0.1:7411".into()));
        assert_eq!(first("127.0.0.1:80"), Ok("127.0.0.1:80".into()));
        assert_eq!(first("::1"), Ok("[::1]:7411".into()));
        assert_eq!(first("[::1]"), Ok("[::1]:7411".into()));
        assert_eq!(first("[::1]:80"), Ok("[::1]:80".into()));
        for to in ["127.0.0.1:x", "127.0.0.1:", "[::1", "127.0.0.1:70000", ""] {
            assert!(resolve(to).is_err(), "{to}");
        }
    }
}
