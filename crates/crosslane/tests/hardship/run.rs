//! One run: a seed with an agent or with the in-kernel path manager, from the
//! namespaces to the facts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::netlink::TcpState;
use crosslane::netlink::diag::{Diag, SocketInfo, SubflowInfo};
use crosslane::netlink::links::{self, Notice};
use crosslane::testbed::{Namespace, contain, end_with, prepare_privileges};
use serde::{Deserialize, Serialize};

use super::agents::Agents;
use super::hardships::{Hardship, Kind, Step};
use super::others::Others;
use super::plan::{CALM_MS, DEADLINE_MS, Plan};
use super::programs::{Orders, PORT};
use super::router;
use super::topology::World;
use super::verdict::Facts;

/// What a run prints once only the server's sockets are waited for.
pub const LINGERING: &str = "lingering";
/// How often a run looks after its agent.
const LOOK_MS: u64 = 100;
/// When a late agent begins.
const LATE_MS: u64 = 1_400;
/// How long the agent is watched once all connections have ended.
const AFTERMATH: Duration = Duration::from_secs(1);
/// How long the server's open sockets are waited for, and those that are closed
/// on its side: what the peer's silence makes of these takes TCP minutes.
const SOCKETS_PATIENCE_S: f64 = 65.0;
const CLOSING_PATIENCE_S: f64 = 10.0;
/// File with what hangs, and how long before the deadline it is written.
const SNAPSHOT: &str = "hung.txt";
const SNAPSHOT_MS: u64 = 700;
/// What a client that ends late is given.
const CLIENT_GRACE_MS: u64 = 5_000;

/// Who manages the vehicle's paths.
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

