//! Rate of a transfer over unshaped veth, with a core for each end: `cargo bench --bench transfer`.
//!
//! `crosslane send` and `crosslane receive`, in the clear and with keys, beside plain TCP over the same path in the same
//! run, in turns: from memory to nowhere, and from file to file without digests and replies, with and
//! without copies in the program. Files are in memory, where there is `/dev/shm`: a disk would decide.

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
use nix::fcntl::{SpliceFFlags, splice};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::sendfile::sendfile64;
use nix::unistd::Pid;
use serde_json::Value;

const CROSSLANE: &str = env!("CARGO_BIN_EXE_crosslane");
const BYTES: u64 = 1 << 30;
/// Stays in the processor's cache.
const FILE_BLOCK: usize = 1 << 15;
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
    let source = || File::open(workdir.path().join("file"));
    let stored = workdir.path().join("in/file");
    let mut rates = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        rates[0].push(plain(&testbed, from_memory, to_nowhere)?);
        let (from, to) = (source()?, File::create(&stored)?);
        rates[1].push(plain(&testbed, |near| from_file(from, near), |far| to_file(far, to))?);
        fs::remove_file(&stored)?;
        let (from, to) = (source()?, File::create(&stored)?);
        let send = move |near: TcpStream| file_by_sendfile(&from, &near);
        rates[2].push(plain(&testbed, send, move |far| to_file_by_splice(&far, &to))?);
        fs::remove_file(&stored)?;
        rates[3].push(transfer(&testbed, workdir.path(), [&CLEAR; 2])?);
        rates[4].push(transfer(&testbed, workdir.path(), [&receiver, &sender])?);
    }
    let median = |of: &mut Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let [plain, files, spliced, clear, encrypted] = rates.each_mut().map(median);
    println!("{:<32} {plain:>8.2} Gbit/s", "plain TCP");
    println!("{:<32} {files:>8.2} Gbit/s, {:.2} of plain TCP", "plain TCP, from file to file", files / plain);
    println!("{:<32} {spliced:>8.2} Gbit/s, {:.2} of plain TCP", "the same by sendfile and splice", spliced / plain);
    println!("{:<32} {clear:>8.2} Gbit/s, {:.2} of plain TCP (target 0.8)", "transfer in the clear", clear / plain);
    println!("{:<32} {encrypted:>8.2} Gbit/s (target 1.5)", "transfer with keys");
    for (what, rates) in ["plain TCP", "file to file", "splice", "clear", "keys"].into_iter().zip(&rates) {
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

/// The rate of plain TCP between two programs.
fn plain(
    testbed: &Testbed,
    send: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
    receive: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
) -> io::Result<f64> {
    let failed = |error: Error| io::Error::other(error.to_string());
    let listener = testbed.server.enter(|| TcpListener::bind((SERVER, PORT))).map_err(failed)??;
    let connect = || TcpStream::connect((SERVER, PORT));
    let near = testbed.vehicle.enter(connect).map_err(failed)??;
    let (far, _) = listener.accept()?;
    let start = monotonic_ns();
    let sending = thread::spawn(move || pin(0).and_then(|()| send(near)));
    let receiving = thread::spawn(move || pin(1).and_then(|()| receive(far)).map(|()| monotonic_ns()));
    let panicked = |_| io::Error::other("a thread panicked");
    sending.join().map_err(panicked)??;
    let end = receiving.join().map_err(panicked)??;
    Ok(BYTES as f64 * 8.0 / (end - start) as f64)
}

fn from_memory(mut to: TcpStream) -> io::Result<()> {
    let (block, mut left) = (vec![7; 1 << 18], BYTES);
    while left > 0 {
        left -= to.write(&block[..block.len().min(left as usize)])? as u64;
    }
    Ok(())
}

fn to_nowhere(mut from: TcpStream) -> io::Result<()> {
    let (mut buffer, mut count) = (vec![0; 1 << 18], 0);
    while count < BYTES {
        count += some(from.read(&mut buffer)?)? as u64;
    }
    Ok(())
}

fn from_file(mut file: File, mut to: TcpStream) -> io::Result<()> {
    let mut block = vec![0; FILE_BLOCK];
    for _ in 0..BYTES / FILE_BLOCK as u64 {
        file.read_exact(&mut block)?;
        to.write_all(&block)?;
    }
    Ok(())
}

fn to_file(mut from: TcpStream, mut file: File) -> io::Result<()> {
    let (mut buffer, mut count) = (vec![0; FILE_BLOCK], 0);
    while count < BYTES {
        let read = some(from.read(&mut buffer)?)?;
        file.write_all(&buffer[..read])?;
        count += read as u64;
    }
    Ok(())
}

/// As [`from_file`], the bytes never in the program's memory.
fn file_by_sendfile(file: &File, to: &TcpStream) -> io::Result<()> {
    let mut left = BYTES as usize;
    while left > 0 {
        left -= some(sendfile64(to, file, None, left.min(1 << 20))?)?;
    }
    Ok(())
}

/// As [`to_file`], the bytes never in the program's memory.
fn to_file_by_splice(from: &TcpStream, file: &File) -> io::Result<()> {
    let ((reader, writer), mut count) = (io::pipe()?, 0);
    while count < BYTES {
        let mut held = some(splice(from, None, &writer, None, 1 << 16, SpliceFFlags::empty())?)?;
        count += held as u64;
        while held > 0 {
            held -= some(splice(&reader, None, file, None, held, SpliceFFlags::empty())?)?;
        }
    }
    Ok(())
}

fn some(count: usize) -> io::Result<usize> {
    if count > 0 { Ok(count) } else { Err(ErrorKind::UnexpectedEof.into()) }
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
