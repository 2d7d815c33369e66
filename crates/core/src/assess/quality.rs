//! What a path is like now, from what its subflows deliver.
//!
//! Five signs, each of them sufficient, say that a path delivers late: its RTT, compared
//! with the least and the usual RTT; the age of the oldest unacknowledged byte; its
//! retransmissions; the delay of what is received (`quality/received.rs`); its delivery rate, compared with what is usually
//! offered. While none shows, the path is good, whatever its signal.
//!
//! Of a path that carries nothing, echo requests tell (`quality/echo.rs`), if there are any: it is not good while they
//! are late.
//!
//! A path that was left is good again when its signal is above the level at which
//! messages begin to be late (`forecast.rs`), and does not fall towards it. If its signal
//! does not explain why it was left, it is good again when echo requests are answered in time, or after a pause. Hysteresis and pause
//! grow with each return that does not last. Towards a roadside unit neither counts, and a
//! lower signal suffices: it rises (`motion.rs`). Only delivery tells whether a position is
//! true: after several such returns in a row that do not last it says nothing.
//!
//! While a handover that the modem announced lasts, nothing is a sign: what waits is let go
//! at its end.

use alloc::collections::BTreeMap;
use alloc::format;
use core::net::SocketAddr;

use super::forecast::Forecast;
use super::motion::{Handover, Motion};
use super::stalls::MAX_SUBFLOWS;
use super::{Assessor, Belief, check_is_due};
use crate::path::{Rat, Sample, SampleKind, Transport};
use crate::reason::{Reason, Sentence};
use crate::time::{Duration, Instant};
use echo::EchoSign;
use evidence::{Evidence, Left, Limits, Sign};
use flow::Flow;

mod echo;
mod evidence;
mod flow;
mod received;
mod returning;

/// Leaving within this time after a return counts as a short return.
const SHORT_RETURN: Duration = Duration::from_secs(3);
/// A signal so far below the level lets a path be entered that has delivered in time, in dB: it scatters by as much, and a
/// message that is late is saved.
const RETURN_DB: f64 = 4.0;
/// With each short return it must be so much higher, in dB; more where a late message cannot be saved.
const GROWTH_DB: f64 = 0.5;
const CAUTIOUS_GROWTH_DB: f64 = 1.0;
/// First pause; it doubles with each short return.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of short returns counted: 6 dB, and the longest pause.
const MAX_SHORT: u32 = 6;
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(64);
/// Least pause of a path whose signal explains why it was left.
const SIGNAL_PAUSE: Duration = Duration::from_millis(300);
/// A signal older than this does not let a path be entered that reports it regularly.
const STALE: Duration = Duration::from_millis(500);
/// A path in reserve that reports its signal regularly is not good if nothing arrived over it
/// for this long: ten CAMs (EN 302 637-2 clause 6.1.3: T_GenCamMin).
const SILENCE: Duration = Duration::from_secs(1);
/// A path of which echo requests tell is not good if nothing was received over it for this long.
const UNHEARD: Duration = Duration::from_secs(60);
/// A path is not entered if it is lost within this time.
const LOOKAHEAD: Duration = Duration::from_millis(500);
/// A subflow that replaces one within this time has its RTT.
const EXPIRY: Duration = Duration::from_secs(60);
/// Where a late message cannot be saved, and another network carries meanwhile, it must be so far above the level, in dB.
const CAUTION_DB: f64 = 1.5;
/// Maximum number of such returns in a row that do not last.
const MAX_VAIN: u32 = 8;
/// Data delivered so long after the path was left was sent since then.
const PROOF: Duration = Duration::from_millis(300);

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    late_ms: f64,
    needs_signal: bool,
    forecast: Forecast,
    motion: Motion,
    handover: Handover,
    echo: EchoSign,
    signal_at: Option<Instant>,
    /// When data was last delivered over the path, or arrived over it.
    carried_at: Option<Instant>,
    flows: BTreeMap<(u32, SocketAddr), Flow>,
    /// The subflow whose oldest byte is late first, and when.
    first_late: Option<((u32, SocketAddr), Instant)>,
    checked: Instant,
    /// Whether the peer sends more than short answers, over whichever path: what it sent is not moved from here. True until
    /// that is known.
    is_from_peer: bool,
    /// Whether a message that is late over this path cannot be saved over another.
    is_beyond_saving: bool,
    /// Whether no path but those over its radio can carry.
    is_only_network: bool,
    /// Whether the last sample was of a bulk sender.
    is_bulk: bool,
    link_down: bool,
    left: Option<Left>,
    returned: Option<Instant>,
    short_returns: u32,
    /// Whether the position decided on the last return, and how many such returns in a row did not last.
    is_by_position: bool,
    vain: u32,
    belief: Belief,
    reason: Reason,
}

