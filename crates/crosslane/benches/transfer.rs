//! Rate of a transfer over unshaped veth, with a core for each end: `cargo bench --bench transfer`.
//!
//! `crosslane send` and `crosslane receive`, in the clear and with keys, beside plain TCP over the same path in the same
//! run, in turns: from memory to nowhere, and from file to file without digests and replies. Files are in memory, where there is `/dev/shm`: a disk would decide.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::error::Error;
use crosslane::testbed::wire::WirePlan;
use crosslane::testbed::{PathPlan, SERVER, Testbed, TestbedPlan, prepare_privileges};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;

const CROSSLANE: &str = env!("CARGO_BIN_EXE_crosslane");
const BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;
const PORT: u16 = 7500;
const CLEAR: [&str; 2] = ["--encryption", "none"];

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let measured = prepare_privileges().and_then(|_| all().map_err(|cause| Error::failure("measuring", cause)));
    if let Err(error) = measured {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn all() -> io::Result<()> {
    let machine = nix::sys::utsname::uname();
    let release = machine.as_ref().map_or("?".into(), |uname| uname.release().to_string_lossy());
    println!("transfer, crosslane {}, Linux {release}, {ROUNDS} rounds of 1 GiB", env!("CARGO_PKG_VERSION"));
    let wires = [("wire".to_owned(), WirePlan { shape: None })].into();
    let paths = [PathPlan { name: "wire".into(), metric: 0 }];
    let failed = |error: Error| io::Error::other(error.to_string());
    let testbed = Testbed::with(&paths, &TestbedPlan { wires, ..TestbedPlan::default() }).map_err(failed)?;
    let memory = Path::new("/dev/shm");
    let workdir = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let keys = prepare(workdir.path())?;
    let receiver = ["--key", "receiver", "--sender-key", &keys[0]];
    let sender = ["--key", "sender", "--receiver-key", &keys[1]];
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        rates[0].push(plain(&testbed, None)?);
        rates[1].push(plain(&testbed, Some(workdir.path()))?);
        rates[2].push(transfer(&testbed, workdir.path(), [&CLEAR; 2])?);
        rates[3].push(transfer(&testbed, workdir.path(), [&receiver, &sender])?);
    }
    let median = |of: &mut Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let [plain, files, clear, encrypted] = rates.each_mut().map(median);
    println!("{:<32} {plain:>8.2} Gbit/s", "plain TCP");
    println!("{:<32} {files:>8.2} Gbit/s, {:.2} of plain TCP", "plain TCP, from file to file", files / plain);
    println!("{:<32} {clear:>8.2} Gbit/s, {:.2} of plain TCP (target 0.8)", "transfer in the clear", clear / plain);
    println!("{:<32} {encrypted:>8.2} Gbit/s (target 1.5)", "transfer with keys");
    for (what, rates) in ["plain TCP", "file to file", "clear", "keys"].into_iter().zip(&rates) {
        println!("  each round, {what}: {rates:.2?}");
    }
    Ok(())
}

/// A file, and the public keys of sender and receiver.
fn prepare(workdir: &Path) -> io::Result<[String; 2]> {
    let mut file = File::create(workdir.join("file"))?;
    let block: Vec<u8> = (0..1 << 20).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    (0..BYTES >> 20).try_for_each(|_| file.write_all(&block))?;
    fs::create_dir(workdir.join("in"))?;
    let key = |name: &str| {
        let output = Command::new(CROSSLANE).args(["keygen", "--out", name]).current_dir(workdir).output()?;
        Ok::<String, io::Error>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    Ok([key("sender")?, key("receiver")?])
}

/// The vehicle's end is on the first processor, the server's on the second.
fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor % thread::available_parallelism().map_or(1, usize::from))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// The rate of plain TCP, from the file to another one in this folder if there is one.
fn plain(testbed: &Testbed, workdir: Option<&Path>) -> io::Result<f64> {
    let failed = |error: Error| io::Error::other(error.to_string());
    let listener = testbed.server.enter(|| TcpListener::bind((SERVER, PORT))).map_err(failed)??;
    let connect = || TcpStream::connect((SERVER, PORT));
    let mut near = testbed.vehicle.enter(connect).map_err(failed)??;
    let (mut far, _) = listener.accept()?;
    let mut source = workdir.map(|workdir| File::open(workdir.join("file"))).transpose()?;
    let mut stored = workdir.map(|workdir| File::create(workdir.join("in/file"))).transpose()?;
    // A buffer of a file stays in the processor's cache.
    let size = if workdir.is_some() { 1 << 15 } else { 1 << 18 };
    let start = monotonic_ns();
    let sending = thread::spawn(move || {
        pin(0)?;
        let (mut block, mut left) = (vec![7; size], BYTES);
        while left > 0 {
            if let Some(source) = &mut source {
                source.read_exact(&mut block)?;
                near.write_all(&block)?;
                left -= size as u64;
                continue;
            }
            left -= near.write(&block[..block.len().min(left as usize)])? as u64;
        }
        Ok::<(), io::Error>(())
    });
    let receiving = thread::spawn(move || {
        pin(1)?;
        let (mut buffer, mut count) = (vec![0; size], 0);
        while count < BYTES {
            match far.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => {
                    count += read as u64;
                    stored.as_mut().map_or(Ok(()), |file| file.write_all(&buffer[..read]))?;
                }
            }
        }
        Ok::<u64, io::Error>(monotonic_ns())
    });
    let panicked = |_| io::Error::other("a thread panicked");
    sending.join().map_err(panicked)??;
    let end = receiving.join().map_err(panicked)??;
    workdir.map_or(Ok(()), |workdir| fs::remove_file(workdir.join("in/file")))?;
    Ok(BYTES as f64 * 8.0 / (end - start) as f64)
}

/// The rate until the receipt, less the time that the receiver stored.
fn transfer(testbed: &Testbed, workdir: &Path, [receiver, sender]: [&[&str]; 2]) -> io::Result<f64> {
    let command = |processor: usize, arguments: &[&str]| {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).current_dir(workdir).stdin(Stdio::null()).stderr(Stdio::inherit());
        // SAFETY: between fork and exec there is one system call.
        unsafe { command.pre_exec(move || pin(processor)) };
        command
    };
    let listen = ["receive", "--once", "--into", "in", "--listen", "0.0.0.0:7411"];
    let mut receiving = command(1, &[&listen[..], receiver].concat());
    let mut receiving = testbed.server.spawn(receiving.stdout(Stdio::null()))?;
    thread::sleep(Duration::from_millis(300));
    let to = SERVER.to_string();
    let mut sending = command(0, &[&["send", "file", "--json", "--to", &to][..], sender].concat());
    let output = testbed.vehicle.spawn(sending.stdout(Stdio::piped()))?.wait_with_output()?;
    receiving.wait()?;
    fs::remove_file(workdir.join("in/file"))?;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let completion_s = document["files"][0]["completion_s"].as_f64();
    completion_s.map(|time_s| BYTES as f64 * 8.0 / time_s / 1e9).ok_or_else(|| io::Error::other("it was not stored"))
}
