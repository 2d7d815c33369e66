//! The transfer over a connection for each path: conservation and order in any interleaving of deliveries,
//! breaks and reconnections, and what each path carries.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crosslane_core::path::Transport;
use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::{Fault, Receipt};
use crosslane_core::transfer::multipath::frame::{self, Outcome, Replies, Reply};
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::receiver::{Event, Receiver};
use crosslane_core::transfer::multipath::sender::{Sender, Write};
use crosslane_core::transfer::multipath::{extent, is_resumable, pieces};
use crosslane_core::transfer::{Abandoned, Late};
use proptest::prelude::*;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn content(number: u32, places: Range<u64>) -> Vec<u8> {
    places.map(|place| (place * 7 + place / 16_384 + u64::from(number)) as u8).collect()
}

/// A stand-in for the digest.
fn digest(bytes: &[u8]) -> [u8; frame::DIGEST_BYTES] {
    let mut digest = [0; frame::DIGEST_BYTES];
    bytes.iter().enumerate().for_each(|(place, byte)| digest[place % 31] ^= byte.wrapping_mul(place as u8 | 1));
    digest
}

/// A sender and a receiver, with a connection for each path that delivers on request.
struct Pair {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    sizes: Vec<u64>,
    /// When the objects were last modified; 0: not known.
    modified_ns: u64,
    /// What the receiver has of each object before it is offered.
    kept: BTreeMap<u32, Ranges>,
    /// Bytes written to the connection of each path and not yet read, in each direction.
    up: Vec<Vec<u8>>,
    down: Vec<Vec<u8>>,
    replies: Vec<Option<Replies>>,
    /// Bytes of each object stored, and how each object ended.
    stored: BTreeMap<u32, Vec<u8>>,
    ended: BTreeMap<u32, Outcome>,
    receipts: BTreeSet<u32>,
    /// Bytes of pieces given to connections, and the pieces.
    written: u64,
    sent: Vec<(u32, u32)>,
    acked: Vec<u64>,
    /// The RTT that each path reports.
    rtts: Vec<Duration>,
}

impl Pair {
    fn new(late: Late, costs: &[f64]) -> Pair {
        let paths = costs.len();
        let mut pair = Pair {
            now: Instant::ZERO,
            sender: Sender::new(late, costs),
            receiver: Receiver::default(),
            sizes: Vec::new(),
            modified_ns: 0,
            kept: BTreeMap::new(),
            up: vec![Vec::new(); paths],
            down: vec![Vec::new(); paths],
            replies: (0..paths).map(|_| None).collect(),
            stored: BTreeMap::new(),
            ended: BTreeMap::new(),
            receipts: BTreeSet::new(),
            written: 0,
            sent: Vec::new(),
            acked: vec![0; paths],
            rtts: vec![Duration::from_millis(20); paths],
        };
        (0..paths).for_each(|path| pair.connect(path));
        pair
    }

    fn submit(&mut self, size: u64, deadline: Option<Instant>) -> u32 {
        self.sizes.push(size);
        self.sender.submit(size, self.modified_ns, self.now, deadline).unwrap()
    }

    fn connect(&mut self, path: usize) {
        self.up[path].clear();
        self.down[path].clear();
        frame::welcome(&mut self.down[path], 7);
        self.replies[path] = Some(Replies::default());
        self.acked[path] = 0;
        self.receiver.connect(path as u8);
        self.sender.open(self.now, path);
    }

    fn disconnect(&mut self, path: usize) {
        self.up[path].clear();
        self.down[path].clear();
        self.replies[path] = None;
        self.receiver.disconnect(path as u8);
        self.sender.close(path);
    }

    /// Writes what the sender gives to a path.
    fn write(&mut self, path: usize) {
        self.sender.review(self.now);
        while let Some(write) = self.sender.poll(self.now, path) {
            let wire = &mut self.up[path];
            match write {
                Write::Offer { number } => {
                    frame::offer(wire, number, self.sizes[number as usize], self.modified_ns, 7, &number.to_string());
                }
                Write::Piece { number, index, offset, length } => {
                    frame::piece(wire, number, index, length);
                    wire.extend(content(number, offset..offset + u64::from(length)));
                    self.written += u64::from(length);
                    self.sent.push((number, index));
                }
                Write::End { number } => {
                    frame::end(wire, number, &digest(&content(number, 0..self.sizes[number as usize])));
                }
                Write::Abandon { number, why } => frame::abandon(wire, number, why),
            }
        }
        self.report(path);
    }

