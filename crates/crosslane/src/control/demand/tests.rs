//! The socket's rules, with an engine behind it and senders in this process.

use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crosslane_core::agent::{Agent as Engine, Input, Output, Setup};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine as _;
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind};
use crosslane_core::strategy::Strategy;
use proptest::prelude::*;
use tempfile::TempDir;

use super::client::Agent;
use super::server::{Heard, Server, news};
use super::table::DemandTable;
use super::*;
use crate::clock::Clock;

/// Backlog of one path that nothing is known of.
const BACKLOG: u64 = 65_536 + 262_144;

fn object(number: u64, deadline_ms: u64) -> Object {
    let deadline = Instant::from_millis(deadline_ms);
    Object { number, size_bytes: 1_000_000, acked_bytes: 0, start: Instant::ZERO, deadline }
}

fn with<T>(test: impl AsyncFnOnce() -> T) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test())
}

/// An agent without a kernel, on `demands` in a folder of its own.
struct Desk {
    folder: TempDir,
    clock: Clock,
    server: Server,
    engine: Engine,
    faults: Vec<String>,
}

impl Desk {
    fn new() -> Desk {
        let (folder, clock) = (TempDir::new().unwrap(), Clock::start());
        let server =
            Server::open(folder.path().join("demands").to_str().unwrap(), clock, vec![0.0, 1.0], None).unwrap();
        let path = |name: &str| PathSpec { name: name.into(), rat: Rat::Lte, local: None, if_index: 0 };
        let paths = vec![path("lte-a"), path("lte-b")];
        let strategy = Strategy::Deadline(Default::default());
        let overlap = Duration::ZERO;
        let mut engine = Engine::new(Setup { paths, ranks: vec![0, 1], mode: Mode::Aggregate, overlap, strategy });
        for path in [PathId(0), PathId(1)] {
            engine.handle(clock.now(), Input::Sample(Sample { path, kind: SampleKind::Link { up: true } }));
        }
        Desk { folder, clock, server, engine, faults: Vec::new() }
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

    /// Does as the agent's driver does until nobody says anything more.
    async fn settle(&mut self) {
        while let Ok(heard) = tokio::time::timeout(Duration::from_millis(20), news(Some(&mut self.server))).await {
            self.take(heard);
        }
    }

    fn take(&mut self, heard: Heard) {
        self.faults.extend(heard.faults);
        if heard.changed {
            self.engine.handle(self.clock.now(), Input::Demand(self.server.demand()));
        }
        while let Some(output) = self.engine.poll(self.clock.now()) {
            if let Output::Admission(admission) = output {
                self.server.admit(&admission);
            }
        }
        self.server.tell(&self.engine);
    }
}

fn replies(of: &mut Agent) -> Vec<Reply> {
    std::iter::from_fn(|| of.poll()).collect()
}

fn states(a: &str, b: &str) -> Reply {
    Reply::States([("lte-a", a), ("lte-b", b)].map(|(name, state)| (name.to_string(), state.to_string())).into())
}

fn judged(number: u64) -> Reply {
    Reply::Admission(AdmissionReport { number, predicted_ns: None, can_be_met: None })
}

#[test]
fn each_sender_is_told_of_its_own_objects_and_its_part_of_the_backlog() {
    with(async || {
        let mut desk = Desk::new();
        let (mut one, mut two) = (desk.connect(), desk.connect());
        desk.settle().await;
        assert_eq!(replies(&mut one), [states("active", "backup")]);
        assert_eq!(replies(&mut two), [states("active", "backup")]);
        one.tell(&[object(7, 9000)], desk.clock);
        desk.settle().await;
        assert_eq!(replies(&mut one), [judged(7), Reply::BacklogBytes(Some(BACKLOG))]);
        two.tell(&[object(7, 4000), object(8, 5000)], desk.clock);
        desk.settle().await;
        assert_eq!(replies(&mut one), [Reply::BacklogBytes(Some(BACKLOG / 2))]);
        assert_eq!(replies(&mut two), [judged(7), judged(8), Reply::BacklogBytes(Some(BACKLOG / 2))]);
        let demand = desk.server.demand();
        assert_eq!(demand.objects.iter().map(|object| object.number).collect::<Vec<u64>>(), [1, 2, 0]);
        // As a kill does: nothing is said, the kernel closes the socket.
        drop(two);
        desk.settle().await;
        assert_eq!(desk.server.demand().objects, [object(0, 9000)]);
        assert_eq!(replies(&mut one), [Reply::BacklogBytes(Some(BACKLOG))]);
        one.tell(&[], desk.clock);
        desk.settle().await;
        assert_eq!((desk.server.demand().objects, replies(&mut one)), (vec![], vec![]));
    });
}

#[test]
fn acknowledgements_alone_are_no_news() {
    with(async || {
        let mut desk = Desk::new();
        let mut sender = desk.connect();
        sender.tell(&[object(0, 9000)], desk.clock);
        desk.settle().await;
        let acked = Object { acked_bytes: 500_000, ..object(0, 9000) };
        sender.tell(&[acked], desk.clock);
        let heard = news(Some(&mut desk.server)).await;
        assert!(!heard.changed && heard.faults.is_empty(), "{heard:?}");
        assert_eq!(desk.server.demand().objects, [acked]);
    });
}

#[test]
fn what_is_no_demand_is_answered_with_one_sentence_and_the_end() {
    let long = " ".repeat(MAX_LINE_BYTES + 1);
    let many: Vec<String> = (0..=MAX_OBJECTS).map(plain).collect();
    let cases = [
        ("{", "EOF"),
        ("[[[[", "invalid type"),
        ("\u{fffd}\0\u{7f}", "expected value"),
        ("{\"objects\":[]}x", "trailing"),
        ("{\"objects\":[],\"price\":1}", "unknown field `price`"),
        ("{\"objects\":[{\"number\":-1}]}", "invalid value: integer `-1`"),
        (&format!("{{\"objects\":[{},{}]}}", plain(3), plain(3)), "object 3 stands twice"),
        (&format!("{{\"objects\":[{}]}}", many.join(",")), "65 objects are more than 64"),
        (&long, "more than 65536 bytes"),
    ];
    with(async || {
        let mut desk = Desk::new();
        let mut other = desk.connect();
        other.tell(&[object(0, 9000)], desk.clock);
        for (bad, word) in cases {
            let mut sender = desk.connect();
            let mut raw = UnixStream::connect(desk.name()).unwrap();
            desk.settle().await;
            // The second has a good demand before the bad one.
            sender.tell(&[object(1, 1)], desk.clock);
            raw.write_all(&write_demand(&[object(1, 1)], 0)).unwrap();
            raw.set_nonblocking(true).unwrap();
            raw.write_all(format!("{bad}\n").as_bytes()).unwrap();
            desk.settle().await;
            let said = std::io::read_to_string(&raw).unwrap_or_else(|cause| panic!("{word}: {cause}"));
            let last: Reply = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            let Reply::Error(sentence) = last else { panic!("{word}: {last:?}") };
            assert!(sentence.contains(word) && sentence.starts_with("while "), "{word}: {sentence}");
            assert!(!sentence.contains('\n') && sentence.contains("; "), "{sentence}");
            assert_eq!(desk.faults.pop(), Some(sentence));
            assert_eq!(desk.server.demand().objects.len(), 2, "the demand of the one that was refused is gone");
        }
        assert!(!replies(&mut other).contains(&Reply::Gone));
    });
}

fn plain(number: impl std::fmt::Display) -> String {
    format!("{{\"number\":{number},\"size_bytes\":1,\"acked_bytes\":0,\"start_ns\":0,\"deadline_ns\":1}}")
}

#[test]
fn the_seventeenth_sender_is_told_so_and_the_sixteen_go_on() {
    with(async || {
        let mut desk = Desk::new();
        let mut senders: Vec<Agent> = (0..MAX_SENDERS).map(|_| desk.connect()).collect();
        desk.settle().await;
        let mut late = desk.connect();
        late.tell(&[object(0, 1)], desk.clock);
        desk.settle().await;
        let sentence = "while telling a demand: 16 senders are connected; end one of them".to_string();
        assert_eq!(replies(&mut late), [Reply::Error(sentence), Reply::Gone]);
        assert_eq!(replies(&mut late), [], "that it is gone is said once");
        senders.iter_mut().for_each(|sender| sender.tell(&[object(0, 9000)], desk.clock));
        desk.settle().await;
        assert_eq!(desk.server.demand().objects.len(), 16);
        senders.pop();
        desk.settle().await;
        let mut next = desk.connect();
        desk.settle().await;
        assert_eq!(replies(&mut next), [states("active", "backup")]);
    });
}

#[test]
fn neither_end_waits_for_one_that_does_not_read() {
    with(async || {
        let mut desk = Desk::new();
        let mut sender = desk.connect();
        // A line does not fit into the socket at once: it is told whole or not at all.
        SockRef::from(&sender).set_send_buffer_size(1).unwrap();
        let many: Vec<Object> = (0..MAX_OBJECTS as u64).map(|number| object(number, 9000)).collect();
        for _ in 0..10 {
            (0..1000).for_each(|_| sender.tell(&many, desk.clock));
            desk.settle().await;
        }
        assert_eq!((desk.faults.len(), desk.server.demand().objects.len()), (0, MAX_OBJECTS));
        for number in 0..20_000 {
            sender.tell(&[object(number, 9000)], desk.clock);
            let heard = news(Some(&mut desk.server)).await;
            desk.take(heard);
        }
        sender.tell(&[object(1_000_000, 9000)], desk.clock);
        assert!(replies(&mut sender).len() < 20_000);
        desk.settle().await;
        assert!(!replies(&mut sender).contains(&Reply::Gone));
        assert_eq!(desk.server.demand().objects.len(), 1);
    });
}

#[test]
fn an_agent_that_ends_is_gone_for_its_senders_and_takes_its_file_along() {
    with(async || {
        let mut desk = Desk::new();
        let mut sender = desk.connect();
        desk.settle().await;
        let mode = fs::metadata(desk.name()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let (name, Desk { server, folder, .. }) = (desk.name(), desk);
        drop(server);
        assert!(!Path::new(&name).exists());
        assert_eq!(replies(&mut sender), [states("active", "backup"), Reply::Gone]);
        assert_eq!(sender.poll(), None);
        drop(folder);
    });
}

/// Connects as another user, by the bare system calls, which change one thread.
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
fn only_root_the_agents_user_and_the_group_named_may_tell_demands() {
    const NOBODY: u32 = 65534;
    with(async || {
        let mut desk = Desk::new();
        let name = format!("@crosslane-trust-{}", std::process::id());
        for (group, trusted) in [(None, false), (Some(NOBODY - 1), false), (Some(NOBODY), true)] {
            desk.server = Server::open(&name, desk.clock, vec![0.0, 1.0], group).unwrap();
            // Who is not root cannot become another.
            let Some(mut stranger) = connect_as(NOBODY, NOBODY, &name) else { return };
            stranger.write_all(&write_demand(&[object(1, 9000)], desk.clock.origin_ns())).unwrap();
            desk.settle().await;
            assert_eq!(desk.server.demand().objects.len(), usize::from(trusted), "{group:?}");
            if !trusted {
                let mut said = Vec::new();
                // What it wrote was not read: after our words, it finds the connection reset.
                drop(std::io::Read::read_to_end(&mut stranger, &mut said));
                let said = String::from_utf8(said).unwrap();
                let expected =
                    "{\"error\":\"while telling a demand: user 65534 is neither root, nor the agent's, nor of";
                assert!(said.starts_with(expected) && said.lines().count() == 1, "{said}");
            }
            // One name, one server.
            desk.server = Server::open(&desk.name_of("other"), desk.clock, vec![], None).unwrap();
        }
    });
}

#[test]
fn a_stale_file_is_replaced_and_what_lives_is_left() {
    with(async || {
        let desk = Desk::new();
        let open =
            |name: &str| Server::open(name, desk.clock, vec![], None).map(drop).map_err(|error| error.to_string());
        let refused = |name: &str, why: &str| {
            let said = open(name).unwrap_err();
            assert!(said.starts_with(&format!("while listening for demands on {name}: {why}")), "{said}");
        };
        refused(&desk.name(), "an agent listens there");
        let place = |name: &str| desk.folder.path().join(name).to_str().unwrap().to_string();
        drop(UnixListener::bind(place("stale")).unwrap());
        assert!(Path::new(&place("stale")).exists());
        open(&place("stale")).unwrap();
        fs::write(place("file"), "mine").unwrap();
        refused(&place("file"), "this is a file and no socket");
        assert_eq!(fs::read(place("file")).unwrap(), b"mine");
        refused(&place("none/here"), "No such file or directory");
        let name = format!("@crosslane-test-{}", std::process::id());
        let _lives = Server::open(&name, desk.clock, vec![], None).unwrap();
        refused(&name, "an agent listens there");
        assert!(Agent::connect(&name).is_ok());
    });
}

#[test]
fn objects_keep_their_numbers_and_new_ones_count_up_by_deadline() {
    let mut book = DemandTable::default();
    let numbers = |book: &mut DemandTable| -> Vec<(u64, u64)> {
        let objects = book.demand(&[]).objects;
        objects.iter().map(|object| (object.number, object.deadline.as_nanos() / 1_000_000)).collect()
    };
    assert!(book.tell(1, vec![object(5, 30), object(4, 20)]));
    assert!(book.tell(2, vec![object(5, 10)]));
    assert_eq!(numbers(&mut book), [(0, 10), (1, 20), (2, 30)]);
    assert!(book.tell(2, vec![object(5, 10), object(6, 5)]));
    assert_eq!(numbers(&mut book), [(3, 5), (0, 10), (1, 20), (2, 30)]);
    assert!(!book.tell(2, vec![object(5, 10), object(6, 5)]));
    assert_eq!((book.owner(3), book.owner(2), book.owner(9)), (Some((2, 6)), Some((1, 5)), None));
    assert!(book.leave(2) && !book.leave(2));
    assert!(book.tell(2, vec![object(5, 10)]), "it comes anew");
    assert_eq!(numbers(&mut book), [(4, 10), (1, 20), (2, 30)]);
}

/// Or the engine would take a later one for known.
#[test]
fn an_object_beyond_the_last_looked_at_has_no_number_yet() {
    let mut book = DemandTable::default();
    book.tell(1, (0..MAX_OBJECTS as u64).map(|number| object(number, 10 + number)).collect());
    book.tell(2, vec![object(0, 1000)]);
    assert_eq!(book.demand(&[]).objects.len(), MAX_OBJECTS);
    book.tell(1, vec![object(100, 10)]);
    let objects = book.demand(&[]).objects;
    assert_eq!(objects.iter().map(|object| object.number).collect::<Vec<u64>>(), [64, 65]);
}

#[test]
fn a_longest_demand_fits_a_line() {
    let last = Instant::from_nanos(u64::MAX);
    let object = |number| Object { number, size_bytes: u64::MAX, acked_bytes: u64::MAX, start: last, deadline: last };
    let objects: Vec<Object> = (0..100).map(|place| object(u64::MAX - place)).collect();
    let line = write_demand(&objects, 0);
    assert!(line.len() < 12_000, "{}", line.len());
    assert_eq!(read_demand(&line, 0).unwrap(), objects[..MAX_OBJECTS]);
}

proptest! {
    #[test]
    fn lines_come_out_as_they_went_in_however_they_are_cut(
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
        prop_assert!(read_demand(&bytes, origin_ns).is_err() || !bytes.is_empty());
    }
}
