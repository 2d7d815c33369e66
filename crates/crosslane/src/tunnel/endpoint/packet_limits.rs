//! Packet lengths that the paths of a peer carry.

use crosslane_core::path::PathId;
use crosslane_core::tunnel::Tunnel;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::wire::overhead::Overhead;

use super::types::TunnelPacket;

/// Minimum MTU of IPv6 (RFC 8200, section 5): a path that carries less gets longer packets in fragments.
const MIN_INNER_BYTES: u32 = 1280;

/// The configured limits of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketLimits {
    /// The headers that the tunnel adds.
    pub(super) overhead: Overhead,
    /// Longest inner packet, in bytes; a peer's may be less.
    pub(super) mtu: u32,
}

impl PacketLimits {
    /// The longest datagram known to pass each path unfragmented, as UDP payload in bytes.
    pub(super) fn datagram_bytes(self, tunnel: &Tunnel<TunnelPacket>) -> [usize; MAX_PATHS] {
        std::array::from_fn(|path| {
            let passes = tunnel.passes_bytes(PathId(path as u8));
            passes.map_or(usize::MAX, |bytes| bytes.saturating_sub(self.overhead.around_datagram()) as usize)
        })
    }

    /// The inner MTU: what every path of the peer carries, but not below IPv6's minimum.
    pub(super) fn inner_mtu(self, tunnel: &Tunnel<TunnelPacket>) -> u32 {
        let all = tunnel.passes_all_bytes();
        let passes = all.map_or(self.mtu, |bytes| bytes.saturating_sub(self.overhead.around_packet()));
        passes.clamp(self.mtu.min(MIN_INNER_BYTES), self.mtu)
    }
}
