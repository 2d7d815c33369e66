//! One run of a seed with an agent or with the in-kernel path manager, from the creation of
//! the namespaces to the measured facts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::kernel_counters;
use crosslane::netlink::TcpState;
use crosslane::netlink::diag::{Diag, SocketInfo, SubflowInfo};
use crosslane::netlink::links::{self, Notice};
use crosslane::testbed::{Namespace, contain, end_with, prepare_privileges};
use serde::{Deserialize, Serialize};

use super::agents::Agents;
use super::hardships::{Hardship, Kind, Step};
use super::others::ThirdParty;
use super::plan::{CALM_MS, DEADLINE_MS, Plan};
use super::programs::{Orders, PORT};
use super::router;
use super::topology::World;
use super::verdict::Facts;

/// Printed by a run that only waits for the sockets of the server.
pub const LINGERING: &str = "lingering";
/// Interval at which a run checks its agent.
const CHECK_INTERVAL_MS: u64 = 100;
/// Start of a late agent.
const LATE_MS: u64 = 1_400;
/// Time for which the agent is observed after all connections have ended.
const AFTERMATH: Duration = Duration::from_secs(1);
/// Timeouts for open sockets of the server, and for those that it has closed: if the peer is
/// silent, TCP keeps these for minutes.
const SOCKETS_TIMEOUT_S: f64 = 65.0;
const CLOSING_TIMEOUT_S: f64 = 10.0;
/// File with the state of hanging connections, and the time before the deadline at which it is written.
const SNAPSHOT: &str = "hung.txt";
const SNAPSHOT_MS: u64 = 700;
/// Additional time for a client that ends late.
const CLIENT_GRACE_MS: u64 = 5_000;

/// Path manager of the vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manager {
    /// `crosslane agent`.
    Agent,
    /// The in-kernel path manager.
    Kernel,
}

impl Manager {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Manager::Agent => "agent",
            Manager::Kernel => "kernel",
        }
    }
}

/// Carries out a run and prints its facts as one line of JSON. `parent` is the
/// process that started this one, which ends with it; files are written to `folder`.
pub fn carry_out(plan: &Plan, manager: Manager, folder: &Path, parent: i32) -> crosslane::error::Result<()> {
    prepare_privileges()?;
    end_with(parent)?;
    contain()?;
    // SAFETY: alarm has no preconditions. SIGALRM ends a run that hangs.
    unsafe { libc::alarm(max_duration().as_secs() as u32) };
    let facts = Run::begin(plan, manager, folder).carry_out();
    println!("{}", serde_json::to_string(&facts).unwrap());
    Ok(())
}

struct Run<'a> {
    plan: &'a Plan,
    manager: Manager,
    folder: PathBuf,
    world: World,
    agents: Agents,
    server: Child,
    origin_ns: u64,
    joins: Vec<(u64, u64)>,
    /// Connections without a subflow from an existing address shortly before the deadline,
    /// with the local addresses of their subflows.
    cut_off: BTreeMap<SocketAddr, Vec<SocketAddr>>,
}

