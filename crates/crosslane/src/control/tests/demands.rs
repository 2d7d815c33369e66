//! Demand, with an engine behind the socket and senders in this process.

use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::agent::{Agent as Engine, Input, Output};
use crosslane_core::allocate::{Mode, deadline};
use crosslane_core::demand::{MAX_OBJECTS, Object};
use crosslane_core::engine::Engine as _;
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind};
use crosslane_core::time::Instant;
use proptest::prelude::*;
use socket2::SockRef;
use tempfile::TempDir;

use super::super::client::Agent;
use super::super::demand_table::DemandTable;
use super::super::protocol::*;
use super::super::server::{Groups, Server, Update};
use crate::clock::Clock;

/// Backlog limit of one path whose rate is unknown.
const BACKLOG: u64 = 65_536 + 262_144;

fn object(number: u64, deadline_ms: u64) -> Object {
    let deadline = Instant::from_millis(deadline_ms);
    Object { number, size_bytes: 1_000_000, acked_bytes: 0, start: Instant::ZERO, deadline }
}

fn with<T>(test: impl AsyncFnOnce() -> T) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test())
}

fn listening(name: &str, clock: Clock, group: Option<u32>) -> crate::error::Result<Server> {
    let mut server = Server::new(clock, Groups { senders: group, viewers: None });
    server.listen_for_demands(name).map(|()| server)
}

/// An agent without a kernel, on `demands` in a temporary folder.
struct TestAgent {
    folder: TempDir,
    clock: Clock,
    server: Server,
    engine: Engine,
    faults: Vec<String>,
}

impl TestAgent {
    fn new() -> TestAgent {
        let (folder, clock) = (TempDir::new().unwrap(), Clock::start());
        let server = listening(folder.path().join("demands").to_str().unwrap(), clock, None).unwrap();
        let path = |name: &str| PathSpec { name: name.into(), rat: Rat::Lte, local: None, if_index: 0, radio: None };
        let paths = vec![path("lte-a"), path("lte-b")];
        let strategy = Arc::new(deadline::Params::default());
        let mut engine = Engine::new(&paths, &[0, 1], Mode::Aggregate, strategy, Vec::new());
        for path in [PathId(0), PathId(1)] {
            engine.handle(clock.now(), Input::Sample(Sample { path, kind: SampleKind::Link { up: true } }));
        }
        TestAgent { folder, clock, server, engine, faults: Vec::new() }
    }

    fn name(&self) -> String {
        self.folder.path().join("demands").to_str().unwrap().to_string()
    }

    fn name_of(&self, file: &str) -> String {
        self.folder.path().join(format!("{file}-{}", self.faults.len())).to_str().unwrap().to_string()
    }

    fn connect(&self) -> Agent {
        Agent::connect(&self.name()).unwrap()
    }

    /// Runs the agent's driver until no sender has anything more to send.
    async fn settle(&mut self) {
        while let Ok(update) = tokio::time::timeout(Duration::from_millis(20), self.server.next()).await {
            self.apply(update);
        }
    }

    fn apply(&mut self, update: Update) {
        self.faults.extend(update.faults);
        if update.demand_changed {
            self.engine.handle(self.clock.now(), Input::Demand(self.server.demand().unwrap()));
        }
        while let Some(output) = self.engine.poll(self.clock.now()) {
            if let Output::Admission(admission) = output {
                self.server.admit(&admission);
            }
        }
        self.server.report(&self.engine);
    }
}

fn replies(of: &mut Agent) -> Vec<Reply> {
    std::iter::from_fn(|| of.poll()).collect()
}

fn states(a: &str, b: &str) -> Reply {
    Reply::States([("lte-a", a), ("lte-b", b)].map(|(name, state)| (name.to_string(), state.to_string())).into())
}

fn admission(number: u64) -> Reply {
    Reply::Admission(AdmissionReport { number, predicted_ns: None, can_be_met: None })
}