    fn report(&mut self, path: usize) {
        let unacked = self.up[path].len().div_ceil(1448) as u32;
        let (rtt, bytes_acked) = (self.rtts[path], self.acked[path]);
        let transport = Transport { unacked, bytes_acked, rtt, min_rtt: Some(rtt), ..Transport::IDLE };
        self.sender.on_transport(self.now, path, &transport);
    }

    /// The receiver reads up to this number of bytes of a path, the sender all that the receiver wrote.
    fn deliver(&mut self, path: usize, most: usize) -> Result<(), Fault> {
        let most = most.min(self.up[path].len());
        let taken: Vec<u8> = self.up[path].drain(..most).collect();
        self.acked[path] += taken.len() as u64;
        let mut bytes = taken.as_slice();
        while let Some(event) = self.receiver.take(path as u8, &mut bytes)? {
            self.handle(path, event);
        }
        if let Some(pieces) = self.receiver.poll_received(path as u8) {
            frame::received(&mut self.down[path], pieces);
        }
        for path in 0..self.down.len() {
            let Some(replies) = &mut self.replies[path] else { continue };
            let wire = std::mem::take(&mut self.down[path]);
            let mut bytes = wire.as_slice();
            while let Some(reply) = replies.take(&mut bytes)? {
                match reply {
                    Reply::Received(pieces) => assert!(self.sender.on_received(self.now, path, pieces)),
                    Reply::Have(number, pieces) => {
                        if self.sender.on_have(number, &pieces) && !pieces.is_empty() {
                            self.sender.on_digest(number);
                        }
                    }
                    Reply::Receipt(receipt) => {
                        self.receipts.insert(receipt.number);
                        self.sender.close_object(receipt.number);
                    }
                }
            }
        }
        self.report(path);
        Ok(())
    }

