//! Third-party tunnels in place of ours, over one path: the kernel's VXLAN, and
//! WireGuard in Go (the program `wireguard-go`).

use crosslane_core::tunnel::wire::overhead::VXLAN_BYTES;
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

/// Name of the program and of the base that needs it.
pub const PROGRAM: &str = "wireguard-go";
/// UDP port of WireGuard at both endpoints.
const PORT: u16 = 51820;
/// The network identifier of strategy `vxlan`.
const VXLAN_NETWORK: u32 = 1;
/// Header overhead of WireGuard, as in `wg-quick`: 60 bytes, 80 over IPv6.
const WIREGUARD_BYTES: u32 = 80;
/// Queue length of an interface, in packets, as that of our tunnel.
const QUEUE_PACKETS: u32 = 500;
/// Socket that the program creates, and the folder that is hidden for it.
const SOCKET: &str = "/var/run/wireguard/crosslane0.sock";
const HIDDEN: &str = "/var/run";
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The programs of a tunnel that is up.
pub struct PeerTunnels(Vec<Process>);

struct Process {
    child: Child,
    log: PathBuf,
}

#[derive(Clone, Copy)]
struct Endpoint<'a> {
    namespace: &'a Namespace,
    name: &'static str,
    outside: Ipv4Addr,
    inside: Ipv4Addr,
}

/// Checks what a strategy's base needs, in a process that [may create
/// namespaces](testbed::prepare_privileges); other bases need nothing.
pub fn probe(base: &str) -> Result<()> {
    match base {
        "vxlan" => {
            Namespace::new()?.enter(|| Wiring::open()?.add_vxlan(INTERFACE, VXLAN_NETWORK, (VEHICLE, SERVER), None))?
        }
        PROGRAM => program().and_then(|_| Namespace::new()?.enter(hide_sockets)?),
        _ => Ok(()),
    }
}

/// The program's name and version, as it reports them.
#[expect(clippy::disallowed_methods, reason = "wireguard-go, a peer under test in a drive (decision 30)")]
pub fn version() -> Result<String> {
    let output = Command::new(program()?).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|cause| Error::failure(format!("asking {PROGRAM} for its version"), cause))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_string())
}

impl PeerTunnels {
    /// Starts both endpoints; the output of their programs is written into
    /// `folder`.
    pub fn start(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<PeerTunnels> {
        let path = vehicle_address(usize::from(scenario.single_path(strategy).0));
        let vehicle = Endpoint { namespace: &testbed.vehicle, name: "vehicle", outside: path, inside: VEHICLE };
        let server = Endpoint { namespace: &testbed.server, name: "server", outside: testbed::SERVER, inside: SERVER };
        let mtu = scenario.tunnel.mtu;
        if strategy.base == Base::Vxlan {
            for (here, there) in [(vehicle, server), (server, vehicle)] {
                here.namespace.enter(|| join_by_vxlan(here, there, mtu - VXLAN_BYTES))??;
            }
            return Ok(PeerTunnels(Vec::new()));
        }
        let mut processes = Vec::new();
        let (program, keys) = (program()?, [PrivateKey::generate()?, PrivateKey::generate()?]);
        for (here, there, own, other) in [(vehicle, server, &keys[0], &keys[1]), (server, vehicle, &keys[1], &keys[0])]
        {
            let config = settings(there, own, &other.public());
            let log = folder.join(format!("{PROGRAM}-{}.log", here.name));
            let start = || start_process(&program, log, &config, here, mtu - WIREGUARD_BYTES);
            processes.push(here.namespace.enter(start)??);
        }
        Ok(PeerTunnels(processes))
    }

    pub fn are_running(&mut self) -> bool {
        self.0.iter_mut().all(|process| process.child.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    /// Ends its programs and returns their CPU time; `None` if it has no program.
    pub fn finish(self) -> Result<Option<Duration>> {
        let mut cpu_time = None;
        for mut process in self.0 {
            process.check_running()?;
            // Nothing of it outlives the run, so it need not clean up.
            let time = end(&mut process.child, Signal::SIGKILL);
            let time = time.map_err(|cause| Error::failure(format!("ending {PROGRAM}"), cause))?;
            cpu_time = Some(cpu_time.unwrap_or(Duration::ZERO) + time);
        }
        Ok(cpu_time)
    }
}

impl Process {
    fn check_running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().ok().flatten() else { return Ok(()) };
        let output = std::fs::read_to_string(&self.log).unwrap_or_default();
        let message = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Err(Error::failure(format!("driving with {PROGRAM}"), format!("it exited early ({status}): {message}")))
    }
}

/// Absolute path of the program, which stays valid when folders are hidden.
fn program() -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let found = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM)).find(is_program);
    found.and_then(|file| file.canonicalize().ok()).ok_or_else(|| {
        let remedy = format!("`apt-get install {PROGRAM}`, or omit the strategy of this name");
        Error::usage(format!("looking for the program {PROGRAM}"), "it is not on PATH", remedy)
    })
}

