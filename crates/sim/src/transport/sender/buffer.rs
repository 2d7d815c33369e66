//! The send buffer of a subflow.

use super::Sender;
use crate::transport::congestion::INITIAL_WINDOW;

/// Memory overhead of a segment (Linux: `sk_buff` and head), in bytes.
const SEGMENT_OVERHEAD_BYTES: u64 = 900;
/// Send buffer per segment of the window (Linux `tcp_sndbuf_expand`: rounded up to
/// a power of two, with overhead), in bytes.
const BUFFER_PER_SEGMENT_BYTES: u64 = 4352;
/// Maximum send buffer (`net.ipv4.tcp_wmem[2]`), in bytes.
const BUFFER_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Initial send buffer of a subflow, in bytes.
pub(super) const INITIAL_BYTES: u64 = 2 * INITIAL_WINDOW as u64 * BUFFER_PER_SEGMENT_BYTES;

impl Sender {
    /// Memory of queued data and data in flight (Linux `sk_wmem_queued`), in
    /// bytes.
    pub fn memory(&self) -> u64 {
        self.queue_bytes + self.flight_bytes + self.flight.len() as u64 * SEGMENT_OVERHEAD_BYTES / 2
    }

    /// Send buffer, in bytes.
    pub fn buffer(&self) -> u64 {
        self.buffer
    }

    /// Linux `tcp_should_expand_sndbuf`: the buffer grows if it could not fill
    /// the window.
    pub(super) fn expand_buffer(&mut self) {
        if !self.fixed_buffer && self.in_flight() < self.control.window {
            let windows = u64::from(self.control.windows_buffered());
            let needed = windows * u64::from(self.control.window) * BUFFER_PER_SEGMENT_BYTES;
            self.buffer = self.buffer.max(needed.min(BUFFER_MAX_BYTES));
        }
    }

    /// True if the buffer has space (Linux `sk_stream_memory_free`).
    pub fn has_room(&self) -> bool {
        self.memory() < self.buffer()
    }
}