    fn handle(&mut self, path: usize, event: Event<'_>) {
        match event {
            Event::Offer { number, size_bytes, modified_ns, .. } => {
                let mut object = vec![0; size_bytes as usize];
                let kept = self.kept.remove(&number).unwrap_or_default();
                for (offset, length) in kept.iter().flatten().map(|index| extent(size_bytes, index)) {
                    let end = offset + u64::from(length);
                    object[offset as usize..end as usize].copy_from_slice(&content(number, offset..end));
                }
                self.receiver.have(number, kept);
                assert!(self.stored.insert(number, object).is_none());
                if is_resumable(size_bytes, modified_ns) {
                    self.answer(path, number);
                }
            }
            Event::OfferedAgain { number } => self.answer(path, number),
            Event::Piece { number, offset, bytes, .. } => {
                let object = self.stored.get_mut(&number).unwrap();
                object[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            Event::Complete { number, digest: reported } => {
                assert_eq!(digest(&self.stored[&number]), reported, "object {number} is whole and right");
                self.end(number, Outcome::Stored);
            }
            Event::Abandon { number, .. } => self.end(number, Outcome::Partial),
            Event::Closed(receipt) => frame::receipt(&mut self.down[path], &receipt),
        }
    }

    fn answer(&mut self, path: usize, number: u32) {
        frame::have(&mut self.down[path], number, self.receiver.arrived(number).unwrap());
    }

    fn end(&mut self, number: u32, outcome: Outcome) {
        assert!(self.ended.insert(number, outcome).is_none(), "object {number} ends once");
        let receipt = Receipt { number, outcome, waited: Duration::ZERO, text: "".into() };
        assert!(self.receiver.close(receipt.clone()));
        for (down, replies) in self.down.iter_mut().zip(&self.replies) {
            if replies.is_some() {
                frame::receipt(down, &receipt);
            }
        }
    }

    /// All paths deliver this many bytes each 10 ms until the sender has nothing left.
    fn run(&mut self, bytes_each: &[usize], until: Instant) {
        while !self.sender.is_idle() && self.now < until {
            for (path, bytes) in bytes_each.iter().enumerate() {
                self.write(path);
                self.deliver(path, *bytes).unwrap();
            }
            self.now = self.now + Duration::from_millis(10);
            while self.sender.poll_late(self.now).is_some() {}
        }
    }

    fn carried(&self) -> u64 {
        (0..self.up.len()).map(|path| self.sender.carried(path).bytes).sum()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(usize, usize),
    Break(usize),
    Connect(usize),
    Wait(u64),
    Submit(u64, Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, 1usize..60_000).prop_map(|(path, bytes)| Step::Deliver(path, bytes)),
        1 => (0usize..3).prop_map(Step::Break),
        2 => (0usize..3).prop_map(Step::Connect),
        3 => (1u64..500).prop_map(Step::Wait),
        1 => (0u64..150_000, proptest::option::of(1u64..3000)).prop_map(|(size, due)| Step::Submit(size, due)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// In any interleaving of deliveries, breaks and reconnections.
    #[test]
    fn every_object_is_whole_or_honestly_late_and_no_byte_is_lost(
        steps in prop::collection::vec(step(), 0..200), gives_up: bool, modified_ns in 0u64..2
    ) {
        let late = if gives_up { Late::GiveUp } else { Late::Continue };
        let mut pair = Pair::new(late, &[1.0, 5.0, 2.0]);
        pair.modified_ns = modified_ns;
        let mut dropped = BTreeSet::new();
        pair.submit(100_000, None);
        pair.kept.insert(1, Ranges::ascending([2..40, 60..61]).unwrap());
        pair.submit(1_500_000, None);
        for step in steps {
            match step {
                Step::Deliver(path, bytes) => {
                    pair.write(path);
                    pair.deliver(path, bytes).unwrap();
                }
                Step::Break(path) => pair.disconnect(path),
                Step::Connect(path) => pair.connect(path),
                Step::Wait(ms) => pair.now = pair.now + Duration::from_millis(ms),
                Step::Submit(size, due) => {
                    let deadline = due.map(|ms| pair.now + Duration::from_millis(ms));
                    pair.submit(size, deadline);
                }
            }
            while let Some(number) = pair.sender.poll_late(pair.now) {
                prop_assert!(gives_up);
                dropped.insert(number);
            }
        }
        (0..3).for_each(|path| if pair.replies[path].is_none() { pair.connect(path) });
        let until = pair.now + Duration::from_secs(600);
        while !pair.sender.is_idle() && pair.now < until {
            for path in 0..3 {
                pair.write(path);
                pair.deliver(path, 20_000).unwrap();
            }
            pair.now = pair.now + Duration::from_millis(10);
            while let Some(number) = pair.sender.poll_late(pair.now) {
                dropped.insert(number);
            }
        }
        prop_assert!(pair.sender.is_idle(), "the transfer ends");
        for number in 0..pair.sizes.len() as u32 {
            let is_stored = pair.ended.get(&number) == Some(&Outcome::Stored);
            prop_assert!(is_stored || dropped.contains(&number), "object {} is neither whole nor late", number);
            prop_assert!(!is_stored || pair.stored[&number] == content(number, 0..pair.sizes[number as usize]));
        }
        let carried: u64 = (0..3).map(|path| pair.sender.carried(path).bytes).sum();
        prop_assert!(carried <= pair.written, "what arrived was written");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Before the receiver answers, the sender gives out a hundredth of the pieces.
    #[test]
    fn of_an_object_that_is_there_in_part_exactly_the_other_pieces_are_sent(
        size in 1_048_577u64..3_000_000, is_there in prop::collection::vec(any::<bool>(), 200), runs in 1usize..30
    ) {
        let mut pair = Pair::new(Late::Continue, &[1.0, 5.0]);
        pair.modified_ns = 1;
        let all = pieces(size);
        let mut kept = Ranges::default();
        for index in (0..all).filter(|index| is_there[*index as usize / runs]) {
            kept.insert(index);
        }
        let mut expected: BTreeSet<(u32, u32)> = (0..all).map(|index| (0, index)).collect();
        for index in kept.iter().flatten().filter(|index| *index >= all.div_ceil(100)) {
            expected.remove(&(0, index));
        }
        pair.kept.insert(0, kept);
        pair.submit(size, None);
        pair.run(&[10_000, 7_000], at(60));
        prop_assert_eq!(pair.ended.get(&0), Some(&Outcome::Stored));
        prop_assert_eq!(pair.sent.len(), expected.len(), "no piece is sent twice");
        prop_assert_eq!(pair.sent.iter().copied().collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn the_cheap_path_alone_carries_what_it_can_in_time() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0, 5.0]);
    // 1 MB/s each: 4 s of 8 s.
    pair.submit(4_000_000, Some(at(8)));
    pair.run(&[10_000, 10_000], at(20));
    assert_eq!(pair.ended[&0], Outcome::Stored);
    assert_eq!(pair.sender.carried(1).bytes, 0);
}

#[test]
fn the_expensive_path_carries_only_what_the_cheap_one_cannot() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0, 5.0]);
    let mut expensive = 0;
    // 1 MB/s each: at least 2 of 10 MB.
    for period in 0..3 {
        pair.now = at(period * 10);
        pair.submit(10_000_000, Some(pair.now + Duration::from_secs(8)));
        pair.run(&[10_000, 10_000], at(period * 10 + 10));
        assert_eq!(pair.ended.get(&(period as u32)), Some(&Outcome::Stored), "in time");
        expensive = pair.sender.carried(1).bytes - if period == 2 { expensive } else { 0 };
    }
    assert!((2_000_000..2_600_000).contains(&expensive), "{expensive}");
}

/// Two paths of 1 MB/s each whose rates are known, since they carried 10 MB that were due in 8 s.
fn observed(late: Late) -> Pair {
    observed_from(Pair::new(late, &[1.0, 5.0]))
}

fn observed_from(mut pair: Pair) -> Pair {
    pair.submit(10_000_000, Some(at(8)));
    pair.run(&[10_000, 10_000], at(8));
    assert_eq!(pair.ended.get(&0), Some(&Outcome::Stored));
    pair
}

/// 60 MB due in 8 s, where both paths carry 16.
#[test]
fn an_object_that_cannot_be_in_time_is_given_to_the_expensive_path_only_if_it_is_of_use_late() {
    let expensive = |late: Late| {
        let mut pair = observed(late);
        let before = pair.sender.carried(1).bytes;
        pair.submit(60_000_000, Some(at(16)));
        pair.run(&[10_000, 10_000], at(16));
        assert!(pair.sender.carried(0).bytes > 14_000_000, "the cheap path carries on");
        pair.sender.carried(1).bytes - before
    };
    assert_eq!(expensive(Late::GiveUp), 0);
    assert!(expensive(Late::Continue) > 6_000_000);
}

/// The cheap path is busy with 60 MB until 16 s: the expensive one carries most of the 6 MB behind them, and nothing of them.
#[test]
fn the_object_behind_one_that_cannot_be_in_time_arrives_over_the_expensive_path() {
    let mut pair = observed(Late::GiveUp);
    let before = pair.sender.carried(1).bytes;
    pair.submit(60_000_000, Some(at(16)));
    pair.submit(6_000_000, Some(at(18)));
    pair.run(&[10_000, 10_000], at(18));
    assert_eq!((pair.ended.get(&1), pair.ended.get(&2)), (Some(&Outcome::Partial), Some(&Outcome::Stored)));
    let expensive = pair.sender.carried(1).bytes - before;
    assert!((3_500_000..=6_000_000).contains(&expensive), "{expensive}");
}

/// 20 MB due in 8 s, where both paths carry 0.3 MB/s each, and later five times as much.
#[test]
fn an_object_that_could_not_be_in_time_is_carried_by_both_paths_when_they_become_faster() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0, 5.0]);
    pair.submit(3_000_000, Some(at(8)));
    pair.run(&[3_000, 3_000], at(8));
    let before = pair.sender.carried(1).bytes;
    pair.submit(20_000_000, Some(at(16)));
    pair.run(&[3_000, 3_000], at(9));
    assert_eq!(pair.sender.carried(1).bytes, before);
    pair.run(&[15_000, 15_000], at(16));
    assert!(pair.sender.carried(1).bytes > before + 1_000_000);
}