fn join_by_vxlan(here: Endpoint, there: Endpoint, mtu: u32) -> Result<()> {
    Wiring::open()?.add_vxlan(INTERFACE, VXLAN_NETWORK, (here.outside, there.outside), None)?;
    bring_up(here, mtu)
}

fn bring_up(here: Endpoint, mtu: u32) -> Result<()> {
    let mut wiring = Wiring::open()?;
    wiring.bring_up(INTERFACE, mtu, QUEUE_PACKETS)?;
    let interface = wiring.index(INTERFACE)?;
    wiring.add_address(interface, here.inside, PREFIX)
}

/// Starts and configures the program in this thread's network namespace.
#[expect(clippy::disallowed_methods, reason = "wireguard-go, a peer under test in a drive (decision 30)")]
fn start_process(program: &Path, log: PathBuf, config: &str, here: Endpoint, mtu: u32) -> Result<Process> {
    let failure = |cause: std::io::Error| Error::failure(format!("starting {PROGRAM}"), cause);
    let output = File::create(&log).map_err(failure)?;
    hide_sockets()?;
    let child = Command::new(program)
        .args(["-f", INTERFACE])
        .env("LOG_LEVEL", "error")
        // Else it recommends the kernel's implementation and may exit.
        .env("WG_PROCESS_FOREGROUND", "1")
        .env("WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD", "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failure)?)
        .stderr(output)
        .spawn()
        .map_err(failure)?;
    let mut process = Process { child, log };
    configure(&mut process, config)?;
    bring_up(here, mtu)?;
    Ok(process)
}

/// Gives this thread and the processes that it starts an empty folder for
/// sockets, whose names would be the same in all namespaces and runs, and
/// outlive both.
fn hide_sockets() -> Result<()> {
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, private, none))
        .and_then(|()| mount(Some("tmpfs"), HIDDEN, Some("tmpfs"), MsFlags::empty(), none))
        .map_err(|cause| Error::usage(format!("making a folder for the socket of {PROGRAM}"), cause, "run as root"))
}

/// Sends the program's settings once it has created its socket.
fn configure(process: &mut Process, config: &str) -> Result<()> {
    let attempt = || format!("sending {PROGRAM} its keys");
    let mut socket = UnixStream::connect(SOCKET);
    for _ in 0..START_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        if socket.is_ok() {
            break;
        }
        process.check_running()?;
        std::thread::sleep(POLL_INTERVAL);
        socket = UnixStream::connect(SOCKET);
    }
    let mut answer = String::new();
    let exchange = |mut socket: UnixStream| {
        socket.set_read_timeout(Some(START_TIMEOUT))?;
        socket.write_all(config.as_bytes())?;
        socket.shutdown(std::net::Shutdown::Write)?;
        socket.read_to_string(&mut answer)
    };
    socket.and_then(exchange).map_err(|cause| Error::failure(attempt(), cause))?;
    match answer.trim() {
        "errno=0" => Ok(()),
        other => Err(Error::failure(attempt(), format!("it answered {other:?}"))),
    }
}

/// The settings of one endpoint in WireGuard's configuration protocol
/// (<https://www.wireguard.com/xplatform/>).
fn settings(there: Endpoint, own: &PrivateKey, other: &PublicKey) -> Zeroizing<String> {
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
