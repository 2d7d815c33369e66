//! Keys and sessions of the tunnel against an attacker on the wire and after restarts of
//! endpoints; and `crosslane keygen`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use crate::program::crosslane;
use crosslane::tunnel::security::{
    HandshakeEvent, Opened, PrivateKey, PublicKey, RejectReason, Security, Session, is_data,
};
use crosslane_core::rng::Rng;
use crosslane_core::time::Instant;
use ring::hmac;

const UNIX_NS: u64 = 1_800_000_000_000_000_000;

struct Endpoints {
    vehicle: Security,
    gateway: Security,
    vehicle_key: PrivateKey,
    gateway_key: PrivateKey,
}

impl Endpoints {
    fn new() -> Endpoints {
        let [vehicle_key, gateway_key] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let vehicle = Security::new(vehicle_key.clone(), vec![gateway_key.public()]);
        let gateway = Security::new(gateway_key.clone(), vec![vehicle_key.public()]);
        Endpoints { vehicle, gateway, vehicle_key, gateway_key }
    }

    /// Performs a handshake from the vehicle and exchanges data. Returns all datagrams and both sessions.
    fn handshake(&mut self, now: Instant) -> (Vec<Vec<u8>>, Arc<Session>, Arc<Session>) {
        let initiation = self.vehicle.initiate(now, UNIX_NS + now.as_nanos(), 0).unwrap();
        let HandshakeEvent::Reply { datagram: response, session: theirs, .. } = self.gateway.receive(now, &initiation)
        else {
            panic!("the gateway does not answer");
        };
        let HandshakeEvent::Established { session: ours, .. } = self.vehicle.receive(now, &response) else {
            panic!("the vehicle does not accept the response");
        };
        let mut wire = vec![initiation, response];
        for n in 0..200u32 {
            for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
                let mut datagram = Vec::new();
                from.seal((n % 3) as u8, &vec![n as u8; n as usize], &mut datagram).unwrap();
                to.open(&datagram, &mut Vec::new()).unwrap();
                wire.push(datagram);
            }
        }
        (wire, ours, theirs)
    }
}

/// Processes a datagram from the socket of an endpoint.
fn receive(endpoint: &mut Security, now: Instant, datagram: &[u8]) -> Result<Opened, RejectReason> {
    if is_data(datagram) {
        let (_, session) = endpoint.session_of(now, datagram).ok_or(RejectReason::NoSession)?;
        return session.open(datagram, &mut Vec::new());
    }
    match endpoint.receive(now, datagram) {
        HandshakeEvent::Nothing(reason) => Err(reason),
        event => panic!("an answer: {event:?}"),
    }
}

/// The attacker replays, truncates, modifies, splices and forges datagrams, and computes valid MAC1
/// fields, for which the public keys suffice.
struct Attacker {
    rng: Rng,
    wire: Vec<Vec<u8>>,
    public: Vec<PublicKey>,
}

impl Attacker {
    fn recorded(&mut self) -> Vec<u8> {
        // Handshakes are rare among the data, but are selected often.
        let among = if self.rng.chance(0.3) { 2 } else { self.wire.len() };
        self.wire[self.rng.below(among as u32) as usize].clone()
    }

    fn datagram(&mut self) -> Vec<u8> {
        let mut datagram = self.recorded();
        match self.rng.below(8) {
            0 => {}
            1 => datagram.truncate(self.rng.below(datagram.len() as u32) as usize),
            2 | 3 => self.flip(&mut datagram),
            4 => {
                let other = self.recorded();
                let at = self.rng.below(datagram.len().min(other.len()) as u32) as usize;
                datagram.splice(at.., other[at..].iter().copied());
                self.flip(&mut datagram);
            }
            5 => datagram.extend((0..=self.rng.below(40)).map(|n| n as u8)),
            6 => {
                self.flip(&mut datagram);
                self.set_mac1(&mut datagram);
            }
            _ => {
                datagram = (0..self.rng.below(200)).map(|_| self.rng.below(256) as u8).collect();
                if let Some(first) = datagram.first_mut() {
                    *first %= 6;
                }
            }
        }
        datagram
    }

    fn flip(&mut self, datagram: &mut [u8]) {
        for _ in 0..=self.rng.below(4) {
            let at = self.rng.below(datagram.len() as u32) as usize;
            datagram[at] ^= 1 << self.rng.below(8);
        }
    }

    /// Computes the MAC1 of a handshake, which needs only a public key.
    fn set_mac1(&mut self, datagram: &mut [u8]) {
        let public = self.public[self.rng.below(2) as usize];
        let key = hmac::Key::new(
            hmac::HMAC_SHA256,
            &[b"crosslane tunnel 3 seal".as_slice(), public.as_bytes().as_slice()].concat(),
        );
        if let Some(body) = datagram.len().checked_sub(32) {
            let mac1 = hmac::sign(&key, &datagram[..body]);
            datagram[body..].copy_from_slice(mac1.as_ref());
        }
    }
}