/// Frames of 50 kB each 40 ms, due in 150 ms, over a path of 1 MB/s: it carries four of five.
#[test]
fn an_object_that_may_be_dropped_is_so_rather_than_late_and_makes_room_for_the_others() {
    let stored = |may_drop: bool| {
        let mut pair = Pair::new(Late::GiveUp, &[1.0]);
        for number in 0..250 {
            pair.now = Instant::from_millis(40 * number);
            pair.submit(50_000, Some(pair.now + Duration::from_millis(150)));
            if may_drop && number % 2 == 1 {
                pair.sender.allow_drop(number as u32);
            }
            pair.run(&[10_000], Instant::from_millis(40 * (number + 1)));
        }
        let stored = pair.ended.iter().filter(|(number, outcome)| **number >= 50 && **outcome == Outcome::Stored);
        let (droppable, other): (Vec<u32>, Vec<u32>) = stored.map(|(number, _)| *number).partition(|n| n % 2 == 1);
        (droppable.len(), other.len())
    };
    let (droppable, other) = stored(true);
    assert!(other >= 95 && droppable >= 50, "of 100 each: {droppable} and {other}");
    let (droppable, other) = stored(false);
    assert!(other < 80, "of 100 each: {droppable} and {other}");
}

#[test]
fn the_object_due_earliest_goes_first() {
    let mut pair = Pair::new(Late::Continue, &[1.0]);
    pair.submit(3_000_000, None);
    pair.submit(1_000_000, Some(at(20)));
    (0..10).for_each(|_| pair.write(0));
    assert_eq!(pair.sender.poll(pair.now, 0), None, "its backlog is full");
    pair.submit(100_000, Some(at(2)));
    pair.run(&[10_000], at(1));
    assert_eq!(pair.ended.keys().copied().collect::<Vec<_>>(), [2]);
    pair.run(&[10_000], at(60));
    assert_eq!(pair.ended.len(), 3);
}

