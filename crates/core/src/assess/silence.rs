//! Sudden loss: a path that fails without fading.
//!
//! Five signs, each of them sufficient: the roadside unit's messages stop; data sent
//! over the path stays unacknowledged for longer than its RTT and the RTT's variance
//! allow; nothing returns over it while many subflows wait; regular downlink messages
//! stop; the interface goes down. A false positive costs the opening of a subflow, a
//! missed alarm costs the kernel's retransmission timeout (0.2 s and more), so the
//! signs are evaluated sensitively, and after repeated alarms the path waits longer
//! before it is trusted again.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use super::answers::{Answers, CROWD};
use super::stalls::{Stalls, Verdict};
use super::{Alarm, AlarmKind, Assessor, Belief, Finding};
use crate::path::{Break, Counters, Sample, SampleKind, Transport};
use crate::reason::{Reason, Sentence, Words};
use crate::recent::push_recent;
use crate::time::{Duration, Instant};

crate::parameters! {
    /// Parameters of [`Silence`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Consecutive missed messages of a roadside unit that mean sudden loss (from 2); 0: off.
        cam_periods: u32 = 4, "count", 0.0 to 1000.0;
        /// Bytes unacknowledged for longer than RTT + 4·RTTVAR + this mean sudden loss too, as do an interface
        /// over which nothing returns while more is sent and eight or more subflows wait, and regular downlink
        /// messages that stop; 0: all off.
        unacked_margin_ms: u32 = 20, "ms", 0.0 to 60000.0;
    }
}

/// Message intervals remembered. The shortest is taken as the period, so that lost
/// messages do not stretch it; a silence must also last twice the longest, so that
/// sporadic reception is not taken for sudden loss.
const INTERVALS: usize = 8;
/// Minimum period: a station sends a CAM every 100 ms at most (EN 302 637-2 §6.1.3); a
/// higher rate means several stations, or forged messages.
const MIN_PERIOD: Duration = Duration::from_millis(50);
/// Minimum number of intervals before a silence counts.
const MIN_INTERVALS: usize = 3;
/// Activity within this time after an alarm proves it wrong.
const SETTLE: Duration = Duration::from_secs(1);
/// First wait after an alarm before the path is trusted without a message.
const FIRST_WAIT: Duration = Duration::from_millis(1000);
/// Longest such wait.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Alarms further apart than this do not increase the wait.
const ALARM_MEMORY: Duration = Duration::from_secs(30);

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    params: Params,
    /// Whether data that stays unacknowledged raises an alarm.
    judges_unacked: bool,
    /// Whether missed messages of a unit do so only while the peer sends, and whether it does.
    needs_peer: bool,
    is_from_peer: bool,
    last_cam: Option<Instant>,
    intervals: VecDeque<Duration>,
    stalls: Stalls,
    answers: Answers,
    /// Smoothed RTT of all subflows.
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
    /// The peer of all subflows that timed out, if there is only one.
    sole_peer: Option<IpAddr>,
    /// For an alarm by the interface's counters: the time without an answer, and the
    /// packets received before.
    unanswered: Option<(Duration, u64)>,
    /// True if some subflows had nothing in flight.
    has_idle: bool,
    /// Whether data sent since then was acknowledged, or a subflow opened.
    is_answered: bool,
}

impl Raised {
    /// True if data is stalled on the path.
    fn has_stalled_data(&self) -> bool {
        matches!(self.kind, AlarmKind::Unacknowledged | AlarmKind::Arrivals)
    }

