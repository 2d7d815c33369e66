//! Counts of the packets of a path.

/// Number of packets over which the recent loss is averaged.
const RECENT_PACKETS: f64 = 100.0;

/// Number of packets over which the mean loss is averaged, and after which it is updated.
const MEAN_PACKETS: f64 = 1000.0;
const EVALUATED_PACKETS: u32 = 50;

/// Counts of packets.
#[derive(Debug, Default)]
pub(in super::super) struct PacketCounts {
    /// Bytes sent, as datagrams on the wire.
    pub sent_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// Packets lost.
    pub lost: u64,
    /// Recent share of lost packets (0 to 1).
    pub recent_loss: f64,
    /// Share of packets that never arrived, over more packets: late ones are not lost.
    pub mean_loss: f64,
    /// Highest sequence number and count of arrived packets in the report up to which this was computed.
    evaluated: Option<(u32, u32)>,
}

impl PacketCounts {
    /// Applies a report: what arrived of the packets sent.
    pub(super) fn on_report(&mut self, highest: u32, arrived: u32) {
        let (from, had) = *self.evaluated.get_or_insert((highest, arrived));
        let sent = highest.wrapping_sub(from);
        if !(EVALUATED_PACKETS..=u32::MAX / 2).contains(&sent) {
            return;
        }
        self.evaluated = Some((highest, arrived));
        // Below 0 if packets beyond the highest have arrived, which were missing before.
        let lost = 1.0 - (f64::from(arrived.wrapping_sub(had)) / f64::from(sent)).min(2.0);
        self.mean_loss += (lost - self.mean_loss) * (f64::from(sent) / MEAN_PACKETS).min(1.0);
    }

    /// Counts a packet that was delivered or lost.
    pub(super) fn on_packet(&mut self, bytes: u32, is_lost: bool) {
        match is_lost {
            true => self.lost += 1,
            false => {
                self.delivered += 1;
                self.acknowledged_bytes += u64::from(bytes);
            }
        }
        self.recent_loss += (f64::from(u8::from(is_lost)) - self.recent_loss) / RECENT_PACKETS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_loss_counts_what_never_arrives_and_not_what_is_late() {
        let mut counts = PacketCounts::default();
        for round in 0..100u32 {
            // 3 of the last 100 packets are late, and of all before, one of 50 is lost.
            let highest = (round + 1) * 100;
            counts.on_report(highest.wrapping_sub(5000), highest - round * 2 - 3);
        }
        assert!((counts.mean_loss - 0.02).abs() < 0.001, "{}", counts.mean_loss);
    }

    #[test]
    fn recent_loss_approaches_the_share_of_lost_packets() {
        let mut counts = PacketCounts::default();
        (0..1000).for_each(|number| counts.on_packet(100, number % 4 == 0));
        assert_eq!((counts.delivered, counts.acknowledged_bytes, counts.lost), (750, 75_000, 250));
        assert!((counts.recent_loss - 0.25).abs() < 0.02, "{}", counts.recent_loss);
        (0..1000).for_each(|_| counts.on_packet(100, false));
        assert!(counts.recent_loss < 0.001, "{}", counts.recent_loss);
    }
}
