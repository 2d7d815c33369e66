//! The tunnel's keys and sessions as an attacker on the wire meets them, and as
//! ends that are started anew; and `crosslane keygen`.

#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use crosslane::tunnel::security::{
    HandshakeEvent, Opened, PrivateKey, PublicKey, RejectReason, Security, Session, is_data,
};
use crosslane_core::rng::Rng;
use crosslane_core::time::Instant;
use program::crosslane;
use ring::hmac;

const UNIX_NS: u64 = 1_800_000_000_000_000_000;

struct Ends {
    vehicle: Security,
    gateway: Security,
    vehicle_key: PrivateKey,
    gateway_key: PrivateKey,
}

impl Ends {
    fn new() -> Ends {
        let [vehicle_key, gateway_key] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let vehicle = Security::new(vehicle_key.clone(), vec![gateway_key.public()]);
        let gateway = Security::new(gateway_key.clone(), vec![vehicle_key.public()]);
        Ends { vehicle, gateway, vehicle_key, gateway_key }
    }

    /// The vehicle begins a handshake, and both ends hear of each other. All that was on the wire.
    fn shake(&mut self, now: Instant) -> (Vec<Vec<u8>>, Arc<Session>, Arc<Session>) {
        let initiation = self.vehicle.initiate(now, UNIX_NS + now.as_nanos(), 0).unwrap();
        let HandshakeEvent::Reply { datagram: response, session: theirs, .. } = self.gateway.receive(now, &initiation)
        else {
            panic!("the gateway does not answer");
        };
        let HandshakeEvent::Established { session: ours, .. } = self.vehicle.receive(now, &response) else {
            panic!("the vehicle does not take the answer");
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

/// What an end makes of a datagram from its socket.
fn take(end: &mut Security, now: Instant, datagram: &[u8]) -> Result<Opened, RejectReason> {
    if is_data(datagram) {
        let (_, session) = end.session_of(now, datagram).ok_or(RejectReason::NoSession)?;
        return session.open(datagram, &mut Vec::new());
    }
    match end.receive(now, datagram) {
        HandshakeEvent::Nothing(refusal) => Err(refusal),
        answered => panic!("answered: {answered:?}"),
    }
}

/// The attacker: replays, cuts, flips, splices, makes up, and seals anew what the public keys allow to.
struct Attacker {
    rng: Rng,
    wire: Vec<Vec<u8>>,
    public: Vec<PublicKey>,
}

impl Attacker {
    fn recorded(&mut self) -> Vec<u8> {
        // Handshakes are few among the data, and worth trying as often.
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
                self.seal(&mut datagram);
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

    /// The seal of a handshake needs no more than a public key.
    fn seal(&mut self, datagram: &mut [u8]) {
        let public = self.public[self.rng.below(2) as usize];
        let key = hmac::Key::new(
            hmac::HMAC_SHA256,
            &[b"crosslane tunnel 1 seal".as_slice(), public.as_bytes().as_slice()].concat(),
        );
        if let Some(body) = datagram.len().checked_sub(32) {
            let seal = hmac::sign(&key, &datagram[..body]);
            datagram[body..].copy_from_slice(seal.as_ref());
        }
    }
}

#[test]
fn of_a_million_datagrams_of_an_attacker_none_is_taken_and_none_answered() {
    let mut ends = Ends::new();
    let begin = Instant::from_millis(1000);
    let (wire, ours, theirs) = ends.shake(begin);
    let public = vec![ends.vehicle_key.public(), ends.gateway_key.public()];
    let mut attacker = Attacker { rng: Rng::new(7, "attacker"), wire, public };
    // The vehicle waits for a response all the while, so that forged ones are worth trying.
    let waits = ends.vehicle.initiate(begin, UNIX_NS * 2, 0).unwrap();
    let mut reasons = BTreeMap::new();
    for n in 0..1_000_000u32 {
        let now = begin + Duration::from_micros(7) * n;
        let datagram = attacker.datagram();
        let (end, to) = if n % 2 == 0 { (&mut ends.vehicle, "vehicle") } else { (&mut ends.gateway, "gateway") };
        match take(end, now, &datagram) {
            Ok(opened) => panic!("the {to} took datagram {n} as {opened:?}"),
            Err(refusal) => *reasons.entry(refusal.to_string()).or_insert(0) += 1,
        }
    }
    // Each check was reached, or the attack would show nothing of those behind it.
    for refusal in [
        RejectReason::Malformed,
        RejectReason::Uninvited,
        RejectReason::Forged,
        RejectReason::Replayed,
        RejectReason::Flood,
        RejectReason::Unasked,
        RejectReason::NoSession,
        RejectReason::NoSuchPath,
    ] {
        assert!(reasons.get(&refusal.to_string()).is_some_and(|count| *count > 100), "{refusal}: {reasons:?}");
    }
    let (mut datagram, mut plain) = (Vec::new(), Vec::new());
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        datagram.clear();
        from.seal(1, b"still here", &mut datagram).unwrap();
        assert!(to.open(&datagram, &mut plain).is_ok() && plain == b"still here");
    }
    let now = begin + Duration::from_secs(8);
    assert!(
        matches!(ends.gateway.receive(now, &waits), HandshakeEvent::Reply { .. }),
        "the true initiation is not answered"
    );
}

#[test]
fn either_end_may_be_started_anew_and_what_was_recorded_before_is_refused() {
    for restarts_gateway in [true, false] {
        let mut ends = Ends::new();
        let (wire, ours, theirs) = ends.shake(Instant::from_millis(1000));
        let mut unheard = [const { Vec::new() }; 2];
        ours.seal(0, b"under way", &mut unheard[0]).unwrap();
        theirs.seal(0, b"under way", &mut unheard[1]).unwrap();
        // The run of the new process begins at zero again; the wall's clock went on.
        let now = Instant::from_millis(2000);
        if restarts_gateway {
            ends.gateway = Security::new(ends.gateway_key.clone(), vec![ends.vehicle_key.public()]);
            assert_eq!(take(&mut ends.gateway, now, &unheard[0]), Err(RejectReason::NoSession));
        } else {
            ends.vehicle = Security::new(ends.vehicle_key.clone(), vec![ends.gateway_key.public()]);
            assert_eq!(take(&mut ends.vehicle, now, &unheard[1]), Err(RejectReason::NoSession));
        }
        let (_, ours, theirs) = ends.shake(now);
        for datagram in &wire {
            assert!(take(&mut ends.vehicle, now, datagram).is_err());
            assert!(take(&mut ends.gateway, now, datagram).is_err());
        }
        let mut datagram = Vec::new();
        ours.seal(0, b"anew", &mut datagram).unwrap();
        assert!(theirs.open(&datagram, &mut Vec::new()).is_ok());
    }
}

#[test]
fn a_gateway_started_anew_gives_nothing_to_who_replays_an_old_initiation() {
    let mut ends = Ends::new();
    let (wire, ..) = ends.shake(Instant::from_millis(1000));
    ends.gateway = Security::new(ends.gateway_key.clone(), vec![ends.vehicle_key.public()]);
    let now = Instant::from_millis(2000);
    // It cannot know that it has heard this one before its start; what it answers is of no use without the keys.
    assert!(matches!(ends.gateway.receive(now, &wire[0]), HandshakeEvent::Reply { .. }));
    assert!(ends.gateway.session_for(now, 0).is_none());
    ends.shake(now + Duration::from_secs(1));
    assert!(ends.gateway.session_for(now + Duration::from_secs(1), 0).is_some());
}

#[test]
fn keygen_writes_a_private_key_and_shows_the_public_one() {
    let folder = tempfile::tempdir().unwrap();
    let made = crosslane(folder.path(), &["keygen", "--out", "key"]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let public: PublicKey = made.stdout.trim_end().parse().unwrap();
    let file = folder.path().join("key");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(PrivateKey::read(&file).unwrap().public(), public);
    assert_eq!(crosslane(folder.path(), &["keygen", "--public", "key"]).stdout, made.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&crosslane(folder.path(), &["keygen", "--json", "--public", "key"]).stdout).unwrap();
    assert_eq!(json, serde_json::json!({ "public_key": public.to_string() }));
}

#[test]
fn keygen_prints_the_private_key_if_it_has_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let made = crosslane(folder.path(), &["keygen"]);
    assert!(made.stdout.trim_end().parse::<PrivateKey>().is_ok(), "{made:?}");
    let said = crosslane(folder.path(), &["keygen", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let private: PrivateKey = json["private_key"].as_str().unwrap().parse().unwrap();
    assert_eq!(json["public_key"], private.public().to_string());
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn keygen_says_in_one_sentence_what_is_wrong() {
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
        let said = crosslane(folder.path(), &[&["keygen"], arguments].concat());
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.sentence().contains(sentence), "{said:?}");
    }
}