#[test]
fn each_sender_receives_admissions_of_its_objects_and_its_share_of_the_backlog() {
    with(async || {
        let mut agent = TestAgent::new();
        let (mut one, mut two) = (agent.connect(), agent.connect());
        agent.settle().await;
        assert_eq!(replies(&mut one), [states("active", "backup")]);
        assert_eq!(replies(&mut two), [states("active", "backup")]);
        one.send_demand(&[object(7, 9000)], agent.clock);
        agent.settle().await;
        assert_eq!(replies(&mut one), [admission(7), Reply::BacklogBytes(Some(BACKLOG))]);
        two.send_demand(&[object(7, 4000), object(8, 5000)], agent.clock);
        agent.settle().await;
        assert_eq!(replies(&mut one), [Reply::BacklogBytes(Some(BACKLOG / 2))]);
        assert_eq!(replies(&mut two), [admission(7), admission(8), Reply::BacklogBytes(Some(BACKLOG / 2))]);
        let demand = agent.server.demand().unwrap();
        assert_eq!(demand.iter().map(|object| object.number).collect::<Vec<u64>>(), [1, 2, 0]);
        // As after a kill: nothing is sent, the kernel closes the socket.
        drop(two);
        agent.settle().await;
        assert_eq!(agent.server.demand().unwrap(), [object(0, 9000)]);
        assert_eq!(replies(&mut one), [Reply::BacklogBytes(Some(BACKLOG))]);
        one.send_demand(&[], agent.clock);
        agent.settle().await;
        assert_eq!((agent.server.demand().unwrap(), replies(&mut one)), (vec![], vec![]));
    });
}

#[test]
fn acknowledgements_are_no_change_of_the_demand() {
    with(async || {
        let mut agent = TestAgent::new();
        let mut sender = agent.connect();
        sender.send_demand(&[object(0, 9000)], agent.clock);
        agent.settle().await;
        let acked = Object { acked_bytes: 500_000, ..object(0, 9000) };
        sender.send_demand(&[acked], agent.clock);
        let update = agent.server.next().await;
        assert!(!update.demand_changed && update.faults.is_empty(), "{update:?}");
        assert_eq!(agent.server.demand().unwrap(), [acked]);
    });
}

#[test]
fn an_invalid_demand_is_answered_with_an_error_and_the_connection_is_closed() {
    let long = " ".repeat(MAX_LINE_BYTES + 1);
    let many: Vec<String> = (0..=MAX_OBJECTS).map(plain).collect();
    let cases = [
        ("{", "EOF"),
        ("[[[[", "invalid type"),
        ("\u{fffd}\0\u{7f}", "expected value"),
        ("{\"objects\":[]}x", "trailing"),
        ("{\"objects\":[],\"price\":1}", "unknown field `price`"),
        ("{\"objects\":[],\"mode\":\"redundant\"}", "more than one of `objects`, `mode` and `request`"),
        ("{\"version\":2,\"objects\":[]}", "has version 1, not 2"),
        ("{\"objects\":[{\"number\":-1}]}", "invalid value: integer `-1`"),
        (&format!("{{\"objects\":[{},{}]}}", plain(3), plain(3)), "object 3 is listed twice"),
        (&format!("{{\"objects\":[{}]}}", many.join(",")), "65 objects are more than 64"),
        (&long, "more than 65536 bytes"),
    ];
    with(async || {
        let mut agent = TestAgent::new();
        let mut other = agent.connect();
        other.send_demand(&[object(0, 9000)], agent.clock);
        for (bad, word) in cases {
            let mut sender = agent.connect();
            let mut raw = UnixStream::connect(agent.name()).unwrap();
            agent.settle().await;
            // The second sender has sent a valid demand before the invalid one.
            sender.send_demand(&[object(1, 1)], agent.clock);
            raw.write_all(&write_demand(&[object(1, 1)], 0)).unwrap();
            raw.set_nonblocking(true).unwrap();
            raw.write_all(format!("{bad}\n").as_bytes()).unwrap();
            agent.settle().await;
            let received = std::io::read_to_string(&raw).unwrap_or_else(|cause| panic!("{word}: {cause}"));
            let last: Reply = serde_json::from_str(received.lines().last().unwrap()).unwrap();
            let Reply::Error(sentence) = last else { panic!("{word}: {last:?}") };
            assert!(sentence.contains(word) && sentence.starts_with("while "), "{word}: {sentence}");
            assert!(!sentence.contains('\n') && sentence.contains("; "), "{sentence}");
            assert_eq!(agent.faults.pop(), Some(sentence));
            assert_eq!(agent.server.demand().unwrap().len(), 2, "the demand of the rejected sender is gone");
        }
        assert!(!replies(&mut other).contains(&Reply::Gone));
    });
}

fn plain(number: impl std::fmt::Display) -> String {
    format!("{{\"number\":{number},\"size_bytes\":1,\"acked_bytes\":0,\"start_ns\":0,\"deadline_ns\":1}}")
}

