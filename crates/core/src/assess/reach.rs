//! Whether a roadside unit is in reach: its messages arrive.
//!
//! Torrinhas et al., sections III and IV: a subflow is created when a unit comes into
//! range and removed when it becomes unreachable, as C-ITS messages tell.

use alloc::format;

use super::{Assessor, Belief};
use crate::path::{Sample, SampleKind};
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// The assessor of one path. A path without roadside units is good while its interface
/// is up.
#[derive(Clone, Debug)]
pub struct Reach {
    has_units: bool,
    timeout: Duration,
    /// When the last message arrived.
    last_message: Option<Instant>,
    link_down: bool,
    belief: Belief,
    reason: Reason,
}

impl Reach {
    /// An assessor that waits for `timeout` for the next message.
    pub fn new(has_units: bool, timeout: Duration) -> Reach {
        let (belief, reason) = (Belief::Unknown, Reason::default());
        Reach { has_units, timeout, last_message: None, link_down: false, belief, reason }
    }

    fn on_link(&mut self, up: bool) {
        (self.link_down, self.last_message) = (!up, None);
        match (up, self.has_units) {
            (false, _) => self.set(Belief::Lost, Reason::plain("reach.unavailable", "the interface is down")),
            (true, false) => self.set(Belief::Good, Reason::plain("reach.available", "the interface is up")),
            (true, true) => self.set(Belief::Unknown, Reason::plain("reach.available", "no message yet")),
        }
    }

    fn on_message(&mut self, now: Instant, station: u32, rssi_dbm: f32) {
        self.last_message = Some(now);
        let text = format!("a message of station {station} arrived, {rssi_dbm:.1} dBm");
        let inputs = [("station", f64::from(station)), ("rssi_dbm", f64::from(rssi_dbm))];
        self.set(Belief::Good, Reason::plain("reach.enter", text).with(inputs));
    }

    fn set(&mut self, belief: Belief, reason: Reason) {
        if belief != self.belief {
            (self.belief, self.reason) = (belief, reason);
        }
    }
}

impl Assessor for Reach {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match sample.kind {
            SampleKind::Link { up } => self.on_link(up),
            SampleKind::Signal(signal) if !self.link_down => {
                if let Some(station) = signal.station {
                    self.on_message(now, station, signal.rssi_dbm);
                }
            }
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        if self.next_wakeup().is_some_and(|at| at <= now) {
            self.last_message = None;
            let silent_ms = self.timeout.as_secs_f64() * 1000.0;
            let text = format!("no message for {silent_ms:.0} ms");
            self.set(Belief::Lost, Reason::plain("reach.leave", text).with([("silent_ms", silent_ms)]));
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.last_message.map(|last_message| last_message + self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathId, Signal};

    const TIMEOUT: Duration = Duration::from_millis(500);

    fn hear(assessor: &mut Reach, at_ms: u64) -> Belief {
        let signal = Signal { rssi_dbm: -94.0, station: Some(1000), ..Signal::default() };
        observe(assessor, at_ms, SampleKind::Signal(signal))
    }

    fn observe(assessor: &mut Reach, at_ms: u64, kind: SampleKind) -> Belief {
        assessor.observe(Instant::from_millis(at_ms), &Sample { path: PathId(0), kind });
        assessor.belief().0
    }

    fn belief(assessor: &mut Reach, at_ms: u64) -> Belief {
        assessor.advance(Instant::from_millis(at_ms));
        assessor.belief().0
    }

    #[test]
    fn a_unit_is_in_reach_from_its_first_message_until_none_came_for_the_timeout() {
        let mut assessor = Reach::new(true, TIMEOUT);
        assert_eq!(assessor.belief().0, Belief::Unknown);
        assert_eq!(hear(&mut assessor, 100), Belief::Good);
        assert_eq!(hear(&mut assessor, 400), Belief::Good);
        assert_eq!(assessor.next_wakeup(), Some(Instant::from_millis(900)));
        assert_eq!(belief(&mut assessor, 899), Belief::Good);
        assert_eq!(belief(&mut assessor, 900), Belief::Lost);
        assert_eq!(assessor.next_wakeup(), None);
        assert_eq!(hear(&mut assessor, 2000), Belief::Good);
    }

    #[test]
    fn a_signal_without_a_sender_is_no_message_and_a_down_interface_hears_none() {
        let mut assessor = Reach::new(true, TIMEOUT);
        assert_eq!(observe(&mut assessor, 0, SampleKind::Signal(Signal::default())), Belief::Unknown);
        assert_eq!(observe(&mut assessor, 0, SampleKind::Link { up: false }), Belief::Lost);
        assert_eq!(hear(&mut assessor, 1), Belief::Lost);
    }

    #[test]
    fn a_path_without_units_is_good_while_its_interface_is_up() {
        let mut assessor = Reach::new(false, TIMEOUT);
        assert_eq!(observe(&mut assessor, 0, SampleKind::Link { up: true }), Belief::Good);
        assert_eq!(belief(&mut assessor, 60_000), Belief::Good);
    }
}
