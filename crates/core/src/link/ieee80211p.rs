//! 802.11p in a 10 MHz channel: rates, air time, and the probability that a frame is
//! lost at a given signal-to-noise ratio.
//!
//! Air time follows IEEE 802.11-2020 clause 17 (OFDM PHY, 10 MHz) and clause
//! 10.3 (DCF). Packet error is the NIST model (Pei and Henderson, *Validation
//! of OFDM error rate model in ns-3*, 2010): bit error of the constellation,
//! then the union bound over the distance spectrum of the punctured code.

use core::f64::consts::LN_10;

use crate::rng::Rng;
use crate::time::Duration;

/// PHY rate of 802.11p in a 10 MHz channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhyRate {
    /// 3 Mbit/s, BPSK 1/2.
    Mbit3,
    /// 4.5 Mbit/s, BPSK 3/4.
    Mbit4_5,
    /// 6 Mbit/s, QPSK 1/2.
    Mbit6,
    /// 9 Mbit/s, QPSK 3/4.
    Mbit9,
    /// 12 Mbit/s, 16-QAM 1/2.
    Mbit12,
    /// 18 Mbit/s, 16-QAM 3/4.
    Mbit18,
    /// 24 Mbit/s, 64-QAM 2/3.
    Mbit24,
    /// 27 Mbit/s, 64-QAM 3/4.
    Mbit27,
}

impl PhyRate {
    /// All rates, the slowest first.
    pub const ALL: [PhyRate; 8] = [
        PhyRate::Mbit3,
        PhyRate::Mbit4_5,
        PhyRate::Mbit6,
        PhyRate::Mbit9,
        PhyRate::Mbit12,
        PhyRate::Mbit18,
        PhyRate::Mbit24,
        PhyRate::Mbit27,
    ];

    /// The rate of exactly `mbit_s` Mbit/s, if there is one.
    pub fn from_mbit_s(mbit_s: f64) -> Option<PhyRate> {
        PhyRate::ALL.into_iter().find(|rate| rate.mbit_s() == mbit_s)
    }

    /// This rate in Mbit/s.
    pub fn mbit_s(self) -> f64 {
        f64::from(self.bits_per_symbol()) / 8.0
    }

    /// Data bits in one OFDM symbol of 8 µs (table 17-4).
    fn bits_per_symbol(self) -> u32 {
        match self {
            PhyRate::Mbit3 => 24,
            PhyRate::Mbit4_5 => 36,
            PhyRate::Mbit6 => 48,
            PhyRate::Mbit9 => 72,
            PhyRate::Mbit12 => 96,
            PhyRate::Mbit18 => 144,
            PhyRate::Mbit24 => 192,
            PhyRate::Mbit27 => 216,
        }
    }

    fn constellation(self) -> Constellation {
        match self {
            PhyRate::Mbit3 | PhyRate::Mbit4_5 => Constellation::Bpsk,
            PhyRate::Mbit6 | PhyRate::Mbit9 => Constellation::Qpsk,
            PhyRate::Mbit12 | PhyRate::Mbit18 => Constellation::Qam16,
            PhyRate::Mbit24 | PhyRate::Mbit27 => Constellation::Qam64,
        }
    }

    fn code(self) -> &'static Code {
        match self {
            PhyRate::Mbit3 | PhyRate::Mbit6 | PhyRate::Mbit12 => &HALF,
            PhyRate::Mbit24 => &TWO_THIRDS,
            PhyRate::Mbit4_5 | PhyRate::Mbit9 | PhyRate::Mbit18 | PhyRate::Mbit27 => &THREE_QUARTERS,
        }
    }

    /// The rate of the acknowledgement: the highest mandatory rate that is no
    /// faster than the data (§10.6.6.5.2).
    fn response(self) -> PhyRate {
        match self {
            PhyRate::Mbit3 | PhyRate::Mbit4_5 => PhyRate::Mbit3,
            PhyRate::Mbit6 | PhyRate::Mbit9 => PhyRate::Mbit6,
            _ => PhyRate::Mbit12,
        }
    }
}

/// MAC header (24), LLC/SNAP (8) and frame check sequence (4) around an IP packet.
pub const OVERHEAD_BYTES: u32 = 36;
/// Minimum time between frames of one exchange.
pub const SIFS: Duration = Duration::from_micros(32);
/// Unit of the backoff.
pub const SLOT: Duration = Duration::from_micros(13);
/// How long the channel must be idle before a try: SIFS and two slots.
pub const DIFS: Duration = Duration::from_micros(58);

