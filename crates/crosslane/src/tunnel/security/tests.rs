//! Two endpoints connected in memory.

mod data;
mod recorded;

use proptest::prelude::*;

use super::*;

/// Wall-clock time at the start of the run.
const UNIX_NS: u64 = 1_700_000_000_000_000_000;
const BEGIN: Instant = Instant::from_millis(5);

fn after(wait: Duration) -> Instant {
    BEGIN + wait
}

fn seconds(seconds: u64) -> Instant {
    after(Duration::from_secs(seconds))
}

/// A vehicle and its gateway, which also has another peer, with index 0.
fn endpoints() -> (Security, Security) {
    let [vehicle, gateway, other] = [(); 3].map(|()| PrivateKey::generate().unwrap());
    let peers = vec![other.public(), vehicle.public()];
    (Security::new(vehicle, vec![gateway.public()]), Security::new(gateway, peers))
}

fn rejected(event: HandshakeEvent) -> RejectReason {
    match event {
        HandshakeEvent::Nothing(reason) => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

fn reply(event: HandshakeEvent) -> (usize, Vec<u8>, Arc<Session>) {
    match event {
        HandshakeEvent::Reply { peer, datagram, session } => (peer, datagram, session),
        other => panic!("no reply: {other:?}"),
    }
}

fn established(event: HandshakeEvent) -> (usize, Arc<Session>) {
    match event {
        HandshakeEvent::Established { peer, session } => (peer, session),
        other => panic!("not established: {other:?}"),
    }
}

/// A complete handshake; the initiator's session and the responder's.
fn shake(from: &mut Security, to: &mut Security, now: Instant, peer: usize) -> (Arc<Session>, Arc<Session>) {
    let initiation = from.initiate(now, UNIX_NS + now.as_nanos(), peer).unwrap();
    let (_, response, theirs) = reply(to.receive(now, &initiation));
    let (_, ours) = established(from.receive(now, &response));
    (ours, theirs)
}

/// Encrypts, finds the session and decrypts.
fn carry(from: &Session, to: &Security, now: Instant, path: u8, plain: &[u8]) -> Result<Opened, RejectReason> {
    let mut datagram = Vec::new();
    from.seal(path, plain, &mut datagram)?;
    let (_, session) = to.session_of(now, &datagram).ok_or(RejectReason::NoSession)?;
    let mut opened = Vec::new();
    let from = session.open(&datagram, &mut opened)?;
    assert_eq!(opened, plain);
    Ok(from)
}

#[test]
fn both_endpoints_authenticate_each_other() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiation = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    let (peer, response, session) = reply(gateway.receive(BEGIN, &initiation));
    assert_eq!(peer, 1);
    let (peer, ours) = established(vehicle.receive(BEGIN, &response));
    assert_eq!(peer, 0);
    let mut datagram = Vec::new();
    ours.seal(3, b"x", &mut datagram).unwrap();
    assert!(is_data(&datagram) && !is_data(&initiation) && !is_data(&response) && !is_data(&[]));
    let (peer, found) = gateway.session_of(BEGIN, &datagram).unwrap();
    assert!(peer == 1 && Arc::ptr_eq(&found, &session));
}

#[test]
fn the_responder_sends_only_after_it_has_received_in_the_new_session() {
    let (mut vehicle, mut gateway) = endpoints();
    assert!(vehicle.session_for(BEGIN, 0).is_none());
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    assert!(Arc::ptr_eq(&vehicle.session_for(BEGIN, 0).unwrap(), &ours));
    assert!(gateway.session_for(BEGIN, 1).is_none());
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    assert!(Arc::ptr_eq(&gateway.session_for(BEGIN, 1).unwrap(), &theirs));
    let (new, new_theirs) = shake(&mut vehicle, &mut gateway, seconds(120), 0);
    assert!(Arc::ptr_eq(&gateway.session_for(seconds(120), 1).unwrap(), &theirs));
    carry(&new, &gateway, seconds(120), 0, b"").unwrap();
    assert!(Arc::ptr_eq(&gateway.session_for(seconds(120), 1).unwrap(), &new_theirs));
}

#[test]
fn an_initiation_over_several_paths_creates_one_session() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiation = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    let (_, first, session) = reply(gateway.receive(BEGIN, &initiation));
    for path in 1..4 {
        let (_, repeated, same) = reply(gateway.receive(seconds(path), &initiation));
        assert!(repeated == first && Arc::ptr_eq(&same, &session));
    }
    established(vehicle.receive(seconds(3), &first));
    assert_eq!(rejected(vehicle.receive(seconds(3), &first)), RejectReason::Unasked);
    assert_eq!(gateway.by_index.len(), 1);
}

