//! Cost of the tunnel's security: `cargo bench --bench tunnel_security`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::error::{Error, Result};
use crosslane::tunnel::security::{HandshakeEvent, PrivateKey, Security, Session};
use crosslane_core::time::Instant;

/// Size of a full inner packet of a tunnel over Ethernet, with its GRE header.
const PLAIN_BYTES: usize = 1400;
/// Messages of a round: a batch of a socket, which fits into a core's cache.
const MESSAGES: usize = 128;
const ROUNDS: usize = 4000;

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = data().and_then(|()| handshakes()) {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn data() -> Result<()> {
    let (_, _, ours, theirs) = endpoints()?;
    let plain = [7; PLAIN_BYTES];
    let (mut sealed, mut opened, mut replayed) = (Vec::new(), Vec::new(), Vec::new());
    let mut datagrams: Vec<Vec<u8>> = vec![Vec::new(); MESSAGES];
    let mut out = Vec::new();
    for _ in 0..ROUNDS {
        sealed.push(nanos_each(MESSAGES, |n| {
            datagrams[n].clear();
            black_box(ours.seal(0, black_box(&plain), &mut datagrams[n]).is_ok())
        }));
        opened.push(nanos_each(MESSAGES, |n| theirs.open(black_box(&datagrams[n]), &mut out).is_ok()));
        replayed.push(nanos_each(MESSAGES, |n| theirs.open(black_box(&datagrams[n]), &mut out).is_err()));
    }
    for (what, times) in [("seal", sealed), ("open", opened), ("reject a replay of", replayed)] {
        let ns = median(times);
        println!("{what} {PLAIN_BYTES} bytes: {ns:.0} ns, {:.3} CPU-s per GB", ns / PLAIN_BYTES as f64);
    }
    Ok(())
}

fn handshakes() -> Result<()> {
    let (mut vehicle, mut gateway, ..) = endpoints()?;
    let unknown_key = PrivateKey::generate()?;
    let (mut begin, mut reply, mut finish, mut unknown) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 1..300 {
        let now = Instant::from_millis(10_000 * n);
        let at = monotonic_ns();
        let initiation = vehicle.initiate(now, now.as_nanos(), 0).unwrap_or_default();
        let sent = monotonic_ns();
        let HandshakeEvent::Reply { datagram, .. } = gateway.receive(now, &initiation) else {
            return Err(handshake_failed());
        };
        let answered = monotonic_ns();
        let HandshakeEvent::Established { .. } = vehicle.receive(now, &datagram) else {
            return Err(handshake_failed());
        };
        let finished = monotonic_ns();
        let mut unknown_peer = Security::new(unknown_key.clone(), vec![gateway.public()]);
        let initiation = unknown_peer.initiate(now, 1, 0).unwrap_or_default();
        let received = monotonic_ns();
        black_box(gateway.receive(now + Duration::from_secs(1), &initiation));
        unknown.push((monotonic_ns() - received) as f64);
        begin.push((sent - at) as f64);
        reply.push((answered - sent) as f64);
        finish.push((finished - answered) as f64);
    }
    for (what, times) in
        [("initiate", begin), ("reply", reply), ("process the reply", finish), ("reject an unknown peer", unknown)]
    {
        println!("{what}: {:.0} µs", median(times) / 1e3);
    }
    let mut invalid = [9; 140];
    invalid[0] = 1;
    let is_rejected = |_| matches!(gateway.receive(Instant::ZERO, black_box(&invalid)), HandshakeEvent::Nothing(_));
    println!("reject a datagram without a valid MAC1: {:.2} µs", nanos_each(20_000, is_rejected) / 1e3);
    Ok(())
}

fn endpoints() -> Result<(Security, Security, Arc<Session>, Arc<Session>)> {
    let (vehicle, gateway) = (PrivateKey::generate()?, PrivateKey::generate()?);
    let (to_vehicle, to_gateway) = (vehicle.public(), gateway.public());
    let (mut vehicle, mut gateway) =
        (Security::new(vehicle, vec![to_gateway]), Security::new(gateway, vec![to_vehicle]));
    let initiation = vehicle.initiate(Instant::ZERO, 1, 0).ok_or_else(handshake_failed)?;
    let HandshakeEvent::Reply { datagram, session: theirs, .. } = gateway.receive(Instant::ZERO, &initiation) else {
        return Err(handshake_failed());
    };
    let HandshakeEvent::Established { session: ours, .. } = vehicle.receive(Instant::ZERO, &datagram) else {
        return Err(handshake_failed());
    };
    Ok((vehicle, gateway, ours, theirs))
}

fn handshake_failed() -> Error {
    Error::failure("measuring the tunnel's security", "a handshake failed")
}

fn nanos_each(times: usize, mut one: impl FnMut(usize) -> bool) -> f64 {
    let begin = monotonic_ns();
    let done = (0..times).filter(|&n| one(n)).count();
    assert_eq!(done, times, "an operation failed");
    (monotonic_ns() - begin) as f64 / times as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