#[test]
fn a_million_datagrams_of_an_attacker_are_neither_accepted_nor_answered() {
    let mut endpoints = Endpoints::new();
    let begin = Instant::from_millis(1000);
    let (wire, ours, theirs) = endpoints.handshake(begin);
    let public = vec![endpoints.vehicle_key.public(), endpoints.gateway_key.public()];
    let mut attacker = Attacker { rng: Rng::new(7, "attacker"), wire, public };
    // The vehicle waits for a response all the time, so that forged responses are processed.
    let pending = endpoints.vehicle.initiate(begin, UNIX_NS * 2, 0).unwrap();
    let mut reasons = BTreeMap::new();
    for n in 0..1_000_000u32 {
        let now = begin + Duration::from_micros(7) * n;
        let datagram = attacker.datagram();
        let (endpoint, name) =
            if n % 2 == 0 { (&mut endpoints.vehicle, "vehicle") } else { (&mut endpoints.gateway, "gateway") };
        match receive(endpoint, now, &datagram) {
            Ok(opened) => panic!("the {name} accepted datagram {n} as {opened:?}"),
            Err(reason) => *reasons.entry(reason.to_string()).or_insert(0) += 1,
        }
    }
    // Each check was reached; otherwise the attack would not test the later ones.
    for reason in [
        RejectReason::Malformed,
        RejectReason::Uninvited,
        RejectReason::Forged,
        RejectReason::Replayed,
        RejectReason::Flood,
        RejectReason::Unasked,
        RejectReason::NoSession,
    ] {
        assert!(reasons.get(&reason.to_string()).is_some_and(|count| *count > 100), "{reason}: {reasons:?}");
    }
    let (mut datagram, mut plain) = (Vec::new(), Vec::new());
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        datagram.clear();
        from.seal(1, b"still here", &mut datagram).unwrap();
        assert!(to.open(&datagram, &mut plain).is_ok() && plain == b"still here");
    }
    let now = begin + Duration::from_secs(8);
    assert!(
        matches!(endpoints.gateway.receive(now, &pending), HandshakeEvent::Reply { .. }),
        "the genuine initiation is not answered"
    );
}

#[test]
fn either_endpoint_may_restart_and_datagrams_recorded_before_are_rejected() {
    for restarts_gateway in [true, false] {
        let mut endpoints = Endpoints::new();
        let (wire, ours, theirs) = endpoints.handshake(Instant::from_millis(1000));
        let mut undelivered = [const { Vec::new() }; 2];
        ours.seal(0, b"in flight", &mut undelivered[0]).unwrap();
        theirs.seal(0, b"in flight", &mut undelivered[1]).unwrap();
        // The monotonic clock of the new process starts at zero; the wall clock has advanced.
        let now = Instant::from_millis(2000);
        if restarts_gateway {
            endpoints.gateway = Security::new(endpoints.gateway_key.clone(), vec![endpoints.vehicle_key.public()]);
            assert_eq!(receive(&mut endpoints.gateway, now, &undelivered[0]), Err(RejectReason::NoSession));
        } else {
            endpoints.vehicle = Security::new(endpoints.vehicle_key.clone(), vec![endpoints.gateway_key.public()]);
            assert_eq!(receive(&mut endpoints.vehicle, now, &undelivered[1]), Err(RejectReason::NoSession));
        }
        let (_, ours, theirs) = endpoints.handshake(now);
        for datagram in &wire {
            assert!(receive(&mut endpoints.vehicle, now, datagram).is_err());
            assert!(receive(&mut endpoints.gateway, now, datagram).is_err());
        }
        let mut datagram = Vec::new();
        ours.seal(0, b"again", &mut datagram).unwrap();
        assert!(theirs.open(&datagram, &mut Vec::new()).is_ok());
    }
}

#[test]
fn a_restarted_gateway_opens_no_session_for_a_replayed_initiation() {
    let mut endpoints = Endpoints::new();
    let (wire, ..) = endpoints.handshake(Instant::from_millis(1000));
    endpoints.gateway = Security::new(endpoints.gateway_key.clone(), vec![endpoints.vehicle_key.public()]);
    let now = Instant::from_millis(2000);
    // It cannot know that this initiation was received before its start; without the keys its response is useless.
    assert!(matches!(endpoints.gateway.receive(now, &wire[0]), HandshakeEvent::Reply { .. }));
    assert!(endpoints.gateway.session_for(now, 0).is_none());
    endpoints.handshake(now + Duration::from_secs(1));
    assert!(endpoints.gateway.session_for(now + Duration::from_secs(1), 0).is_some());
}

#[test]
fn keygen_writes_a_private_key_and_shows_the_public_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = crosslane(folder.path(), &["keygen", "--out", "key"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let public: PublicKey = output.stdout.trim_end().parse().unwrap();
    let file = folder.path().join("key");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(PrivateKey::read(&file).unwrap().public(), public);
    assert_eq!(crosslane(folder.path(), &["keygen", "--public", "key"]).stdout, output.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&crosslane(folder.path(), &["keygen", "--json", "--public", "key"]).stdout).unwrap();
    assert_eq!(json, serde_json::json!({ "public_key": public.to_string() }));
}

#[test]
fn keygen_prints_the_private_key_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = crosslane(folder.path(), &["keygen"]);
    assert!(output.stdout.trim_end().parse::<PrivateKey>().is_ok(), "{output:?}");
    let output = crosslane(folder.path(), &["keygen", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&output).unwrap();
    let private: PrivateKey = json["private_key"].as_str().unwrap().parse().unwrap();
    assert_eq!(json["public_key"], private.public().to_string());
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn keygen_reports_errors_in_one_message() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(crosslane(folder.path(), &["keygen", "--out", "key"]).code, Some(0));
    fs::set_permissions(folder.path().join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--out", "key"], 2, "the file exists already, and a key is never overwritten"),
        (&["--out", "none/key"], 1, "No such file or directory"),
        (&["--public", "key"], 2, "(mode 0644); run `chmod 600 key`"),
        (&["--public", "none"], 2, "there is no such file; `crosslane keygen --out none` makes one"),
        (&["--public", "key", "--out", "other"], 2, "cannot be used with"),
    ];
    for (arguments, code, sentence) in cases {
        let output = crosslane(folder.path(), &[&["keygen"], arguments].concat());
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.sentence().contains(sentence), "{output:?}");
    }
}
