//! Sudden loss: a path that falls silent without any fade.
//!
//! Five signs, each of them enough: the roadside unit's messages stop; what
//! was sent over the path stays unacknowledged for longer than its round-trip
//! time and its variance allow; nothing at all comes back over it while many
//! subflows wait for it; what came over it regularly breaks off; the interface
//! goes down. A wrong alarm costs the opening of a subflow, a missed one costs
//! the kernel's retransmission timer (0.2 s and more), so the signs are read
//! eagerly and repeated alarms make the path wait longer before it is trusted
//! again.

use crate::path::{Break, Counters, Sample, SampleKind, Transport};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::net::IpAddr;
use serde::Deserialize;

use super::answers::{Answers, CROWD};
use super::stalls::{Stalls, Verdict};
use super::{Alarm, AlarmKind, Assessor, Belief, Reason, Stuck};
use crate::time::{Duration, Instant};

/// Parameters of [`Silence`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Missed message periods that make a silence (≥ 2); 0 turns this sign off.
    pub cam_periods: u32,
    /// Patience beyond the round-trip time and four times its deviation, in
    /// ms; 0 turns this sign off.
    pub unacked_margin_ms: u32,
}

impl Default for Params {
    fn default() -> Params {
        Params { cam_periods: 4, unacked_margin_ms: 20 }
    }
}

/// Message intervals remembered. The shortest of them is the period, so that
/// lost messages do not stretch it; a silence must also be twice as long as the
/// longest of them, so that sporadic reception is not taken for sudden loss.
const INTERVALS: usize = 8;
/// A shorter period is not believed: a station sends a CAM each 100 ms at most
/// (EN 302 637-2 §6.1.3); what comes faster is several stations, or forged.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);
/// Messages heard before their silence means something.
const FEW: usize = 3;
/// A sign of life within this time after an alarm proves it wrong.
const SETTLE: Duration = Duration::from_secs(1);
/// First wait after an alarm before the path is trusted without a message.
const FIRST_WAIT: Duration = Duration::from_millis(1000);
/// Longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Alarms farther apart than this do not add up.
const FORGIVEN: Duration = Duration::from_secs(30);

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    params: Params,
    last_cam: Option<Instant>,
    intervals: VecDeque<Duration>,
    stalls: Stalls,
    answers: Answers,
    /// Mean round trip of the last subflows told of.
    rtt: Duration,
    link_down: bool,
    raised: Option<Raised>,
    last_alarm: Option<Instant>,
    wait: Duration,
    alarms: VecDeque<Alarm>,
    reason: Reason,
}

#[derive(Clone, Copy, Debug)]
struct Raised {
    kind: AlarmKind,
    at: Instant,
    settled: bool,
    trust_at: Option<Instant>,
    /// The peer that alone bore witness.
    accuser: Option<IpAddr>,
    /// How long nothing had come back over the interface, and the packets that had come
    /// before, where that was the sign.
    unanswered: Option<(Duration, u64)>,
    /// True if over some subflows nothing was under way.
    has_idle: bool,
}

impl Raised {
    /// True if data is caught on the path.
    fn is_stuck(&self) -> bool {
        matches!(self.kind, AlarmKind::Unacknowledged | AlarmKind::Arrivals)
    }
}

impl Silence {
    /// An assessor that has heard nothing yet.
    pub fn new(params: Params) -> Silence {
        Silence { params, wait: FIRST_WAIT, ..Silence::default() }
    }

    fn hear_cam(&mut self, now: Instant) {
        if let Some(last) = self.last_cam.replace(now).filter(|last| now.since(*last) < SETTLE) {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(now.since(last));
        }
        self.see_life(now);
    }

    /// A message proves the radio alive. It ends a silence of messages at once;
    /// where acknowledgements were missing it ends the alarm at once if that had
    /// been right, and after a wait if it was wrong and might be so again.
    fn see_life(&mut self, now: Instant) {
        let Some(mut raised) = self.raised.filter(|raised| raised.kind != AlarmKind::LinkDown) else { return };
        let quick = now.since(raised.at) < SETTLE;
        if quick {
            self.take_back(&mut raised);
        }
        let wait = quick && raised.is_stuck();
        raised.trust_at = Some(if wait { raised.at + self.wait / 2 } else { now });
        self.raised = Some(raised);
        self.advance(now);
    }

