//! The peer's clock and byte counts. They may hold any values: what is computed from them here is finite
//! and bounded, and false values harm only the peer's own path.

use super::SendPath;
use crate::time::{Duration, Instant};
use crate::tunnel::wire::control_message::PathReport;

/// Minimum rate accepted, in bytes/s: about one packet per second. A report may claim that nothing arrived.
pub(super) const MIN_BYTES_S: f64 = 1500.0;
/// Maximum rate accepted, in bytes/s: 100 Gbit/s, also for packets that arrived at the same time.
pub(super) const MAX_BYTES_S: f64 = 12.5e9;
/// Maximum RTT accepted.
pub(super) const MAX_RTT: Duration = Duration::from_secs(60);

/// The peer's clock and byte count, both modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Arrival of the newest packet, in µs.
    pub(super) us: u32,
    pub(super) bytes: u32,
}

impl Mark {
    pub(super) fn of(report: &PathReport) -> Mark {
        Mark { us: report.arrival_us, bytes: report.bytes }
    }

    /// Time since an earlier mark (up to 2³² µs).
    pub(super) fn since(self, earlier: Mark) -> Duration {
        Duration::from_micros(u64::from(self.us.wrapping_sub(earlier.us)))
    }

    /// Rate since an earlier mark, in bytes/s ([`MIN_BYTES_S`] to [`MAX_BYTES_S`]).
    pub(super) fn bytes_s_since(self, earlier: Mark) -> f64 {
        let took_us = self.us.wrapping_sub(earlier.us);
        if took_us == 0 {
            return MAX_BYTES_S;
        }
        let bytes = self.bytes.wrapping_sub(earlier.bytes);
        (f64::from(bytes) / (f64::from(took_us) / 1e6)).clamp(MIN_BYTES_S, MAX_BYTES_S)
    }
}

/// The RTT of a packet sent at `sent`, without the delay of its report at the peer.
pub(super) fn rtt(now: Instant, sent: Instant, report: &PathReport) -> Duration {
    let held = Duration::from_micros(u64::from(report.held_us));
    now.since(sent).saturating_sub(held).min(MAX_RTT)
}

/// A one-way delay by the clocks of both endpoints, in µs modulo 2³². The clocks need not agree, so only
/// differences between two such delays have a meaning; they are below half the range, 35 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct OneWayDelay(u32);

impl OneWayDelay {
    /// The delay of a reported packet sent at `sent`, without its queueing delay `queued`.
    pub(super) fn of(report: &PathReport, sent: Instant, queued: Duration) -> OneWayDelay {
        let sent_us = (sent.as_nanos() / 1000) as u32;
        OneWayDelay(report.arrival_us.wrapping_sub(sent_us).wrapping_sub(queued.as_micros() as u32))
    }

    /// How much longer it is than `other`, in µs (±2³¹).
    pub(in super::super) fn minus_us(self, other: OneWayDelay) -> i64 {
        i64::from(self.0.wrapping_sub(other.0) as i32)
    }

    /// Moved by an eighth of the difference to `other`.
    pub(super) fn toward(self, other: OneWayDelay) -> OneWayDelay {
        OneWayDelay(self.0.wrapping_add((other.minus_us(self) / 8) as u32))
    }
}

impl<P> SendPath<P> {
    /// The one-way delay without a queue, in µs, relative to `reference`; 0 before the first measurement.
    pub(in super::super) fn relative_delay_us(&self, reference: OneWayDelay) -> i64 {
        self.one_way_delay.map_or(0, |one_way_delay| one_way_delay.minus_us(reference))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_rate_is_finite_and_positive_for_any_reports(from in any::<(u32, u32)>(), to in any::<(u32, u32)>()) {
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
