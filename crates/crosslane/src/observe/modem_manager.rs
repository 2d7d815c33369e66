//! Signals of modems, from ModemManager over the system's D-Bus.
//!
//! ModemManager is asked every second, as often as it asks the modem. It announces only values that changed, so one
//! that stays would look like one that ages. Interfaces and properties are those of ModemManager's published
//! introspection (1.6 to 1.24).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::path::{PathId, Sample, SampleKind, Signal};
use zbus::Connection;
use zbus::connection::Builder;
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Value};

use super::Observed;
use super::worker::{RETRY_PAUSE, Reporter, Wording, Worker};
use crate::error::Error;

const SERVICE: &str = "org.freedesktop.ModemManager1";
const OBJECT: &str = "/org/freedesktop/ModemManager1";
const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
const MODEM_3GPP: &str = "org.freedesktop.ModemManager1.Modem.Modem3gpp";
const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const BEARER: &str = "org.freedesktop.ModemManager1.Bearer";

/// Time between two requests, and ModemManager's least time between two readings of a modem.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest time for an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of modems, and of bearers of each; further ones are ignored.
const MAX_OBJECTS: usize = 16;
/// `MM_MODEM_PORT_TYPE_NET`.
const PORT_NET: u32 = 2;
/// Signal strengths that exist, in dBm: RSRP of TS 38.133, section 10.1.6; RSCP and RSSI lie within.
const STRENGTHS_DBM: std::ops::RangeInclusive<f64> = -156.0..=-31.0;
/// The weakest signal of a sample, in dBm.
const WEAKEST_DBM: f64 = -120.0;

/// Each access technology: its bits of `MMModemAccessTechnology`, its property of the interface `Signal`, and the
/// key of its strength. 5G that is not standalone fails with its LTE anchor (TS 37.340), so LTE precedes it.
const TECHNOLOGIES: [(u32, &str, &str); 4] = [
    (1 << 14 | 1 << 16 | 1 << 17, "Lte", "rsrp"),
    (1 << 15, "Nr5g", "rsrp"),
    (0x3e0, "Umts", "rscp"),
    (0x1e, "Gsm", "rssi"),
];

type Properties = BTreeMap<String, OwnedValue>;
type Interfaces = BTreeMap<String, Properties>;
type Objects<'a> = BTreeMap<ObjectPath<'a>, Interfaces>;

/// A path over a modem.
pub struct ModemPath {
    /// The path.
    pub path: PathId,
    /// Its name.
    pub name: String,
    /// Its interface.
    pub interface: String,
}

/// Starts to watch the modems of these paths; must be called within a runtime.
pub fn watch(paths: Vec<ModemPath>) -> Worker {
    let wording = Wording {
        attempt: "reading signals of modems from ModemManager".into(),
        remedy: "start ModemManager, or remove observe.modem_manager",
        lacks: "these signals",
    };
    Worker::task("ModemManager", wording, move |reporter| follow(paths, reporter))
}

/// Tries to reach ModemManager once.
///
/// # Errors
/// Why it cannot be reached.
pub fn probe() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| cause.to_string())?;
    runtime
        .block_on(async { modems(&connect().await?).await })
        .map(drop)
        .map_err(|cause: zbus::Error| cause.to_string())
}

async fn connect() -> zbus::Result<Connection> {
    let connecting = Builder::system()?.method_timeout(CALL_TIMEOUT).build();
    let silent = |_| Err(zbus::Error::InputOutput(Arc::new(io::ErrorKind::TimedOut.into())));
    tokio::time::timeout(CALL_TIMEOUT, connecting).await.unwrap_or_else(silent)
}