const PREAMBLE: Duration = Duration::from_micros(40);
const SYMBOL: Duration = Duration::from_micros(8);
const ACK_BYTES: u32 = 14;
/// SERVICE (16) and tail (6) bits of each frame's data field.
const SERVICE_AND_TAIL_BITS: u32 = 22;
/// Bits of the SIGNAL field, always BPSK 1/2.
const SIGNAL_BITS: u32 = 24;
const CW_MIN: u32 = 15;
const CW_MAX: u32 = 1023;

/// How long one unicast try holds the channel, from DIFS to the end of the
/// acknowledgement, without backoff. A try that fails costs the same: the
/// sender waits for the acknowledgement as long as it would have lasted.
pub fn attempt_air_time(rate: PhyRate, ip_bytes: u32) -> Duration {
    broadcast_air_time(rate, ip_bytes) + SIFS + frame_time(rate.response(), ACK_BYTES)
}

/// How long one broadcast holds the channel, from DIFS to its last symbol,
/// without backoff. `ip_bytes` counts what follows the LLC header.
pub fn broadcast_air_time(rate: PhyRate, ip_bytes: u32) -> Duration {
    DIFS + frame_time(rate, ip_bytes.saturating_add(OVERHEAD_BYTES))
}

/// The backoff drawn before try number `attempt`, 0 for the first: uniform
/// over a window of 15 slots that doubles with each try, to 1023 at most.
pub fn backoff(rng: &mut Rng, attempt: u8) -> Duration {
    let window = ((CW_MIN + 1) << attempt.min(6)) - 1;
    SLOT * rng.below(window.min(CW_MAX) + 1)
}

/// Probability (0 to 1) that one try of a packet of `ip_bytes` is lost at a
/// signal-to-noise ratio of `snr_db`: PLCP header, MAC and LLC bytes included.
pub fn packet_error_rate(rate: PhyRate, snr_db: f64, ip_bytes: u32) -> f64 {
    let snr = libm::exp(snr_db * LN_10 / 10.0);
    let header = HALF.bit_error(Constellation::Bpsk.bit_error(snr));
    let data = rate.code().bit_error(rate.constellation().bit_error(snr));
    let bits = data_bits(ip_bytes.saturating_add(OVERHEAD_BYTES));
    // ln of the probability that every bit is right; log1p is exact for tiny errors.
    let ln_right = f64::from(SIGNAL_BITS) * libm::log1p(-header) + f64::from(bits) * libm::log1p(-data);
    -libm::expm1(ln_right)
}

fn frame_time(rate: PhyRate, bytes: u32) -> Duration {
    PREAMBLE + SYMBOL * data_bits(bytes).div_ceil(rate.bits_per_symbol())
}

fn data_bits(bytes: u32) -> u32 {
    bytes.saturating_mul(8).saturating_add(SERVICE_AND_TAIL_BITS)
}

#[derive(Clone, Copy)]
enum Constellation {
    Bpsk,
    Qpsk,
    Qam16,
    Qam64,
}

impl Constellation {
    /// Uncoded bit error at `snr` (linear), with Gray mapping.
    fn bit_error(self, snr: f64) -> f64 {
        let (share, spread) = match self {
            Constellation::Bpsk => (0.5, 1.0),
            Constellation::Qpsk => (0.5, 2.0),
            Constellation::Qam16 => (0.375, 10.0),
            Constellation::Qam64 => (7.0 / 24.0, 42.0),
        };
        share * libm::erfc(libm::sqrt(snr / spread))
    }
}

/// The convolutional code with constraint length 7, punctured.
struct Code {
    /// Data bits in one puncturing period.
    period: f64,
    /// Free distance; `weights[i]` belongs to distance `free + i * step`.
    free: i32,
    step: i32,
    /// Bit errors over all paths of each distance.
    weights: &'static [u32],
}

const HALF: Code = Code {
    period: 1.0,
    free: 10,
    step: 2,
    weights: &[36, 211, 1404, 11633, 77433, 502690, 3322763, 21292910, 134365911],
};

const TWO_THIRDS: Code =
    Code { period: 2.0, free: 6, step: 1, weights: &[3, 70, 285, 1276, 6160, 27128, 117019, 498860, 2103891, 8784123] };

