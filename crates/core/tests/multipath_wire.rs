//! The wire format of the transfer over a connection for each path: malformed streams, limits, other versions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crosslane_core::transfer::MAX_BEGUN;
use crosslane_core::transfer::multipath::frame::{self, Greeting, Part, Replies, Reply};
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::receiver::{Receiver, is_safe_name};
use proptest::prelude::*;

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000), kinds: bool, part in 1usize..50) {
        let bytes: Vec<u8> = if kinds { bytes.iter().map(|byte| byte % 10).collect() } else { bytes };
        let (mut receiver, mut replies) = (Receiver::default(), Replies::default());
        receiver.connect(0);
        let mut welcome = Vec::new();
        frame::welcome(&mut welcome, 7);
        replies.take(&mut welcome.as_slice()).unwrap();
        for chunk in bytes.chunks(part) {
            let mut left = chunk;
            while let Ok(Some(_)) = receiver.take(0, &mut left) {}
            let mut left = chunk;
            while let Ok(Some(_)) = replies.take(&mut left) {}
        }
        drop(Greeting::parse(&bytes));
    }
}

#[test]
fn a_malformed_stream_is_rejected_with_the_offset() {
    let offered = |size| {
        let mut wire = Vec::new();
        frame::offer(&mut wire, 3, size, 0, 0, "a");
        wire
    };
    let with = |mut wire: Vec<u8>, more: &dyn Fn(&mut Vec<u8>)| {
        more(&mut wire);
        wire
    };
    let part = |offset, is_last| {
        let mut wire = Vec::new();
        frame::offer_part(&mut wire, 3, 2, 0, 0, "a", Part { offset, is_last });
        wire
    };
    let cases = [
        (part(u64::MAX, false), "an object of more than"),
        (part(u64::MAX - 2, false), "an object of more than"),
        ([part(7, false), part(7, true)].concat(), "offered twice"),
        ([part(7, false), part(8, false)].concat(), "offered twice"),
        (offered(u64::MAX), "an object of more than"),
        (with(offered(1), &|wire| wire.push(77)), "unknown type 77"),
        (with(offered(1), &|wire| frame::piece(wire, 3, 1, 1)), "a piece that object 3 does not have"),
        (with(offered(1), &|wire| frame::piece(wire, 3, 0, 2)), "a piece that object 3 does not have"),
        (with(offered(1), &|wire| frame::piece(wire, 4, 0, 1)), "object 4, which was not offered"),
        (with(offered(1), &|wire| frame::offer(wire, 3, 2, 0, 0, "a")), "offered twice"),
        (with(offered(1), &|wire| frame::end(wire, 9, &[0; 32])), "object 9"),
        (
            with(offered(1), &|wire| {
                frame::end(wire, 3, &[0; 32]);
                frame::end(wire, 3, &[1; 32]);
            }),
            "two digests",
        ),
    ];
    for (wire, words) in cases {
        let mut receiver = Receiver::default();
        receiver.connect(0);
        let fault = wire.chunks(5).find_map(|mut bytes| {
            loop {
                match receiver.take(0, &mut bytes) {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(fault) => break Some(fault),
                }
            }
        });
        let fault = fault.expect(words);
        assert!(fault.to_string().contains(words), "{fault}");
    }
}

