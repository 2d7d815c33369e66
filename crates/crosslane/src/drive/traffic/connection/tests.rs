use std::net::Ipv4Addr;
use std::time::Instant;

use super::*;

const MS: u64 = 1_000_000;

fn plan(direction: Direction, mptcp: bool) -> Plan {
    Plan {
        answered: false,
        direction,
        size_bytes: 1000,
        period_ns: 10 * MS,
        start_ns: 50 * MS,
        stop_ns: 550 * MS,
        deadline_ns: 5000 * MS,
        mptcp,
        congestion: "cubic".to_string(),
        send_buffer_bytes: 0,
    }
}

/// Runs both endpoints over loopback; returns the vehicle's record first.
fn run(plan: &Plan) -> (ConnectionRecord, ConnectionRecord) {
    let began = Instant::now();
    let clock = move || began.elapsed().as_nanos() as u64;
    let stop = AtomicBool::new(false);
    let listener = listen(0, plan).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    std::thread::scope(|scope| {
        let vehicle = scope.spawn(|| drive(server, Some(Ipv4Addr::LOCALHOST.into()), plan, &clock, &stop));
        let record = serve(&listener, plan, &clock, &stop).unwrap();
        (vehicle.join().unwrap().unwrap(), record)
    })
}

#[test]
fn every_message_arrives_over_mptcp_and_tcp_in_both_directions() {
    for mptcp in [true, false] {
        for direction in [Direction::Up, Direction::Down] {
            let plan = plan(direction, mptcp);
            let (vehicle, server) = run(&plan);
            let (sender, receiver) = if direction == Direction::Up { (vehicle, server) } else { (server, vehicle) };
            assert_eq!(sender.skipped, 0);
            let rows = messages(&plan, &sender, &receiver);
            assert_eq!(rows.len(), 50, "mptcp {mptcp}, {direction:?}");
            assert!(rows.iter().all(|row| row.received_ns.is_some_and(|at| at >= row.sent_ns)));
            let last = rows.last().unwrap().sent_ns;
            assert!((540 * MS..560 * MS).contains(&last), "no drift: {last}");
        }
    }
}

#[test]
fn bulk_is_sent_as_fast_as_the_socket_accepts_it() {
    let plan = Plan { size_bytes: BULK_BYTES, period_ns: 0, stop_ns: 250 * MS, ..plan(Direction::Up, true) };
    let (vehicle, server) = run(&plan);
    assert_eq!(vehicle.sent_ns.len(), server.received_ns.len());
    assert!(vehicle.sent_ns.len() > 5, "{} blocks", vehicle.sent_ns.len());
}

#[test]
fn a_server_without_a_connection_stops_at_the_deadline() {
    let plan = Plan { deadline_ns: 60 * MS, ..plan(Direction::Up, true) };
    let began = Instant::now();
    let clock = move || began.elapsed().as_nanos() as u64;
    let listener = listen(0, &plan).unwrap();
    let error = serve(&listener, &plan, &clock, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().starts_with("while waiting for the vehicle's connection"), "{error}");
}

/// Messages larger than all buffers, to a peer that the test lets read or not.
fn heavy() -> Plan {
    Plan {
        size_bytes: 1 << 20,
        stop_ns: 1600 * MS,
        deadline_ns: 4000 * MS,
        send_buffer_bytes: 65_536,
        ..plan(Direction::Up, false)
    }
}

#[test]
fn a_sender_whose_peer_does_not_read_ends_at_the_deadline() {
    let plan = Plan { deadline_ns: 300 * MS, ..heavy() };
    let began = Instant::now();
    let clock = move || began.elapsed().as_nanos() as u64;
    let listener = listen(0, &plan).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let record = drive(server, None, &plan, &clock, &AtomicBool::new(false)).unwrap();
    assert!(record.sent_ns.len() < 20, "{} written", record.sent_ns.len());
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn messages_that_waited_longer_than_the_backlog_are_skipped_and_counted() {
    let plan = heavy();
    let began = Instant::now();
    let clock = move || began.elapsed().as_nanos() as u64;
    let stop = AtomicBool::new(false);
    let listener = listen(0, &plan).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (sender, receiver) = std::thread::scope(|scope| {
        let vehicle = scope.spawn(|| drive(server, None, &plan, &clock, &stop));
        std::thread::sleep(Duration::from_millis(1400));
        let record = serve(&listener, &plan, &clock, &stop).unwrap();
        (vehicle.join().unwrap().unwrap(), record)
    });
    assert!(sender.skipped > 10, "{} skipped", sender.skipped);
    assert!(sender.sent_ns.len() as u64 + sender.skipped <= 155);
    assert_eq!(receiver.received_ns.len(), sender.sent_ns.len(), "all written messages arrive");
}

#[test]
fn an_unknown_congestion_control_is_an_error_with_a_remedy() {
    let plan = Plan { congestion: "nonesuch".to_string(), ..plan(Direction::Up, true) };
    let text = listen(0, &plan).unwrap_err().to_string();
    assert!(text.starts_with("while setting the congestion control nonesuch: "), "{text}");
    assert!(text.contains("tcp_allowed_congestion_control"), "{text}");
}

#[test]
fn messages_smaller_than_their_header_are_rejected() {
    let plan = Plan { size_bytes: 23, ..plan(Direction::Up, true) };
    assert!(matches!(listen(0, &plan), Err(TrafficError::Plan(_))));
}
