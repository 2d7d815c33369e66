//! A path whose network throttles it: it delivers far less than it did before, or than another path does, at a constant
//! rate while more waits.
//!
//! Beside a path that is many times as fast, a second of that suffices, whatever the cause. Otherwise a radio that fades
//! does that too, and two signs tell the difference. A policer drops what exceeds its rate, so segments
//! are lost and none waits in a queue; a second shows that. A shaper lets them wait, and the rate stays the same for many
//! seconds. A signal that has fallen explains a lower rate than before.
//!
//! Such a path costs more than it adds. The receiver reads in order, and what waits on the slow path holds up what the
//! others deliver. So the path rests, and carries only while no other path is good. Nothing but a trial tells whether
//! it is throttled no more: it carries again after a pause, until its rate is shown. The pause doubles with
//! each unsuccessful trial. The first is short if packets wait in a queue, as that of a radio
//! that fades; in a trial of such a path, what it once carried says nothing.
//!
//! A radio whose range ends within a drive is not judged by this: its signal tells.

use alloc::format;
use alloc::string::String;

use super::{Assessor, Belief};
use crate::path::{Carried, Rat, Sample, SampleKind};
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// Throttled: below this part of what the path carried within the last [`MEMORY`].
const OWN_SHARE: f64 = 0.2;
/// Throttled: below this part of what another path carries. It would add less than this.
const OTHER_SHARE: f64 = 1.0 / 32.0;
/// What the path carried in a second counts for one to two times this time.
const MEMORY: Duration = Duration::from_secs(30);
/// A signal that is lower by more, in dB, explains a lower rate.
const FALLEN_DB: f64 = 6.0;
/// For so long it is full at a constant rate, first and in a trial.
const SHOWN: Duration = Duration::from_secs(1);
const SHOWN_AGAIN: Duration = Duration::from_millis(250);
/// The same in a trial after what may have been a fade: the next dip of a radio is no shaper.
const SHOWN_AFTER_FADE: Duration = Duration::from_millis(500);
/// Policed: at least this part is sent again, and packets wait in the network for no longer than this (a small window has
/// its acknowledgements delayed).
const POLICED_LOSS: f64 = 0.02;
const NO_QUEUE: Duration = Duration::from_millis(40);
/// Shaped: for so long the rate of each second deviates from the first by no more than this part.
const SHAPED: Duration = Duration::from_secs(5);
const SHAPED_DEVIATION: f64 = 0.25;
/// Weight of a signal sample in the mean.
const SIGNAL_WEIGHT: f64 = 0.125;
/// What waits on the path is given to the others: for so long its subflows are closed.
const TAKEN_BACK: Duration = Duration::from_secs(1);
/// First pause; after an unsuccessful trial it is twice as long as the last one, from the first to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(2560)];
/// First pause if a radio may be the cause, in whose queue packets wait: a fade is over sooner.
const RADIO_PAUSE: Duration = Duration::from_secs(2);
/// A rate above the limit by this factor is that of a path which is throttled no more.
const RECOVERED: f64 = 2.0;

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Throttled {
    is_judged: bool,
    dbm: Option<f64>,
    /// Whether the rates below are of what is received.
    is_received: bool,
    /// The highest rates of the present and the previous [`MEMORY`].
    before: [Best; 2],
    since: Instant,
    /// Since when the rate is the same, and that rate.
    same: Option<(Instant, f64)>,
    /// The rate at or below which it was found to be throttled, in bit/s; `None` if it is not.
    limit_bit_s: Option<f64>,
    /// Whether the network is the cause, not a radio that fades.
    is_of_the_network: bool,
    /// Since when it rests, and for how long.
    rests: Option<Instant>,
    pause: Duration,
    belief: Belief,
    reason: Reason,
}

/// The highest rate, and the signal then.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    bit_s: f64,
    dbm: Option<f64>,
}

impl Throttled {
    /// An assessor without samples.
    pub fn new(rat: Rat) -> Throttled {
        Throttled { is_judged: !rat.needs_signal(), ..Throttled::default() }
    }

    fn on_signal(&mut self, dbm: f64) {
        self.dbm = Some(self.dbm.map_or(dbm, |mean| mean + SIGNAL_WEIGHT * (dbm - mean)));
    }

    fn on_carried(&mut self, now: Instant, carried: &Carried) {
        if core::mem::replace(&mut self.is_received, carried.is_received()) != carried.is_received() {
            // The other direction has other rates.
            (self.before, self.same) = ([Best::default(); 2], None);
        }
        if now.since(self.since) > MEMORY {
            (self.before, self.since) = ([Best::default(), self.before[0]], now);
        }
        if carried.bit_s > self.before[0].bit_s {
            self.before[0] = Best { bit_s: carried.bit_s, dbm: self.dbm };
        }
        if self.limit_bit_s.is_some_and(|limit| carried.bit_s > RECOVERED * limit) {
            let text = format!("{} Mbit/s are delivered again", mbit_s(carried.bit_s));
            let inputs = [("delivered_kbit_s", carried.bit_s / 1e3)];
            (self.limit_bit_s, self.is_of_the_network, self.rests) = (None, false, None);
            (self.belief, self.reason) = (Belief::Good, Reason::plain("throttled.over", text).with(inputs));
        }
        let is_same = self.has_been_the_same(now, carried);
        let is_of_the_network = is_same || is_policed(carried) || self.is_of_the_network;
        let shown = match self.limit_bit_s {
            None => SHOWN,
            Some(_) if self.is_of_the_network => SHOWN_AGAIN,
            Some(_) => SHOWN_AFTER_FADE,
        };
        if self.rests.is_none() && carried.constant_for >= shown {
            self.compare(now, carried, is_of_the_network);
        }
    }

