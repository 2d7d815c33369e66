//! ICMP "too big" messages to the hosts inside, at a limited rate.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use crosslane_core::packet::icmp_too_big::too_big;
use crosslane_core::packet::ip::IpView;
use crosslane_core::time::Instant;

use super::lock;

/// Minimum time between two messages.
const PERIOD: Duration = Duration::from_millis(5);

/// The source of the messages.
#[derive(Debug)]
pub(super) struct TooBigReplies {
    /// Our inner addresses.
    addresses: Vec<IpAddr>,
    last: Mutex<Instant>,
}

impl TooBigReplies {
    pub(super) fn new(addresses: Vec<IpAddr>) -> TooBigReplies {
        TooBigReplies { addresses, last: Mutex::new(Instant::ZERO) }
    }

    /// The message about a packet longer than `mtu` bytes, if one may be sent now. Its source is the
    /// packet's destination: the kernel rejects packets from an address of this machine.
    pub(super) fn reply(&self, now: Instant, packet: &IpView<impl AsRef<[u8]>>, mtu: u16) -> Option<Vec<u8>> {
        let mut last = lock(&self.last);
        if now.since(*last) < PERIOD {
            return None;
        }
        *last = now;
        let destination = Some(packet.destination()).filter(|to| !to.is_multicast());
        destination.iter().chain(&self.addresses).find_map(|source| too_big(packet, mtu, *source))
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn packet(to: [u8; 4]) -> Vec<u8> {
        let step = PacketBuilder::ipv4([10, 0, 0, 1], to, 64).udp(1, 2);
        let mut bytes = vec![0; step.size(1400)];
        step.write_to_slice(&mut bytes, &[0; 1400]).unwrap();
        bytes[6] = 0x40;
        bytes
    }

    #[test]
    fn messages_are_5_ms_apart_and_from_the_destination_or_else_from_us() {
        let own = IpAddr::from([10, 0, 0, 9]);
        let replies = TooBigReplies::new(vec![own]);
        let source = |ms: u64, to: [u8; 4]| {
            let reply = replies.reply(Instant::from_millis(ms), &IpView::parse(packet(to)).unwrap(), 1300);
            reply.map(|reply| IpView::parse(reply).unwrap().source())
        };
        assert_eq!(source(10, [10, 0, 0, 2]), Some([10, 0, 0, 2].into()));
        assert_eq!(source(14, [10, 0, 0, 2]), None);
        assert_eq!(source(15, [10, 0, 0, 3]), Some([10, 0, 0, 3].into()));
        assert_eq!(source(20, [224, 0, 0, 1]), None, "nothing about multicast over IPv4");
    }
}
