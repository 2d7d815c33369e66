//! The send buffer of a subflow.

use crate::transport::congestion::INITIAL_WINDOW;

/// Send buffer per segment of the window, in bytes (Linux `tcp_sndbuf_expand`: segment and headers, rounded up to a
/// power of two, with overhead). Kernels with CONFIG_WLAN reserve larger headers: 4352.
const BUFFER_PER_SEGMENT_BYTES: u64 = 2304;
/// Maximum send buffer (`net.ipv4.tcp_wmem[2]`), in bytes.
const BUFFER_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Initial send buffer of a subflow, in bytes.
const INITIAL_BYTES: u64 = 2 * INITIAL_WINDOW as u64 * BUFFER_PER_SEGMENT_BYTES;

#[derive(Clone, Copy, Debug)]
pub struct SendBuffer {
    /// Its size, in bytes.
    pub bytes: u64,
    fixed: bool,
}

impl SendBuffer {
    /// A buffer of this size; 0: autotuning.
    pub(super) fn new(bytes: u64) -> SendBuffer {
        SendBuffer { bytes: if bytes > 0 { bytes } else { INITIAL_BYTES }, fixed: bytes > 0 }
    }

    /// Grows as far as a window needs that is buffered several times (Linux
    /// `tcp_sndbuf_expand`).
    pub(super) fn expand(&mut self, windows: u32, window: u32) {
        let needed = u64::from(windows) * u64::from(window) * BUFFER_PER_SEGMENT_BYTES;
        if !self.fixed {
            self.bytes = self.bytes.max(needed.min(BUFFER_MAX_BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_with_the_window_unless_its_size_is_set() {
        let mut buffer = SendBuffer::new(0);
        buffer.expand(2, 5);
        assert_eq!(buffer.bytes, INITIAL_BYTES, "it does not shrink");
        buffer.expand(2, 100);
        assert_eq!(buffer.bytes, 200 * BUFFER_PER_SEGMENT_BYTES);
        buffer.expand(2, 10_000);
        assert_eq!(buffer.bytes, BUFFER_MAX_BYTES);
        let mut fixed = SendBuffer::new(50_000);
        fixed.expand(2, 100);
        assert_eq!(fixed.bytes, 50_000);
    }
}
