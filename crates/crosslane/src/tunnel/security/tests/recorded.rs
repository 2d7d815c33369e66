//! Recorded initiations, and clocks that were ahead once.

use super::*;

/// Between two replays of an attacker who sends 10,000 a second.
const REPLAY_EVERY: Duration = Duration::from_micros(100);
/// Between two initiations of a vehicle that calls.
const CALL_EVERY: Duration = Duration::from_millis(250);

/// A vehicle with the same key that knows nothing of before.
fn restarted(vehicle: &Security, gateway: &Security) -> Security {
    Security::new(vehicle.private.clone(), vec![gateway.private.public()])
}

/// Initiations of whole handshakes, one each two minutes, whose sessions were used.
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

/// Calls until there is a session both ways, while `replays` come in between; for how long.
fn call(vehicle: &mut Security, gateway: &mut Security, from: Instant, unix_ns: u64, replays: &[Vec<u8>]) -> Duration {
    let mut replays = replays.iter().cycle();
    for n in 0..200_000u32 {
        let waited = REPLAY_EVERY * n;
        let now = from + waited;
        if let Some(replay) = replays.next() {
            let _ = gateway.receive(now, replay);
        }
        if !waited.as_nanos().is_multiple_of(CALL_EVERY.as_nanos()) {
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
fn a_known_replay_takes_no_place_in_the_budget_and_holds_up_nobody() {
    let (mut vehicle, mut gateway) = ends();
    let initiations = recorded(&mut vehicle, &mut gateway, 40);
    let now = seconds(120 * 40);
    // For a second before the vehicle calls, so that a budget would be used up.
    for n in 0..10_000u32 {
        let replay = &initiations[n as usize % initiations.len()];
        assert_eq!(refused(gateway.receive(now + REPLAY_EVERY * n, replay)), RejectReason::Replayed);
    }
    let from = now + Duration::from_secs(1);
    let mut again = restarted(&vehicle, &gateway);
    let waited = call(&mut again, &mut gateway, from, UNIX_NS + from.as_nanos(), &initiations);
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn a_gateway_that_knows_no_replay_yet_answers_its_vehicle_within_two_seconds() {
    let (mut vehicle, mut gateway) = ends();
    let initiations = recorded(&mut vehicle, &mut gateway, 40);
    let (private, peers) = (gateway.private.clone(), gateway.peers.iter().map(|peer| peer.key).collect());
    let mut gateway = Security::new(private, peers);
    let from = seconds(120 * 40);
    let mut again = restarted(&vehicle, &gateway);
    let waited = call(&mut again, &mut gateway, from, UNIX_NS + from.as_nanos(), &initiations);
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
}

#[test]
fn a_clock_that_was_once_in_the_future_locks_nobody_out() {
    let (mut vehicle, mut gateway) = ends();
    let years = Duration::from_secs(4 * 365 * 86_400).as_nanos() as u64;
    let ahead = vehicle.initiate(BEGIN, UNIX_NS + years, 0).unwrap();
    let (_, response, _) = reply(gateway.receive(BEGIN, &ahead));
    let (_, ours) = established(vehicle.receive(BEGIN, &response));
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    // Its clock is right again, and it starts again: twice, since the second start meets what the first left.
    for start in 1..3 {
        let now = seconds(60 * start);
        let mut again = restarted(&vehicle, &gateway);
        let waited = call(&mut again, &mut gateway, now, UNIX_NS + now.as_nanos(), std::slice::from_ref(&ahead));
        assert!(waited <= Duration::from_secs(2), "start {start}: {waited:?}");
    }
    // What it says from now on is later than what the gateway goes by: not even a second is lost.
    let now = seconds(120) + Duration::from_millis(300);
    let mut again = restarted(&vehicle, &gateway);
    let waited = call(&mut again, &mut gateway, now, UNIX_NS + now.as_nanos(), &[ahead]);
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn who_replays_to_a_gateway_in_doubt_takes_nothing_from_the_session_in_use_nor_from_a_later_one() {
    let (mut vehicle, mut gateway) = ends();
    let initiations = recorded(&mut vehicle, &mut gateway, 5);
    let (private, peers) = (gateway.private.clone(), gateway.peers.iter().map(|peer| peer.key).collect());
    let mut gateway = Security::new(private, peers);
    let now = seconds(1000);
    let mut again = restarted(&vehicle, &gateway);
    let (ours, theirs) = shake(&mut again, &mut gateway, now, 0);
    carry(&ours, &gateway, now, 0, b"").unwrap();
    let now = now + Duration::from_secs(1);
    let later = again.initiate(now, UNIX_NS + now.as_nanos(), 0).unwrap();
    let (_, response, _) = reply(gateway.receive(now, &later));
    for (n, replay) in initiations.iter().enumerate() {
        let _ = gateway.receive(now + Duration::from_millis(1500 * (n as u64 + 1)), replay);
    }
    let now = now + Duration::from_secs(8);
    assert!(Arc::ptr_eq(&gateway.session_for(now, 1).unwrap(), &theirs));
    let (_, newer) = established(again.receive(now, &response));
    carry(&newer, &gateway, now, 0, b"").unwrap();
    assert!(gateway.by_index.len() <= 4, "{}", gateway.by_index.len());
}

#[test]
fn what_is_remembered_of_initiations_is_bounded_and_the_oldest_goes_first() {
    let mut known = Known::default();
    let noise = |n: usize| [n.to_be_bytes().repeat(4), vec![7; 75]].concat();
    for n in 0..known::MAX_KNOWN + 10 {
        known.remember(0, &noise(n), None);
        known.remember(0, &noise(n), None);
    }
    known.remember(1, &noise(usize::MAX), None);
    assert_eq!(known.len(), known::MAX_KNOWN + 1);
    assert!(!known.refuses(BEGIN, &noise(9)) && known.refuses(BEGIN, &noise(10)));
    known.remember(1, &noise(1), Some(seconds(1)));
    assert!(known.refuses(BEGIN, &noise(1)) && !known.refuses(seconds(1), &noise(1)));
    assert!(known.refuses(BEGIN, &noise(10)), "a peer takes no other's place");
    assert!(!known.refuses(BEGIN, b"short"));
}
