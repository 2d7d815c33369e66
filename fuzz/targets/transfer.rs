//! A malicious peer of a transfer: frames that no sender sends, receipts that no
//! receiver sends, and a sender driven in any order.

use std::collections::BTreeMap;

use crosslane_core::time::{Duration, Instant};
use crosslane_core::transfer::frame::{self, Receipts};
use crosslane_core::transfer::receiver::{Event, Receiver};
use crosslane_core::transfer::sender::{CHUNK_BYTES, MAX_OPEN, Sender, Write};
use crosslane_core::transfer::{Abandoned, Late, MAX_BEGUN};

/// Runs one input; its first byte selects the side.
pub fn run(bytes: &[u8]) {
    let Some((&[kind, part], rest)) = bytes.split_first_chunk::<2>() else { return };
    let mut stream = if kind & 4 == 0 { frame::PREFACE.to_vec() } else { Vec::new() };
    stream.extend(rest);
    match kind % 3 {
        0 => receive(&stream, usize::from(part) + 1),
        1 => receipts(&stream, usize::from(part) + 1),
        _ => send(rest, if part & 1 == 0 { Late::GiveUp } else { Late::Continue }),
    }
}

fn receive(stream: &[u8], part: usize) {
    let mut receiver = Receiver::default();
    let mut missing: BTreeMap<u32, u64> = BTreeMap::new();
    for mut bytes in stream.chunks(part) {
        loop {
            match receiver.take(&mut bytes) {
                Ok(Some(Event::Offer { number, size_bytes, name, .. })) => {
                    assert!(!name.is_empty() && name != ".." && !name.contains(['/', '\0']));
                    assert_eq!(missing.insert(number, size_bytes), None);
                }
                Ok(Some(Event::Data { number, bytes })) => {
                    let missing = missing.get_mut(&number).expect("the object was offered");
                    *missing = missing.checked_sub(bytes.len() as u64).expect("not more than offered");
                }
                Ok(Some(Event::End { number, .. })) => assert_eq!(missing.remove(&number), Some(0)),
                Ok(Some(Event::Abandon { number, .. })) => assert!(missing.remove(&number).is_some()),
                Ok(None) => break,
                Err(fault) => return assert!(!fault.to_string().is_empty()),
            }
            assert!(missing.len() <= MAX_BEGUN);
        }
        assert!(bytes.is_empty(), "all bytes are consumed");
    }
}

fn receipts(stream: &[u8], part: usize) {
    let mut receipts = Receipts::default();
    for mut bytes in stream.chunks(part) {
        loop {
            match receipts.take(&mut bytes) {
                Ok(Some(receipt)) => {
                    let (mut reader, mut written) = (Receipts::default(), frame::PREFACE.to_vec());
                    frame::receipt(&mut written, &receipt);
                    assert_eq!(reader.take(&mut written.as_slice()), Ok(Some(receipt)));
                }
                Ok(None) => break,
                Err(fault) => return assert!(!fault.to_string().is_empty()),
            }
        }
        assert!(bytes.is_empty(), "all bytes are consumed");
    }
}

/// The kernel reports arbitrary acknowledgements, the user submits and abandons
/// at any time; a receiver must accept the written frames.
fn send(script: &[u8], late: Late) {
    let (mut sender, mut receiver, mut greeting) = (Sender::new(late), Receiver::default(), &frame::PREFACE[..]);
    assert_eq!(receiver.take(&mut greeting), Ok(None));
    let (mut now, mut submitted) = (Instant::ZERO, 0);
    let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
    for step in script.chunks(3) {
        let (what, figure) =
            (step[0], u64::from(step.get(1).copied().unwrap_or(0)) << (step.get(2).unwrap_or(&0) % 56));
        match what % 8 {
            0 | 1 => {
                let deadline = (what & 8 == 0).then(|| now + Duration::from_millis(figure));
                // The content is zeros, up to a few chunks.
                let size = figure % (3 * CHUNK_BYTES);
                if let Some(number) = sender.submit("name", size, now, deadline) {
                    sizes.insert(number, size);
                    submitted += 1;
                }
            }
            2 => sender.set_outstanding(figure),
            3 => sender.set_backlog((what & 8 == 0).then_some(figure)),
            4 => drop(sender.abandon(figure as u32, Abandoned::Changed)),
            5 => now = now + Duration::from_millis(figure % 1000),
            6 => while sender.poll_late(now).is_some() {},
            _ => write(&mut sender, &mut receiver, &sizes, what & 8 == 8),
        }
        assert!(submitted <= MAX_OPEN || sender.is_full() || submitted <= script.len());
        let demand = sender.demand();
        assert!(demand.iter().all(|object| object.acked_bytes <= object.size_bytes));
        assert!(sender.progress().all(|(number, bytes)| bytes <= sizes[&number]));
        let _ = (sender.next_wakeup(), sender.is_idle(), sender.take_changed());
    }
}

fn write(sender: &mut Sender, receiver: &mut Receiver, sizes: &BTreeMap<u32, u64>, is_unreadable: bool) {
    let Some((write, length)) = sender.poll() else { return };
    let mut wire = Vec::new();
    match write {
        Write::Abandon { number, why } => frame::abandon(&mut wire, number, why),
        Write::Chunk { .. } if is_unreadable => return sender.take_back(Abandoned::Unreadable),
        Write::Chunk { number, offset, length, last } => {
            assert!(offset + u64::from(length) <= sizes[&number]);
            if offset == 0 {
                frame::offer(&mut wire, number, sizes[&number], 0, "name");
            }
            frame::data(&mut wire, number, length);
            wire.resize(wire.len() + length as usize, 0);
            if last {
                frame::end(&mut wire, number, &[0; frame::DIGEST_BYTES]);
            }
        }
    }
    assert_eq!(wire.len() as u64, length);
    let mut bytes = wire.as_slice();
    while receiver.take(&mut bytes).expect("a receiver accepts a sender's frames").is_some() {}
}
