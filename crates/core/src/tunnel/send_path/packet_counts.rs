//! Counts of the packets of a path.

/// Number of packets over which the recent loss is averaged.
const RECENT_PACKETS: f64 = 100.0;

/// Counts of packets.
#[derive(Debug, Default)]
pub(in super::super) struct PacketCounts {
    /// Bytes sent, as datagrams on the wire.
    pub sent_bytes: u64,
    /// Those of control messages.
    pub control_bytes: u64,
    /// Those of packets that were sent before, or at the same time over another path.
    pub copied_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// Packets lost.
    pub lost: u64,
    /// Recent share of lost packets (0 to 1).
    pub recent_loss: f64,
}

impl PacketCounts {
    /// Counts a packet that was delivered or lost; the recent loss is at most `plausible_loss` after it.
    pub(super) fn on_packet(&mut self, bytes: u32, is_lost: bool, plausible_loss: f64) {
        match is_lost {
            true => self.lost += 1,
            false => {
                self.delivered += 1;
                self.acknowledged_bytes += u64::from(bytes);
            }
        }
        self.recent_loss += (f64::from(u8::from(is_lost)) - self.recent_loss) / RECENT_PACKETS;
        self.recent_loss = self.recent_loss.min(plausible_loss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_loss_approaches_the_share_of_lost_packets() {
        let mut counts = PacketCounts::default();
        (0..1000).for_each(|number| counts.on_packet(100, number % 4 == 0, 1.0));
        assert_eq!((counts.delivered, counts.acknowledged_bytes, counts.lost), (750, 75_000, 250));
        assert!((counts.recent_loss - 0.25).abs() < 0.02, "{}", counts.recent_loss);
        (0..1000).for_each(|_| counts.on_packet(100, false, 1.0));
        assert!(counts.recent_loss < 0.001, "{}", counts.recent_loss);
    }
}
