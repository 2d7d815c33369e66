//! Round-trip time and retransmission timeout of one subflow.
//!
//! RFC 6298 as in Linux (`tcp_rtt_estimator`): the deviation in the timeout is
//! the maximum over the last RTT, and at least the minimum timeout, so
//! RTO = SRTT + max(4·deviation, 200 ms).

use crosslane_core::time::{Duration, Instant};

/// Minimum deviation in a timeout (Linux `TCP_RTO_MIN`).
pub const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MIN_US: u64 = RTO_MIN.as_micros() as u64;
/// Maximum timeout (Linux `TCP_RTO_MAX`).
pub const RTO_MAX: Duration = Duration::from_secs(120);
/// Timeout before the first sample (RFC 6298 §2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Window of the minimum round-trip time (`net.ipv4.tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default)]
pub struct Rtt {
    /// Eight times the smoothed RTT, in µs; 0 before the first sample.
    srtt8_us: u64,
    /// Four times the mean deviation, in µs.
    mdev4_us: u64,
    mdev_max_us: u64,
    rttvar_us: u64,
    /// The RTT round of `mdev_max_us` ends with this byte.
    round_ends: u64,
    min: Option<(Duration, Instant)>,
    /// Number of doublings of the timeout.
    pub backoff: u32,
}

impl Rtt {
    /// Adds a sample; data is acknowledged up to `una` and sent up to `next`.
    pub fn sample(&mut self, now: Instant, rtt: Duration, una: u64, next: u64) {
        self.backoff = 0;
        if self.min.is_none_or(|(min, at)| rtt <= min || now.since(at) > MIN_RTT_WINDOW) {
            self.min = Some((rtt, now));
        }
        let rtt_us = (rtt.as_nanos() as u64 / 1000).max(1);
        if self.srtt8_us == 0 {
            self.srtt8_us = rtt_us * 8;
            self.mdev4_us = rtt_us * 2;
            self.rttvar_us = self.mdev4_us.max(RTO_MIN_US);
            self.mdev_max_us = self.rttvar_us;
            self.round_ends = next;
            return;
        }
        let error = rtt_us as i64 - (self.srtt8_us / 8) as i64;
        self.srtt8_us = (self.srtt8_us as i64 + error).max(8) as u64;
        let mut change = error.abs() - (self.mdev4_us / 4) as i64;
        // A sudden decrease of the RTT must not raise the deviation.
        if error < 0 && change > 0 {
            change /= 8;
        }
        self.mdev4_us = (self.mdev4_us as i64 + change).max(0) as u64;
        if self.mdev4_us > self.mdev_max_us {
            self.mdev_max_us = self.mdev4_us;
            self.rttvar_us = self.rttvar_us.max(self.mdev_max_us);
        }
        if una > self.round_ends {
            if self.mdev_max_us < self.rttvar_us {
                self.rttvar_us -= (self.rttvar_us - self.mdev_max_us) / 4;
            }
            self.round_ends = next;
            self.mdev_max_us = RTO_MIN_US;
        }
    }

    /// Smoothed round-trip time; `None` before the first sample.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.srtt8_us > 0).then(|| Duration::from_micros(self.srtt8_us / 8))
    }

    /// Mean deviation, as reported by `tcp_info`.
    pub fn deviation(&self) -> Duration {
        Duration::from_micros(self.mdev4_us / 4)
    }

    /// Minimum round-trip time within the last 300 s.
    pub fn min(&self) -> Option<Duration> {
        self.min.map(|(min, _)| min)
    }

    /// Retransmission timeout, doubled for each consecutive expiry.
    pub fn timeout(&self) -> Duration {
        let base = match self.srtt8_us {
            0 => RTO_INITIAL,
            srtt8_us => Duration::from_micros(srtt8_us / 8 + self.rttvar_us),
        };
        base.saturating_mul(1 << self.backoff.min(16)).min(RTO_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples_ms: &[u64]) -> Rtt {
        let mut rtt = Rtt::default();
        for (i, &ms) in samples_ms.iter().enumerate() {
            let (now, una) = (Instant::from_millis(i as u64 * 50), i as u64 * 1000);
            rtt.sample(now, Duration::from_millis(ms), una, una + 500);
        }
        rtt
    }

    #[test]
    fn the_timeout_is_the_rtt_plus_at_least_200_ms() {
        assert_eq!(Rtt::default().timeout(), Duration::from_secs(1));
        let steady = after(&[40; 100]);
        assert_eq!(steady.smoothed(), Some(Duration::from_millis(40)));
        assert_eq!(steady.timeout(), Duration::from_millis(240));
    }

    #[test]
    fn a_jump_raises_the_timeout_immediately_and_steady_rtts_lower_it_slowly() {
        let jumped = after(&[40, 40, 40, 400]);
        assert!(jumped.timeout() > Duration::from_millis(400), "{:?}", jumped.timeout());
        let mut steady_again = vec![40, 40, 40, 400];
        steady_again.extend([40; 60]);
        let steady_again = after(&steady_again);
        assert!(steady_again.timeout() < Duration::from_millis(260), "{:?}", steady_again.timeout());
    }

    #[test]
    fn each_expiry_doubles_it_up_to_two_minutes() {
        let mut rtt = after(&[40; 10]);
        rtt.backoff = 2;
        assert_eq!(rtt.timeout(), Duration::from_millis(960));
        rtt.backoff = 40;
        assert_eq!(rtt.timeout(), RTO_MAX);
    }
}
