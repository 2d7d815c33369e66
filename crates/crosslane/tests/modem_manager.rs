//! Signals of a modem by D-Bus: a mock of ModemManager on a bus that only this test has. Its interfaces are those
//! of ModemManager's published introspection.

#![allow(clippy::disallowed_types, reason = "the macro of zbus writes HashMap")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::{Agent, command};
use crate::program::links::two_links;
use crate::program::{CROSSLANE, can_drive};
use crosslane::control::report::{AgentStatus, PathReport};
use crosslane::testbed::Namespace;
use tempfile::TempDir;
use tokio::sync::oneshot;
use zbus::interface;
use zbus::zvariant::{Dict, OwnedObjectPath, OwnedValue, Signature, Value};

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "second"
interface = "nr"
rat = "lte"
[strategy]
name = "threshold"
signal = { cellular_threshold_dbm = -110 }
[observe]
modem_manager = true
[log]
events = "EVENTS"
"#;
const OBJECT: &str = "/org/freedesktop/ModemManager1";
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:path=SOCKET</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>"#;
/// Longer than several requests take on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The state of the modem.
#[derive(Clone, Copy)]
struct State {
    rsrp_dbm: f64,
    registration: u32,
    rate_s: u32,
}

type Shared = Arc<Mutex<State>>;

struct Modem;

#[interface(name = "org.freedesktop.ModemManager1.Modem")]
impl Modem {
    #[zbus(property)]
    fn ports(&self) -> Vec<(String, u32)> {
        vec![("cdc-wdm0".into(), 6), ("lte".into(), 2)]
    }

    #[zbus(property)]
    fn bearers(&self) -> Vec<OwnedObjectPath> {
        vec![format!("{OBJECT}/Bearer/0").try_into().unwrap()]
    }

    #[zbus(property)]
    fn access_technologies(&self) -> u32 {
        1 << 14
    }
}

/// A bearer over a multiplexed interface, which is no port of the modem.
struct Bearer;

#[interface(name = "org.freedesktop.ModemManager1.Bearer")]
impl Bearer {
    #[zbus(property, name = "Interface")]
    fn interface_name(&self) -> String {
        "nr".into()
    }
}

struct Modem3gpp(Shared);

#[interface(name = "org.freedesktop.ModemManager1.Modem.Modem3gpp")]
impl Modem3gpp {
    #[zbus(property)]
    fn registration_state(&self) -> u32 {
        self.0.lock().unwrap().registration
    }
}

struct Signal(Shared);

#[interface(name = "org.freedesktop.ModemManager1.Modem.Signal")]
impl Signal {
    fn setup(&self, rate: u32) {
        self.0.lock().unwrap().rate_s = rate;
    }

    #[zbus(property)]
    fn rate(&self) -> u32 {
        self.0.lock().unwrap().rate_s
    }

    #[zbus(property)]
    fn lte(&self) -> Values {
        let mut values = Dict::new(&Signature::Str, &Signature::Variant);
        for (name, value) in [("rsrp", self.0.lock().unwrap().rsrp_dbm), ("rsrq", -11.0), ("snr", 7.5)] {
            values.add(name, Value::from(value)).unwrap();
        }
        Values(Value::from(values).try_to_owned().unwrap())
    }
}

/// A dictionary of signal information (`a{sv}`).
struct Values(OwnedValue);

impl zbus::zvariant::Type for Values {
    const SIGNATURE: &'static Signature = &Signature::Dict {
        key: zbus::zvariant::signature::Child::Static { child: &Signature::Str },
        value: zbus::zvariant::signature::Child::Static { child: &Signature::Variant },
    };
}

impl From<Values> for Value<'_> {
    fn from(values: Values) -> Self {
        values.0.into()
    }
}

/// ModemManager; it leaves the bus when this is dropped.
struct ModemManager {
    state: Shared,
    _end: oneshot::Sender<()>,
}

impl ModemManager {
    fn start(bus: &str) -> ModemManager {
        let state = Arc::new(Mutex::new(State { rsrp_dbm: -95.0, registration: 1, rate_s: 0 }));
        let (end, ended) = oneshot::channel::<()>();
        let (address, shared) = (bus.to_owned(), state.clone());
        let serve = async move {
            let modem = format!("{OBJECT}/Modem/0");
            let builder = zbus::connection::Builder::address(address.as_str()).unwrap();
            let builder = builder.serve_at(OBJECT, zbus::fdo::ObjectManager).unwrap();
            let builder = builder.serve_at(modem.as_str(), Modem).unwrap();
            let builder = builder.serve_at(modem.as_str(), Modem3gpp(shared.clone())).unwrap();
            let builder = builder.serve_at(modem.as_str(), Signal(shared)).unwrap();
            let builder = builder.serve_at(format!("{OBJECT}/Bearer/0"), Bearer).unwrap();
            let _connection = builder.name("org.freedesktop.ModemManager1").unwrap().build().await.unwrap();
            drop(ended.await);
        };
        std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(serve)
        });
        ModemManager { state, _end: end }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }
}