/// The pieces on a path that delivers nothing more are fetched over the other one, and none is sent twice else.
#[test]
fn a_path_that_stalls_holds_up_nothing() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0, 5.0]);
    pair.submit(4_000_000, Some(at(12)));
    pair.run(&[10_000, 10_000], at(2));
    pair.run(&[0, 10_000], at(12));
    assert_eq!(pair.ended.get(&0), Some(&Outcome::Stored), "acknowledged {:?}", pair.sender.progress().next());
    assert!(pair.written - 4_000_000 < 300_000, "only what the stalled path holds is sent twice");
}

/// A piece of an object due in `due_ms` is given to a path with an RTT of 100 ms, which then delivers a few bytes of it at a time;
/// returns how often the piece was sent once the other path was asked, `after_ms` later.
fn sent_after(due_ms: u64, after_ms: u64) -> usize {
    let mut pair = Pair::new(Late::Continue, &[1.0, 5.0]);
    pair.rtts[0] = Duration::from_millis(100);
    let mut pair = observed_from(pair);
    (0..2).for_each(|path| pair.deliver(path, usize::MAX).unwrap());
    let due = |after_ms| Some(pair.now + Duration::from_millis(after_ms));
    let (first, second) = (due(due_ms), due(1000));
    let number = pair.submit(1000, first);
    // Both paths are needed.
    pair.submit(1_900_000, second);
    pair.write(0);
    for _ in 0..after_ms / 10 {
        pair.now = pair.now + Duration::from_millis(10);
        pair.deliver(0, 10).unwrap();
        pair.report(1);
    }
    pair.write(1);
    pair.sent.iter().filter(|piece| **piece == (number, 0)).count()
}

/// An object is in time if its receipt is: the way back counts.
#[test]
fn a_piece_that_would_be_acknowledged_late_is_sent_over_a_faster_path_too() {
    assert_eq!(sent_after(130, 0), 1, "acknowledged 30 ms before the deadline");
    assert_eq!(sent_after(115, 0), 2, "acknowledged 15 ms before, and any chance makes that late");
}

