//! What a tree may ask of two paths: the latest measurements of each, and rates over a window.

use alloc::format;
use alloc::string::String;

use crate::allocate::Latest;
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// Duration of a window (Liao et al. 2020 do not publish theirs).
pub const WINDOW: Duration = Duration::from_millis(250);
/// A measurement older than this is not one.
const STALE: Duration = Duration::from_secs(2);

/// A quantity that is measured of each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The name in trees and records, with the unit.
    pub name: &'static str,
    /// The smallest and the greatest possible value.
    range: [i32; 2],
    /// Whether two paths are compared by their relative difference, (a − b) / (a + b), instead of a − b.
    is_relative: bool,
}

impl Quantity {
    /// The value if it is possible, else NaN.
    pub fn possible(&self, value: f32) -> f32 {
        let [low, high] = self.range;
        if (low as f32..=high as f32).contains(&value) { value } else { f32::NAN }
    }
}

const fn quantity(name: &'static str, range: [i32; 2], is_relative: bool) -> Quantity {
    Quantity { name, range, is_relative }
}

/// Number of quantities.
pub const COUNT: usize = 9;

/// Place of the RTT.
pub const RTT: usize = 5;
/// Place of what a path delivers.
pub const DELIVERY: usize = COUNT - 1;

/// All quantities: the attributes of Liao et al. 2020, table I, then those of TCP.
pub const QUANTITIES: [Quantity; COUNT] = [
    quantity("signal_dbm", [-120, 0], false),
    quantity("sinr_db", [-40, 80], false),
    quantity("rsrq_db", [-60, 20], false),
    quantity("tx_mbit_s", [0, 100_000], true),
    quantity("rx_mbit_s", [0, 100_000], true),
    quantity("rtt_ms", [0, 60_000], true),
    quantity("cwnd", [0, 1_000_000], true),
    quantity("loss", [0, 1], false),
    quantity("delivery_mbit_s", [0, 100_000], true),
];

/// The value of each quantity, in the order of [`QUANTITIES`]; NaN: unknown, stale or impossible.
pub type Values = [f32; COUNT];

/// Whose value a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    A,
    B,
    Difference,
}

/// A feature of two paths, `a` and `b`: a quantity of one, or how they differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    of: Of,
    place: usize,
}

impl Feature {
    /// All features, by name: `a.rtt_ms`, `b.rtt_ms`, `a-b.rtt_ms`, and so on.
    pub fn all() -> impl Iterator<Item = Feature> {
        [Of::A, Of::B, Of::Difference].into_iter().flat_map(|of| (0..COUNT).map(move |place| Feature { of, place }))
    }

    /// The feature of this name.
    pub fn find(name: &str) -> Option<Feature> {
        Feature::all().find(|feature| feature.name() == name)
    }

    /// The name in trees.
    pub fn name(self) -> String {
        let of = match self.of {
            Of::A => "a",
            Of::B => "b",
            Of::Difference => "a-b",
        };
        format!("{of}.{}", QUANTITIES[self.place].name)
    }

    /// Its value; NaN if a quantity is.
    pub fn value(self, a: &Values, b: &Values) -> f32 {
        let (a, b) = (a[self.place], b[self.place]);
        match self.of {
            Of::A => a,
            Of::B => b,
            Of::Difference if !QUANTITIES[self.place].is_relative => a - b,
            Of::Difference if a + b == 0.0 => 0.0,
            Of::Difference => (a - b) / (a + b),
        }
    }
}

/// Measures one path, window by window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// The transport statistics at the end of the last window.
    last: Option<(Instant, Transport)>,
}

impl Meter {
    /// Ends a window; call it every [`WINDOW`]. Loss and delivery rate are those since the last
    /// call, of the same subflow: of another one they are unknown for a window.
    pub fn end_window(&mut self, now: Instant, latest: &Latest) -> Values {
        let is_fresh = |at: Instant| now.since(at) <= STALE;
        let signal = latest.signal.filter(|(at, _)| is_fresh(*at)).map(|(_, signal)| signal);
        let radio = latest.radio.filter(|(at, _)| is_fresh(*at)).map(|(_, radio)| radio);
        let transport = latest.transport.filter(|(at, _)| now.since(*at) <= WINDOW);
        let rates = self.last.zip(transport).and_then(|(before, after)| rates(before, after));
        self.last = transport;
        let mbit = |bit_s: f64| (bit_s / 1e6) as f32;
        let rtt = transport.map(|(_, transport)| transport.rtt).filter(|rtt| !rtt.is_zero());
        // A path of the tunnel reports neither window nor losses: its window is 0, which no TCP has.
        let cwnd = transport.map(|(_, transport)| transport.cwnd).filter(|cwnd| *cwnd > 0);
        let values = [
            signal.map(|signal| signal.rssi_dbm),
            signal.and_then(|signal| signal.sinr_db),
            signal.and_then(|signal| signal.rsrq_db),
            radio.and_then(|radio| radio.tx_bit_s).map(mbit),
            radio.and_then(|radio| radio.rx_bit_s).map(mbit),
            rtt.map(|rtt| (rtt.as_secs_f64() * 1e3) as f32),
            cwnd.map(|cwnd| cwnd as f32),
            rates.filter(|_| cwnd.is_some()).map(|[loss, _]| loss as f32),
            rates.map(|[_, bit_s]| mbit(bit_s)),
        ];
        let mut known = [f32::NAN; COUNT];
        for ((known, value), quantity) in known.iter_mut().zip(values).zip(QUANTITIES) {
            *known = value.map_or(f32::NAN, |value| quantity.possible(value));
        }
        known
    }
}

