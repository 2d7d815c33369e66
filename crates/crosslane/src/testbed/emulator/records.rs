//! Packet records, sent from the emulator's thread to a recorder. The emulator
//! never blocks: records that do not fit are dropped and counted.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;

use crosslane_core::link::{Direction, DropReason};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::tunnel::wire::overhead::VXLAN_BYTES;
use etherparse::{EtherType, IpNumber};

use crate::netlink::VXLAN_PORT;

/// Recorded bytes of each packet: IPv4 and TCP headers with all options have
/// 120 at most.
pub const HEAD_BYTES: usize = 128;

/// Records in a batch.
const BATCH: usize = 256;

/// Maximum number of queued batches: at 100,000 packets a second, 0.6 s.
const MAX_BATCHES: usize = 256;

/// Age at which a batch that is not full is sent.
const MAX_AGE: Duration = Duration::from_millis(10);

/// Record of one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord {
    /// When it entered the link.
    pub entered: Instant,
    /// When it was delivered, if it was. Neither delivered nor dropped: in flight
    /// when the emulator ended.
    pub delivered: Option<Instant>,
    /// Why it was dropped, if it was.
    pub dropped: Option<DropReason>,
    /// Index of the link.
    pub link: u8,
    /// Direction.
    pub direction: Direction,
    /// Transmissions on the channel; 0 if it was not transmitted.
    pub tries: u8,
    /// Its size, in bytes of IP.
    pub ip_bytes: u16,
    head_bytes: u8,
    head: [u8; HEAD_BYTES],
}

impl PacketRecord {
    /// The first bytes, 128 at most, of the packet or of the one inside its VXLAN tunnel.
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }

    /// The record of `packet`, without its delivery or drop; `is_tunnelled` if it may be one of
    /// a VXLAN tunnel. The link is followed by the direction.
    pub(super) fn of(
        packet: &[u8],
        is_tunnelled: bool,
        entered: Instant,
        (link, direction): (u8, Direction),
    ) -> PacketRecord {
        let mut head = [0; HEAD_BYTES];
        let recorded = inside_vxlan(packet).filter(|_| is_tunnelled).unwrap_or(packet);
        let len = recorded.len().min(HEAD_BYTES);
        head[..len].copy_from_slice(&recorded[..len]);
        let (ip_bytes, head_bytes) = (u16::try_from(packet.len()).unwrap_or(u16::MAX), len as u8);
        PacketRecord { entered, delivered: None, dropped: None, link, direction, tries: 0, ip_bytes, head_bytes, head }
    }
}

/// The IPv4 packet inside one of a VXLAN tunnel (RFC 7348 §5) over IPv4.
fn inside_vxlan(packet: &[u8]) -> Option<&[u8]> {
    const TO_PORT: [u8; 2] = VXLAN_PORT.to_be_bytes();
    let is_vxlan = packet.first() == Some(&0x45)
        && packet.get(9) == Some(&IpNumber::UDP.0)
        && packet.get(22..24) == Some(&TO_PORT)
        && packet.get(48..50) == Some(&EtherType::IPV4.0.to_be_bytes());
    packet.get(VXLAN_BYTES as usize..).filter(|_| is_vxlan)
}

/// The emulator's side of the channel.
#[derive(Debug)]
pub struct PacketSink {
    batch: Vec<PacketRecord>,
    began: Instant,
    full: SyncSender<Vec<PacketRecord>>,
    empty: Receiver<Vec<PacketRecord>>,
    lost: u64,
}

/// The recorder's side: it ends when the emulator does.
#[derive(Debug)]
pub struct PacketSource {
    full: Receiver<Vec<PacketRecord>>,
    empty: SyncSender<Vec<PacketRecord>>,
}

/// A channel for packet records, with all memory allocated in advance.
pub fn packet_channel() -> (PacketSink, PacketSource) {
    let (full_in, full_out) = sync_channel(MAX_BATCHES);
    let (empty_in, empty_out) = sync_channel(MAX_BATCHES);
    for _ in 0..MAX_BATCHES {
        // The channel holds exactly this number.
        let _ = empty_in.try_send(Vec::with_capacity(BATCH));
    }
    let sink = PacketSink { batch: Vec::new(), began: Instant::ZERO, full: full_in, empty: empty_out, lost: 0 };
    (sink, PacketSource { full: full_out, empty: empty_in })
}

impl PacketSource {
    /// Waits for records and calls `write` for each; returns their number, or
    /// `None` after the last.
    pub fn receive(&self, write: impl FnMut(&PacketRecord)) -> Option<usize> {
        // Polls, because a receiver that blocks in the channel holds a lock,
        // which could delay the emulator.
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
        // Fails once the emulator has ended.
        let _ = self.empty.try_send(batch);
        Some(count)
    }
}

impl PacketSink {
    /// Adds a record.
    pub(super) fn add(&mut self, now: Instant, record: PacketRecord) {
        if self.batch.capacity() == 0 {
            let Ok(batch) = self.empty.try_recv() else {
                self.lost += 1;
                return;
            };
            (self.batch, self.began) = (batch, now);
        }
        self.batch.push(record);
        if self.batch.len() >= BATCH {
            self.send_batch();
        }
    }

    /// Sends an old batch even if it is not full.
    pub(super) fn tick(&mut self, now: Instant) {
        if !self.batch.is_empty() && now.since(self.began) >= MAX_AGE {
            self.send_batch();
        }
    }

    /// Sends the remaining records; returns the number of dropped records.
    pub(super) fn finish(mut self) -> u64 {
        self.send_batch();
        self.lost
    }

    fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) = self.full.try_send(batch) {
            self.lost += batch.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PacketRecord {
        PacketRecord::of(&[7; 1500], true, Instant::ZERO, (0, Direction::Up))
    }

    #[test]
    fn records_that_a_stalled_recorder_loses_are_counted() {
        let (mut sink, source) = packet_channel();
        let capacity = BATCH * MAX_BATCHES;
        for _ in 0..capacity + 10 {
            sink.add(Instant::ZERO, record());
        }
        let mut received = 0;
        assert_eq!(source.receive(|_| received += 1), Some(BATCH));
        sink.add(Instant::ZERO, record());
        assert_eq!(sink.finish(), 10);
        while source.receive(|_| received += 1).is_some() {}
        assert_eq!(received, capacity + 1);
    }

    #[test]
    fn the_record_of_a_packet_in_a_vxlan_tunnel_has_the_head_of_the_inner_packet() {
        let mut packet = [0; 200];
        (packet[0], packet[9], packet[48], packet[50]) = (0x45, 17, 8, 0x46);
        packet[22..24].copy_from_slice(&4789_u16.to_be_bytes());
        let first = |packet: &[u8], is_tunnelled| {
            let record = PacketRecord::of(packet, is_tunnelled, Instant::ZERO, (0, Direction::Up));
            (record.head()[0], record.head().len(), record.ip_bytes)
        };
        assert_eq!(first(&packet, true), (0x46, 128, 200));
        assert_eq!(first(&packet, false), (0x45, 128, 200));
        packet[48..50].copy_from_slice(&0x0806_u16.to_be_bytes());
        assert_eq!(first(&packet, true), (0x45, 128, 200), "an ARP request");
    }

    #[test]
    fn a_few_records_do_not_wait_for_more() {
        let (mut sink, source) = packet_channel();
        sink.add(Instant::ZERO, record());
        sink.tick(Instant::from_millis(10));
        assert_eq!(source.receive(|packet| assert_eq!(packet.head(), [7; HEAD_BYTES])), Some(1));
    }
}