impl Quality {
    /// An assessor without samples. A message is late after `late`.
    pub fn new(rat: Rat, late: Duration) -> Quality {
        let late_ms = late.as_secs_f64() * 1e3;
        let echo = EchoSign::new(late_ms);
        let (needs_signal, forecast) = (rat.needs_signal(), Forecast::new(rat));
        let mut quality = Quality { late_ms, needs_signal, forecast, echo, is_from_peer: true, ..Quality::default() };
        quality.update_caution();
        quality
    }

    fn on_link(&mut self, now: Instant, up: bool) {
        (self.link_down, self.left) = (!up, None);
        self.echo.restart();
        match up {
            false => self.set(Belief::Lost, Reason::plain("quality.link-down", "the interface is down")),
            true if self.needs_signal => {
                self.left = Some(Left::new(now, true, false));
                self.set(Belief::Unknown, Reason::plain("quality.link-up", "no signal sample yet"));
            }
            true => self.set(Belief::Good, Reason::plain("quality.link-up", "the interface is up")),
        }
    }

    fn on_signal(&mut self, now: Instant, dbm: f64) {
        self.forecast.observe(now, dbm);
        self.signal_at = Some(now);
        if self.belief == Belief::Unknown && !self.link_down {
            let sentence: Sentence = |[dbm, ..]| format!("first signal {dbm:.1} dBm");
            self.set(Belief::Fading, Reason::new("quality.signal", [("rssi_dbm", dbm)], sentence));
        }
    }

    fn on_transport(&mut self, now: Instant, transport: &Transport) {
        if check_is_due(&mut self.checked, now) {
            self.flows.retain(|_, flow| now.since(flow.observed) < EXPIRY);
        }
        let key = (transport.token, transport.peer);
        let (late_ms, is_of_the_air) = (self.late_ms, self.is_of_the_air());
        let Some(flow) = self.flows.get_mut(&key) else {
            if self.flows.len() < MAX_SUBFLOWS {
                self.flows.insert(key, Flow::new(now, transport, self.is_bulk));
            }
            return;
        };
        let has_received = flow.has_received(transport);
        let delivered = flow.observe(now, transport);
        if delivered || has_received {
            self.carried_at = Some(now);
            self.echo.on_data();
        }
        let limits = Limits { late_ms, needs_signal: self.needs_signal, is_of_the_air };
        let (is_new, is_bulk, evidence) = (flow.is_new(), flow.is_bulk(), flow.evidence(now, limits));
        let (late_at, has_much) = (flow.late_at(limits), flow.has_much(limits));
        self.is_beyond_saving = !flow.can_be_saved(late_ms);
        self.is_bulk = is_bulk;
        // One that is past is sampled now, or its subflow is gone.
        let others = self.first_late.filter(|(other, at)| *other != key && *at > now);
        self.first_late = late_at.map(|at| (key, at)).into_iter().chain(others).min_by_key(|(_, at)| *at);
        let is_cautious = self.update_caution();
        if is_new || (delivered && !evidence.is_some_and(Evidence::is_stall)) {
            self.on_answer(is_new);
        }
        match evidence {
            None if is_bulk || (is_cautious && self.is_low(now)) => self.watch_signal(now),
            Some(evidence) => self.on_evidence(now, evidence),
            None if delivered && self.belief == Belief::Good => self.forecast.on_delivery(now),
            None if delivered && !transport.backup && !has_much => self.on_proof(now),
            None => {}
        }
    }