    /// The path is trusted again at `at`, or sooner.
    fn trust_by(&mut self, at: Instant) {
        self.trust_at = Some(self.trust_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Silence {
    /// An assessor without samples.
    pub fn new(params: Params) -> Silence {
        Silence { params, judges_unacked: true, wait: FIRST_WAIT, ..Silence::default() }
    }

    /// The same, but another assessor judges what is unacknowledged.
    #[must_use]
    pub fn without_unacked(self) -> Silence {
        Silence { judges_unacked: false, ..self }
    }

    /// The same, but missed messages of a unit count only while the peer sends: its delivery tells more of what is sent from
    /// here.
    #[must_use]
    pub fn with_cams_for_peer(self) -> Silence {
        Silence { needs_peer: true, ..self }
    }

    fn on_cam(&mut self, now: Instant) {
        if let Some(last) = self.last_cam.replace(now).filter(|last| now.since(*last) < SETTLE) {
            push_recent(&mut self.intervals, INTERVALS, now.since(last));
        }
        self.on_activity(now);
    }

    /// A message proves that the radio works. It ends a silence of messages at once. An
    /// alarm about acknowledgements ends at once if it was right, and after a wait if
    /// it was wrong and may recur.
    fn on_activity(&mut self, now: Instant) {
        let Some(mut raised) = self.raised.filter(|raised| raised.kind != AlarmKind::LinkDown) else { return };
        let is_soon = now.since(raised.at) < SETTLE;
        if is_soon {
            self.settle_as_wrong(&mut raised);
        }
        let wait = is_soon && raised.has_stalled_data();
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
            Some(Verdict::Alive(peer, sent)) => self.on_delivery(now, peer, sent),
            Some(Verdict::Stalled { waited, timeout, timed_out })
                if self.judges_unacked && self.raised.is_none_or(|raised| raised.kind == AlarmKind::CamSilence) =>
            {
                self.raise_stalled(now, transport.unacked, waited, timeout, timed_out);
            }
            Some(Verdict::Stalled { .. }) if self.raised.is_some_and(|raised| raised.has_idle) => {
                self.stalls.report((transport.token, transport.peer));
            }
            _ => {}
        }
    }

    /// Raises an alarm if nothing returns while many subflows wait.
    fn watch_counters(&mut self, now: Instant, counters: Counters) {
        self.check_answers(counters);
        let Some(unanswered) = self.answers.watch(now, counters, self.rtt) else { return };
        let subflows = self.stalls.waiting();
        let is_new = self.raised.is_none_or(|raised| raised.kind == AlarmKind::CamSilence);
        if self.params.unacked_margin_ms == 0 || !is_new || subflows < CROWD {
            return;
        }
        let (waited_ms, timeout_ms) = (unanswered.waited.as_secs_f64() * 1e3, unanswered.timeout.as_secs_f64() * 1e3);
        let inputs = [("waited_ms", waited_ms), ("patience_ms", timeout_ms), ("subflows", subflows as f64)];
        let sentence: Sentence = |[waited_ms, timeout_ms, subflows, _]| {
            format!(
                "nothing received for {waited_ms:.0} ms, {timeout_ms:.0} ms allowed, {subflows} subflows unacknowledged"
            )
        };
        self.raise(now, AlarmKind::Unacknowledged, Words::Figures(sentence), &inputs);
        if let Some(raised) = &mut self.raised {
            raised.unanswered = Some((unanswered.waited, counters.received));
        }
    }

    /// Answers soon after the alarm prove it wrong: it ends after the wait. One or two
    /// packets may belong to other traffic.
    fn check_answers(&mut self, counters: Counters) {
        let Some(mut raised) = self.raised.filter(|raised| !raised.settled) else { return };
        let Some((_, before)) = raised.unanswered else { return };
        if counters.received.saturating_sub(before) >= CROWD as u64 {
            self.settle_as_wrong(&mut raised);
            raised.trust_by(raised.at + self.wait / 2);
            self.raised = Some(raised);
        }
    }

    /// Data sent after an alarm and acknowledged proves it wrong, or over. If another
    /// peer than the one that caused the alarm acknowledged it, the alarm ends at once,
    /// and the peer that caused it needs confirmation from then on; otherwise it ends
    /// after the wait.
    fn on_delivery(&mut self, now: Instant, peer: IpAddr, sent: Instant) {
        let is_over = |raised: &Raised| raised.has_stalled_data() && sent > raised.at;
        let Some(mut raised) = self.raised.filter(is_over) else { return };
        self.settle_as_wrong(&mut raised);
        raised.is_answered = true;
        if let Some(sole_peer) = raised.sole_peer.filter(|sole_peer| *sole_peer != peer) {
            self.stalls.distrust(now, sole_peer);
            raised.trust_by(now);
        } else {
            raised.trust_by(raised.at + self.wait / 2);
        }
        self.raised = Some(raised);
        self.advance(now);
    }

    /// Settles the alarm as a false positive, unless it has been settled as right.
    fn settle_as_wrong(&mut self, raised: &mut Raised) {
        if !core::mem::replace(&mut raised.settled, true) {
            self.alarms.push_back(Alarm { kind: raised.kind, false_positive: Some(true) });
            if let Some((waited, _)) = raised.unanswered {
                self.answers.on_false_positive(waited);
            }
        }
    }

    /// Regular messages stopped: the path is lost, unless data sent over it since then
    /// was acknowledged.
    fn on_break(&mut self, now: Instant, broken: &Break) {
        if self.params.unacked_margin_ms == 0 || self.raised.is_some() || self.stalls.delivered_since(broken.last) {
            return;
        }
        let (waited_ms, longest_ms) = (broken.waited.as_secs_f64() * 1e3, broken.longest.as_secs_f64() * 1e3);
        let sentence: Sentence = |[waited_ms, longest_ms, ..]| {
            format!("no data received for {waited_ms:.0} ms, before that at least every {longest_ms:.0} ms")
        };
        let inputs = [("waited_ms", waited_ms), ("longest_ms", longest_ms)];
        self.raise(now, AlarmKind::Arrivals, Words::Figures(sentence), &inputs);
    }

    fn raise_stalled(&mut self, now: Instant, unacked: u32, waited: Duration, timeout: Duration, timed_out: u32) {
        let (waited_ms, timeout_ms) = (waited.as_secs_f64() * 1e3, timeout.as_secs_f64() * 1e3);
        let sentence: Sentence = |[waited_ms, timeout_ms, unacked, subflows]| {
            let at_once = if subflows > 1.0 { format!(", on {subflows} subflows at once") } else { String::new() };
            format!("{unacked} segments unacknowledged for {waited_ms:.0} ms, {timeout_ms:.0} ms allowed{at_once}")
        };
        let inputs = [
            ("waited_ms", waited_ms),
            ("patience_ms", timeout_ms),
            ("unacked", f64::from(unacked)),
            ("subflows", f64::from(timed_out)),
        ];
        let inputs = if timed_out > 1 { &inputs[..] } else { &inputs[..3] };
        self.raise(now, AlarmKind::Unacknowledged, Words::Figures(sentence), inputs);
    }

    /// When a silence of messages raises an alarm.
    fn cam_deadline(&self) -> Option<Instant> {
        let is_judged = self.params.cam_periods > 0 && (self.is_from_peer || !self.needs_peer);
        if !is_judged || self.intervals.len() < MIN_INTERVALS || self.raised.is_some() {
            return None;
        }
        let (period, longest) = (*self.intervals.iter().min()?, *self.intervals.iter().max()?);
        let silence = (period.max(MIN_PERIOD) * self.params.cam_periods).max(longest * 2);
        self.last_cam.map(|last| last + silence)
    }

    fn raise(&mut self, now: Instant, kind: AlarmKind, words: impl Into<Words>, inputs: &[(&'static str, f64)]) {
        let is_repeated = self.last_alarm.is_some_and(|last| now.since(last) < ALARM_MEMORY);
        self.wait = if is_repeated { (self.wait * 2).min(MAX_WAIT) } else { FIRST_WAIT };
        self.last_alarm = Some(now);
        let receives_messages = self.intervals.len() >= MIN_INTERVALS;
        // An interface that is down needs no confirmation.
        let settled = kind == AlarmKind::LinkDown;
        let sole_peer = self.stalls.sole_peer().filter(|_| kind == AlarmKind::Unacknowledged);
        let has_idle = kind == AlarmKind::Unacknowledged && self.stalls.has_idle();
        let mut raised = Raised {
            kind,
            at: now,
            settled,
            trust_at: None,
            sole_peer,
            has_idle,
            unanswered: None,
            is_answered: false,
        };
        raised.trust_at = (raised.has_stalled_data() && !receives_messages).then(|| now + self.wait);
        self.raised = Some(raised);
        self.alarms.push_back(Alarm { kind, false_positive: settled.then_some(false) });
        let rule = match kind {
            AlarmKind::CamSilence => "silence.cam",
            AlarmKind::Unacknowledged => "silence.unacknowledged",
            AlarmKind::Arrivals => "silence.arrivals",
            AlarmKind::LinkDown => "silence.link-down",
        };
        self.reason = Reason::plain(rule, words).with(inputs.iter().copied());
    }

    fn on_link(&mut self, now: Instant, up: bool) {
        if self.link_down != up {
            return;
        }
        self.link_down = !up;
        if !up {
            self.raise(now, AlarmKind::LinkDown, "the interface went down", &[]);
        } else if let Some(raised) = &mut self.raised {
            raised.trust_at = Some(now);
        }
    }
}

impl Assessor for Silence {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Signal(signal) if signal.station.is_some() => self.on_cam(now),
            SampleKind::Link { up } => self.on_link(now, *up),
            SampleKind::Transport(transport) => self.watch_transport(now, transport),
            SampleKind::Break(broken) => self.on_break(now, broken),
            SampleKind::Carried(carried) => self.is_from_peer = carried.is_from_peer().unwrap_or(self.is_from_peer),
            SampleKind::Counters(counters) => self.watch_counters(now, *counters),
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        if let Some(last) = self.last_cam
            && self.cam_deadline().is_some_and(|deadline| now >= deadline)
        {
            let silent_ms = now.since(last).as_secs_f64() * 1e3;
            let period_ms = self.intervals.iter().min().map_or(0.0, |period| period.as_secs_f64() * 1e3);
            let text = format!("no message for {silent_ms:.0} ms, before that one every {period_ms:.0} ms");
            self.raise(now, AlarmKind::CamSilence, text, &[("silent_ms", silent_ms)]);
        }
        let Some(raised) = &mut self.raised else { return };
        if !raised.settled && now >= raised.at + SETTLE {
            raised.settled = true;
            self.alarms.push_back(Alarm { kind: raised.kind, false_positive: Some(false) });
        }
        if raised.settled && raised.trust_at.is_some_and(|at| now >= at) {
            self.raised = None;
            self.stalls.restart(now);
            self.answers.reset();
            self.reason = Reason::plain("silence.over", "the path is tried again");
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        let belief = match self.raised {
            // Another assessor judges what is delivered.
            Some(raised) if raised.has_stalled_data() && raised.is_answered && !self.judges_unacked => Belief::Fading,
            Some(raised) if raised.has_stalled_data() && !raised.has_idle => Belief::Stalled,
            Some(_) => Belief::Lost,
            None => Belief::Unknown,
        };
        (belief, &self.reason)
    }

    fn poll(&mut self) -> Option<Finding> {
        let alarm = self.alarms.pop_front().map(Finding::Alarm);
        alarm.or_else(|| self.stalls.poll_stalled().map(Finding::Stalled))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let settle = self.raised.filter(|raised| !raised.settled).map(|raised| raised.at + SETTLE);
        let trust = self.raised.filter(|raised| raised.settled).and_then(|raised| raised.trust_at);
        [self.cam_deadline(), settle, trust].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