#[test]
fn the_last_sender_beyond_the_maximum_is_rejected_and_the_others_continue() {
    with(async || {
        let mut agent = TestAgent::new();
        let mut senders: Vec<Agent> = (0..MAX_CLIENTS + RESERVED_CLIENTS).map(|_| agent.connect()).collect();
        agent.settle().await;
        let mut late = agent.connect();
        late.send_demand(&[object(0, 1)], agent.clock);
        agent.settle().await;
        let sentence = "while requesting from the agent: 24 clients are connected; end one of them".to_string();
        assert_eq!(replies(&mut late), [Reply::Error(sentence), Reply::Gone]);
        assert_eq!(replies(&mut late), [], "that it is gone is reported once");
        senders.iter_mut().for_each(|sender| sender.send_demand(&[object(0, 9000)], agent.clock));
        agent.settle().await;
        assert_eq!(agent.server.demand().unwrap().len(), MAX_CLIENTS + RESERVED_CLIENTS);
        senders.pop();
        agent.settle().await;
        let mut next = agent.connect();
        agent.settle().await;
        assert_eq!(replies(&mut next), [states("active", "backup")]);
    });
}

#[test]
fn neither_endpoint_waits_for_one_that_does_not_read() {
    with(async || {
        let mut agent = TestAgent::new();
        let mut sender = agent.connect();
        // A line does not fit into the socket at once: it is sent completely or not at all.
        SockRef::from(&sender).set_send_buffer_size(1).unwrap();
        let many: Vec<Object> = (0..MAX_OBJECTS as u64).map(|number| object(number, 9000)).collect();
        for _ in 0..10 {
            (0..1000).for_each(|_| sender.send_demand(&many, agent.clock));
            agent.settle().await;
        }
        assert_eq!((agent.faults.len(), agent.server.demand().unwrap().len()), (0, MAX_OBJECTS));
        for number in 0..20_000 {
            sender.send_demand(&[object(number, 9000)], agent.clock);
            let update = agent.server.next().await;
            agent.apply(update);
        }
        sender.send_demand(&[object(1_000_000, 9000)], agent.clock);
        assert!(replies(&mut sender).len() < 20_000);
        agent.settle().await;
        assert!(!replies(&mut sender).contains(&Reply::Gone));
        assert_eq!(agent.server.demand().unwrap().len(), 1);
    });
}

