//! Other people's tunnels in the place of ours, over one path: the kernel's
//! VXLAN, and WireGuard in Go (the program `wireguard-go`).

use crosslane_sim::scenario::{Base, Scenario, Strategy};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use zeroize::Zeroizing;

use super::agent_process::end;
use super::tunnel::{INTERFACE, PREFIX, SERVER, VEHICLE};
use crate::error::{Error, Result};
use crate::testbed::{self, Namespace, Testbed, Wiring, vehicle_address};
use crate::tunnel::security::{PrivateKey, PublicKey};

/// The program, and the base that needs it.
pub const PROGRAM: &str = "wireguard-go";
/// UDP port of WireGuard at either end.
const PORT: u16 = 51820;
/// What VXLAN puts around a packet: IPv4, UDP, VXLAN and Ethernet headers.
const VXLAN_BYTES: u32 = 20 + 8 + 8 + 14;
/// What WireGuard leaves free, as `wg-quick` does: 60 bytes, 80 over IPv6.
const WIREGUARD_BYTES: u32 = 80;
/// Packets that an interface holds, as that of our tunnel.
const QUEUE_PACKETS: u32 = 500;
/// Where the program makes its socket, and what is hidden for it.
const SOCKET: &str = "/var/run/wireguard/crosslane0.sock";
const HIDDEN: &str = "/var/run";
/// How long the program may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(20);

/// A tunnel that stands.
pub struct PeerTunnels {
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    log: PathBuf,
}

/// One end of a tunnel.
#[derive(Clone, Copy)]
struct End<'a> {
    namespace: &'a Namespace,
    name: &'static str,
    outside: Ipv4Addr,
    inside: Ipv4Addr,
}

/// Looks for what a strategy's base needs, in a process that [may make
/// namespaces](testbed::prepare_privileges); of other bases nothing.
///
/// # Errors
/// What is missing, with the remedy.
pub fn probe(base: &str) -> Result<()> {
    match base {
        "vxlan" => Namespace::new()?.enter(|| Wiring::open()?.add_vxlan(INTERFACE, VEHICLE, SERVER))?,
        PROGRAM => program().and_then(|_| Namespace::new()?.enter(hide_sockets)?),
        _ => Ok(()),
    }
}

/// What the program calls itself.
///
/// # Errors
/// It is missing, or does not start.
pub fn version() -> Result<String> {
    let said = Command::new(program()?).arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|cause| Error::failure(format!("asking {PROGRAM} for its version"), cause))?;
    Ok(String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_string())
}

impl PeerTunnels {
    /// Makes both ends; what their programs say goes into `folder`.
    ///
    /// # Errors
    /// What the kernel refused or the program said.
    pub fn start(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<PeerTunnels> {
        let path = vehicle_address(usize::from(scenario.single_path(strategy).0));
        let vehicle = End { namespace: &testbed.vehicle, name: "vehicle", outside: path, inside: VEHICLE };
        let server = End { namespace: &testbed.server, name: "server", outside: testbed::SERVER, inside: SERVER };
        let mtu = scenario.tunnel.mtu;
        let mut processes = Vec::new();
        if strategy.base == Base::Vxlan {
            for (here, there) in [(vehicle, server), (server, vehicle)] {
                here.namespace.enter(|| join_by_vxlan(here, there, mtu - VXLAN_BYTES))??;
            }
            return Ok(PeerTunnels { processes });
        }
        let (program, keys) = (program()?, [PrivateKey::generate()?, PrivateKey::generate()?]);
        for (here, there, own, other) in [(vehicle, server, &keys[0], &keys[1]), (server, vehicle, &keys[1], &keys[0])]
        {
            let told = settings(there, own, &other.public());
            let log = folder.join(format!("{PROGRAM}-{}.log", here.name));
            let start = || start_process(&program, log, &told, here, mtu - WIREGUARD_BYTES);
            processes.push(here.namespace.enter(start)??);
        }
        Ok(PeerTunnels { processes })
    }

    /// True until one of its programs has ended.
    pub fn are_running(&mut self) -> bool {
        self.processes.iter_mut().all(|process| process.child.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    /// Ends its programs and returns the processor time that they took; none if
    /// it has none.
    ///
    /// # Errors
    /// If one had ended before, what it said.
    pub fn finish(self) -> Result<Option<Duration>> {
        let mut took = None;
        for mut process in self.processes {
            process.check_running()?;
            // Nothing of it outlives the run, so it needs no time to tidy up.
            let time = end(&mut process.child, Signal::SIGKILL);
            let time = time.map_err(|cause| Error::failure(format!("ending {PROGRAM}"), cause))?;
            took = Some(took.unwrap_or(Duration::ZERO) + time);
        }
        Ok(took)
    }
}

impl Process {
    fn check_running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().ok().flatten() else { return Ok(()) };
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let words = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Err(Error::failure(format!("driving with {PROGRAM}"), format!("it ended early ({status}): {words}")))
    }
}

/// Where the program is, whatever may be hidden from it later.
fn program() -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let found = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM)).find(is_program);
    found.and_then(|file| file.canonicalize().ok()).ok_or_else(|| {
        let remedy = format!("`apt-get install {PROGRAM}`, or leave the strategy of this name out");
        Error::usage(format!("looking for the program {PROGRAM}"), "it is not on PATH", remedy)
    })
}

