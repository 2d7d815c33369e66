//! The controller under load: `cargo bench --bench controller`, as root or where user namespaces are allowed.
//!
//! 100 units report 1,000 vehicles, each vehicle by two units 10 times a second. Twenty times a second a tunnel of the
//! serving unit ends, and the time until the other unit is announced to serve is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::controller::status::query_controller;
use crosslane::error::{Error, Result};
use crosslane::roadside::link::{Follower, Link, LinkEvent};
use crosslane::testbed::{Namespace, Wiring, prepare_privileges};
use crosslane::tun::Tun;
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::roadside::messages::{Announcement, Report, Role};
use tokio::time::sleep;

const LISTEN: &str = "127.0.0.1:4761";
const UNITS: u32 = 100;
const VEHICLES: u32 = 1000;
/// Vehicles reported in one millisecond: all of them in 100.
const EACH_MS: u32 = VEHICLES / 100;
/// Milliseconds of the measurement.
const MEASURED_MS: u32 = 20_000;
/// Milliseconds from one decision to the next.
const DECISION_MS: u32 = 50;
/// Targets: part of a core, and milliseconds.
const MAX_SHARE: f64 = 0.2;
const MAX_P99_MS: f64 = 5.0;
/// Clock ticks a second of `/proc/PID/stat` (USER_HZ).
const TICKS_PER_S: f64 = 100.0;

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = measure() {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn failed(cause: impl std::fmt::Display) -> Error {
    Error::failure("measuring the controller", cause)
}

fn measure() -> Result<()> {
    prepare_privileges()?;
    let folder = tempfile::tempdir().map_err(failed)?;
    let namespace = Namespace::new()?;
    let _backhaul = namespace.enter(|| {
        let backhaul = Tun::open("backhaul").map_err(failed)?;
        let mut wiring = Wiring::open()?;
        wiring.bring_up("lo", 65_536, 1000)?;
        wiring.bring_up("backhaul", 1500, 100)?;
        let index = wiring.index("backhaul")?;
        wiring.add_address(index, Ipv4Addr::new(10, 200, 0, 1), 16)?;
        Ok::<Tun, Error>(backhaul)
    })??;
    let (controller, units) = (PrivateKey::generate()?, keys(UNITS)?);
    controller.write(&folder.path().join("own.key"))?;
    std::fs::write(folder.path().join("controller.toml"), configuration(&units)?).map_err(failed)?;
    let mut child = start(&namespace, folder.path())?;
    let measured = namespace.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(load(&controller, &units, child.id()))
    });
    drop(child.kill());
    drop(child.wait());
    measured?
}

fn keys(count: u32) -> Result<Vec<PrivateKey>> {
    (0..count).map(|_| PrivateKey::generate()).collect()
}

fn prefix(unit: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0000 | (unit << 16))
}

fn next_hop(unit: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 200, 1, unit as u8)
}

fn configuration(units: &[PrivateKey]) -> Result<String> {
    let mut text = format!("listen = \"{LISTEN}\"\nkey = \"own.key\"\n[log]\nevents = \"/dev/null\"\n");
    for (unit, key) in (0..).zip(units) {
        let (prefix, next_hop, key) = (prefix(unit), next_hop(unit), key.public());
        let written = write!(
            text,
            "[[unit]]\nname = \"rsu{unit}\"\nstation = {unit}\nkey = \"{key}\"\naddress = \"10.80.0.{unit}\"\n\
             prefix = \"{prefix}/16\"\nnext_hop = \"{next_hop}\"\n"
        );
        written.map_err(failed)?;
    }
    for (vehicle, key) in (0..).zip(keys(VEHICLES)?) {
        let home = Ipv4Addr::from_bits(0x0a63_0000 | vehicle);
        let (station, host, key) = (1_000_000 + vehicle, 2 + vehicle, key.public());
        let written = write!(
            text,
            "[[vehicle]]\nname = \"car{vehicle}\"\nstation = {station}\nkey = \"{key}\"\nhost = {host}\nhome = \"{home}\"\n"
        );
        written.map_err(failed)?;
    }
    Ok(text)
}

#[expect(clippy::disallowed_methods, reason = "it starts this program")]
fn start(namespace: &Namespace, folder: &Path) -> Result<Child> {
    let ready = folder.join("ready");
    let socket = UnixDatagram::bind(&ready).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(20))).map_err(failed)?;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_crosslane"));
    command.args(["controller", "--config", "controller.toml"]).current_dir(folder).env("NOTIFY_SOCKET", &ready);
    let child = namespace.spawn(command.stdin(Stdio::null())).map_err(failed)?;
    socket.recv(&mut [0; 20]).map_err(failed)?;
    Ok(child)
}