async fn follow(paths: Vec<ModemPath>, mut reporter: Reporter) {
    let mut watched: Vec<Watched> = paths.into_iter().map(Watched::new).collect();
    loop {
        let Err(cause) = read(&mut watched, &mut reporter).await;
        if let Some(note) = reporter.fails(cause) {
            reporter.send(Ok(note)).await;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Reads until a request fails.
async fn read(watched: &mut [Watched], reporter: &mut Reporter) -> zbus::Result<Infallible> {
    let connection = connect().await?;
    let (mut turn, mut is_refused) = (0_u32, false);
    loop {
        let modems = modems(&connection).await?;
        if let Some(note) = reporter.works() {
            reporter.send(Ok(note)).await;
        }
        let observed = watched.iter_mut().flat_map(|watched| watched.observe(turn, &modems));
        for observed in observed.collect::<Vec<_>>() {
            reporter.send(observed).await;
        }
        for modem in modems.iter().filter(|modem| modem.period_s == Some(0)) {
            let period_s = PERIOD.as_secs() as u32;
            let set_up = connection.call_method(Some(SERVICE), &modem.object, Some(SIGNAL), "Setup", &period_s).await;
            if let Err(cause) = set_up
                && !std::mem::replace(&mut is_refused, true)
            {
                reporter.send(Ok(Observed::Note(refused(&cause)))).await;
            }
        }
        tokio::time::sleep(PERIOD).await;
        turn = turn.wrapping_add(1);
    }
}

fn refused(cause: &zbus::Error) -> String {
    let fault = Error::failure("requesting signals every second from ModemManager", cause);
    let remedy = "allow org.freedesktop.ModemManager1.Device.Control to the agent's user (polkit), or run `mmcli -m any \
                  --signal-setup=1`";
    fault.with_remedy(remedy).to_string()
}

/// The modems that ModemManager has.
async fn modems(connection: &Connection) -> zbus::Result<Vec<Modem>> {
    let manager = Some("org.freedesktop.DBus.ObjectManager");
    let reply = connection.call_method(Some(SERVICE), OBJECT, manager, "GetManagedObjects", &()).await?;
    let body = reply.body();
    let objects: Objects = body.deserialize()?;
    let found = objects.into_iter().filter_map(|(object, interfaces)| Modem::read(object.into(), &interfaces));
    let mut modems: Vec<Modem> = found.take(MAX_OBJECTS).collect();
    for modem in &mut modems {
        for bearer in modem.bearers.iter().take(MAX_OBJECTS) {
            let properties = Some("org.freedesktop.DBus.Properties");
            let reply = connection.call_method(Some(SERVICE), bearer, properties, "GetAll", &BEARER).await;
            // A bearer may be gone by now.
            let bearer: Option<Properties> = reply.ok().and_then(|reply| reply.body().deserialize().ok());
            modem.interfaces.extend(bearer.and_then(|bearer| get(&bearer, "Interface")));
        }
    }
    Ok(modems)
}

/// What is used of a modem.
#[derive(Debug, PartialEq)]
struct Modem {
    object: OwnedObjectPath,
    bearers: Vec<OwnedObjectPath>,
    /// Its network interfaces.
    interfaces: Vec<String>,
    /// `MMModem3gppRegistrationState`, of a 3GPP modem.
    registration: Option<u32>,
    /// Period of its signals, in s; 0: it is not asked for them. `None`: it cannot report them.
    period_s: Option<u32>,
    /// Its signal, or why the one that it reports is none.
    signal: Option<Result<Signal, String>>,
}

impl Modem {
    /// `None`: the object is no modem.
    fn read(object: OwnedObjectPath, interfaces: &Interfaces) -> Option<Modem> {
        let modem = interfaces.get(MODEM)?;
        let ports: Vec<(String, u32)> = get(modem, "Ports").unwrap_or_default();
        let technologies: u32 = get(modem, "AccessTechnologies").unwrap_or_default();
        let signal = interfaces.get(SIGNAL);
        Some(Modem {
            object,
            bearers: get(modem, "Bearers").unwrap_or_default(),
            interfaces: ports.into_iter().filter(|(_, kind)| *kind == PORT_NET).map(|(name, _)| name).collect(),
            registration: interfaces.get(MODEM_3GPP).and_then(|properties| get(properties, "RegistrationState")),
            period_s: signal.and_then(|properties| get(properties, "Rate")),
            signal: signal.and_then(|properties| read_signal(properties, technologies)),
        })
    }

    /// Whether it is registered for data, at home or roaming, perhaps with voice over another technology.
    fn is_registered(&self) -> bool {
        self.registration.is_none_or(|state| [1, 5, 9, 10].contains(&state))
    }
}

/// A property, if it has this type.
fn get<T: TryFrom<OwnedValue>>(properties: &Properties, name: &str) -> Option<T> {
    properties.get(name)?.try_clone().ok()?.try_into().ok()
}

/// The signal of the first technology in use that has one.
fn read_signal(properties: &Properties, technologies: u32) -> Option<Result<Signal, String>> {
    TECHNOLOGIES.into_iter().filter(|(bits, _, _)| technologies & bits != 0).find_map(|(_, property, strength)| {
        let Value::Dict(values) = &**properties.get(property)? else { return None };
        let value = |name: &str| values.get::<&str, f64>(&name).ok().flatten();
        let dbm = value(strength)?;
        if !STRENGTHS_DBM.contains(&dbm) {
            return Some(Err(format!("a modem that reports {dbm} dBm ({property}.{strength})")));
        }
        let decibels = |name| value(name).filter(|db| db.abs() <= 100.0).map(|db| db as f32);
        let rssi_dbm = dbm.max(WEAKEST_DBM) as f32;
        Some(Ok(Signal { rssi_dbm, rsrq_db: decibels("rsrq"), sinr_db: decibels("snr"), ..Signal::default() }))
    })
}

/// A path, and what was last seen of its modem.
struct Watched {
    of: ModemPath,
    state: State,
    signal: Option<Signal>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    NoModem,
    NotRegistered,
    Registered,
}

impl Watched {
    fn new(of: ModemPath) -> Watched {
        Watched { of, state: State::Registered, signal: None }
    }

    /// What is new of the path's modem: a signal, and a sentence when it is lost or registered again.
    fn observe(&mut self, turn: u32, modems: &[Modem]) -> Vec<Result<Observed, String>> {
        let modem = modems.iter().find(|modem| modem.interfaces.contains(&self.of.interface));
        let state = match modem {
            None => State::NoModem,
            Some(modem) if modem.is_registered() => State::Registered,
            Some(_) => State::NotRegistered,
        };
        let was = std::mem::replace(&mut self.state, state);
        let note = (state != was).then(|| Ok(Observed::Note(self.sentence(state))));
        let modem = modem.filter(|_| state == State::Registered);
        let signal = modem.and_then(|modem| modem.signal.as_ref().map(|signal| (modem, signal)));
        let known = std::mem::replace(&mut self.signal, signal.and_then(|(_, signal)| signal.clone().ok()));
        let observed = signal.and_then(|(modem, signal)| match signal {
            Ok(signal) => {
                // A value that stays is one of this reading only when ModemManager has read the modem again.
                let is_read = modem.period_s.is_some_and(|period_s| period_s > 0 && turn.is_multiple_of(period_s));
                let sample = Sample { path: self.of.path, kind: SampleKind::Signal(*signal) };
                (is_read || known != Some(*signal)).then(|| Ok(sample.into()))
            }
            Err(cause) => Some(Err(cause.clone())),
        });
        note.into_iter().chain(observed).collect()
    }

    fn sentence(&self, state: State) -> String {
        let ModemPath { name, interface, .. } = &self.of;
        match state {
            State::NoModem => format!("path {name:?}: ModemManager has no modem with the interface {interface:?}"),
            State::NotRegistered => format!("path {name:?}: its modem is not registered with a network"),
            State::Registered => format!("path {name:?}: its modem is registered with a network"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crosslane_core::agent::Input;
    use zbus::zvariant::{Dict, Signature};

    use super::*;

    fn own<'a>(value: impl Into<Value<'a>>) -> OwnedValue {
        value.into().try_to_owned().unwrap()
    }

    fn dict(values: &[(&str, f64)]) -> OwnedValue {
        let mut dict = Dict::new(&Signature::Str, &Signature::Variant);
        values.iter().for_each(|(name, value)| dict.add(*name, Value::from(*value)).unwrap());
        own(dict)
    }

    /// A modem in 5G that is not standalone.
    fn interfaces(registration: u32, rsrp: f64) -> Interfaces {
        fn properties<const N: usize>(list: [(&str, OwnedValue); N]) -> Properties {
            list.into_iter().map(|(name, value)| (name.into(), value)).collect()
        }
        let ports = vec![("cdc-wdm0", 6_u32), ("wwan0", 2)];
        let modem = [("Ports", own(ports)), ("AccessTechnologies", own(1_u32 << 14 | 1 << 15)), ("State", own(11_i32))];
        let lte = dict(&[("rssi", -61.0), ("rsrp", rsrp), ("rsrq", -11.0), ("snr", 7.5)]);
        let signal = [("Rate", own(5_u32)), ("Lte", lte), ("Nr5g", dict(&[("rsrp", -101.0)])), ("Umts", dict(&[]))];
        Interfaces::from([
            (MODEM.into(), properties(modem)),
            (MODEM_3GPP.into(), properties([("RegistrationState", own(registration))])),
            (SIGNAL.into(), properties(signal)),
        ])
    }

    fn modem(registration: u32, rsrp: f64) -> Modem {
        let object = OwnedObjectPath::try_from("/org/freedesktop/ModemManager1/Modem/0").unwrap();
        Modem::read(object, &interfaces(registration, rsrp)).unwrap()
    }

    fn watched() -> Watched {
        Watched::new(ModemPath { path: PathId(1), name: "lte".into(), interface: "wwan0".into() })
    }

    /// What a path's modems yield, as text.
    fn observed(watched: &mut Watched, turn: u32, modems: &[Modem]) -> Vec<String> {
        let text = |observed| match observed {
            Ok(Observed::Input(Input::Sample(Sample { path: PathId(1), kind: SampleKind::Signal(signal) }))) => {
                format!("{} dBm", signal.rssi_dbm)
            }
            Ok(Observed::Note(sentence)) => sentence,
            Err(cause) => cause,
            Ok(_) => "something else".into(),
        };
        watched.observe(turn, modems).into_iter().map(text).collect()
    }

    #[test]
    fn the_signal_is_that_of_the_technology_that_carries_the_others() {
        let signal = Signal { rssi_dbm: -95.0, rsrq_db: Some(-11.0), sinr_db: Some(7.5), ..Signal::default() };
        let read = modem(1, -95.0);
        assert_eq!((read.signal, read.interfaces, read.period_s), (Some(Ok(signal)), vec!["wwan0".into()], Some(5)));
        let of = |technologies| read_signal(&interfaces(1, -140.0)[SIGNAL], technologies);
        assert_eq!(of(1 << 15), Some(Ok(Signal { rssi_dbm: -101.0, ..Signal::default() })), "5G standalone");
        assert_eq!(of(1 << 14).and_then(Result::ok).map(|signal| signal.rssi_dbm), Some(-120.0));
        assert_eq!((of(1 << 5), of(0)), (None, None), "UMTS without values; no technology");
    }

    #[test]
    fn a_signal_that_stays_is_a_sample_once_a_period_and_a_new_one_at_once() {
        let mut watched = watched();
        assert_eq!(observed(&mut watched, 1, &[modem(1, -95.0)]), ["-95 dBm"]);
        for (turn, expected) in [(2, false), (3, false), (4, false), (5, true), (6, false), (10, true)] {
            assert_eq!(observed(&mut watched, turn, &[modem(1, -95.0)]).len(), usize::from(expected), "{turn}");
        }
        assert_eq!(observed(&mut watched, 11, &[modem(1, -96.0)]), ["-96 dBm"]);
    }

    #[test]
    fn a_modem_that_is_not_registered_or_gone_has_no_signal_and_is_named_once() {
        let mut watched = watched();
        let searching = "path \"lte\": its modem is not registered with a network";
        assert_eq!(observed(&mut watched, 0, &[modem(2, -95.0)]), [searching]);
        assert!(observed(&mut watched, 5, &[modem(2, -95.0)]).is_empty());
        let registered = "path \"lte\": its modem is registered with a network";
        assert_eq!(observed(&mut watched, 6, &[modem(5, -95.0)]), [registered, "-95 dBm"]);
        let gone = "path \"lte\": ModemManager has no modem with the interface \"wwan0\"";
        assert_eq!(observed(&mut watched, 7, &[]), [gone]);
        assert!(observed(&mut watched, 8, &[]).is_empty());
    }

    #[test]
    fn a_modem_that_lies_yields_no_sample() {
        for rsrp in [5.0, 0.0, -157.0, f64::NAN, f64::INFINITY] {
            let cause = observed(&mut watched(), 1, &[modem(1, rsrp)]);
            assert_eq!(cause, [format!("a modem that reports {rsrp} dBm (Lte.rsrp)")]);
        }
        let object = || OwnedObjectPath::try_from("/x").unwrap();
        assert_eq!(Modem::read(object(), &Interfaces::new()), None);
        let other = Properties::from([("Ports".into(), own("none")), ("Bearers".into(), own(7_u32))]);
        let other = Modem::read(object(), &Interfaces::from([(MODEM.into(), other)])).unwrap();
        assert!(other.interfaces.is_empty() && other.bearers.is_empty() && other.signal.is_none());
    }
}