    /// Whether a single delay is that of the air, which all paths of the radio share: the signal does not explain it, and no other
    /// network can save the message. If the unit is gone, its silence tells (`silence.rs`).
    fn is_of_the_air(&self) -> bool {
        let is_strong = || self.forecast.dbm().zip(self.forecast.level_dbm()).is_some_and(|(dbm, level)| dbm > level);
        self.is_only_network && is_strong()
    }

    /// Whether a late message cannot be saved; then the signal counts.
    fn update_caution(&mut self) -> bool {
        let is_cautious = self.is_from_peer || self.is_beyond_saving || self.is_only_network;
        self.forecast.set_cautious(is_cautious);
        is_cautious
    }

    /// A path whose data waited answers: another subflow is open, or something is delivered, unless it was left because that is too
    /// little. Where the signal tells when a path may be entered, that tells.
    fn on_answer(&mut self, is_new: bool) {
        let waits = |left: &&mut Left| left.stalled && (is_new || !left.starved);
        let Some(left) = self.left.as_mut().filter(waits).filter(|_| !self.needs_signal) else { return };
        left.stalled = false;
        self.set(Belief::Fading, Reason::plain("quality.answer", "it did not answer, and does again"));
    }

    /// Data sent after the path was left is delivered in time: it is the last resort, and good.
    fn on_proof(&mut self, now: Instant) {
        let Some(left) = self.left.filter(|left| now.since(left.at) > PROOF) else { return };
        if self.belief >= Belief::Fading {
            if left.by_echo {
                self.echo.distrust();
            }
            self.enter(now, Reason::plain("quality.proof", "data sent since then is delivered in time"));
        }
    }

    fn enter(&mut self, now: Instant, reason: Reason) {
        (self.left, self.returned) = (None, Some(now));
        self.flows.values_mut().for_each(Flow::restart);
        self.set(Belief::Good, reason);
    }

    /// The signal falls, and has reached the level.
    fn is_low(&self, now: Instant) -> bool {
        self.forecast.time_to_loss(now).is_some_and(|time| time == Duration::ZERO)
    }

