use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant as SystemInstant;

use crosslane_sim::traffic::{Bulk, Messages, Source, Span, TrafficKind, Write};

use super::*;

fn messages_of(size_bytes: u32, every_ms: f64, is_answered: bool) -> Arc<dyn TrafficKind> {
    Arc::new(Messages { size_bytes, every_ms, is_answered })
}

fn plan(direction: Direction, mptcp: bool) -> Plan {
    Plan {
        kind: messages_of(1000, 10.0, false),
        span: span(550),
        seed: 1,
        direction,
        deadline: Instant::from_millis(5000),
        mptcp,
        congestion: "cubic".to_string(),
        send_buffer_bytes: 0,
    }
}

fn span(stop_ms: u64) -> Span {
    Span { start: Instant::from_millis(50), stop: Instant::from_millis(stop_ms) }
}

fn address(listener: &Socket) -> SocketAddr {
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Any address, with a free port.
fn any() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
}

/// Runs both endpoints over loopback, the server after `pause_ms`; returns the
/// sender's record first.
fn run(driver: &dyn Driver, plan: &Plan, pause_ms: u64) -> (EndpointRecord, EndpointRecord) {
    let stop = AtomicBool::new(false);
    let run = Run { plan, clock: Clock::start(), stop: &stop };
    let listener = driver.listen(plan, any()).unwrap();
    let server = address(&listener);
    let (vehicle, server) = std::thread::scope(|scope| {
        let vehicle = scope.spawn(move || driver.drive(run, server, Some(Ipv4Addr::LOCALHOST.into())));
        std::thread::sleep(Duration::from_millis(pause_ms));
        let record = driver.serve(run, listener).unwrap();
        (vehicle.join().unwrap().unwrap(), record)
    });
    if plan.direction == Direction::Up { (vehicle, server) } else { (server, vehicle) }
}

fn is_timely(rows: &[MessageRow]) -> bool {
    rows.iter().all(|row| row.received_ns.is_some_and(|at| at >= row.sent_ns))
}

#[test]
fn every_message_arrives_over_mptcp_and_tcp_in_both_directions() {
    for mptcp in [true, false] {
        for direction in [Direction::Up, Direction::Down] {
            let (sender, receiver) = run(&Connection, &plan(direction, mptcp), 0);
            assert_eq!(sender.skipped, 0);
            let rows = messages(sender.sent, &receiver.received_ns);
            assert_eq!(rows.len(), 50, "mptcp {mptcp}, {direction:?}");
            assert!(is_timely(&rows));
            let last = Instant::from_nanos(rows[49].sent_ns);
            assert!((Instant::from_millis(540)..Instant::from_millis(560)).contains(&last), "no drift: {last}");
        }
    }
}

#[test]
fn an_answered_message_has_the_time_of_its_answer() {
    let plan = Plan { kind: messages_of(100, 20.0, true), ..plan(Direction::Up, true) };
    let (vehicle, server) = run(&Connection, &plan, 0);
    assert_eq!(server, EndpointRecord::default());
    let rows = messages(vehicle.sent, &server.received_ns);
    assert_eq!(rows.len(), 25);
    assert!(is_timely(&rows));
}

#[test]
fn datagrams_arrive_in_both_directions_once_and_timed() {
    for direction in [Direction::Up, Direction::Down] {
        let plan = Plan { kind: messages_of(1000, 5.0, false), span: span(350), ..plan(direction, false) };
        let plan = Plan { deadline: Instant::from_millis(2000), ..plan };
        let (sent, received) = run(&Datagrams, &plan, 0);
        assert_eq!((sent.sent.len(), sent.skipped, received.duplicates), (60, 0, 0), "{direction:?}");
        assert!(is_timely(&messages(sent.sent, &received.received_ns)));
    }
}

#[test]
fn duplicates_are_counted_and_lost_datagrams_have_no_time() {
    let mut record = EndpointRecord::default();
    for (number, now_ns) in [(0, 10), (3, 20), (1, 30), (3, 40), (1, 50)] {
        record.note(number, Instant::from_nanos(now_ns));
    }
    assert_eq!((record.received_ns.as_slice(), record.duplicates), (&[Some(10), Some(30), None, Some(20)][..], 2));
    record.note(usize::MAX, Instant::from_nanos(60));
    assert_eq!(record.received_ns.len(), 4, "the size of the record is limited");
}

#[test]
fn bulk_is_sent_as_fast_as_the_socket_accepts_it() {
    let plan = Plan { kind: Arc::new(Bulk), span: span(250), ..plan(Direction::Up, true) };
    let (vehicle, server) = run(&Connection, &plan, 0);
    assert_eq!(vehicle.sent.len(), server.received_ns.len());
    assert!(vehicle.sent.len() > 5, "{} blocks", vehicle.sent.len());
}

