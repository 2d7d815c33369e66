//! Why a path is left: what shows that it delivers late, and how that is said.

use alloc::format;
use alloc::string::String;

use crate::reason::{Reason, Sentence, Words};
use crate::time::Instant;

/// Less than this share of what is offered is too little.
const STARVED_SHARE: f64 = 0.9;

/// A sign that a path delivers late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sign {
    /// The RTTs end so far above the least one, in ms.
    Rtt,
    /// The age of the oldest unacknowledged byte, in ms.
    Age,
    /// The share of segments that were retransmitted.
    Loss,
    /// What is received waited for so long in the network, in ms.
    Received,
    /// The same, longer than a message may take: what is still there is sooner sent again.
    ReceivedLate,
    /// Delivered while more waited, compared with what is usually offered, in kbit/s.
    Rate,
}

/// What evidence is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A message is late after this time, in ms.
    pub(super) late_ms: f64,
    /// Whether the signal tells when the path may be entered. Else a path that is left wrongly costs more: until it is open
    /// again there is no reserve.
    pub(super) needs_signal: bool,
    /// Whether a single delay says nothing of the path.
    pub(super) is_of_the_air: bool,
}

/// A sign, its figure, and the limit that it exceeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    pub(super) sign: Sign,
    pub(super) figure: f64,
    pub(super) limit: f64,
}

impl Evidence {
    /// So much is delivered while more waits, and so much is offered, in bit/s.
    pub(super) fn shortfall(bit_s: f64, offered_bit_s: f64) -> Option<Evidence> {
        let evidence = Evidence { sign: Sign::Rate, figure: bit_s / 1e3, limit: offered_bit_s / 1e3 };
        (bit_s < STARVED_SHARE * offered_bit_s).then_some(evidence)
    }

    /// Whether data waits on the path.
    pub(super) fn is_stall(self) -> bool {
        matches!(self.sign, Sign::Age | Sign::Rate | Sign::ReceivedLate)
    }

    /// Why the path is left, at this smoothed signal.
    pub(super) fn reason(self, dbm: Option<f64>) -> Reason {
        let Evidence { sign, figure, limit } = self;
        let (rule, names, sentence): (_, _, Sentence) = match sign {
            Sign::Rtt => ("quality.rtt", ["rtt_ms", "limit_ms"], |[figure, limit, dbm, _]| {
                format!("RTTs are up to {figure:.0} ms above the least, {limit:.0} ms allowed{}", at(dbm))
            }),
            Sign::Received | Sign::ReceivedLate => {
                ("quality.received", ["waited_ms", "limit_ms"], |[figure, limit, dbm, _]| {
                    format!("what is received has waited for {figure:.0} ms, {limit:.0} ms allowed{}", at(dbm))
                })
            }
            Sign::Age => ("quality.age", ["age_ms", "limit_ms"], |[figure, limit, dbm, _]| {
                format!("the oldest byte is unacknowledged for {figure:.0} ms, {limit:.0} ms allowed{}", at(dbm))
            }),
            Sign::Rate => ("quality.rate", ["delivered_kbit_s", "offered_kbit_s"], |[figure, limit, dbm, _]| {
                let delivered = format!("{figure:.0} kbit/s are delivered while more waits");
                format!("{delivered}, {limit:.0} kbit/s are usually offered{}", at(dbm))
            }),
            Sign::Loss => ("quality.loss", ["loss", "limit"], |[figure, limit, dbm, _]| {
                let [figure, limit] = [figure, limit].map(|share| share * 1e2);
                format!("{figure:.1} % of the segments are retransmitted, {limit:.1} % allowed{}", at(dbm))
            }),
        };
        let signal = dbm.map(|dbm| ("rssi_dbm", dbm));
        let inputs = [(names[0], figure), (names[1], limit)].into_iter().chain(signal);
        Reason::plain(rule, Words::Figures(sentence)).with(inputs)
    }
}

/// The signal in words, if it is known.
fn at(dbm: f64) -> String {
    if dbm.is_nan() { String::new() } else { format!(", at {dbm:.1} dBm") }
}

/// Why and when a path was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) at: Instant,
    /// Whether its signal explains it.
    pub(super) by_signal: bool,
    /// Whether data waits on it.
    pub(super) stalled: bool,
    /// Whether less was delivered than is offered.
    pub(super) starved: bool,
    /// Whether echo requests were late, or nothing was received.
    pub(super) by_echo: bool,
}

impl Left {
    pub(super) fn new(at: Instant, by_signal: bool, stalled: bool) -> Left {
        Left { at, by_signal, stalled, starved: false, by_echo: false }
    }

    pub(super) fn by_echo(at: Instant) -> Left {
        Left { by_echo: true, ..Left::new(at, false, false) }
    }
}