    /// What a bulk sender delivers does not tell whether messages would be late, and where a late message cannot be
    /// saved it tells too late: the path is left when the signal reaches the level.
    fn watch_signal(&mut self, now: Instant) {
        let Some((dbm, level)) = self.forecast.dbm().zip(self.forecast.level_dbm()) else { return };
        if self.belief == Belief::Good && self.is_low(now) {
            self.leave(now, false);
            let inputs = [("rssi_dbm", dbm), ("level_dbm", level)];
            let sentence: Sentence =
                |[dbm, level, ..]| format!("signal {dbm:.1} dBm falls, messages are late at {level:.1} dBm");
            self.set(Belief::Fading, Reason::new("quality.low", inputs, sentence));
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        if self.belief == Belief::Unknown || self.handover.lasts(now) {
            return;
        }
        let stalled = evidence.is_stall();
        match &mut self.left {
            Some(left) if !stalled || left.stalled => return,
            Some(left) => left.stalled = true,
            None => self.leave(now, stalled),
        }
        if let Some(left) = &mut self.left {
            left.starved = evidence.sign == Sign::Rate;
        }
        let belief = if stalled { Belief::Stalled } else { Belief::Fading };
        self.set(belief, evidence.reason(self.forecast.dbm()));
    }

    /// When a path that is good has been silent for too long. The signal of a modem is that of its cell.
    fn silent_at(&self) -> Option<Instant> {
        if self.belief != Belief::Good {
            return None;
        }
        let answered = self.echo.answered();
        match self.needs_signal {
            true => Some(self.signal_at.max(self.carried_at).max(answered)? + SILENCE),
            false => Some(answered?.max(self.carried_at.unwrap_or_default()) + UNHEARD),
        }
    }

    fn watch_silence(&mut self, now: Instant) {
        if self.silent_at().is_none_or(|at| now < at) {
            return;
        }
        let (left, sentence): (_, Sentence) = match self.needs_signal {
            true => (Left::new(now, true, false), |_| {
                format!("neither a signal sample nor data for {} s", SILENCE.as_secs())
            }),
            false => (Left::by_echo(now), |_| format!("nothing was received over it for {} s", UNHEARD.as_secs())),
        };
        self.left = Some(left);
        self.echo.on_leave();
        self.set(Belief::Fading, Reason::new("quality.silent", [], sentence));
    }

    /// A path that carries nothing is not good while echo requests over it are late.
    fn watch_echo(&mut self, now: Instant) {
        self.echo.advance(now);
        if self.echo.is_late() && self.belief == Belief::Good {
            self.left = Some(Left::by_echo(now));
            self.set(Belief::Fading, self.echo.reason(now));
        }
    }

    fn leave(&mut self, now: Instant, stalled: bool) {
        let is_short = self.returned.is_some_and(|returned| now.since(returned) < SHORT_RETURN);
        match (is_short, self.is_by_position) {
            (false, _) => (self.short_returns, self.vain) = (0, 0),
            (true, true) => self.vain = (self.vain + 1).min(MAX_VAIN),
            (true, false) => self.short_returns = (self.short_returns + 1).min(MAX_SHORT),
        }
        self.echo.on_leave();
        self.left = Some(Left::new(now, self.forecast.on_leave(), stalled));
    }

    fn set(&mut self, belief: Belief, reason: Reason) {
        if belief != self.belief {
            (self.belief, self.reason) = (belief, reason);
        }
    }
}

impl Assessor for Quality {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Link { up } => self.on_link(now, *up),
            SampleKind::Signal(signal) => {
                self.motion.on_message(signal.sender);
                self.on_signal(now, f64::from(signal.rssi_dbm));
            }
            SampleKind::Vehicle(state) => self.motion.on_fix(now, state),
            SampleKind::Handover { is_announced } => self.handover.on_report(now, *is_announced),
            SampleKind::Carried(carried) => {
                self.is_from_peer = carried.is_from_peer().unwrap_or(self.is_from_peer);
                self.is_only_network = carried.is_only_network;
                self.update_caution();
                let [sent, usual] = carried.sent_of_usual.unwrap_or_default();
                if let Some(evidence) = Evidence::shortfall(sent, usual).filter(|_| !self.link_down) {
                    self.on_evidence(now, evidence);
                }
            }
            SampleKind::Echo(echo) if !self.link_down => self.echo.observe(now, *echo),
            SampleKind::Transport(transport) if !self.link_down => self.on_transport(now, transport),
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        if !self.link_down && self.belief != Belief::Unknown {
            self.watch_silence(now);
            self.watch_echo(now);
            self.watch_return(now);
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if let Some(left) = self.left.filter(|_| !self.needs_signal) {
            // The next echo request, or its answer, tells.
            let waits = self.returns_by_echo(&left) || self.echo.is_late();
            let at = if left.by_signal { left.at + MAX_PAUSE } else { self.pause_ends(&left) };
            return (!waits).then_some(at);
        }
        let late_at = self.echo.next_wakeup().filter(|_| self.belief == Belief::Good);
        self.silent_at().into_iter().chain(late_at).min()
    }

    fn query_at(&self) -> Option<Instant> {
        self.first_late.filter(|_| self.belief == Belief::Good).map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests;
