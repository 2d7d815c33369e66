//! Compares the link emulator with mahimahi: `cargo bench --bench link`.
//!
//! Packets are sent from a socket in one namespace to a socket in another. Delay
//! is measured from before the send call to after the receive call, on the same
//! clock. A recorder receives every packet record, as in a drive.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use crosslane::clock::{Clock, monotonic_ns};
use crosslane::error::{Error, Result};
use crosslane::testbed::emulator::{EmulatedLink, Emulator, EmulatorReport, packet_channel};
use crosslane::testbed::{PathPlan, SERVER, Testbed, prepare_privileges, vehicle_address};
use crosslane_core::link::{Bottleneck, DirectionParams, Link, Loss, QueueLimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

const DELAY: Duration = Duration::from_millis(20);
const PAYLOAD_BYTES: usize = 1400;
const IP_BYTES: f64 = PAYLOAD_BYTES as f64 + 28.0;

/// One line of the table.
struct Row {
    what: &'static str,
    value: String,
    target: &'static str,
    reached: bool,
    mahimahi: &'static str,
}

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    match prepare_privileges().and_then(|_| all()) {
        Ok(rows) => print(&rows),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(i32::from(error.exit_code()));
        }
    }
}

fn all() -> Result<Vec<Row>> {
    let mut rows = delay_at_1_kpps()?;
    rows.extend(maximum_rate()?);
    rows.extend(shaping_at_80_kpps()?);
    Ok(rows)
}

fn print(rows: &[Row]) {
    let machine = nix::sys::utsname::uname();
    let release = machine.as_ref().map_or("?".into(), |uname| uname.release().to_string_lossy());
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("link emulator, crosslane {}, Linux {release}, {cores} cores", env!("CARGO_PKG_VERSION"));
    let columns = ["", "here", "target", "mahimahi (another machine)"];
    println!("{:<44} {:>12} {:>12}    {}", columns[0], columns[1], columns[2], columns[3]);
    for row in rows {
        let mark = if row.reached { ' ' } else { '!' };
        println!("{:<44} {:>12} {:>12} {mark}  {}", row.what, row.value, row.target, row.mahimahi);
    }
}

fn delay_at_1_kpps() -> Result<Vec<Row>> {
    let (errors, report) = run(f64::INFINITY, |vehicle, server| {
        let receiver = thread::spawn(move || receive_stamps(&server));
        pace(1000.0, 3.0, 1, |number| send_stamp(&vehicle, number))?;
        let mut errors = receiver.join().map_err(|_| failure("the receiver panicked"))??;
        errors.sort_unstable();
        Ok(errors)
    })?;
    let quantile = |share: f64| errors.get((errors.len() as f64 * share) as usize).copied().unwrap_or(i64::MAX) / 1000;
    let (p50, p99) = (quantile(0.5), quantile(0.99));
    let row = |what, value: String, target, reached, mahimahi| Row { what, value, target, reached, mahimahi };
    Ok(vec![
        row("20 ms at 1 kpps: error of delay, p1", format!("{} µs", quantile(0.01)), "", true, "-925 µs"),
        row("20 ms at 1 kpps: error of delay, p50", format!("{p50} µs"), "±60 µs", p50.abs() <= 60, "+80 µs"),
        row("20 ms at 1 kpps: error of delay, p99", format!("{p99} µs"), "300 µs", p99 <= 300, "340–1085 µs"),
        row("  release after it was due, p50", format!("{} µs", report.lateness_us_p50), "", true, ""),
        row("  release after it was due, p99", format!("{} µs", report.lateness_us_p99), "", true, ""),
        row(
            "  longest stall",
            format!("{} µs at {}", report.stall_us_max, report.stalled_at),
            "2000 µs",
            report.stall_us_max <= 2000,
            "",
        ),
        row("  CPU per packet at 1 kpps", cpu(&report), "", true, "18–20 µs"),
    ])
}

fn maximum_rate() -> Result<Vec<Row>> {
    let seconds = 3.0;
    let ((), report) = run(f64::INFINITY, |vehicle, _server| {
        let end = monotonic_ns() + (seconds * 1e9) as u64;
        while monotonic_ns() < end {
            for _ in 0..32 {
                // A full device queue drops packets, which are counted.
                let _ = vehicle.send(&[0; PAYLOAD_BYTES]);
            }
        }
        Ok(())
    })?;
    let kpps = report.links[0].up.delivered as f64 / seconds / 1e3;
    let per_packet = cpu_us(&report);
    Ok(vec![
        Row {
            what: "maximum rate: delivered",
            value: format!("{kpps:.0} kpps"),
            target: "100 kpps",
            reached: kpps >= 100.0,
            mahimahi: "86–94 kpps",
        },
        Row {
            what: "  CPU per packet",
            value: cpu(&report),
            target: "4 µs",
            reached: per_packet <= 4.0,
            mahimahi: "4.4 µs",
        },
    ])
}

