//! Counts of the packets of a path, and what share of them is lost.

use crate::time::{Duration, Instant};

/// Number of packets over which the recent loss is averaged.
const RECENT_PACKETS: f64 = 100.0;
/// The same of the usual loss: enough to distinguish a path that loses one packet of 200 from one that loses none.
const USUAL_PACKETS: f64 = 500.0;
/// The least number of packets over which it is averaged: at first none is assumed to be lost.
const LEAST_PACKETS: f64 = 100.0;
/// Share of lost packets above which a path is lossy.
const LOSSY: f64 = 0.005;
/// How long a packet tells something about the usual loss, in the mean.
const USUAL_FOR: Duration = Duration::from_secs(60);

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
    usual: UsualLoss,
}

/// The share of lost packets (0 to 1) as a mean over more packets than the recent one: what the slowest hundredth of the
/// packets waits for is decided by a few losses of a thousand.
#[derive(Clone, Copy, Debug)]
struct UsualLoss {
    share: f64,
    /// Number of packets of which it is the mean.
    packets: f64,
    updated: Instant,
}

impl Default for UsualLoss {
    fn default() -> UsualLoss {
        UsualLoss { share: 0.0, packets: LEAST_PACKETS, updated: Instant::ZERO }
    }
}

impl UsualLoss {
    fn on_packet(&mut self, now: Instant, is_lost: bool, plausible_loss: f64) {
        let kept = 1.0 - now.since(self.updated).as_secs_f64() / USUAL_FOR.as_secs_f64();
        self.updated = now;
        self.packets = (self.packets * kept).clamp(LEAST_PACKETS, USUAL_PACKETS) + 1.0;
        let before = self.share;
        self.share += (f64::from(u8::from(is_lost)) - self.share) / self.packets;
        self.share = self.share.min(plausible_loss.max(before));
    }
}

impl PacketCounts {
    /// Counts a packet that was delivered or lost; a loss raises neither share beyond `plausible_loss`.
    pub(super) fn on_packet(&mut self, now: Instant, bytes: u32, is_lost: bool, plausible_loss: f64) {
        match is_lost {
            true => self.lost += 1,
            false => {
                self.delivered += 1;
                self.acknowledged_bytes += u64::from(bytes);
            }
        }
        self.recent_loss += (f64::from(u8::from(is_lost)) - self.recent_loss) / RECENT_PACKETS;
        self.recent_loss = self.recent_loss.min(plausible_loss);
        self.usual.on_packet(now, is_lost, plausible_loss);
    }

    /// Share of lost packets (0 to 1) that is both usual and recent: neither a single loss raises it nor does a burst of
    /// losses for long.
    pub(in super::super) fn lasting_loss(&self) -> f64 {
        self.usual.share.min(self.recent_loss)
    }

    /// Whether losses count when packets are scheduled.
    pub(in super::super) fn is_lossy(&self) -> bool {
        self.lasting_loss() > LOSSY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Counts packets, one each 10 ms from `now` on, of which every `nth` is lost.
    fn count(counts: &mut PacketCounts, now: Instant, packets: u64, nth: u64) -> Instant {
        let at = |number: u64| now + MS * 10 * number as u32;
        (0..packets).for_each(|number| counts.on_packet(at(number), 100, number % nth == nth - 1, 1.0));
        at(packets)
    }

    #[test]
    fn recent_loss_approaches_the_share_of_lost_packets() {
        let mut counts = PacketCounts::default();
        let now = count(&mut counts, Instant::ZERO, 1000, 4);
        assert_eq!((counts.delivered, counts.acknowledged_bytes, counts.lost), (750, 75_000, 250));
        assert!((counts.recent_loss - 0.25).abs() < 0.02, "{}", counts.recent_loss);
        count(&mut counts, now, 1000, u64::MAX);
        assert!(counts.recent_loss < 0.001, "{}", counts.recent_loss);
    }

    #[test]
    fn lasting_loss_tells_a_few_losses_from_one() {
        let (mut lossy, mut clean) = (PacketCounts::default(), PacketCounts::default());
        count(&mut lossy, Instant::ZERO, 2000, 100);
        count(&mut clean, Instant::ZERO, 2000, 2000);
        assert!((0.005..0.012).contains(&lossy.lasting_loss()), "{}", lossy.lasting_loss());
        assert!(clean.recent_loss > 0.005 && clean.lasting_loss() < 0.003, "{}", clean.lasting_loss());
    }

    #[test]
    fn lasting_loss_forgets_a_burst_after_some_packets_and_all_losses_after_some_time() {
        let mut counts = PacketCounts::default();
        let now = count(&mut counts, Instant::ZERO, 1000, u64::MAX);
        let burst = now + MS * 10;
        (0..40).for_each(|_| counts.on_packet(burst, 100, true, 1.0));
        let now = count(&mut counts, burst, 400, u64::MAX);
        assert!(counts.lasting_loss() < 0.01 && counts.usual.share > 0.02, "{counts:?}");
        count(&mut counts, now + MS * 60_000, 200, u64::MAX);
        assert!(counts.usual.share < 0.015, "{counts:?}");
    }

    #[test]
    fn a_loss_that_says_nothing_about_the_path_raises_neither_share() {
        let mut counts = PacketCounts::default();
        (0..20).for_each(|_| counts.on_packet(Instant::ZERO, 100, true, 0.0));
        assert_eq!((counts.recent_loss, counts.usual.share), (0.0, 0.0));
    }
}
