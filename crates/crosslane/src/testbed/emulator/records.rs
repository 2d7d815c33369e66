//! What is told of every packet, from the emulator's thread to whoever writes
//! it down. The emulator never waits: what finds no room is counted.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;

use crosslane_core::link::{Direction, DropReason};
use crosslane_core::time::{Duration, Instant};

/// Bytes of each packet that are told: IPv4 and TCP headers with all options
/// are 120 at most.
pub const HEAD_BYTES: usize = 128;

/// Packets in a batch.
const BATCH: usize = 256;

/// Batches that may wait: at 100,000 packets a second, 0.6 s.
const MAX_BATCHES: usize = 256;

/// A batch that is not full is handed over after this time.
const MAX_AGE: Duration = Duration::from_millis(10);

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord {
    /// When it entered the link.
    pub entered: Instant,
    /// When it was handed to the far end, if it was. Neither delivered nor
    /// dropped: under way when the emulator ended.
    pub delivered: Option<Instant>,
    /// Why it was not.
    pub dropped: Option<DropReason>,
    /// Place of the link.
    pub link: u8,
    /// Which way it went.
    pub direction: Direction,
    /// Tries on the air; 0 if it never got that far.
    pub tries: u8,
    /// Its size, in bytes of IP.
    pub ip_bytes: u16,
    head: [u8; HEAD_BYTES],
}

impl PacketRecord {
    /// The packet's first bytes, 128 at most.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.ip_bytes).min(HEAD_BYTES)]
    }

    /// The record of `packet`, without its fate.
    pub(super) fn of(packet: &[u8], entered: Instant, link: u8, direction: Direction) -> PacketRecord {
        let mut head = [0; HEAD_BYTES];
        let len = packet.len().min(HEAD_BYTES);
        head[..len].copy_from_slice(&packet[..len]);
        let ip_bytes = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        PacketRecord { entered, delivered: None, dropped: None, link, direction, tries: 0, ip_bytes, head }
    }
}

/// The emulator's end of the channel.
#[derive(Debug)]
pub struct PacketSink {
    batch: Vec<PacketRecord>,
    began: Instant,
    full: SyncSender<Vec<PacketRecord>>,
    empty: Receiver<Vec<PacketRecord>>,
    lost: u64,
}

/// The recorder's end: it ends when the emulator does.
#[derive(Debug)]
pub struct PacketSource {
    full: Receiver<Vec<PacketRecord>>,
    empty: SyncSender<Vec<PacketRecord>>,
}

/// A channel for packet records, with all its room made beforehand.
pub fn packet_channel() -> (PacketSink, PacketSource) {
    let (full_in, full_out) = sync_channel(MAX_BATCHES);
    let (empty_in, empty_out) = sync_channel(MAX_BATCHES);
    for _ in 0..MAX_BATCHES {
        // There is room for exactly so many.
        let _ = empty_in.try_send(Vec::with_capacity(BATCH));
    }
    let sink = PacketSink { batch: Vec::new(), began: Instant::ZERO, full: full_in, empty: empty_out, lost: 0 };
    (sink, PacketSource { full: full_out, empty: empty_in })
}

impl PacketSource {
    /// Waits for records and gives each to `write`; `None` when there will be
    /// no more, else how many there were.
    pub fn receive(&self, write: impl FnMut(&PacketRecord)) -> Option<usize> {
        // Looking again and again, because a receiver that waits in the channel
        // holds a lock there, which could hold up the emulator.
        let mut batch = loop {
            match self.full.try_recv() {
                Ok(batch) => break batch,
                Err(TryRecvError::Empty) => thread::sleep(MAX_AGE / 2),
                Err(TryRecvError::Disconnected) => return None,
            }
        };
        batch.iter().for_each(write);
        let count = batch.len();
        batch.clear();
        // Once the emulator has ended nobody takes it back.
        let _ = self.empty.try_send(batch);
        Some(count)
    }
}

impl PacketSink {
    /// Tells of a packet.
    pub(super) fn tell(&mut self, now: Instant, record: PacketRecord) {
        if self.batch.capacity() == 0 {
            match self.empty.try_recv() {
                Ok(batch) => (self.batch, self.began) = (batch, now),
                Err(_) => {
                    self.lost += 1;
                    return;
                }
            }
        }
        self.batch.push(record);
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    /// Hands an old batch over though it is not full.
    pub(super) fn tick(&mut self, now: Instant) {
        if !self.batch.is_empty() && now.since(self.began) >= MAX_AGE {
            self.hand_over();
        }
    }

    /// Hands over what is left; returns how many records found no room.
    pub(super) fn finish(mut self) -> u64 {
        self.hand_over();
        self.lost
    }

    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        match self.full.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => self.lost += batch.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PacketRecord {
        PacketRecord::of(&[7; 1500], Instant::ZERO, 0, Direction::Up)
    }

    #[test]
    fn a_recorder_that_stands_still_costs_records_and_they_are_counted() {
        let (mut sink, source) = packet_channel();
        let room = BATCH * MAX_BATCHES;
        for _ in 0..room + 10 {
            sink.tell(Instant::ZERO, record());
        }
        let mut seen = 0;
        assert_eq!(source.receive(|_| seen += 1), Some(BATCH));
        sink.tell(Instant::ZERO, record());
        assert_eq!(sink.finish(), 10);
        while source.receive(|_| seen += 1).is_some() {}
        assert_eq!(seen, room + 1);
    }

    #[test]
    fn a_few_records_do_not_wait_for_more() {
        let (mut sink, source) = packet_channel();
        sink.tell(Instant::ZERO, record());
        sink.tick(Instant::from_millis(10));
        assert_eq!(source.receive(|packet| assert_eq!(packet.head(), [7; HEAD_BYTES])), Some(1));
    }
}