fn shaping_at_80_kpps() -> Result<Vec<Row>> {
    let ((), report) = run(80e3 * IP_BYTES * 8.0, |vehicle, _server| {
        pace(80e3, 3.0, 8, |_| {
            let _ = vehicle.send(&[0; PAYLOAD_BYTES]);
        })
    })?;
    let kpps = report.links[0].up.delivered as f64 / 3.0 / 1e3;
    Ok(vec![
        Row {
            what: "shaping at 80 kpps: delivered",
            value: format!("{kpps:.1} kpps"),
            target: "",
            reached: true,
            mahimahi: "",
        },
        Row {
            what: "  CPU per packet",
            value: cpu(&report),
            target: "6 µs",
            reached: cpu_us(&report) <= 6.0,
            mahimahi: "",
        },
        Row {
            what: "  release after it was due, p99",
            value: format!("{} µs", report.lateness_us_p99),
            target: "",
            reached: true,
            mahimahi: "",
        },
    ])
}

/// Runs `work` with a socket on both sides of a link of this rate.
fn run<T>(bit_s: f64, work: impl FnOnce(UdpSocket, UdpSocket) -> Result<T>) -> Result<(T, EmulatorReport)> {
    let params = DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s },
        delay: DELAY,
        loss: Loss::NONE,
        queue: QueueLimit::Packets(1000),
        codel: None,
    };
    let mut testbed = Testbed::new(&[PathPlan { name: "bench".into(), metric: 0 }])?;
    let links = testbed.take_devices().into_iter().map(|devices| {
        let link = Link::new(1, "bench", params.clone(), params.clone());
        EmulatedLink { devices: vec![devices], link }
    });
    let (sink, source) = packet_channel();
    let emulator = Emulator::start(Clock::start(), links.collect(), Some(sink))?;
    let recorder = thread::spawn(move || while source.receive(|_| ()).is_some() {});
    let server = testbed.server.enter(|| UdpSocket::bind((SERVER, 5000)))?.map_err(failure)?;
    let vehicle = testbed.vehicle.enter(|| UdpSocket::bind((vehicle_address(0), 0)))?.map_err(failure)?;
    vehicle.connect((SERVER, 5000)).map_err(failure)?;
    server.set_read_timeout(Some(Duration::from_millis(500))).map_err(failure)?;
    let done = work(vehicle, server)?;
    thread::sleep(DELAY * 2);
    let report = emulator.stop(&testbed)?;
    recorder.join().map_err(|_| failure("the recorder panicked"))?;
    match report.records_lost {
        0 => Ok((done, report)),
        lost => Err(failure(format!("{lost} packet records were lost"))),
    }
}

/// Calls `send` at this rate, `burst` calls at a time.
fn pace(per_s: f64, seconds: f64, burst: u64, mut send: impl FnMut(u64)) -> Result<()> {
    let begin = monotonic_ns();
    for first in (0..(per_s * seconds) as u64).step_by(burst as usize) {
        let at = Duration::from_nanos(begin + (first as f64 / per_s * 1e9) as u64);
        let until = TimeSpec::from_duration(at);
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until).map_err(failure)?;
        (first..first + burst).for_each(&mut send);
    }
    Ok(())
}

fn send_stamp(socket: &UdpSocket, _number: u64) {
    let mut packet = [0; 200];
    packet[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
    let _ = socket.send(&packet);
}

/// Delay of every packet beyond [`DELAY`], in ns, until none arrives for 0.5 s.
fn receive_stamps(socket: &UdpSocket) -> Result<Vec<i64>> {
    let priority = libc::sched_param { sched_priority: 5 };
    // SAFETY: `priority` outlives the call; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    let mut errors = Vec::with_capacity(4000);
    let mut packet = [0; 2000];
    while let Ok(len) = socket.recv(&mut packet) {
        let now = monotonic_ns();
        if let Some(sent) = packet[..len].first_chunk() {
            errors.push((now - u64::from_le_bytes(*sent)) as i64 - DELAY.as_nanos() as i64);
        }
    }
    Ok(errors)
}

fn cpu(report: &EmulatorReport) -> String {
    format!("{:.1} µs", cpu_us(report))
}

fn cpu_us(report: &EmulatorReport) -> f64 {
    report.cpu.as_secs_f64() * 1e6 / report.links[0].up.delivered.max(1) as f64
}

fn failure(cause: impl ToString) -> Error {
    Error::failure("measuring the link emulator", cause)
}