fn join_by_vxlan(here: End, there: End, mtu: u32) -> Result<()> {
    Wiring::open()?.add_vxlan(INTERFACE, here.outside, there.outside)?;
    take_up(here, mtu)
}

fn take_up(here: End, mtu: u32) -> Result<()> {
    let mut wiring = Wiring::open()?;
    wiring.bring_up(INTERFACE, mtu, QUEUE_PACKETS)?;
    let interface = wiring.index(INTERFACE)?;
    wiring.add_address(interface, here.inside, PREFIX)
}

/// Starts the program in this thread's network namespace and tells it its part.
fn start_process(program: &Path, log: PathBuf, told: &str, here: End, mtu: u32) -> Result<Process> {
    let failure = |cause: std::io::Error| Error::failure(format!("starting {PROGRAM}"), cause);
    let words = File::create(&log).map_err(failure)?;
    hide_sockets()?;
    let child = Command::new(program)
        .args(["-f", INTERFACE])
        .env("LOG_LEVEL", "error")
        // Else it says, or did, that the kernel can do this by itself.
        .env("WG_PROCESS_FOREGROUND", "1")
        .env("WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD", "1")
        .stdin(Stdio::null())
        .stdout(words.try_clone().map_err(failure)?)
        .stderr(words)
        .spawn()
        .map_err(failure)?;
    let mut process = Process { child, log };
    tell(&mut process, told)?;
    take_up(here, mtu)?;
    Ok(process)
}

/// Gives this thread, and what it starts, an empty folder for sockets: their
/// names would be the same in each namespace and each run, and outlive both.
fn hide_sockets() -> Result<()> {
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, private, none))
        .and_then(|()| mount(Some("tmpfs"), HIDDEN, Some("tmpfs"), MsFlags::empty(), none))
        .map_err(|cause| Error::usage(format!("making a folder for the socket of {PROGRAM}"), cause, "run as root"))
}

/// Sends the program's settings when it has made its socket.
fn tell(process: &mut Process, told: &str) -> Result<()> {
    let attempt = || format!("telling {PROGRAM} its keys");
    let mut socket = UnixStream::connect(SOCKET);
    for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
        if socket.is_ok() {
            break;
        }
        process.check_running()?;
        std::thread::sleep(NAP);
        socket = UnixStream::connect(SOCKET);
    }
    let mut answer = String::new();
    let exchange = |mut socket: UnixStream| {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(told.as_bytes())?;
        socket.shutdown(std::net::Shutdown::Write)?;
        socket.read_to_string(&mut answer)
    };
    socket.and_then(exchange).map_err(|cause| Error::failure(attempt(), cause))?;
    match answer.trim() {
        "errno=0" => Ok(()),
        other => Err(Error::failure(attempt(), format!("it answered {other:?}"))),
    }
}

/// The settings of one end, in the words of WireGuard's interface for
/// programs (<https://www.wireguard.com/xplatform/>).
fn settings(there: End, own: &PrivateKey, other: &PublicKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(512));
    text.push_str("set=1\nprivate_key=");
    push_hex(&mut text, own.as_bytes());
    let _ = write!(text, "\nlisten_port={PORT}\nreplace_peers=true\npublic_key=");
    push_hex(&mut text, other.as_bytes());
    let _ = write!(text, "\nendpoint={}:{PORT}\nallowed_ip={}/32\n\n", there.outside, there.inside);
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}
