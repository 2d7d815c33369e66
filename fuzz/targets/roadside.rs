//! Messages between a controller, and units and vehicles, and the frames that carry them.

use crosslane::roadside::channel::{INITIATION_BYTES, Opener, Sealer, initiate, respond};
use crosslane::tunnel::security::{PrivateKey, PublicKey};
use crosslane_core::roadside::messages::{Announcement, MAX_REPORT_BYTES, Report};

/// RFC 7748, section 6.1: the private keys of Alice and Bob, and Bob's public key.
const KEYS: [&str; 3] = [
    "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=",
    "XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=",
    "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
];

/// The first byte selects what reads the others.
pub fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 3 {
        0 => messages(bytes),
        1 => stranger(bytes),
        _ => drop(peer(bytes)),
    }
}

fn messages(bytes: &[u8]) {
    if let Ok(report) = Report::decode(bytes) {
        let mut encoded = Vec::new();
        report.encode(&mut encoded);
        assert_eq!(encoded, bytes);
    }
    if let Ok(announcement) = Announcement::decode(bytes) {
        let mut encoded = Vec::new();
        announcement.encode(&mut encoded);
        assert_eq!(encoded, bytes);
    }
}

/// What a stranger sends first.
fn stranger(bytes: &[u8]) {
    let Ok(own) = KEYS[0].parse::<PrivateKey>() else { return };
    let mut frame = [0; INITIATION_BYTES];
    let length = bytes.len().min(INITIATION_BYTES);
    frame[..length].copy_from_slice(&bytes[..length]);
    assert!(respond(&own, &frame, MAX_REPORT_BYTES).is_err());
}

/// What a peer sends, some of it encrypted: 0, a length and a message; or 1, a length and bytes as they are.
fn peer(mut bytes: &[u8]) -> Option<()> {
    let (mut sealer, mut opener) = pair()?;
    while let [kind, length, rest @ ..] = bytes {
        let (message, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let mut frames = Vec::new();
        match kind % 2 {
            0 => sealer.seal(message, &mut frames).ok()?,
            _ => frames.extend(message),
        }
        opener.push(&frames);
        while let Some(message) = opener.next().ok()? {
            assert!(message.len() <= MAX_REPORT_BYTES);
            messages(message);
        }
    }
    Some(())
}

fn pair() -> Option<(Sealer, Opener)> {
    let (own, controller): (PrivateKey, PrivateKey) = (KEYS[0].parse().ok()?, KEYS[1].parse().ok()?);
    let public: PublicKey = KEYS[2].parse().ok()?;
    let (initiation, first) = initiate(&own, &public).ok()?;
    let (_, answer, _, opener) = respond(&controller, &first.try_into().ok()?, MAX_REPORT_BYTES).ok()?;
    let (sealer, _) = initiation.finish(&answer.try_into().ok()?, MAX_REPORT_BYTES).ok()?;
    Some((sealer, opener))
}
