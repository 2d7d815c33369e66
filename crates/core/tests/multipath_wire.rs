//! The wire format of the transfer over a connection for each path: malformed streams, limits, other versions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crosslane_core::transfer::multipath::frame::{self, Greeting, Replies, Reply};
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::receiver::{MAX_BEGUN, Receiver};
use proptest::prelude::*;

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000), kinds: bool, part in 1usize..50) {
        let bytes: Vec<u8> = if kinds { bytes.iter().map(|byte| byte % 9).collect() } else { bytes };
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
    let mut name = Vec::new();
    frame::offer(&mut name, 3, 1, 0, 0, "../passwd");
    let cases = [
        (name, "not a file name at byte 25"),
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
    let former = crosslane_core::transfer::frame::PREFACE;
    assert!(frame::is_former_version(&former));
    let fault = Greeting::parse(&former).unwrap_err().to_string();
    assert!(fault.contains("version 1 of the transfer, where this program has version 2"), "{fault}");
    assert!(Replies::default().take(&mut former.as_slice()).unwrap_err().to_string().contains("version 1"));
    assert!(Replies::default().take(&mut b"H".as_slice()).unwrap_err().to_string().contains("not a Crosslane"));
    let greeting = Greeting { transfer: [9; 16], path: 3 };
    assert_eq!(Greeting::parse(&greeting.emit()), Ok(Some(greeting)));
    assert_eq!(Greeting::parse(&greeting.emit()[..24]), Ok(None));
    assert!(Greeting::parse(&Greeting { path: 8, ..greeting }.emit()).is_err());
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
