//! Buffers for packets in flight, allocated once and reused.

use crosslane_core::link::PacketId;
use crosslane_core::time::Instant;

/// Buffer size for one packet: an MTU of 1500 with a margin.
pub(super) const BUFFER_BYTES: usize = 2048;

/// Maximum number of packets in flight in all links: 256 MiB.
const MAX_PACKETS: usize = 131_072;

/// Buffers allocated at a time: few, because the emulator stalls meanwhile.
const CHUNK: usize = 32;

/// Buffers allocated at the start.
const FIRST_PACKETS: usize = 2048;

/// Packets by their index.
#[derive(Debug)]
pub(super) struct Pool {
    chunks: Vec<Box<[Buffer]>>,
    free: Vec<u32>,
}

/// One packet in flight.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    bytes: [u8; BUFFER_BYTES],
    len: usize,
    /// When it was read.
    pub(super) entered: Instant,
}

impl Buffer {
    /// The packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Its whole buffer, to read a packet into.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Sets the length and time of the packet that was read into the buffer.
    pub(super) fn fill(&mut self, len: usize, entered: Instant) {
        (self.len, self.entered) = (len.min(BUFFER_BYTES), entered);
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

    /// Allocates a buffer; `None` if all are in use.
    pub(super) fn take(&mut self) -> Option<PacketId> {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().map(|place| PacketId(place.into()))
    }

    /// Frees a buffer.
    pub(super) fn free_buffer(&mut self, packet: PacketId) {
        self.free.push(packet.0 as u32);
    }

    /// The packet in an allocated buffer.
    pub(super) fn get(&self, packet: PacketId) -> &Buffer {
        let place = packet.0 as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    /// Mutable access to the packet in an allocated buffer.
    pub(super) fn get_mut(&mut self, packet: PacketId) -> &mut Buffer {
        let place = packet.0 as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    fn grow(&mut self) {
        let allocated = self.chunks.len() * CHUNK;
        if allocated >= MAX_PACKETS {
            return;
        }
        // Not zero, so that the kernel maps the pages now and not at first use.
        let empty = Buffer { bytes: [1; BUFFER_BYTES], len: 0, entered: Instant::ZERO };
        self.chunks.push(vec![empty; CHUNK].into_boxed_slice());
        self.free.extend((allocated as u32..(allocated + CHUNK) as u32).rev());
    }
}