#[test]
fn an_initiation_is_repeated_and_then_replaced() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiation = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    assert_eq!(vehicle.initiate(seconds(4), UNIX_NS, 0).unwrap(), initiation);
    // The clock was set back: the time in the initiation is later nevertheless.
    let second = vehicle.initiate(seconds(5), 0, 0).unwrap();
    assert_ne!(second, initiation);
    let (_, late, _) = reply(gateway.receive(seconds(5), &initiation));
    let (_, response, _) = reply(gateway.receive(seconds(6), &second));
    assert_eq!(rejected(vehicle.receive(seconds(6), &late)), RejectReason::Unasked);
    established(vehicle.receive(seconds(6), &response));
    assert!(vehicle.initiate(BEGIN, UNIX_NS, 1).is_none());
}

#[test]
fn an_unknown_initiator_gets_no_answer() {
    let (_, mut gateway) = endpoints();
    let public = gateway.private.public();
    let mut unknown = Security::new(PrivateKey::generate().unwrap(), vec![public]);
    let initiation = unknown.initiate(BEGIN, UNIX_NS, 0).unwrap();
    assert_eq!(rejected(gateway.receive(BEGIN, &initiation)), RejectReason::Stranger);
    let wrong = PrivateKey::generate().unwrap().public();
    let mut lost = Security::new(PrivateKey::generate().unwrap(), vec![wrong]);
    let initiation = lost.initiate(BEGIN, UNIX_NS, 0).unwrap();
    assert_eq!(rejected(gateway.receive(BEGIN, &initiation)), RejectReason::Uninvited);
}

#[test]
fn an_attacker_with_only_the_public_keys_cannot_impersonate() {
    let (mut vehicle, mut gateway) = endpoints();
    let (public, mac1) = (vehicle.private.public(), Mac1::of(&gateway.private.public()));
    let initiation = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    for at in 0..message::NOISE_1_BYTES {
        let mut noise: [u8; message::NOISE_1_BYTES] = initiation[1..][..message::NOISE_1_BYTES].try_into().unwrap();
        noise[at] ^= 0x10;
        let reason = rejected(gateway.receive(seconds(at as u64), &mac1.initiation(&noise)));
        assert_eq!(reason, RejectReason::Forged, "byte {at}");
    }
    let (_, response, _) = reply(gateway.receive(seconds(200), &initiation));
    let mac1 = Mac1::of(&public);
    let to = Index(response[1..4].try_into().unwrap());
    for at in 0..message::NOISE_2_BYTES {
        let mut noise: [u8; message::NOISE_2_BYTES] = response[4..][..message::NOISE_2_BYTES].try_into().unwrap();
        noise[at] ^= 0x10;
        let reason = rejected(vehicle.receive(seconds(200 + at as u64), &mac1.response(to, &noise)));
        assert_eq!(reason, RejectReason::Forged, "byte {at}");
    }
    // None of these affects the authentic response.
    established(vehicle.receive(seconds(300), &response));
}

#[test]
fn a_replayed_initiation_is_not_answered() {
    let (mut vehicle, mut gateway) = endpoints();
    let first = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    let (_, response, theirs) = reply(gateway.receive(BEGIN, &first));
    let (_, ours) = established(vehicle.receive(BEGIN, &response));
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    assert_eq!(rejected(gateway.receive(BEGIN, &first)), RejectReason::Replayed);
    shake(&mut vehicle, &mut gateway, seconds(1), 0);
    assert_eq!(rejected(gateway.receive(seconds(2), &first)), RejectReason::Replayed);
    gateway.expire(seconds(100));
    assert_eq!(rejected(gateway.receive(seconds(100), &first)), RejectReason::Replayed);
    assert!(Arc::ptr_eq(&gateway.session_for(seconds(100), 1).unwrap(), &theirs));
}

