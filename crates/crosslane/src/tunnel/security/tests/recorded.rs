//! Replayed initiations, and clocks that were once ahead.

use super::*;

/// Time between two replays of an attacker that sends 10,000 a second.
const REPLAY_EVERY: Duration = Duration::from_micros(100);
/// Time between two initiations of a vehicle without a session.
const INITIATE_EVERY: Duration = Duration::from_millis(250);

/// A vehicle with the same key, without its state.
fn restarted(vehicle: &Security, gateway: &Security) -> Security {
    Security::new(vehicle.private.clone(), vec![gateway.private.public()])
}

/// Initiations of complete handshakes, one every two minutes, whose sessions were used.
fn recorded(vehicle: &mut Security, gateway: &mut Security, count: u64) -> Vec<Vec<u8>> {
    let handshakes = (0..count).map(|n| {
        let now = seconds(120 * n);
        let initiation = vehicle.initiate(now, UNIX_NS + now.as_nanos(), 0).unwrap();
        let (_, response, _) = reply(gateway.receive(now, &initiation));
        let (_, ours) = established(vehicle.receive(now, &response));
        carry(&ours, gateway, now, 0, b"").unwrap();
        vehicle.expire(now);
        gateway.expire(now);
        initiation
    });
    handshakes.collect()
}

/// Initiates until there is a session in both directions, while `replays` are interleaved; returns the duration.
fn connect(
    vehicle: &mut Security,
    gateway: &mut Security,
    from: Instant,
    unix_ns: u64,
    replays: &[Vec<u8>],
) -> Duration {
    let mut replays = replays.iter().cycle();
    for n in 0..200_000u32 {
        let waited = REPLAY_EVERY * n;
        let now = from + waited;
        if let Some(replay) = replays.next() {
            let _ = gateway.receive(now, replay);
        }
        if !waited.as_nanos().is_multiple_of(INITIATE_EVERY.as_nanos()) {
            continue;
        }
        let initiation = vehicle.initiate(now, unix_ns + waited.as_nanos() as u64, 0).unwrap();
        let HandshakeEvent::Reply { datagram, .. } = gateway.receive(now, &initiation) else { continue };
        let HandshakeEvent::Established { session, .. } = vehicle.receive(now, &datagram) else { continue };
        if carry(&session, gateway, now, 0, b"").is_ok() && gateway.session_for(now, 1).is_some() {
            return waited;
        }
    }
    panic!("no session in 20 s");
}

#[test]
fn known_replays_do_not_use_the_rate_limit_and_delay_no_peer() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiations = recorded(&mut vehicle, &mut gateway, 40);
    let now = seconds(120 * 40);
    // For a second before the vehicle initiates, which would exhaust the rate limit.
    for n in 0..10_000u32 {
        let replay = &initiations[n as usize % initiations.len()];
        assert_eq!(rejected(gateway.receive(now + REPLAY_EVERY * n, replay)), RejectReason::Replayed);
    }
    let from = now + Duration::from_secs(1);
    let mut restarted_vehicle = restarted(&vehicle, &gateway);
    let waited = connect(&mut restarted_vehicle, &mut gateway, from, UNIX_NS + from.as_nanos(), &initiations);
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn a_gateway_without_known_replays_answers_its_vehicle_within_two_seconds() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiations = recorded(&mut vehicle, &mut gateway, 40);
    let (private, peers) = (gateway.private.clone(), gateway.peers.iter().map(|peer| peer.key).collect());
    let mut gateway = Security::new(private, peers);
    let from = seconds(120 * 40);
    let mut restarted_vehicle = restarted(&vehicle, &gateway);
    let waited = connect(&mut restarted_vehicle, &mut gateway, from, UNIX_NS + from.as_nanos(), &initiations);
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
}

#[test]
fn a_clock_that_was_once_in_the_future_does_not_lock_its_owner_out() {
    let (mut vehicle, mut gateway) = endpoints();
    let years = Duration::from_secs(4 * 365 * 86_400).as_nanos() as u64;
    let ahead = vehicle.initiate(BEGIN, UNIX_NS + years, 0).unwrap();
    let (_, response, _) = reply(gateway.receive(BEGIN, &ahead));
    let (_, ours) = established(vehicle.receive(BEGIN, &response));
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    // Its clock is corrected, and it restarts: twice, since the second start meets the state of the first.
    for start in 1..3 {
        let now = seconds(60 * start);
        let mut restarted_vehicle = restarted(&vehicle, &gateway);
        let waited =
            connect(&mut restarted_vehicle, &mut gateway, now, UNIX_NS + now.as_nanos(), std::slice::from_ref(&ahead));
        assert!(waited <= Duration::from_secs(2), "start {start}: {waited:?}");
    }
    // Its times are now later than the gateway's reference: not even a second is lost.
    let now = seconds(120) + Duration::from_millis(300);
    let mut restarted_vehicle = restarted(&vehicle, &gateway);
    let waited = connect(&mut restarted_vehicle, &mut gateway, now, UNIX_NS + now.as_nanos(), &[ahead]);
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn replays_to_a_gateway_in_doubt_affect_neither_the_session_in_use_nor_a_later_one() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiations = recorded(&mut vehicle, &mut gateway, 5);
    let (private, peers) = (gateway.private.clone(), gateway.peers.iter().map(|peer| peer.key).collect());
    let mut gateway = Security::new(private, peers);
    let now = seconds(1000);
    let mut restarted_vehicle = restarted(&vehicle, &gateway);
    let (ours, theirs) = shake(&mut restarted_vehicle, &mut gateway, now, 0);
    carry(&ours, &gateway, now, 0, b"").unwrap();
    let now = now + Duration::from_secs(1);
    let later = restarted_vehicle.initiate(now, UNIX_NS + now.as_nanos(), 0).unwrap();
    let (_, response, _) = reply(gateway.receive(now, &later));
    for (n, replay) in initiations.iter().enumerate() {
        let _ = gateway.receive(now + Duration::from_millis(1500 * (n as u64 + 1)), replay);
    }
    let now = now + Duration::from_secs(8);
    assert!(Arc::ptr_eq(&gateway.session_for(now, 1).unwrap(), &theirs));
    let (_, newer) = established(restarted_vehicle.receive(now, &response));
    carry(&newer, &gateway, now, 0, b"").unwrap();
    assert!(gateway.by_index.len() <= 4, "{}", gateway.by_index.len());
}

#[test]
fn the_number_of_stored_initiations_is_bounded_and_the_oldest_goes_first() {
    let mut known = Known::default();
    let noise = |n: usize| [n.to_be_bytes().repeat(4), vec![7; 75]].concat();
    for n in 0..known::MAX_KNOWN + 10 {
        known.remember(0, &noise(n), None);
        known.remember(0, &noise(n), None);
    }
    known.remember(1, &noise(usize::MAX), None);
    assert_eq!(known.len(), known::MAX_KNOWN + 1);
    assert!(!known.rejects(BEGIN, &noise(9)) && known.rejects(BEGIN, &noise(10)));
    known.remember(1, &noise(1), Some(seconds(1)));
    assert!(known.rejects(BEGIN, &noise(1)) && !known.rejects(seconds(1), &noise(1)));
    assert!(known.rejects(BEGIN, &noise(10)), "a peer displaces no other's initiations");
    assert!(!known.rejects(BEGIN, b"short"));
}
