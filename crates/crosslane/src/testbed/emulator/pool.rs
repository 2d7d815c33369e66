//! Room for the packets under way, made once and used again.

use crosslane_core::link::PacketId;
use crosslane_core::time::Instant;

/// Room for one packet: an MTU of 1500 and what a mistaken sender may add.
pub(super) const PACKET_ROOM: usize = 2048;

/// Packets under way in all links together: 256 MiB.
const MAX_PACKETS: usize = 131_072;

/// Places made at a time: few, because the emulator stands still meanwhile.
const CHUNK: usize = 32;

/// Places made beforehand.
const FIRST_PACKETS: usize = 2048;

/// Packets by their place.
#[derive(Debug)]
pub(super) struct Pool {
    chunks: Vec<Box<[Held]>>,
    free: Vec<u32>,
}

/// One packet under way.
#[derive(Clone, Debug)]
pub(super) struct Held {
    bytes: [u8; PACKET_ROOM],
    len: usize,
    /// When it was read.
    pub(super) entered: Instant,
}

impl Held {
    /// The packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// All its room, to read a packet into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The packet that was read into its room.
    pub(super) fn fill(&mut self, len: usize, entered: Instant) {
        (self.len, self.entered) = (len.min(PACKET_ROOM), entered);
    }
}

impl Pool {
    pub(super) fn new() -> Pool {
        let mut pool = Pool { chunks: Vec::with_capacity(MAX_PACKETS / CHUNK), free: Vec::with_capacity(MAX_PACKETS) };
        while pool.free.len() < FIRST_PACKETS {
            pool.grow();
        }
        pool
    }

    /// Takes a place; `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<PacketId> {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().map(|place| PacketId(place.into()))
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, packet: PacketId) {
        self.free.push(packet.0 as u32);
    }

    /// The packet in a place that was taken.
    pub(super) fn get(&self, packet: PacketId) -> &Held {
        let place = packet.0 as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, packet: PacketId) -> &mut Held {
        let place = packet.0 as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    fn grow(&mut self) {
        let made = self.chunks.len() * CHUNK;
        if made >= MAX_PACKETS {
            return;
        }
        // Not zero, or the kernel would hand the pages out one by one, later.
        let empty = Held { bytes: [1; PACKET_ROOM], len: 0, entered: Instant::ZERO };
        self.chunks.push(vec![empty; CHUNK].into_boxed_slice());
        self.free.extend((made as u32..(made + CHUNK) as u32).rev());
    }
}