impl Run<'_> {
    fn begin<'a>(plan: &'a Plan, manager: Manager, folder: &Path) -> Run<'a> {
        drop(fs::remove_dir_all(folder));
        fs::create_dir_all(folder).unwrap();
        let folder = fs::canonicalize(folder).unwrap();
        fs::write(folder.join("plan.json"), serde_json::to_string_pretty(plan).unwrap()).unwrap();
        let world = World::build(plan, manager == Manager::Kernel);
        let origin_ns = monotonic_ns();
        let mut command = role("server");
        command.arg(world.server_address().to_string()).arg(origin_ns.to_string()).arg(folder.join("server.json"));
        let mut server = world.server.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let mut listening = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut listening).unwrap();
        assert_eq!(listening, "listening\n");
        let agents = Agents::new(plan, &folder, origin_ns);
        Run { plan, manager, folder, world, agents, server, origin_ns, joins: Vec::new(), cut_off: BTreeMap::new() }
    }

    fn carry_out(mut self) -> Facts {
        if self.manager == Manager::Agent && !self.plan.late_agent {
            self.agents.start(&self.world.vehicle);
        }
        // The time of the run starts here, so that it is the same with and without an agent.
        self.origin_ns = monotonic_ns();
        let mut others = ThirdParty::start(self.plan, &self.world, &self.folder);
        let mut client = self.start_client();
        for (at_ms, step) in self.steps() {
            self.watch_until(at_ms);
            self.step(step);
        }
        while client.try_wait().unwrap().is_none() {
            let now_ms = self.now_ms();
            assert!(now_ms < self.plan.deadline_ms + CLIENT_GRACE_MS, "the client does not exit");
            if now_ms + SNAPSHOT_MS > self.plan.deadline_ms && !self.folder.join(SNAPSHOT).exists() {
                self.snapshot();
            }
            self.watch_until(now_ms + 20);
        }
        let ended_ms = self.now_ms();
        let others = others.finish(self.origin_ns, self.plan.deadline_ms);
        self.watch_until(self.now_ms() + AFTERMATH.as_millis() as u64);
        let took_s = self.now_ms() as f64 / 1e3;
        let agent = self.agents.finish();
        println!("{LINGERING}");
        let (routers, cut_off) =
            (rebound_addresses(self.plan), self.cut_off.values().flatten().copied().collect::<Vec<_>>());
        let is_unreachable = |remote: SocketAddr| routers.contains(&remote.ip()) || cut_off.contains(&remote);
        let remaining = await_sockets(&self.world.server, self.origin_ns + ended_ms * 1_000_000, &is_unreachable);
        drop(self.server.stdin.take());
        drop(self.server.wait());
        let reports = |name: &str| {
            let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        };
        Facts {
            client: reports("client.json"),
            server: reports("server.json"),
            agent: (self.manager == Manager::Agent).then_some(agent),
            joins_a_second: max_per_second(&self.joins),
            sockets_gone_s: remaining.gone_s,
            sockets_left: remaining.open,
            closing_left: remaining.closing,
            cut_off: self.cut_off.keys().copied().collect(),
            others,
            took_s,
        }
    }

    fn now_ms(&self) -> u64 {
        (monotonic_ns() - self.origin_ns) / 1_000_000
    }

    fn start_client(&self) -> Child {
        let orders = Orders {
            server: self.world.server_address(),
            origin_ns: self.origin_ns,
            deadline_ms: self.plan.deadline_ms,
            connections: self.plan.connections.clone(),
        };
        let file = self.folder.join("orders.json");
        fs::write(&file, serde_json::to_string(&orders).unwrap()).unwrap();
        let mut command = role("client");
        command.arg(file).arg(self.folder.join("client.json"));
        self.world.vehicle.spawn(&mut command).unwrap()
    }

    /// Writes the state of all connections in both kernels, for the analysis of hangs.
    fn snapshot(&mut self) {
        let addresses = self.world.vehicle.enter(addresses).unwrap();
        let mut text = String::new();
        for (name, namespace) in [("vehicle", &self.world.vehicle), ("server", &self.world.server)] {
            for connection in namespace.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap() {
                text += &format!("{name} {:08x} from {}\n", connection.token.0, connection.local);
                let is_there = |info: &SubflowInfo| addresses.contains(&info.subflow.local.ip());
                if name == "vehicle" && !connection.subflows.iter().any(is_there) {
                    let addresses = connection.subflows.iter().map(|info| info.subflow.local).collect();
                    self.cut_off.insert(connection.local, addresses);
                }
                for info in connection.subflows {
                    let (subflow, tcp) = (info.subflow, info.tcp);
                    text += &format!(
                        "    {} > {} {:?}{} unacked {} notsent {} backoff {} sent {} received {}, of the peer {:08x}\n",
                        subflow.local,
                        subflow.remote,
                        tcp.state,
                        if subflow.backup { " backup" } else { "" },
                        tcp.unacked,
                        tcp.notsent_bytes,
                        tcp.backoff,
                        tcp.bytes_sent,
                        tcp.bytes_received,
                        info.token_remote.0,
                    );
                }
            }
        }
        fs::write(self.folder.join(SNAPSHOT), text).unwrap();
    }

    /// All steps of the plan that apply to this path manager, sorted by time.
    fn steps(&self) -> Vec<(u64, Step)> {
        let of_agent = |step: &Step| matches!(step, Step::EndAgent { .. } | Step::StartAgent | Step::Manager { .. });
        let mut steps: Vec<_> = self.plan.hardships.iter().flat_map(Hardship::steps).collect();
        if self.plan.late_agent {
            steps.push((LATE_MS, Step::StartAgent));
        }
        steps.retain(|(_, step)| self.manager == Manager::Agent || !of_agent(step));
        steps.sort_by_key(|(at_ms, _)| *at_ms);
        steps
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::StartAgent => self.agents.start(&self.world.vehicle),
            Step::EndAgent { gracefully } => self.agents.end(gracefully),
            _ => self.world.step(step),
        }
    }

    /// Waits until `until_ms` and checks the agent in the meantime.
    fn watch_until(&mut self, until_ms: u64) {
        loop {
            let now_ms = self.now_ms();
            if self.joins.last().is_none_or(|(at_ms, _)| now_ms >= at_ms + CHECK_INTERVAL_MS) {
                self.agents.watch();
                self.joins.push((now_ms, joins_sent(&self.world.vehicle)));
            }
            if now_ms >= until_ms {
                return;
            }
            sleep(Duration::from_millis((until_ms - now_ms).min(CHECK_INTERVAL_MS)));
        }
    }
}