    fn watch_transport(&mut self, now: Instant, transport: &Transport) {
        if self.params.unacked_margin_ms == 0 {
            return;
        }
        self.rtt = (self.rtt * 7 + transport.rtt) / 8;
        let margin = Duration::from_millis(u64::from(self.params.unacked_margin_ms));
        match self.stalls.watch(now, transport, margin) {
            Some(Verdict::Alive(peer, sent)) => self.see_delivery(now, peer, sent),
            Some(Verdict::Stuck { waited, patience, witnesses })
                if self.raised.is_none_or(|raised| raised.kind == AlarmKind::CamSilence) =>
            {
                self.raise_stuck(now, transport.unacked, waited, patience, witnesses);
            }
            Some(Verdict::Stuck { .. }) if self.raised.is_some_and(|raised| raised.has_idle) => {
                self.stalls.tell((transport.token, transport.peer));
            }
            Some(Verdict::Stuck { .. }) | None => {}
        }
    }

    /// Nothing comes back while many wait for it.
    fn watch_counters(&mut self, now: Instant, counters: Counters) {
        self.hear_answers(counters);
        let Some(unanswered) = self.answers.watch(now, counters, self.rtt) else { return };
        let subflows = self.stalls.waiting();
        let is_new = self.raised.is_none_or(|raised| raised.kind == AlarmKind::CamSilence);
        if self.params.unacked_margin_ms == 0 || !is_new || subflows < CROWD {
            return;
        }
        let (waited_ms, patience_ms) = (unanswered.waited.as_secs_f64() * 1e3, unanswered.patience.as_secs_f64() * 1e3);
        let text = format!(
            "nothing came back for {waited_ms:.0} ms, {patience_ms:.0} ms allowed, {subflows} subflows unacknowledged"
        );
        let inputs = [("waited_ms", waited_ms), ("patience_ms", patience_ms), ("subflows", subflows as f64)];
        self.raise(now, AlarmKind::Unacknowledged, text, &inputs);
        if let Some(raised) = &mut self.raised {
            raised.unanswered = Some((unanswered.waited, counters.received));
        }
    }

    /// What comes back soon after it was missed proves the alarm wrong: it is ended
    /// after the wait. A packet or two may be somebody else's.
    fn hear_answers(&mut self, counters: Counters) {
        let Some(mut raised) = self.raised.filter(|raised| !raised.settled) else { return };
        let Some((_, before)) = raised.unanswered else { return };
        if counters.received.saturating_sub(before) >= CROWD as u64 {
            self.take_back(&mut raised);
            let trust_at = raised.at + self.wait / 2;
            raised.trust_at = Some(raised.trust_at.map_or(trust_at, |at| at.min(trust_at)));
            self.raised = Some(raised);
        }
    }

    /// What was sent after an alarm and came through proves it wrong, or over. The
    /// word of another peer than the accuser ends it at once, and the accuser is
    /// not believed alone again; his own ends it after the wait.
    fn see_delivery(&mut self, now: Instant, peer: IpAddr, sent: Instant) {
        let Some(mut raised) = self.raised.filter(Raised::is_stuck) else { return };
        if sent <= raised.at {
            return;
        }
        self.take_back(&mut raised);
        let trust_at = match raised.accuser {
            Some(accuser) if accuser != peer => {
                self.stalls.distrust(now, accuser);
                now
            }
            _ => raised.at + self.wait / 2,
        };
        raised.trust_at = Some(raised.trust_at.map_or(trust_at, |at| at.min(trust_at)));
        self.raised = Some(raised);
        self.advance(now);
    }

    /// The alarm was wrong, unless it is known by now that it was right.
    fn take_back(&mut self, raised: &mut Raised) {
        if !core::mem::replace(&mut raised.settled, true) {
            self.alarms.push_back(Alarm { kind: raised.kind, false_positive: Some(true) });
            if let Some((waited, _)) = raised.unanswered {
                self.answers.was_wrong(waited);
            }
        }
    }

    /// What came regularly broke off: the path is lost, unless something that was
    /// sent over it since came through.
    fn hear_break(&mut self, now: Instant, told: &Break) {
        if self.params.unacked_margin_ms == 0 || self.raised.is_some() || self.stalls.alive_since(told.last) {
            return;
        }
        let (waited_ms, longest_ms) = (told.waited.as_secs_f64() * 1e3, told.longest.as_secs_f64() * 1e3);
        let text = format!("nothing came for {waited_ms:.0} ms, something each {longest_ms:.0} ms before");
        self.raise(now, AlarmKind::Arrivals, text, &[("waited_ms", waited_ms), ("longest_ms", longest_ms)]);
    }

    fn raise_stuck(&mut self, now: Instant, unacked: u32, waited: Duration, patience: Duration, witnesses: u32) {
        let (waited_ms, patience_ms) = (waited.as_secs_f64() * 1e3, patience.as_secs_f64() * 1e3);
        let mut text = format!("{unacked} segments unacknowledged for {waited_ms:.0} ms, {patience_ms:.0} ms allowed");
        let mut inputs =
            alloc::vec![("waited_ms", waited_ms), ("patience_ms", patience_ms), ("unacked", f64::from(unacked))];
        if witnesses > 1 {
            text.push_str(&format!(", on {witnesses} subflows at once"));
            inputs.push(("subflows", f64::from(witnesses)));
        }
        self.raise(now, AlarmKind::Unacknowledged, text, &inputs);
    }

