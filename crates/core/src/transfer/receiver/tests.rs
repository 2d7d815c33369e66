use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::time::{Duration, Instant};
use crate::transfer::Late;
use crate::transfer::frame::{Outcome, Receipt, Receipts};
use crate::transfer::sender::{Sender, Write};

/// The stream of these objects, for any limit of unacknowledged bytes.
fn stream(objects: &[Vec<u8>], acknowledged_each: u64) -> Vec<u8> {
    let mut sender = Sender::new(Late::Continue);
    for (index, bytes) in objects.iter().enumerate() {
        // Later objects are due earlier, so that they are interleaved.
        let deadline = Instant::from_millis(1000 - index as u64);
        sender.submit(&index.to_string(), bytes.len() as u64, Instant::ZERO, Some(deadline));
    }
    sender.set_backlog(Some(acknowledged_each));
    let mut wire = frame::PREFACE.to_vec();
    loop {
        let Some((write, length)) = sender.poll() else {
            if sender.is_idle() {
                return wire;
            }
            sender.set_outstanding(0);
            continue;
        };
        let before = wire.len();
        let Write::Chunk { number, offset, length: data, last } = write else { unreachable!() };
        let object = &objects[number as usize];
        if offset == 0 {
            frame::offer(&mut wire, number, object.len() as u64, 7, &number.to_string());
        }
        frame::data(&mut wire, number, data);
        wire.extend(&object[offset as usize..][..data as usize]);
        if last {
            frame::end(&mut wire, number, &[number as u8; DIGEST_BYTES]);
        }
        assert_eq!((wire.len() - before) as u64, length, "what the engine counts is what is written");
    }
}

/// The objects of a stream received in parts of this size.
fn received(wire: &[u8], part: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let (mut receiver, mut objects) = (Receiver::default(), BTreeMap::<u32, Vec<u8>>::new());
    let mut ended = 0;
    for mut bytes in wire.chunks(part) {
        while let Some(event) = receiver.take(&mut bytes)? {
            match event {
                Event::Offer { number, size_bytes, .. } => {
                    assert!(objects.insert(number, Vec::with_capacity(size_bytes as usize)).is_none());
                }
                Event::Data { number, bytes } => objects.get_mut(&number).unwrap().extend(bytes),
                Event::End { number, digest } => {
                    assert_eq!(digest, [number as u8; DIGEST_BYTES]);
                    ended += 1;
                }
                Event::Abandon { .. } => {}
            }
        }
    }
    assert_eq!(ended, objects.len());
    assert!(receiver.is_between_objects());
    Ok(objects.into_values().collect())
}

proptest! {
    #[test]
    fn objects_are_received_as_sent(
        sizes in prop::collection::vec(0usize..200_000, 1..6), part in 1usize..100_000, window in 1u64..300_000
    ) {
        let objects: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(nth, &size)| (0..size).map(|at| (at * 7 + nth) as u8).collect()).collect();
        prop_assert_eq!(received(&stream(&objects, window), part), Ok(objects));
    }

    #[test]
    fn no_bytes_cause_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000), has_preface: bool, part in 1usize..50
    ) {
        let mut wire = if has_preface { frame::PREFACE.to_vec() } else { Vec::new() };
        wire.extend(bytes);
        let (mut receiver, mut receipts) = (Receiver::default(), Receipts::default());
        for chunk in wire.chunks(part) {
            let mut bytes = chunk;
            while let Ok(Some(_)) = receiver.take(&mut bytes) {}
            let mut bytes = chunk;
            while let Ok(Some(_)) = receipts.take(&mut bytes) {}
        }
    }

    #[test]
    fn receipts_are_received_as_sent(text in "\\PC{0,80}", number: u32, micros: u32, part in 1usize..40) {
        let waited = Duration::from_micros(micros.into());
        let receipt = Receipt { number, outcome: Outcome::Partial, waited, text };
        let mut wire = frame::PREFACE.to_vec();
        frame::receipt(&mut wire, &receipt);
        frame::receipt(&mut wire, &receipt);
        let (mut receipts, mut received) = (Receipts::default(), Vec::new());
        for mut bytes in wire.chunks(part) {
            while let Some(receipt) = receipts.take(&mut bytes).unwrap() {
                received.push(receipt);
            }
        }
        prop_assert_eq!(received, vec![receipt.clone(), receipt]);
    }
}

#[test]
fn a_malformed_stream_is_rejected_with_the_offset() {
    let offered = |name: &str, size| {
        let mut wire = frame::PREFACE.to_vec();
        frame::offer(&mut wire, 3, size, 0, name);
        wire
    };
    let with = |mut wire: Vec<u8>, more: &dyn Fn(&mut Vec<u8>)| {
        more(&mut wire);
        wire
    };
    let cases = [
        (b"GET / HTTP/1.1\r\n".to_vec(), "not a Crosslane transfer"),
        (offered("../passwd", 1), "not a file name"),
        (offered("..", 1), "not a file name"),
        (with(offered("a", 1), &|wire| wire.push(77)), "unknown type 77"),
        (with(offered("a", 1), &|wire| frame::data(wire, 3, 2)), "more data of object 3"),
        (with(offered("a", 1), &|wire| frame::data(wire, 4, 1)), "object 4, which is not open"),
        (with(offered("a", 1), &|wire| frame::end(wire, 3, &[0; DIGEST_BYTES])), "before all of its data"),
        (with(offered("a", 1), &|wire| frame::abandon(wire, 9, Abandoned::Late)), "object 9"),
        (with(offered("a", 1), &|wire| frame::offer(wire, 3, 1, 0, "b")), "offered twice"),
    ];
    for (wire, words) in cases {
        let fault = received(&wire, 5).expect_err(words);
        assert!(fault.to_string().contains(words), "{fault}");
    }
}

#[test]
fn objects_begun_are_limited() {
    let mut wire = frame::PREFACE.to_vec();
    (0..=MAX_BEGUN as u32).for_each(|number| frame::offer(&mut wire, number, 1, 0, "a"));
    let (mut receiver, mut begun, mut bytes) = (Receiver::default(), 0, wire.as_slice());
    let fault = loop {
        match receiver.take(&mut bytes) {
            Ok(Some(_)) => begun += 1,
            Ok(None) => panic!("{begun} objects were begun"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(begun, MAX_BEGUN);
    assert!(fault.to_string().contains("more than 1024 objects begun"), "{fault}");
}

#[test]
fn a_wrong_preface_is_detected_at_its_first_byte_and_silence_is_no_preface() {
    let mut receipts = Receipts::default();
    assert_eq!(receipts.take(&mut b"XLA".as_slice()), Ok(None));
    assert!(!receipts.is_greeted());
    assert_eq!(receipts.take(&mut b"NE\0\0\x01".as_slice()), Ok(None));
    assert!(receipts.is_greeted());
    assert!(receipts.take(&mut b"H".as_slice()).unwrap_err().to_string().contains("not a receipt at byte 8"));
    assert!(Receipts::default().take(&mut b"H".as_slice()).is_err());
    assert!(Receiver::default().take(&mut b"G".as_slice()).is_err());
}