#[test]
fn a_lost_response_is_repeated_for_a_limited_time() {
    let (mut vehicle, mut gateway) = endpoints();
    let initiation = vehicle.initiate(BEGIN, UNIX_NS, 0).unwrap();
    for _ in 0..MAX_RESPONSES {
        reply(gateway.receive(BEGIN, &initiation));
    }
    assert_eq!(rejected(gateway.receive(BEGIN, &initiation)), RejectReason::Replayed);
    let repeated = vehicle.initiate(seconds(5), UNIX_NS, 0).unwrap();
    reply(gateway.receive(seconds(5), &repeated));
    assert_eq!(rejected(gateway.receive(seconds(15), &repeated)), RejectReason::Replayed);
}

#[test]
fn the_initiator_rekeys_after_two_minutes_and_sessions_expire_after_three() {
    let (mut vehicle, mut gateway) = endpoints();
    assert!(vehicle.wants_rekey(BEGIN, 0) && !vehicle.wants_rekey(BEGIN, 1));
    let (ours, _) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    assert!(!vehicle.wants_rekey(seconds(119), 0));
    assert!(vehicle.wants_rekey(seconds(120), 0) && !gateway.wants_rekey(seconds(179), 1));
    assert!(carry(&ours, &gateway, seconds(179), 0, b"").is_ok());
    assert_eq!(carry(&ours, &gateway, seconds(180), 0, b""), Err(RejectReason::NoSession));
    assert!(vehicle.session_for(seconds(180), 0).is_none());
    gateway.expire(seconds(179));
    assert_eq!(gateway.by_index.len(), 1);
    gateway.expire(seconds(180));
    assert!(gateway.by_index.is_empty() && gateway.responses_sent.is_empty());
    assert!(gateway.session_for(seconds(180), 1).is_none());
}

#[test]
fn the_previous_session_opens_late_packets_and_the_one_before_is_gone() {
    let (mut vehicle, mut gateway) = endpoints();
    let sessions: Vec<_> = (0..3)
        .map(|n| {
            let (ours, _) = shake(&mut vehicle, &mut gateway, seconds(n), 0);
            carry(&ours, &gateway, seconds(n), 0, b"").unwrap();
            ours
        })
        .collect();
    // The fourth is not confirmed yet.
    shake(&mut vehicle, &mut gateway, seconds(4), 0);
    let opens: Vec<bool> =
        sessions.iter().map(|session| carry(session, &gateway, seconds(4), 0, b"").is_ok()).collect();
    assert_eq!(opens, [false, true, true]);
    assert_eq!((vehicle.by_index.len(), gateway.by_index.len()), (2, 3));
}

#[test]
fn handshakes_with_lost_responses_do_not_affect_the_session_in_use() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    carry(&ours, &gateway, BEGIN, 0, b"").unwrap();
    for n in 1..20 {
        let initiation = vehicle.initiate(seconds(5 * n), UNIX_NS, 0).unwrap();
        reply(gateway.receive(seconds(5 * n), &initiation));
        gateway.expire(seconds(5 * n));
        vehicle.expire(seconds(5 * n));
    }
    assert!(carry(&ours, &gateway, seconds(100), 0, b"").is_ok());
    assert!(Arc::ptr_eq(&gateway.session_for(seconds(100), 1).unwrap(), &theirs));
    assert_eq!((gateway.by_index.len(), gateway.responses_sent.len(), vehicle.by_index.len()), (2, 1, 2));
}