    /// Whether the path has been full at the same rate for as long as a fading radio is not.
    fn has_been_the_same(&mut self, now: Instant, carried: &Carried) -> bool {
        let is_near = |(_, bit_s): &(Instant, f64)| (carried.bit_s - bit_s).abs() <= SHAPED_DEVIATION * bit_s;
        let same = self.same.filter(|same| carried.is_full && is_near(same)).unwrap_or((now, carried.bit_s));
        self.same = Some(same);
        now.since(same.0) >= SHAPED
    }

    /// Compares what the path delivers with what it did, and with what another path does.
    fn compare(&mut self, now: Instant, carried: &Carried, is_of_the_network: bool) {
        let best = if self.before[0].bit_s >= self.before[1].bit_s { self.before[0] } else { self.before[1] };
        let has_fallen = best.dbm.zip(self.dbm).is_some_and(|(then, now)| now < then - FALLEN_DB);
        let own_bit_s = if has_fallen || !is_of_the_network { 0.0 } else { OWN_SHARE * best.bit_s };
        let other_bit_s = OTHER_SHARE * carried.fastest_other_bit_s;
        let limit_bit_s = self.limit_bit_s.unwrap_or(0.0).max(own_bit_s).max(other_bit_s);
        if carried.bit_s > limit_bit_s {
            return;
        }
        let delivered = format!("{} Mbit/s are delivered at a constant rate while more waits", mbit_s(carried.bit_s));
        let (rule, text, figure) = if carried.bit_s <= own_bit_s {
            let signal = self.signal_text();
            let text = format!("{delivered}, {} before{signal}: the network throttles it", mbit_s(best.bit_s));
            ("throttled.fell", text, ("before_kbit_s", best.bit_s / 1e3))
        } else if carried.bit_s <= other_bit_s {
            let other = mbit_s(carried.fastest_other_bit_s);
            let text = format!("{delivered}, another path delivers {other}: it holds up more than it adds");
            ("throttled.beside", text, ("other_kbit_s", carried.fastest_other_bit_s / 1e3))
        } else {
            let text = format!("{delivered}, still no more than {}", mbit_s(limit_bit_s));
            ("throttled.still", text, ("limit_kbit_s", limit_bit_s / 1e3))
        };
        let [least, longest] = PAUSES;
        let is_first = self.limit_bit_s.replace(limit_bit_s).is_none();
        let has_no_queue = carried.queued.is_none_or(|queued| queued <= NO_QUEUE);
        self.is_of_the_network = is_of_the_network || (is_first && has_no_queue);
        self.pause = match self.is_of_the_network {
            _ if !is_first => (self.pause * 2).clamp(least, longest),
            true => least,
            false => RADIO_PAUSE,
        };
        self.rests = Some(now);
        let pause_s = self.pause.as_secs_f64();
        let inputs = [("delivered_kbit_s", carried.bit_s / 1e3), figure, ("pause_s", pause_s)];
        let text = format!("{text}; it rests for {pause_s} s");
        (self.belief, self.reason) = (Belief::Stalled, Reason::plain(rule, text).with(inputs));
    }

    fn signal_text(&self) -> String {
        self.dbm.map_or(String::new(), |dbm| format!(", at {dbm:.0} dBm as then"))
    }
}

/// Whether what exceeds the rate is dropped rather than queued.
fn is_policed(carried: &Carried) -> bool {
    carried.loss >= POLICED_LOSS && carried.queued.is_some_and(|queued| queued <= NO_QUEUE)
}

/// A rate with two digits at least.
fn mbit_s(bit_s: f64) -> String {
    let mbit_s = bit_s / 1e6;
    match mbit_s {
        10.0.. => format!("{mbit_s:.0}"),
        1.0.. => format!("{mbit_s:.1}"),
        _ => format!("{mbit_s:.2}"),
    }
}

impl Assessor for Throttled {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Signal(signal) => self.on_signal(f64::from(signal.rssi_dbm)),
            SampleKind::Carried(carried) if self.is_judged => self.on_carried(now, carried),
            // Others judge whether the path carries at all.
            SampleKind::Link { .. } if self.rests.is_none() => self.belief = Belief::Unknown,
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        let Some(since) = self.rests else { return };
        if now >= since + self.pause {
            self.rests = None;
            let pause_s = self.pause.as_secs_f64();
            let text = format!("it is tried, after a rest of {pause_s} s");
            let inputs = [("pause_s", pause_s)];
            (self.belief, self.reason) = (Belief::Good, Reason::plain("throttled.trial", text).with(inputs));
        } else if now >= since + TAKEN_BACK {
            self.belief = Belief::Fading;
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let since = self.rests?;
        Some(since + if self.belief == Belief::Stalled { TAKEN_BACK } else { self.pause })
    }
}

#[cfg(test)]
mod tests;