/// A kind that no other file names: every tenth message is larger.
#[derive(Clone, Copy, Debug)]
struct Video {
    span: Span,
    count: u64,
}

impl TrafficKind for Video {
    fn name(&self) -> &'static str {
        "video"
    }

    fn source(&self, span: Span, _seed: u64) -> Box<dyn Source> {
        Box::new(Video { span, ..*self })
    }
}

impl Source for Video {
    fn next_write(&self) -> Option<Instant> {
        Some(self.span.start + Duration::from_millis(10) * self.count as u32).filter(|due| *due < self.span.stop)
    }

    fn poll(&mut self, now: Instant) -> Option<Write> {
        self.next_write().filter(|due| *due <= now)?;
        self.count += 1;
        Some(Write::Message(if self.count % 10 == 1 { 5000 } else { 500 }))
    }
}

#[test]
fn a_new_kind_needs_no_driver() {
    let plan = Plan { kind: Arc::new(Video { span: span(0), count: 0 }), ..plan(Direction::Up, true) };
    let (sender, receiver) = run(&Connection, &plan, 0);
    let rows = messages(sender.sent, &receiver.received_ns);
    assert!(is_timely(&rows));
    assert_eq!((rows.len(), rows.iter().filter(|row| row.size_bytes == 5000).count()), (50, 5));
}

#[test]
fn a_server_without_a_connection_stops_at_the_deadline() {
    let plan = Plan { deadline: Instant::from_millis(60), ..plan(Direction::Up, true) };
    let run = Run { plan: &plan, clock: Clock::start(), stop: &AtomicBool::new(false) };
    let error = Connection.serve(run, Connection.listen(&plan, any()).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("while waiting for the vehicle's connection"), "{error}");
}

/// Messages larger than all buffers, to a peer that the test lets read or not.
fn heavy() -> Plan {
    Plan {
        kind: messages_of(1 << 20, 10.0, false),
        span: span(1600),
        deadline: Instant::from_millis(4000),
        send_buffer_bytes: 65_536,
        ..plan(Direction::Up, false)
    }
}

#[test]
fn a_sender_whose_peer_does_not_read_ends_at_the_deadline() {
    let plan = Plan { deadline: Instant::from_millis(300), ..heavy() };
    let began = SystemInstant::now();
    let listener = Connection.listen(&plan, any()).unwrap();
    let run = Run { plan: &plan, clock: Clock::start(), stop: &AtomicBool::new(false) };
    let record = Connection.drive(run, address(&listener), None).unwrap();
    assert!(record.sent.len() < 20, "{} written", record.sent.len());
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn messages_that_waited_longer_than_the_backlog_are_skipped_and_counted() {
    let (sender, receiver) = run(&Connection, &heavy(), 1400);
    assert!(sender.skipped > 10, "{} skipped", sender.skipped);
    assert!(sender.sent.len() as u64 + sender.skipped <= 155);
    assert_eq!(receiver.received_ns.len(), sender.sent.len(), "all written messages arrive");
}

#[test]
fn after_a_connection_that_broke_messages_are_skipped_and_the_run_goes_on() {
    let plan = Plan { span: span(2550), ..plan(Direction::Up, false) };
    let run = Run { plan: &plan, clock: Clock::start(), stop: &AtomicBool::new(false) };
    let listener = Connection.listen(&plan, any()).unwrap();
    let server = address(&listener);
    let sender = std::thread::scope(|scope| {
        let sender = scope.spawn(move || Connection.drive(run, server, None).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        // Closed with bytes that were not read: a reset.
        drop(listener.accept().unwrap());
        sender.join().unwrap()
    });
    let (sent, skipped) = (sender.sent.len() as u64, sender.skipped);
    assert!(sent < 100 && skipped > 50 && (149..=151).contains(&(sent + skipped)), "{sent} sent, {skipped} skipped");
}

#[test]
fn an_unknown_congestion_control_is_an_error_with_a_remedy() {
    let plan = Plan { congestion: "nonesuch".to_string(), ..plan(Direction::Up, true) };
    let text = Connection.listen(&plan, any()).unwrap_err().to_string();
    assert!(text.starts_with("while setting the congestion control nonesuch: "), "{text}");
    assert!(text.contains("tcp_allowed_congestion_control"), "{text}");
}

#[test]
fn messages_smaller_than_their_header_are_rejected() {
    let plan = Plan { kind: messages_of(23, 10.0, false), ..plan(Direction::Up, true) };
    let text = Connection.listen(&plan, any()).unwrap_err().to_string();
    assert!(text.starts_with("while planning the traffic: messages of 23 bytes"), "{text}");
}
