//! What the tunnel's security costs: `cargo bench --bench tunnel_security`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::error::{Error, Result};
use crosslane::tunnel::security::{HandshakeEvent, PrivateKey, Security, Session};
use crosslane_core::time::Instant;

/// A full inner packet of a tunnel over Ethernet, with its GRE header.
const PLAIN_BYTES: usize = 1400;
/// At once: what a socket hands over in a moment, and a core's cache holds.
const MESSAGES: usize = 128;
const ROUNDS: usize = 4000;

fn main() {
    // `cargo test --benches` passes no --bench: it only wants to see it build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = data().and_then(|()| handshakes()) {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn data() -> Result<()> {
    let (_, _, ours, theirs) = ends()?;
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
    for (what, times) in [("seal", sealed), ("open", opened), ("refuse a replay of", replayed)] {
        let ns = median(times);
        println!("{what} {PLAIN_BYTES} bytes: {ns:.0} ns, {:.3} CPU-s per GB", ns / PLAIN_BYTES as f64);
    }
    Ok(())
}

fn handshakes() -> Result<()> {
    let (mut vehicle, mut gateway, ..) = ends()?;
    let stranger_key = PrivateKey::generate()?;
    let (mut begin, mut answer, mut finish, mut stranger) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 1..300 {
        let now = Instant::from_millis(10_000 * n);
        let at = monotonic_ns();
        let initiation = vehicle.initiate(now, now.as_nanos(), 0).unwrap_or_default();
        let begun = monotonic_ns();
        let HandshakeEvent::Reply { datagram, .. } = gateway.receive(now, &initiation) else { return Err(lost()) };
        let answered = monotonic_ns();
        let HandshakeEvent::Established { .. } = vehicle.receive(now, &datagram) else { return Err(lost()) };
        let finished = monotonic_ns();
        let mut strange = Security::new(stranger_key.clone(), vec![gateway.public()]);
        let initiation = strange.initiate(now, 1, 0).unwrap_or_default();
        let heard = monotonic_ns();
        black_box(gateway.receive(now + Duration::from_secs(1), &initiation));
        stranger.push((monotonic_ns() - heard) as f64);
        begin.push((begun - at) as f64);
        answer.push((answered - begun) as f64);
        finish.push((finished - answered) as f64);
    }
    for (what, times) in
        [("initiate", begin), ("answer", answer), ("take the answer", finish), ("refuse a stranger", stranger)]
    {
        println!("{what}: {:.0} µs", median(times) / 1e3);
    }
    let mut uninvited = [9; 140];
    uninvited[0] = 1;
    let refused = |_| matches!(gateway.receive(Instant::ZERO, black_box(&uninvited)), HandshakeEvent::Nothing(_));
    println!("refuse who does not know the public key: {:.2} µs", nanos_each(20_000, refused) / 1e3);
    Ok(())
}

fn ends() -> Result<(Security, Security, Arc<Session>, Arc<Session>)> {
    let (vehicle, gateway) = (PrivateKey::generate()?, PrivateKey::generate()?);
    let (to_vehicle, to_gateway) = (vehicle.public(), gateway.public());
    let (mut vehicle, mut gateway) =
        (Security::new(vehicle, vec![to_gateway]), Security::new(gateway, vec![to_vehicle]));
    let initiation = vehicle.initiate(Instant::ZERO, 1, 0).ok_or_else(lost)?;
    let HandshakeEvent::Reply { datagram, session: theirs, .. } = gateway.receive(Instant::ZERO, &initiation) else {
        return Err(lost());
    };
    let HandshakeEvent::Established { session: ours, .. } = vehicle.receive(Instant::ZERO, &datagram) else {
        return Err(lost());
    };
    Ok((vehicle, gateway, ours, theirs))
}

fn lost() -> Error {
    Error::failure("measuring the tunnel's security", "a handshake failed")
}

fn nanos_each(times: usize, mut one: impl FnMut(usize) -> bool) -> f64 {
    let begin = monotonic_ns();
    let done = (0..times).filter(|&n| one(n)).count();
    assert_eq!(done, times, "something did not work");
    (monotonic_ns() - begin) as f64 / times as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