/// Carries out a run and prints its facts as one line of JSON. `parent` started
/// this process, which ends with it; its files go to `folder`.
pub fn carry_out(plan: &Plan, manager: Manager, folder: &Path, parent: i32) -> crosslane::error::Result<()> {
    prepare_privileges()?;
    end_with(parent)?;
    contain()?;
    // SAFETY: always. Whatever hangs here ends by SIGALRM.
    unsafe { libc::alarm(longest().as_secs() as u32) };
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
    /// Connections that had no subflow from an address that there is, shortly before the
    /// deadline, and the subflows that they had.
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
        // The time counts from here: with or without an agent the same.
        self.origin_ns = monotonic_ns();
        let mut others = Others::start(self.plan, &self.world, &self.folder);
        let mut client = self.start_client();
        for (at_ms, step) in self.steps() {
            self.watch_until(at_ms);
            self.step(step);
        }
        while client.try_wait().unwrap().is_none() {
            let now_ms = self.now_ms();
            assert!(now_ms < self.plan.deadline_ms + CLIENT_GRACE_MS, "the client does not end");
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
        let (routers, ends) = (forgotten(self.plan), self.cut_off.values().flatten().copied().collect::<Vec<_>>());
        let is_unreachable = |remote: SocketAddr| routers.contains(&remote.ip()) || ends.contains(&remote);
        let left = await_sockets(&self.world.server, self.origin_ns + ended_ms * 1_000_000, &is_unreachable);
        drop(self.server.stdin.take());
        drop(self.server.wait());
        let told = |name: &str| {
            let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        };
        Facts {
            client: told("client.json"),
            server: told("server.json"),
            agent: (self.manager == Manager::Agent).then_some(agent),
            joins_a_second: most_a_second(&self.joins),
            sockets_gone_s: left.gone_s,
            sockets_left: left.open,
            closing_left: left.closing,
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

    /// For whoever wants to know why something hangs: what either kernel says.
    fn snapshot(&mut self) {
        let addresses = self.world.vehicle.enter(addresses).unwrap();
        let mut text = String::new();
        for (name, namespace) in [("vehicle", &self.world.vehicle), ("server", &self.world.server)] {
            for connection in namespace.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap() {
                text += &format!("{name} {:08x} from {}\n", connection.token.0, connection.local);
                let is_there = |info: &SubflowInfo| addresses.contains(&info.subflow.local.ip());
                if name == "vehicle" && !connection.subflows.iter().any(is_there) {
                    let ends = connection.subflows.iter().map(|info| info.subflow.local).collect();
                    self.cut_off.insert(connection.local, ends);
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

    /// All steps of the plan that this manager has, in their order.
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
            Step::EndAgent { politely } => self.agents.end(politely),
            _ => self.world.step(step),
        }
    }

    /// Waits, and looks after the agent meanwhile.
    fn watch_until(&mut self, until_ms: u64) {
        loop {
            let now_ms = self.now_ms();
            if self.joins.last().is_none_or(|(at_ms, _)| now_ms >= at_ms + LOOK_MS) {
                self.agents.watch();
                self.joins.push((now_ms, joins_sent(&self.world.vehicle)));
            }
            if now_ms >= until_ms {
                return;
            }
            sleep(Duration::from_millis((until_ms - now_ms).min(LOOK_MS)));
        }
    }
}

/// This program in another role.
fn role(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("--role={name}")).stdin(Stdio::null());
    command
}

/// MP_JOINs that the kernel of a namespace has sent.
fn joins_sent(namespace: &Namespace) -> u64 {
    let counters = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default()).unwrap();
    let mut lines = counters.lines().filter(|line| line.starts_with("MPTcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "MPJoinSynTx").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Most that a counter grew within a second, by when it was read (ms, count).
fn most_a_second(read: &[(u64, u64)]) -> u64 {
    let grown = |place: usize| {
        let (at_ms, count) = read[place];
        let from = read[..place].iter().rev().take_while(|(then_ms, _)| at_ms - then_ms <= 1_000).last();
        from.map_or(0, |(_, before)| count - before)
    };
    (0..read.len()).map(grown).max().unwrap_or(0)
}

/// Sockets at the server.
struct Left {
    gone_s: Option<f64>,
    open: Vec<String>,
    closing: usize,
}

/// True of those whom nobody can tell anything, nor speak for.
type Unreachable<'a> = &'a (dyn Fn(SocketAddr) -> bool + Sync);

/// Waits until no socket of a connection is left in the namespace; says how long
/// after `since_ns` the last open one went, and what is left when the patience ends.
fn await_sockets(server: &Namespace, since_ns: u64, is_unreachable: Unreachable) -> Left {
    let mut gone_s = None;
    loop {
        let (open, closing) = sockets(server, is_unreachable);
        let since_s = (monotonic_ns() - since_ns) as f64 / 1e9;
        gone_s = if open.is_empty() { gone_s.or(Some(since_s)) } else { None };
        let patience_s = if open.is_empty() { CLOSING_PATIENCE_S } else { SOCKETS_PATIENCE_S };
        if (open.is_empty() && closing == 0) || since_s > patience_s {
            return Left { gone_s, open, closing };
        }
        sleep(Duration::from_millis(200));
    }
}

/// Addresses of routers that forgot whom they had translated: what the server
/// sends there reaches nobody, and nobody at the vehicle can tell it.
fn forgotten(plan: &Plan) -> Vec<IpAddr> {
    let of = |hardship: &Hardship| match hardship.kind {
        Kind::Rebind { path } => Some(router::outside(path, plan.ipv6)),
        _ => None,
    };
    plan.hardships.iter().filter_map(of).collect()
}

/// All addresses of the thread's namespace.
fn addresses() -> Vec<IpAddr> {
    let of = |notice| match notice {
        Notice::Address(event) => Some(event.address),
        Notice::Link(_) => None,
    };
    links::snapshot().unwrap().into_iter().filter_map(of).collect()
}

/// Those that are open, and the number of those that are closed on this side or whose
/// handshake has no end: TCP waits 63 s for the last word of an opener that is gone. Of
/// plain TCP that is open nobody can tell this end that the other is gone.
fn sockets(namespace: &Namespace, is_unreachable: Unreachable) -> (Vec<String>, usize) {
    let list = || {
        let mut diag = Diag::open().unwrap();
        let is_left = |socket: &SocketInfo| socket.local.port() == PORT && !is_unreachable(socket.remote);
        let left = diag.sockets().unwrap().into_iter().filter(is_left);
        let is_closing =
            |socket: &SocketInfo| socket.tcp.state.closed_here() || socket.tcp.state == TcpState::SynReceived;
        let (closing, mut open): (Vec<_>, Vec<_>) = left.partition(is_closing);
        open.retain(|socket| socket.mptcp.is_some());
        (open.iter().map(|socket| format!("{:?} from {}", socket.tcp.state, socket.remote)).collect(), closing.len())
    };
    namespace.enter(list).unwrap()
}

/// No run takes longer.
fn longest() -> Duration {
    Duration::from_millis(CALM_MS + DEADLINE_MS + CLIENT_GRACE_MS) + Duration::from_secs_f64(SOCKETS_PATIENCE_S)
}
