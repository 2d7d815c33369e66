//! What the other end says of its clock and its counts. It may say anything:
//! whatever that is, what is reckoned from it here is finite and within limits,
//! and a lie makes nothing worse than its own path.

use crate::time::{Duration, Instant};
use crate::tunnel::wire::control_message::PathReport;

/// Least rate that is believed, in bytes a second: a packet a second, since a report may say
/// that nothing came.
pub(super) const MIN_BYTES_S: f64 = 1500.0;
/// Greatest, the same: 100 Gbit/s, as if it arrived at once.
pub(super) const MAX_BYTES_S: f64 = 12.5e9;
/// Longest round trip that is believed.
pub(super) const MAX_RTT: Duration = Duration::from_secs(60);

/// Clock and count of bytes at the other end, both modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// When the newest packet arrived, in µs.
    pub(super) us: u32,
    pub(super) bytes: u32,
}

impl Mark {
    pub(super) fn of(report: &PathReport) -> Mark {
        Mark { us: report.arrival_us, bytes: report.bytes }
    }

    /// Time since an earlier one (up to 2³² µs).
    pub(super) fn since(self, earlier: Mark) -> Duration {
        Duration::from_micros(u64::from(self.us.wrapping_sub(earlier.us)))
    }

    /// Rate since an earlier one, in bytes a second ([`LEAST_BYTES_S`] to [`MOST_BYTES_S`]).
    pub(super) fn bytes_s_since(self, earlier: Mark) -> f64 {
        let took_us = self.us.wrapping_sub(earlier.us);
        if took_us == 0 {
            return MAX_BYTES_S;
        }
        let bytes = self.bytes.wrapping_sub(earlier.bytes);
        (f64::from(bytes) / (f64::from(took_us) / 1e6)).clamp(MIN_BYTES_S, MAX_BYTES_S)
    }
}

/// The round trip of a packet sent at `sent`, without the time that its report was held back.
pub(super) fn rtt(now: Instant, sent: Instant, report: &PathReport) -> Duration {
    let held = Duration::from_micros(u64::from(report.held_us));
    now.since(sent).saturating_sub(held).min(MAX_RTT)
}

/// A one-way delay by the clocks of both ends, in µs modulo 2³²: the clocks need not
/// agree, so it means nothing by itself. Only differences tell, and those are
/// below half the range, 35 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct OneWayDelay(u32);

impl OneWayDelay {
    /// What a report says of a packet sent at `sent` that stood in a queue for so long.
    pub(super) fn of(report: &PathReport, sent: Instant, queued: Duration) -> OneWayDelay {
        let left_us = (sent.as_nanos() / 1000) as u32;
        OneWayDelay(report.arrival_us.wrapping_sub(left_us).wrapping_sub(queued.as_micros() as u32))
    }

    /// How much longer than another it is, in µs (±2³¹).
    pub(in super::super) fn minus_us(self, other: OneWayDelay) -> i64 {
        i64::from(self.0.wrapping_sub(other.0) as i32)
    }

    /// An eighth of the way to another.
    pub(super) fn toward(self, other: OneWayDelay) -> OneWayDelay {
        OneWayDelay(self.0.wrapping_add((other.minus_us(self) / 8) as u32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_said_a_rate_is_finite_and_positive(from in any::<(u32, u32)>(), to in any::<(u32, u32)>()) {
            let [from, to] = [from, to].map(|(us, bytes)| Mark { us, bytes });
            let rate = to.bytes_s_since(from);
            prop_assert!((MIN_BYTES_S..=MAX_BYTES_S).contains(&rate));
            prop_assert!(to.since(from) <= Duration::from_micros(u64::from(u32::MAX)));
        }

        #[test]
        fn differences_of_delays_do_not_depend_on_the_clocks(
            delays_us in any::<[u16; 2]>(), offset: u32,
        ) {
            let [one, other] = delays_us.map(|delay| OneWayDelay(offset.wrapping_add(u32::from(delay))));
            prop_assert_eq!(one.minus_us(other), i64::from(delays_us[0]) - i64::from(delays_us[1]));
            prop_assert_eq!(one.toward(other).minus_us(one), other.minus_us(one) / 8);
        }
    }
}