/// A D-Bus daemon that ends with the test.
struct Bus(Child);

impl Bus {
    fn start(folder: &Path, socket: &Path) -> Bus {
        let file = folder.join("bus.conf");
        std::fs::write(&file, BUS.replace("SOCKET", socket.to_str().unwrap())).unwrap();
        let mut command = Command::new("dbus-daemon");
        command.arg(format!("--config-file={}", file.display())).arg("--nofork").stdin(Stdio::null());
        let bus = Bus(command.spawn().unwrap());
        (0..200).take_while(|_| !socket.exists()).for_each(|_| sleep(Duration::from_millis(20)));
        bus
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The paths, as `crosslane status` shows them.
fn paths(vehicle: &Namespace) -> Vec<PathReport> {
    let mut command = Command::new(CROSSLANE);
    command.args(["status", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap();
    let status: AgentStatus = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|fault| panic!("{fault}: {}", String::from_utf8_lossy(&output.stderr)));
    status.paths
}

/// Waits until the paths are so; returns them.
fn await_paths(vehicle: &Namespace, what: &str, is_so: impl Fn(&[PathReport]) -> bool) -> Vec<PathReport> {
    for _ in 0..LIMIT.as_millis() / 200 {
        let paths = paths(vehicle);
        if is_so(&paths) {
            return paths;
        }
        sleep(Duration::from_millis(200));
    }
    panic!("not {what}: {:#?}", paths(vehicle));
}

fn has(signal_dbm: f64) -> impl Fn(&[PathReport]) -> bool {
    move |paths| paths.iter().all(|path| path.signal_dbm == Some(signal_dbm))
}

#[test]
fn signals_of_a_modem_arrive_and_it_may_be_absent_search_and_start_again() {
    if Command::new("dbus-daemon").arg("--version").output().is_err() {
        drop(writeln!(std::io::stderr(), "ModemManager's mock NOT RUN: no dbus-daemon (apt install dbus-daemon)"));
        return;
    }
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "nr"], 10.0, 5);
    let (vehicle, folder) = (&testbed.vehicle, TempDir::new().unwrap());
    let socket = folder.path().join("bus");
    let address = format!("unix:path={}", socket.display());
    let agent = Agent::spawn(vehicle, TempDir::new().unwrap(), |workdir, ready| {
        let mut command = command(workdir, CONFIGURATION, &workdir.join("events.jsonl"), ready);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", &address);
        command
    });
    let without = paths(vehicle);
    assert!(without.iter().all(|path| (path.signal_dbm, &path.signal_source) == (None, &None)), "{without:#?}");
    // Several attempts without a bus, then without ModemManager.
    sleep(Duration::from_secs(2));
    let _bus = Bus::start(folder.path(), &socket);
    sleep(Duration::from_secs(2));
    let modem_manager = ModemManager::start(&address);
    let both = await_paths(vehicle, "-95 dBm, by port and by bearer", has(-95.0));
    assert!(both.iter().all(|path| path.signal_source.as_deref() == Some("ModemManager")), "{both:#?}");
    // Such a signal was asked for.
    await_paths(vehicle, "asked for every second", |_| modem_manager.state.lock().unwrap().rate_s == 1);
    sleep(Duration::from_secs(4));
    let fresh = paths(vehicle);
    assert!(fresh.iter().all(|path| path.signal_age_s.is_some_and(|age_s| age_s < 3.0)), "one that stays: {fresh:#?}");
    modem_manager.set(|state| state.rsrp_dbm = -115.5);
    await_paths(vehicle, "weaker, and the path left", |paths| has(-115.5)(paths) && paths[0].belief == "fading");
    modem_manager.set(|state| state.registration = 2);
    await_paths(vehicle, "older", |paths| paths.iter().all(|path| path.signal_age_s > Some(4.0)));
    drop(modem_manager);
    sleep(Duration::from_secs(2));
    let again = ModemManager::start(&address);
    await_paths(vehicle, "-95 dBm again", has(-95.0));
    again.set(|state| state.rsrp_dbm = 5.0);
    sleep(Duration::from_secs(2));
    assert!(has(-95.0)(&paths(vehicle)), "a modem that lies");
    drop(writeln!(std::io::stderr(), "resident memory with modems: {} KiB", agent.resident_kib()));
    let (events, stderr) = agent.end();
    let count = |sentence: &str| stderr.matches(sentence).count();
    assert_eq!(count("while reading signals of modems from ModemManager: "), 2, "{stderr}");
    assert_eq!(count("; start ModemManager, or remove observe.modem_manager; the agent continues"), 2, "{stderr}");
    assert_eq!(count("reading signals of modems from ModemManager works now"), 2, "{stderr}");
    assert_eq!(count("path \"lte\": its modem is not registered with a network"), 1, "{stderr}");
    assert!(events.contains("a modem that reports 5 dBm (Lte.rsrp)"), "{events}");
}