const THREE_QUARTERS: Code = Code {
    period: 3.0,
    free: 5,
    step: 1,
    weights: &[42, 201, 1492, 10469, 62935, 379644, 2253373, 13073811, 75152755, 428005675],
};

impl Code {
    /// Bit error after decoding, at most 1, for a channel bit error of `raw`: union
    /// bound with the Bhattacharyya bound D^d, D = 2 √(p (1 − p)).
    fn bit_error(&self, raw: f64) -> f64 {
        let d = libm::sqrt(4.0 * raw * (1.0 - raw));
        let step = libm::pow(d, f64::from(self.step));
        let mut power = libm::pow(d, f64::from(self.free));
        let mut sum = 0.0;
        for &weight in self.weights {
            sum += f64::from(weight) * power;
            power *= step;
        }
        (sum / (2.0 * self.period)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop, prop_assert, proptest};

    /// SNR at which the packet error rate is `per`, by bisection.
    fn snr_for(rate: PhyRate, per: f64, ip_bytes: u32) -> f64 {
        let (mut low, mut high) = (-10.0, 50.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if packet_error_rate(rate, middle, ip_bytes) > per {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    #[test]
    fn ten_percent_packet_error_needs_the_snr_that_ns3_needs() {
        let golden = [4.0, 6.9, 7.0, 9.9, 13.5, 16.6, 21.4, 22.6];
        for (rate, expected) in PhyRate::ALL.into_iter().zip(golden) {
            let snr = snr_for(rate, 0.1, 1500);
            assert!((snr - expected).abs() <= 0.3, "{rate:?}: {snr:.2} dB, not {expected}");
        }
    }

    #[test]
    fn packet_error_falls_from_90_to_1_percent_within_two_decibels() {
        for rate in PhyRate::ALL {
            let width = snr_for(rate, 0.01, 1500) - snr_for(rate, 0.9, 1500);
            assert!((1.4..=1.9).contains(&width), "{rate:?}: {width:.2} dB");
        }
    }

    #[test]
    fn udp_goodput_is_what_ns3_measures() {
        let golden =
            [(PhyRate::Mbit3, 2.65), (PhyRate::Mbit6, 4.98), (PhyRate::Mbit12, 8.88), (PhyRate::Mbit27, 15.64)];
        for (rate, expected) in golden {
            let backoff = SLOT.as_secs_f64() * f64::from(CW_MIN) / 2.0;
            let cycle = attempt_air_time(rate, 1428).as_secs_f64() + backoff;
            let goodput = 1400.0 * 8.0 / cycle / 1e6;
            assert!((goodput / expected - 1.0).abs() < 0.05, "{rate:?}: {goodput:.2} Mbit/s");
        }
    }

    #[test]
    fn every_rate_is_found_by_its_number_and_no_other_is() {
        for rate in PhyRate::ALL {
            assert_eq!(PhyRate::from_mbit_s(rate.mbit_s()), Some(rate));
        }
        for wrong in [0.0, -3.0, 5.0, 54.0, f64::NAN, f64::INFINITY] {
            assert_eq!(PhyRate::from_mbit_s(wrong), None);
        }
    }

    #[test]
    fn the_backoff_window_doubles_to_1023_slots() {
        let mut rng = Rng::new(1, "backoff");
        for (attempt, window) in [(0, 15), (1, 31), (6, 1023), (255, 1023)] {
            let longest = (0..20_000).map(|_| backoff(&mut rng, attempt)).max();
            assert!(longest <= Some(SLOT * window), "attempt {attempt}");
            assert!(longest >= Some(SLOT * (window * 9 / 10)), "attempt {attempt}");
        }
    }

    proptest! {
        #[test]
        fn packet_error_is_a_probability_that_falls_with_snr_and_rises_with_size(
            rate in prop::sample::select(&PhyRate::ALL[..]),
            snr_db in -60.0..80.0,
            more_db in 0.0..20.0,
            ip_bytes in 0u32..9000,
            more_bytes in 0u32..9000,
        ) {
            let per = packet_error_rate(rate, snr_db, ip_bytes);
            prop_assert!((0.0..=1.0).contains(&per));
            prop_assert!(packet_error_rate(rate, snr_db + more_db, ip_bytes) <= per);
            prop_assert!(packet_error_rate(rate, snr_db, ip_bytes + more_bytes) >= per);
        }
    }
}