/// A piece that was given to a path is there sooner than one that is given to it now.
#[test]
fn the_time_since_a_piece_was_given_to_a_path_counts_until_it_is_overdue() {
    assert_eq!(sent_after(130, 90), 1, "acknowledged 10 ms later");
    assert_eq!(sent_after(410, 290), 1, "a delivery may take three RTTs");
    assert_eq!(sent_after(410, 310), 2, "over its own path it may be acknowledged too late");
}

#[test]
fn a_lossless_transfer_sends_no_byte_twice() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0, 5.0, 7.0]);
    for _ in 0..5 {
        pair.submit(3_000_000, Some(pair.now + Duration::from_millis(2500)));
        let until = pair.now + Duration::from_secs(3);
        pair.run(&[10_000, 7_000, 4_000], until);
    }
    assert_eq!(pair.ended.values().filter(|outcome| **outcome == Outcome::Stored).count(), 5);
    assert!(pair.written - 15_000_000 < 150_000, "{} bytes were sent twice", pair.written - 15_000_000);
    assert!(pair.carried() <= pair.written);
    let duplicates: u64 = (0..3).map(|path| pair.sender.carried(path).duplicate_bytes).sum();
    assert!(duplicates <= pair.receiver.duplicate_bytes(), "{duplicates} bytes count as sent twice");
}

#[test]
fn backlog_is_small_so_that_a_decision_takes_hold() {
    let mut pair = Pair::new(Late::Continue, &[1.0]);
    pair.submit(100_000_000, None);
    let mut most = 0;
    while pair.now < at(10) {
        pair.write(0);
        most = if pair.now > at(2) { most.max(pair.up[0].len()) } else { 0 };
        pair.deliver(0, 10_000).unwrap();
        pair.now = pair.now + Duration::from_millis(10);
    }
    // 1 MB/s and an RTT of 20 ms: 2.5 RTTs and 25 ms.
    assert!(most < 75_000 + 20_000, "{most}");
}

/// Where it delivers at once, its rate shows only once it is never idle.
#[test]
fn a_path_of_unknown_rate_is_given_what_it_delivers_in_25_ms_and_a_slow_one_no_more_than_at_first() {
    let run = |bytes_ms: usize| {
        let (mut pair, mut most) = (Pair::new(Late::Continue, &[1.0]), 0);
        pair.submit(30_000_000, None);
        while pair.now < Instant::from_millis(60) {
            pair.write(0);
            most = most.max(pair.up[0].len());
            pair.deliver(0, bytes_ms).unwrap();
            pair.now = pair.now + Duration::from_millis(1);
        }
        (pair.ended.len(), most)
    };
    let (ended, most) = run(usize::MAX);
    assert!(ended == 1 && most > 1_000_000, "the first 65 kB each ms would make 4 MB: {ended}, {most}");
    assert!(run(1000).1 < 265_000);
}

#[test]
fn a_receipt_that_a_broken_connection_lost_is_sent_again() {
    let mut pair = Pair::new(Late::Continue, &[1.0]);
    pair.submit(1000, None);
    pair.write(0);
    let wire = std::mem::take(&mut pair.up[0]);
    let mut bytes = wire.as_slice();
    while let Some(event) = pair.receiver.take(0, &mut bytes).unwrap() {
        pair.handle(0, event);
    }
    assert_eq!(pair.ended[&0], Outcome::Stored);
    pair.disconnect(0);
    pair.connect(0);
    pair.run(&[10_000], at(5));
    assert!(pair.sender.is_idle() && pair.receipts.contains(&0));
    assert_eq!(pair.receiver.duplicate_bytes(), 1000);
}

#[test]
fn an_unreadable_piece_abandons_its_object() {
    let mut pair = Pair::new(Late::GiveUp, &[1.0]);
    pair.submit(100_000, None);
    pair.sender.review(at(0));
    assert_eq!(pair.sender.poll_decision().map(|decision| decision.reason.rule), Some("deadline.idle"));
    assert_eq!(pair.sender.poll(at(0), 0), Some(Write::Offer { number: 0 }));
    assert!(matches!(pair.sender.poll(at(0), 0), Some(Write::Piece { number: 0, index: 0, .. })));
    pair.sender.take_back(0, Abandoned::Unreadable);
    assert_eq!(pair.sender.poll(at(0), 0), Some(Write::Abandon { number: 0, why: Abandoned::Unreadable }));
    assert!(pair.sender.is_idle());
}