    /// When the silence of messages becomes an alarm.
    fn cam_deadline(&self) -> Option<Instant> {
        let enabled = self.params.cam_periods > 0 && self.intervals.len() >= FEW && self.raised.is_none();
        let (period, longest) = (*self.intervals.iter().min()?, *self.intervals.iter().max()?);
        let silence = (period.max(SHORTEST_PERIOD) * self.params.cam_periods).max(longest * 2);
        self.last_cam.filter(|_| enabled).map(|last| last + silence)
    }

    fn raise(&mut self, now: Instant, kind: AlarmKind, text: String, inputs: &[(&'static str, f64)]) {
        let again = self.last_alarm.is_some_and(|last| now.since(last) < FORGIVEN);
        self.wait = if again { (self.wait * 2).min(LONGEST_WAIT) } else { FIRST_WAIT };
        self.last_alarm = Some(now);
        let hears_messages = self.intervals.len() >= FEW;
        let trust_at = match kind {
            AlarmKind::Unacknowledged | AlarmKind::Arrivals if !hears_messages => Some(now + self.wait),
            _ => None,
        };
        // An interface that is down leaves nothing to be settled.
        let settled = kind == AlarmKind::LinkDown;
        let accuser = self.stalls.accuser().filter(|_| kind == AlarmKind::Unacknowledged);
        let has_idle = kind == AlarmKind::Unacknowledged && self.stalls.has_idle();
        self.raised = Some(Raised { kind, at: now, settled, trust_at, accuser, has_idle, unanswered: None });
        self.alarms.push_back(Alarm { kind, false_positive: settled.then_some(false) });
        let rule = match kind {
            AlarmKind::CamSilence => "silence.cam",
            AlarmKind::Unacknowledged => "silence.unacknowledged",
            AlarmKind::Arrivals => "silence.arrivals",
            AlarmKind::LinkDown => "silence.link-down",
        };
        self.reason = Reason { rule, text, inputs: inputs.into() };
    }

    fn judge_link(&mut self, now: Instant, up: bool) {
        if self.link_down != up {
            return;
        }
        self.link_down = !up;
        if !up {
            self.raise(now, AlarmKind::LinkDown, "the interface went down".into(), &[]);
        } else if let Some(raised) = &mut self.raised {
            raised.trust_at = Some(now);
        }
    }
}

impl Assessor for Silence {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Signal { station: Some(_), .. } => self.hear_cam(now),
            SampleKind::Signal { station: None, .. } => {}
            SampleKind::Link { up } => self.judge_link(now, *up),
            SampleKind::Transport(transport) => self.watch_transport(now, transport),
            SampleKind::Break(told) => self.hear_break(now, told),
            SampleKind::Counters(counters) => self.watch_counters(now, *counters),
        }
    }

    fn advance(&mut self, now: Instant) {
        if let (Some(deadline), Some(last)) = (self.cam_deadline(), self.last_cam)
            && now >= deadline
        {
            let silent_ms = now.since(last).as_secs_f64() * 1e3;
            let period_ms = self.intervals.iter().min().map_or(0.0, |period| period.as_secs_f64() * 1e3);
            let text = format!("no message for {silent_ms:.0} ms, one each {period_ms:.0} ms before");
            self.raise(now, AlarmKind::CamSilence, text, &[("silent_ms", silent_ms)]);
        }
        let Some(raised) = &mut self.raised else {
            return;
        };
        if !raised.settled && now >= raised.at + SETTLE {
            raised.settled = true;
            self.alarms.push_back(Alarm { kind: raised.kind, false_positive: Some(false) });
        }
        if raised.settled && raised.trust_at.is_some_and(|at| now >= at) {
            self.raised = None;
            self.stalls.try_again(now);
            self.answers.forget();
            self.reason = Reason { rule: "silence.over", text: "it is tried again".into(), inputs: Default::default() };
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        let belief = match self.raised {
            Some(raised) if raised.is_stuck() && !raised.has_idle => Belief::Stalled,
            Some(_) => Belief::Lost,
            None => Belief::Unknown,
        };
        (belief, &self.reason)
    }

    fn poll_alarm(&mut self) -> Option<Alarm> {
        self.alarms.pop_front()
    }

    fn poll_stuck(&mut self) -> Option<Stuck> {
        self.stalls.poll_stuck()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let settle = self.raised.filter(|raised| !raised.settled).map(|raised| raised.at + SETTLE);
        let trust = self.raised.filter(|raised| raised.settled).and_then(|raised| raised.trust_at);
        [self.cam_deadline(), settle, trust].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