/// Share of the segments that were lost, and bits delivered in either direction per second.
fn rates((began, before): (Instant, Transport), (ended, after): (Instant, Transport)) -> Option<[f64; 2]> {
    let seconds = ended.since(began).as_secs_f64();
    if (before.token, before.peer) != (after.token, after.peer) || seconds <= 0.0 {
        return None;
    }
    let lost = after.retransmitted.checked_sub(before.retransmitted)?;
    let delivered = after.delivered.checked_sub(before.delivered)?;
    let sent = after.bytes_acked.checked_sub(before.bytes_acked)?;
    let received = after.bytes_received.checked_sub(before.bytes_received)?;
    let loss = f64::from(lost) / (f64::from(lost) + f64::from(delivered)).max(1.0);
    Some([loss, (sent + received) as f64 * 8.0 / seconds])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Signal;

    const NOW: Instant = Instant::from_millis(10_000);

    fn place(name: &str) -> usize {
        QUANTITIES.iter().position(|quantity| quantity.name == name).expect("a quantity")
    }

    #[test]
    fn rates_are_those_of_the_window_and_unknown_when_the_subflow_changes() {
        let mut meter = Meter::default();
        let mut at = |ms, transport| {
            let now = Instant::from_millis(ms);
            let latest = Latest { transport: Some((now, transport)), ..Latest::default() };
            let values = meter.end_window(now, &latest);
            [place("loss"), place("delivery_mbit_s")].map(|place| values[place])
        };
        assert!(at(250, Transport::IDLE).iter().all(|value| value.is_nan()), "one end of a window is none");
        let later = Transport { bytes_acked: 250_000, delivered: 190, retransmitted: 10, ..Transport::IDLE };
        assert_eq!(at(500, later), [0.05, 8.0]);
        assert!(at(750, Transport { token: 2, ..later }).iter().all(|value| value.is_nan()), "another connection");
        assert!(at(1000, Transport::IDLE).iter().all(|value| value.is_nan()), "a counter went backwards");
    }

    #[test]
    fn of_a_path_of_the_tunnel_window_and_loss_are_unknown() {
        let mut meter = Meter::default();
        let mut known = |ms, bytes_acked| {
            let transport = Transport { bytes_acked, cwnd: 0, ..Transport::IDLE };
            let now = Instant::from_millis(ms);
            let latest = Latest { transport: Some((now, transport)), ..Latest::default() };
            let values = meter.end_window(now, &latest);
            ["rtt_ms", "cwnd", "loss", "delivery_mbit_s"].map(|name| !values[place(name)].is_nan())
        };
        assert_eq!(known(250, 0), [true, false, false, false]);
        assert_eq!(known(500, 250_000), [true, false, false, true]);
    }

    #[test]
    fn stale_and_impossible_measurements_are_unknown() {
        let signal = |ms, rssi_dbm| {
            let signal = Signal { rssi_dbm, ..Signal::default() };
            let latest = Latest { signal: Some((Instant::from_millis(ms), signal)), ..Latest::default() };
            Meter::default().end_window(NOW, &latest)[place("signal_dbm")]
        };
        assert_eq!(signal(8_000, -70.0), -70.0);
        assert!(signal(7_999, -70.0).is_nan(), "stale");
        assert!(signal(9_999, 5.0).is_nan(), "no receiver gets 3 mW");
    }

    #[test]
    fn two_paths_differ_by_decibels_or_relative_to_their_sum() {
        let (mut a, mut b) = ([f32::NAN; COUNT], [f32::NAN; COUNT]);
        (a[place("signal_dbm")], b[place("signal_dbm")]) = (-60.0, -90.0);
        (a[place("rtt_ms")], b[place("rtt_ms")]) = (30.0, 10.0);
        (a[place("delivery_mbit_s")], b[place("delivery_mbit_s")]) = (0.0, 0.0);
        let value = |name: &str| Feature::find(name).expect(name).value(&a, &b);
        assert_eq!([value("a.signal_dbm"), value("b.signal_dbm"), value("a-b.signal_dbm")], [-60.0, -90.0, 30.0]);
        assert_eq!([value("a-b.rtt_ms"), value("a-b.delivery_mbit_s")], [0.5, 0.0]);
        assert!(value("a.loss").is_nan() && value("a-b.sinr_db").is_nan());
        assert_eq!((Feature::find("c.loss"), Feature::all().count()), (None, 3 * COUNT));
    }
}