#[test]
fn both_may_initiate_simultaneously() {
    let (mut a, mut b) = endpoints();
    let (from_a, from_b) = (a.initiate(BEGIN, UNIX_NS, 0).unwrap(), b.initiate(BEGIN, UNIX_NS, 1).unwrap());
    let (_, to_b, _) = reply(a.receive(BEGIN, &from_b));
    let (_, to_a, _) = reply(b.receive(BEGIN, &from_a));
    established(a.receive(BEGIN, &to_a));
    established(b.receive(BEGIN, &to_b));
    for _ in 0..3 {
        assert!(carry(&a.session_for(BEGIN, 0).unwrap(), &b, BEGIN, 0, b"to b").is_ok());
        assert!(carry(&b.session_for(BEGIN, 1).unwrap(), &a, BEGIN, 0, b"to a").is_ok());
    }
}

#[test]
fn the_rate_of_responses_to_one_peer_is_limited() {
    let (mut vehicle, mut gateway) = endpoints();
    let mut last = None;
    for n in 0..100 {
        let now = BEGIN + Duration::from_millis(n);
        vehicle.peers[0].pending = None;
        let initiation = vehicle.initiate(now, UNIX_NS + n, 0).unwrap();
        if let HandshakeEvent::Reply { .. } = gateway.receive(now, &initiation) {
            assert!(last.is_none_or(|last| now.since(last) >= peer::MIN_RESPONSE_INTERVAL), "at {now}");
            last = Some(now);
        }
    }
    assert!(last.is_some_and(|last| last >= BEGIN + Duration::from_millis(80)));
}

#[test]
fn a_flood_of_initiations_is_rate_limited_and_no_response_is_lost() {
    let (_, mut gateway) = endpoints();
    let public = gateway.private.public();
    let remote = PrivateKey::generate().unwrap();
    gateway.peers.push(Peer::new(remote.public()));
    let place = gateway.peers.len() - 1;
    let mut remote = Security::new(remote, vec![public]);
    let initiation = gateway.initiate(BEGIN, UNIX_NS, place).unwrap();
    let (_, response, _) = reply(remote.receive(BEGIN, &initiation));
    let initiations: Vec<_> = (0..400)
        .map(|_| {
            let mut unknown = Security::new(PrivateKey::generate().unwrap(), vec![public]);
            unknown.initiate(BEGIN, UNIX_NS, 0).unwrap()
        })
        .collect();
    let mut worked = 0;
    for n in 0..4000 {
        let now = BEGIN + Duration::from_micros(250) * n;
        let reason = rejected(gateway.receive(now, &initiations[n as usize % initiations.len()]));
        worked += u32::from(reason == RejectReason::Stranger);
        assert!(matches!(reason, RejectReason::Stranger | RejectReason::Flood), "{reason}");
    }
    let expected = rate_limit::BURST + (Duration::from_secs(1).as_micros() / rate_limit::INTERVAL.as_micros()) as u32;
    assert!(worked.abs_diff(expected) <= 1, "{worked} of the flood cost public-key work");
    established(gateway.receive(seconds(1), &response));
}

#[test]
fn threads_may_share_it() {
    fn shared<T: Send + Sync>() {}
    shared::<Security>();
    shared::<Session>();
}

#[test]
fn debug_output_contains_no_keys() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, _) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    let shown = format!("{vehicle:?} {ours:?}");
    assert!(!shown.contains(vehicle.private.text().as_str()) && shown.len() < 250, "{shown}");
}

proptest! {
    #[test]
    fn any_bytes_are_rejected_without_a_panic(
        mut datagram in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(any::<u8>(), 140..=140),
            prop::collection::vec(any::<u8>(), 87..=87),
        ],
        kind in 0..6u8,
    ) {
        if let Some(first) = datagram.first_mut() {
            *first = kind;
        }
        let (mut vehicle, mut gateway) = endpoints();
        let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
        for endpoint in [&mut vehicle, &mut gateway] {
    prop_assert!(matches!(endpoint.receive(BEGIN, &datagram), HandshakeEvent::Nothing(_)));
    prop_assert!(endpoint.session_of(BEGIN, &datagram).is_none_or(|_| is_data(&datagram)));
        }
        let mut plain = Vec::new();
        for session in [&ours, &theirs] {
            prop_assert!(session.open(&datagram, &mut plain).is_err());
        }
    }
}
