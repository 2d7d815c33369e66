//! Pacing: packets leave a path at its pacing rate, in short bursts.

use crate::time::{Duration, Instant};

/// Maximum burst, as time at the pacing rate.
const BURST: Duration = Duration::from_millis(1);

/// Pacer of one path.
#[derive(Debug)]
pub(super) struct Pacer {
    /// When the packets sent so far would have left at the pacing rate.
    paced_to: Instant,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Pacer {
        Pacer { paced_to: now }
    }

    /// Records a packet sent now; the rate is in bytes/s.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u32, rate_bytes_s: f64) {
        let takes = Duration::from_secs_f64(f64::from(bytes) / rate_bytes_s);
        self.paced_to = self.paced_to.max(now - BURST) + takes;
    }

    /// When the next packet may be sent.
    pub(super) fn next_send(&self) -> Instant {
        self.paced_to - BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes sent from `from_ms` for 20 ms as soon as pacing at 1 MB/s allows.
    fn sent_in_20_ms(pacer: &mut Pacer, from_ms: u64) -> [u32; 20] {
        core::array::from_fn(|ms| {
            let now = Instant::from_millis(from_ms + ms as u64);
            let mut count = 0;
            while pacer.next_send() <= now {
                pacer.on_sent(now, 1000, 1e6);
                count += 1;
            }
            count
        })
    }

    #[test]
    fn packets_are_sent_at_the_rate_after_a_burst_of_a_millisecond() {
        let mut pacer = Pacer::new(Instant::from_millis(100));
        let sent = sent_in_20_ms(&mut pacer, 100);
        assert_eq!((sent[0], &sent[1..]), (2, &[1; 19][..]));
        // A pause saves up no more than one burst.
        let sent = sent_in_20_ms(&mut pacer, 500);
        assert_eq!((sent[0], &sent[1..]), (3, &[1; 19][..]));
    }
}