/// Processor time of a process, in seconds.
fn processor_s(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).map_err(failed)?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / TICKS_PER_S)
}

/// The two units that report a vehicle.
fn units_of(vehicle: u32) -> [u32; 2] {
    [vehicle % UNITS, (vehicle + 1) % UNITS]
}

async fn load(controller: &PrivateKey, keys: &[PrivateKey], process: u32) -> Result<()> {
    let (events, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let mut reports = Vec::new();
    for (unit, key) in (0..).zip(keys) {
        let role = Role::Unit { prefix: (prefix(unit), 16), address: next_hop(unit) };
        let (controller, controller_key) = (LISTEN.to_owned(), controller.public());
        let mut link = Link::start(Follower { controller, controller_key, key: key.clone(), role });
        let (sender, mut queue) = tokio::sync::mpsc::unbounded_channel::<Report>();
        reports.push(sender);
        let events = events.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    event = link.next() => match event {
                        LinkEvent::Announcement(Announcement::Serving { station, serves: true }) => {
                            let _ = events.send((station, unit, monotonic_ns()));
                        }
                        LinkEvent::Down(error) => eprintln!("{error}"),
                        _ => {}
                    },
                    Some(report) = queue.recv() => link.send(report),
                }
            }
        });
    }
    while query_controller()?.units.iter().any(|unit| !unit.connected) {
        sleep(Duration::from_millis(200)).await;
    }
    let send = |vehicle: u32, unit: u32, has_tunnel: bool| {
        let report = Report::Vehicle {
            station: 1_000_000 + vehicle,
            rssi_dbm: Some(-70.0),
            position: None,
            has_tunnel,
            carries: has_tunnel,
        };
        drop(reports[unit as usize].send(report));
    };
    // Vehicles whose first unit has no tunnel now.
    let mut without: BTreeMap<u32, u64> = BTreeMap::new();
    let mut waits_ms = Vec::new();
    let mut begin = (monotonic_ns(), 0.0);
    let warm_up = 2000;
    for ms in 0..warm_up + MEASURED_MS {
        if ms == warm_up {
            begin = (monotonic_ns(), processor_s(process)?);
        }
        for vehicle in (0..VEHICLES).filter(|vehicle| vehicle / EACH_MS == ms % 100) {
            let [one, two] = units_of(vehicle);
            send(vehicle, one, !without.contains_key(&vehicle));
            send(vehicle, two, true);
        }
        if ms >= warm_up && ms % DECISION_MS == 0 {
            let vehicle = (ms / DECISION_MS * 7) % VEHICLES;
            without.insert(vehicle, monotonic_ns());
            send(vehicle, units_of(vehicle)[0], false);
        }
        let due_ns = begin.0 + u64::from(if ms < warm_up { ms } else { ms - warm_up }) * 1_000_000;
        sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()))).await;
        while let Ok((station, unit, at)) = arrived.try_recv() {
            let vehicle = station - 1_000_000;
            if let Some(since) = without.get(&vehicle).filter(|_| unit == units_of(vehicle)[1]) {
                waits_ms.push(at.saturating_sub(*since) as f64 / 1e6);
            }
        }
    }
    let elapsed_s = (monotonic_ns() - begin.0) as f64 / 1e9;
    let share = (processor_s(process)? - begin.1) / elapsed_s;
    let status = query_controller()?;
    let seen: usize = status.vehicles.iter().map(|vehicle| vehicle.units.len()).sum();
    waits_ms.sort_by(f64::total_cmp);
    let quantile =
        |part: f64| waits_ms.get(((waits_ms.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
    println!(
        "{UNITS} units, {VEHICLES} vehicles reported by two each at 10 Hz, for {elapsed_s:.1} s ({seen} seen at the end)"
    );
    let missed = |is_missed: bool| if is_missed { " !" } else { "" };
    println!("controller: {:.1} % of a core{}", share * 100.0, missed(share > MAX_SHARE));
    println!(
        "from the report to the new unit: p50 {:.2}, p99 {:.2}, max {:.2} ms ({} decisions){}",
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        waits_ms.len(),
        missed(quantile(0.99) > MAX_P99_MS)
    );
    Ok(())
}
