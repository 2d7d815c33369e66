//! Frames of a device, segmented and coalesced again.

use std::convert::Infallible;

use crosslane_core::packet::gro::Coalescer;
use crosslane_core::packet::gso::{FRAME_BYTES, split};
use crosslane_core::packet::ip::IpView;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut frame = bytes[..bytes.len().min(FRAME_BYTES)].to_vec();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let _ = split(&mut frame, |packet| packets.push(packet.to_vec()));
    // The input as packets, too: the peer can send arbitrary packets.
    packets.extend(bytes.chunks(64).map(<[u8]>::to_vec));
    for udp in [false, true] {
        let mut coalescer = Coalescer::new(udp);
        let mut written = 0;
        let mut flush = |coalescer: &mut Coalescer| {
            let _ = coalescer.flush(|parts| {
                written += 1;
                let length: usize = parts.iter().map(|part| part.len()).sum();
                assert!(length <= FRAME_BYTES);
                Ok::<(), Infallible>(())
            });
            assert!(coalescer.is_empty());
        };
        for packet in packets.iter().filter_map(IpView::parse) {
            if !coalescer.push(&packet) {
                flush(&mut coalescer);
                assert!(coalescer.push(&packet), "an empty coalescer accepts a packet");
            }
        }
        flush(&mut coalescer);
        assert!(written <= packets.len());
    }
}