#[test]
fn an_agent_that_ends_is_gone_for_its_senders_and_removes_its_file() {
    with(async || {
        let mut agent = TestAgent::new();
        let mut sender = agent.connect();
        agent.settle().await;
        let mode = fs::metadata(agent.name()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let (name, TestAgent { server, folder, .. }) = (agent.name(), agent);
        drop(server);
        assert!(!Path::new(&name).exists());
        assert_eq!(replies(&mut sender), [states("active", "backup"), Reply::Gone]);
        assert_eq!(sender.poll(), None);
        drop(folder);
    });
}

/// Connects as another user, by raw system calls, which affect one thread.
fn connect_as(user: u32, group: u32, name: &str) -> Option<UnixStream> {
    let address = SocketAddr::from_abstract_name(name.trim_start_matches('@')).unwrap();
    let connect = move || {
        // SAFETY: see above; the thread ends with the closure.
        let changed = unsafe {
            libc::syscall(libc::SYS_setresgid, group, group, group) == 0
                && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
        };
        changed.then(|| UnixStream::connect_addr(&address).unwrap())
    };
    std::thread::spawn(connect).join().unwrap()
}

#[test]
fn only_root_the_agents_user_and_the_configured_group_may_send_demand() {
    const UNPRIVILEGED: u32 = 65534;
    with(async || {
        let mut agent = TestAgent::new();
        let name = format!("@crosslane-trust-{}", std::process::id());
        for (group, trusted) in [(None, false), (Some(UNPRIVILEGED - 1), false), (Some(UNPRIVILEGED), true)] {
            agent.server = listening(&name, agent.clock, group).unwrap();
            // Only root can change the user.
            let Some(mut other) = connect_as(UNPRIVILEGED, UNPRIVILEGED, &name) else { return };
            other.write_all(&write_demand(&[object(1, 9000)], agent.clock.origin_ns())).unwrap();
            agent.settle().await;
            assert_eq!(agent.server.demand().unwrap().len(), usize::from(trusted), "{group:?}");
            if !trusted {
                let mut received = Vec::new();
                // What it wrote was not read: after the error message, it finds the connection reset.
                drop(std::io::Read::read_to_end(&mut other, &mut received));
                let received = String::from_utf8(received).unwrap();
                let expected =
                    "{\"error\":\"while requesting from the agent: user 65534 is neither root, nor the agent's, nor of";
                assert!(received.starts_with(expected) && received.lines().count() == 1, "{received}");
            }
            // A name has one server.
            agent.server = listening(&agent.name_of("other"), agent.clock, None).unwrap();
        }
    });
}

#[test]
fn a_stale_file_is_replaced_and_a_live_socket_is_kept() {
    with(async || {
        let agent = TestAgent::new();
        let open = |name: &str| listening(name, agent.clock, None).map(drop).map_err(|error| error.to_string());
        let rejected = |name: &str, why: &str| {
            let error = open(name).unwrap_err();
            assert!(error.starts_with(&format!("while listening on {name}: {why}")), "{error}");
        };
        rejected(&agent.name(), "an agent listens there");
        let place = |name: &str| agent.folder.path().join(name).to_str().unwrap().to_string();
        drop(UnixListener::bind(place("stale")).unwrap());
        assert!(Path::new(&place("stale")).exists());
        open(&place("stale")).unwrap();
        fs::write(place("file"), "mine").unwrap();
        rejected(&place("file"), "this is a file, not a socket");
        assert_eq!(fs::read(place("file")).unwrap(), b"mine");
        rejected(&place("none/here"), "No such file or directory");
        let name = format!("@crosslane-test-{}", std::process::id());
        let _lives = listening(&name, agent.clock, None).unwrap();
        rejected(&name, "an agent listens there");
        assert!(Agent::connect(&name).is_ok());
    });
}

#[test]
fn objects_keep_their_numbers_and_new_ones_count_up_by_deadline() {
    let mut table = DemandTable::default();
    let numbers = |table: &mut DemandTable| -> Vec<(u64, u64)> {
        let objects = table.demand();
        objects.iter().map(|object| (object.number, object.deadline.as_nanos() / 1_000_000)).collect()
    };
    assert!(table.replace(1, vec![object(5, 30), object(4, 20)]));
    assert!(table.replace(2, vec![object(5, 10)]));
    assert_eq!(numbers(&mut table), [(0, 10), (1, 20), (2, 30)]);
    assert!(table.replace(2, vec![object(5, 10), object(6, 5)]));
    assert_eq!(numbers(&mut table), [(3, 5), (0, 10), (1, 20), (2, 30)]);
    assert!(!table.replace(2, vec![object(5, 10), object(6, 5)]));
    assert_eq!((table.owner(3), table.owner(2), table.owner(9)), (Some((2, 6)), Some((1, 5)), None));
    assert!(table.remove(2) && !table.remove(2));
    assert!(table.replace(2, vec![object(5, 10)]), "it is added again");
    assert_eq!(numbers(&mut table), [(4, 10), (1, 20), (2, 30)]);
}

/// Otherwise the engine would consider a later one known.
#[test]
fn an_object_beyond_the_maximum_has_no_number_yet() {
    let mut table = DemandTable::default();
    table.replace(1, (0..MAX_OBJECTS as u64).map(|number| object(number, 10 + number)).collect());
    table.replace(2, vec![object(0, 1000)]);
    assert_eq!(table.demand().len(), MAX_OBJECTS);
    table.replace(1, vec![object(100, 10)]);
    let objects = table.demand();
    assert_eq!(objects.iter().map(|object| object.number).collect::<Vec<u64>>(), [64, 65]);
}

#[test]
fn the_longest_demand_fits_into_a_line() {
    let last = Instant::from_nanos(u64::MAX);
    let object = |number| Object { number, size_bytes: u64::MAX, acked_bytes: u64::MAX, start: last, deadline: last };
    let objects: Vec<Object> = (0..100).map(|place| object(u64::MAX - place)).collect();
    let line = write_demand(&objects, 0);
    assert!(line.len() < 12_000, "{}", line.len());
    assert_eq!(read_request(&line, 0), Ok(Request::Demand(objects[..MAX_OBJECTS].to_vec())));
}

proptest! {
    #[test]
    fn lines_are_independent_of_how_the_stream_is_split(
        lines in prop::collection::vec(prop::collection::vec(prop::num::u8::ANY, 0..50), 0..20),
        cut in 1_usize..60,
    ) {
        let lines: Vec<Vec<u8>> =
            lines.into_iter().map(|line| line.into_iter().filter(|byte| *byte != b'\n').collect()).collect();
        let whole: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
        let mut inbox = Inbox::default();
        let found: Vec<Vec<u8>> = whole.chunks(cut).flat_map(|chunk| inbox.lines(chunk)).collect();
        prop_assert_eq!(found, lines);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(prop::num::u8::ANY, 0..200), origin_ns: u64) {
        prop_assert!(read_request(&bytes, origin_ns).is_err() || !bytes.is_empty());
    }
}