/// A command that runs this program in another role.
fn role(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("--role={name}")).stdin(Stdio::null());
    command
}

/// Number of MP_JOINs that the kernel has sent in a namespace.
fn joins_sent(namespace: &Namespace) -> u64 {
    let counters = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default()).unwrap();
    kernel_counters::table(&counters, "MPTcpExt").and_then(|value| value("MPJoinSynTx")).unwrap_or(0)
}

/// Maximum growth of a counter within a second, from its readings (ms, count).
fn max_per_second(read: &[(u64, u64)]) -> u64 {
    let grown = |place: usize| {
        let (at_ms, count) = read[place];
        let from = read[..place].iter().rev().take_while(|(then_ms, _)| at_ms - then_ms <= 1_000).last();
        from.map_or(0, |(_, before)| count - before)
    };
    (0..read.len()).map(grown).max().unwrap_or(0)
}

/// Remaining sockets of the server.
struct Remaining {
    gone_s: Option<f64>,
    open: Vec<String>,
    closing: usize,
}

/// True for remote addresses that can neither be reached nor reach the server.
type Unreachable<'a> = &'a (dyn Fn(SocketAddr) -> bool + Sync);

/// Waits until no socket of a connection is left in the namespace; returns the time from
/// `since_ns` to the end of the last open socket, and the sockets left at the timeout.
fn await_sockets(server: &Namespace, since_ns: u64, is_unreachable: Unreachable) -> Remaining {
    let mut gone_s = None;
    loop {
        let (open, closing) = sockets(server, is_unreachable);
        let since_s = (monotonic_ns() - since_ns) as f64 / 1e9;
        gone_s = if open.is_empty() { gone_s.or(Some(since_s)) } else { None };
        let timeout_s = if open.is_empty() { CLOSING_TIMEOUT_S } else { SOCKETS_TIMEOUT_S };
        if (open.is_empty() && closing == 0) || since_s > timeout_s {
            return Remaining { gone_s, open, closing };
        }
        sleep(Duration::from_millis(200));
    }
}

/// Outside addresses of routers that forgot their translations: packets of the server to them
/// are lost, and the vehicle cannot signal this to the server.
fn rebound_addresses(plan: &Plan) -> Vec<IpAddr> {
    let of = |hardship: &Hardship| match hardship.kind {
        Kind::Rebind { path } => Some(router::outside(path, plan.ipv6)),
        _ => None,
    };
    plan.hardships.iter().filter_map(of).collect()
}

/// All addresses in the namespace of the thread.
fn addresses() -> Vec<IpAddr> {
    let of = |notice| match notice {
        Notice::Address(event) => Some(event.address),
        Notice::Link(_) => None,
    };
    links::snapshot().unwrap().into_iter().filter_map(of).collect()
}

/// The open sockets, and the number of sockets that this endpoint has closed or whose
/// handshake is incomplete: TCP waits 63 s for the ACK of a client that is gone. Open plain
/// TCP is not counted: it cannot detect that the other endpoint is gone.
fn sockets(namespace: &Namespace, is_unreachable: Unreachable) -> (Vec<String>, usize) {
    let list = || {
        let mut diag = Diag::open().unwrap();
        let is_relevant = |socket: &SocketInfo| socket.local.port() == PORT && !is_unreachable(socket.remote);
        let remaining = diag.sockets().unwrap().into_iter().filter(is_relevant);
        let is_closing =
            |socket: &SocketInfo| socket.tcp.state.closed_here() || socket.tcp.state == TcpState::SynReceived;
        let (closing, mut open): (Vec<_>, Vec<_>) = remaining.partition(is_closing);
        open.retain(|socket| socket.mptcp.is_some());
        (open.iter().map(|socket| format!("{:?} from {}", socket.tcp.state, socket.remote)).collect(), closing.len())
    };
    namespace.enter(list).unwrap()
}

/// Maximum duration of a run.
fn max_duration() -> Duration {
    Duration::from_millis(CALM_MS + DEADLINE_MS + CLIENT_GRACE_MS) + Duration::from_secs_f64(SOCKETS_TIMEOUT_S)
}
