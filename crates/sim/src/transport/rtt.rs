//! Round-trip time and retransmission timeout of one subflow.
//!
//! RFC 6298 as Linux does it (`tcp_rtt_estimator`): the deviation that goes
//! into the timeout is the greatest of the last round trip and never below the
//! minimum of the timeout, so that RTO = SRTT + max(4·deviation, 200 ms).

use crosslane_core::time::{Duration, Instant};

/// Least deviation that goes into a timeout (Linux `TCP_RTO_MIN`).
pub const RTO_MIN_US: u64 = 200_000;
/// Longest timeout (Linux `TCP_RTO_MAX`).
pub const RTO_MAX: Duration = Duration::from_secs(120);
/// Timeout before any sample (RFC 6298 §2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);
/// How long the least round-trip time is remembered
/// (`net.ipv4.tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// The estimator.
#[derive(Clone, Debug, Default)]
pub struct Rtt {
    /// Eight times the smoothed time, in µs; 0 before the first sample.
    srtt8_us: u64,
    /// Four times the mean deviation, in µs.
    mdev4_us: u64,
    mdev_max_us: u64,
    rttvar_us: u64,
    /// The round trip that `mdev_max_us` belongs to ends with this byte.
    ends_with: u64,
    min: Option<(Duration, Instant)>,
    /// Times that the timeout has been doubled.
    pub backoff: u32,
}

impl Rtt {
    /// Takes a sample: what was sent `rtt` ago is acknowledged up to `una`.
    pub fn sample(&mut self, now: Instant, rtt: Duration, una: u64, next: u64) {
        self.backoff = 0;
        if self.min.is_none_or(|(least, at)| rtt <= least || now.since(at) > MIN_RTT_WINDOW) {
            self.min = Some((rtt, now));
        }
        let rtt_us = (rtt.as_nanos() as u64 / 1000).max(1);
        if self.srtt8_us == 0 {
            self.srtt8_us = rtt_us * 8;
            self.mdev4_us = rtt_us * 2;
            self.rttvar_us = self.mdev4_us.max(RTO_MIN_US);
            self.mdev_max_us = self.rttvar_us;
            self.ends_with = next;
            return;
        }
        let error = rtt_us as i64 - (self.srtt8_us / 8) as i64;
        self.srtt8_us = (self.srtt8_us as i64 + error).max(8) as u64;
        let mut news = error.abs() - (self.mdev4_us / 4) as i64;
        // A sudden fall of the round-trip time must not raise the deviation.
        if error < 0 && news > 0 {
            news /= 8;
        }
        self.mdev4_us = (self.mdev4_us as i64 + news).max(0) as u64;
        if self.mdev4_us > self.mdev_max_us {
            self.mdev_max_us = self.mdev4_us;
            self.rttvar_us = self.rttvar_us.max(self.mdev_max_us);
        }
        if una > self.ends_with {
            if self.mdev_max_us < self.rttvar_us {
                self.rttvar_us -= (self.rttvar_us - self.mdev_max_us) / 4;
            }
            self.ends_with = next;
            self.mdev_max_us = RTO_MIN_US;
        }
    }

    /// Smoothed round-trip time; `None` before the first sample.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.srtt8_us > 0).then(|| Duration::from_micros(self.srtt8_us / 8))
    }

    /// Mean deviation, as `tcp_info` tells it.
    pub fn deviation(&self) -> Duration {
        Duration::from_micros(self.mdev4_us / 4)
    }

    /// The least round-trip time of late.
    pub fn least(&self) -> Option<Duration> {
        self.min.map(|(least, _)| least)
    }

    /// Retransmission timeout, doubled as often as it has expired in a row.
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
    fn the_timeout_is_the_round_trip_and_at_least_200_ms_more() {
        assert_eq!(Rtt::default().timeout(), Duration::from_secs(1));
        let steady = after(&[40; 100]);
        assert_eq!(steady.smoothed(), Some(Duration::from_millis(40)));
        assert_eq!(steady.timeout(), Duration::from_millis(240));
    }

    #[test]
    fn a_jump_raises_the_timeout_at_once_and_quiet_lowers_it_slowly() {
        let jumped = after(&[40, 40, 40, 400]);
        assert!(jumped.timeout() > Duration::from_millis(400), "{:?}", jumped.timeout());
        let mut calm = vec![40, 40, 40, 400];
        calm.extend([40; 60]);
        let calm = after(&calm);
        assert!(calm.timeout() < Duration::from_millis(260), "{:?}", calm.timeout());
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