/// A receiver that was restarted has nothing: the sender begins again.
#[test]
fn a_receiver_that_was_restarted_gets_everything_again() {
    let mut pair = Pair::new(Late::Continue, &[1.0, 5.0]);
    pair.submit(1_000_000, None);
    pair.submit(1_000_000, Some(at(20)));
    pair.run(&[10_000, 10_000], Instant::from_millis(1500));
    assert_eq!(pair.ended.len(), 1);
    (pair.receiver, pair.stored) = (Receiver::default(), BTreeMap::new());
    pair.sender.restart();
    (0..2).for_each(|path| pair.connect(path));
    pair.run(&[10_000, 10_000], at(60));
    assert_eq!(pair.ended.len(), 2);
}

/// What it had is not sent again, except what no state claimed.
#[test]
fn a_receiver_that_was_restarted_goes_on_with_what_it_kept() {
    let mut pair = Pair::new(Late::Continue, &[1.0, 5.0]);
    pair.modified_ns = 1;
    pair.submit(10_000_000, None);
    pair.run(&[10_000, 10_000], at(3));
    let arrived = pair.receiver.arrived(0).unwrap().clone();
    assert!(arrived.count() > 150, "{}", arrived.count());
    (pair.receiver, pair.stored) = (Receiver::default(), BTreeMap::new());
    pair.kept.insert(0, arrived);
    pair.sender.restart();
    (0..2).for_each(|path| pair.connect(path));
    pair.run(&[10_000, 10_000], at(60));
    assert_eq!(pair.ended.get(&0), Some(&Outcome::Stored));
    assert!(pair.written < 10_000_000 + 500_000, "{} bytes were sent", pair.written);
}

/// The end waits for the digests of the pieces that the receiver had.
#[test]
fn an_object_ends_only_when_its_digest_is_known() {
    let mut sender = Sender::new(Late::Continue, &[1.0]);
    sender.open(at(0), 0);
    sender.submit(2_000_000, 1, at(0), None);
    sender.review(at(0));
    while sender.poll(at(0), 0).is_some() {}
    assert!(sender.on_have(0, &Ranges::below(pieces(2_000_000))) && !sender.on_have(0, &Ranges::default()));
    assert_eq!(sender.poll(at(0), 0), None);
    sender.on_digest(0);
    assert_eq!(sender.poll(at(0), 0), Some(Write::End { number: 0 }));
}

/// Else a costly path that connects a little sooner carries what the cheap one should.
#[test]
fn a_path_that_is_still_connecting_is_waited_for_and_not_for_long() {
    let mut sender = Sender::new(Late::GiveUp, &[1.0, 5.0]);
    sender.submit(4_000_000, 0, at(0), Some(at(8)));
    sender.open(at(0), 1);
    sender.review(at(0));
    assert_eq!(sender.poll(at(0), 1), None);
    let later = Instant::from_millis(400);
    sender.review(later);
    assert_eq!(sender.poll(later, 1), Some(Write::Offer { number: 0 }));
}

#[test]
fn what_has_arrived_behind_a_lost_segment_leaves_room() {
    let mut sender = Sender::new(Late::GiveUp, &[1.0]);
    sender.submit(4_000_000, 0, at(0), Some(at(8)));
    sender.open(at(0), 0);
    sender.review(at(0));
    assert_eq!(sender.poll(at(0), 0), Some(Write::Offer { number: 0 }));
    let statistics = Transport { unacked: 200, min_rtt: Some(Duration::from_millis(20)), ..Transport::IDLE };
    sender.on_transport(at(0), 0, &statistics);
    assert_eq!(sender.poll(at(0), 0), None, "290 kB are in flight");
    sender.on_transport(at(0), 0, &Transport { sacked: 150, ..statistics });
    assert!(matches!(sender.poll(at(0), 0), Some(Write::Piece { .. })));
}