#[test]
fn another_version_is_named() {
    for (encrypted, version) in [(0, 1), (0, 2), (0, 3), (1, 3), (0, 5), (1, 255)] {
        let mut preface = frame::PREFACE;
        (preface[6], preface[7]) = (encrypted, version);
        assert_eq!(frame::other_version(&preface), Some(version));
        assert!((0..=8).all(|length| frame::may_be_preface(&preface[..length])));
        let fault = Greeting::parse(&preface).unwrap_err().to_string();
        let words = format!("version {version} of the transfer, where this program has version 4");
        assert!(fault.contains(&words), "{fault}");
        let mut answer = frame::other_welcome(version);
        assert!(Replies::default().take(&mut answer.as_slice()).unwrap_err().to_string().contains(&words));
        answer.splice(..8, preface);
        assert!(Replies::default().take(&mut answer.as_slice()).unwrap_err().to_string().contains(&words));
    }
    for own in [frame::PREFACE, frame::ENCRYPTED_PREFACE] {
        assert_eq!(frame::other_version(&own), None);
    }
    assert!(!frame::may_be_preface(b"XLANF") && !frame::may_be_preface(b"XLANE\0\x02"));
    assert!(Greeting::parse(&frame::ENCRYPTED_PREFACE).unwrap_err().to_string().contains("an encrypted stream"));
    assert!(Replies::default().take(&mut b"H".as_slice()).unwrap_err().to_string().contains("not a Crosslane"));
    let greeting = Greeting { transfer: [9; 16], path: 3 };
    assert_eq!(Greeting::parse(&greeting.emit()), Ok(Some(greeting)));
    assert_eq!(Greeting::parse(&greeting.emit()[..24]), Ok(None));
    assert!(Greeting::parse(&Greeting { path: 8, ..greeting }.emit()).is_err());
}

/// A name that leaves the receiver's folder would replace any file of its user.
#[test]
fn a_name_stays_below_the_folder_of_the_receiver() {
    let long = "a/".repeat(127) + "a";
    for name in ["a", "a/b", "..a/b..", "a/.b", "ü/ö", "a b\\c", &long] {
        assert!(is_safe_name(name), "{name}");
    }
    let unsafe_names =
        ["", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/..", "a/../b", "./a", "a/./b", "a\0b", "a/\0", "/../a"];
    for name in unsafe_names {
        let (mut receiver, mut wire) = (Receiver::default(), Vec::new());
        receiver.connect(0);
        frame::offer(&mut wire, 3, 1, 0, 0, name);
        let fault = receiver.take(0, &mut wire.as_slice()).expect_err(name).to_string();
        assert_eq!(fault, "an object whose name is not a safe file name at byte 25 of the stream");
    }
}

#[test]
fn objects_begun_are_limited() {
    let mut receiver = Receiver::default();
    receiver.connect(0);
    let mut wire = Vec::new();
    (0..=MAX_BEGUN as u32).for_each(|number| frame::offer(&mut wire, number, 1, 0, 0, "a"));
    let (mut begun, mut bytes) = (0, wire.as_slice());
    let fault = loop {
        match receiver.take(0, &mut bytes) {
            Ok(Some(_)) => begun += 1,
            Ok(None) => panic!("{begun} objects were begun"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(begun, MAX_BEGUN);
    assert!(fault.to_string().contains("more than 1024 objects begun"), "{fault}");
}

#[test]
fn ranges_of_pieces_ascend_and_are_limited() {
    let welcome = || {
        let mut wire = Vec::new();
        frame::welcome(&mut wire, 1);
        wire
    };
    let pieces = Ranges::ascending((0..2000).map(|range| range * 3..range * 3 + 2)).unwrap();
    let mut wire = welcome();
    frame::have(&mut wire, 5, &pieces);
    let mut replies = Replies::default();
    let found = wire.chunks(3).find_map(|mut bytes| replies.take(&mut bytes).unwrap());
    let first = Ranges::ascending(pieces.iter().take(frame::MAX_RANGES)).unwrap();
    assert_eq!(found, Some(Reply::Have(5, first)));
    let count = |count: u16| [&[8, 0, 0, 0, 5][..], &count.to_be_bytes()].concat();
    let inverted = [count(1), vec![0, 0, 0, 9, 0, 0, 0, 4]].concat();
    for (frame, words) in [(count(1025), "more than 1024 ranges"), (inverted, "do not ascend")] {
        let wire = [welcome(), frame].concat();
        let fault = Replies::default().take(&mut wire.as_slice()).unwrap_err();
        assert!(fault.to_string().contains(words), "{fault}");
    }
}
