//! The liveness of a path, judged by its feedback.

use alloc::format;
use alloc::string::String;

use crate::time::{Duration, Instant};
use crate::tunnel::keepalive::Keepalive;

/// Feedback is overdue by this time beyond RTT and its variation.
const FEEDBACK_MARGIN: Duration = Duration::from_millis(25);
/// A path is declared down this time after an unanswered probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(25);
/// Interval of probes on a path with nothing in flight, or recovering.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of probes while a packet is unacknowledged.
const PROBE_INTERVAL_UNANSWERED: Duration = Duration::from_millis(250);
/// Keepalive interval of a path that carried traffic lately, so that its state is known when it carries
/// again.
pub(super) const KEEPALIVE_IN_USE: Duration = Duration::from_millis(500);
/// Number of copies that decide whether a recovering path is up.
const RECOVERY_PACKETS: u32 = 10;
/// Maximum share of lost copies for a recovering path to be up.
const RECOVERY_LOSS: f64 = 0.2;
/// A path with a greater share of lost packets carries copies only.
const UNTRUSTED_LOSS: f64 = 0.35;
/// An acknowledgement is in time within this number of min RTTs plus [`LATE_MARGIN`].
const LATE_RTTS: u32 = 2;
const LATE_MARGIN: Duration = Duration::from_millis(80);

/// Liveness of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveness {
    /// It delivers.
    Up,
    /// No feedback yet.
    Unknown,
    /// It was down or too lossy, and answers; it carries copies.
    Recovering,
    /// Its feedback is overdue, and it is probed.
    Probing,
    /// It does not answer.
    Down,
}

impl Liveness {
    /// Whether feedback is overdue, for a moment or for long.
    pub(in super::super) fn is_overdue(self) -> bool {
        self >= Liveness::Probing
    }

    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            Liveness::Up => "up",
            Liveness::Unknown => "unknown",
            Liveness::Recovering => "recovering",
            Liveness::Probing => "probing",
            Liveness::Down => "down",
        }
    }
}

/// State of the whole tunnel, for each of its paths.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct TunnelState {
    /// Whether it carries nothing.
    pub is_idle: bool,
    /// Delay difference of all paths that are not closed.
    pub delay_difference: Duration,
}

/// What liveness and its timers depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    /// RTT and four times its variation; `None` before the first answer.
    pub(super) rtt: Option<Duration>,
    /// Usual delay of a report at the peer.
    pub(super) feedback_delay: Duration,
    /// Send time of the oldest packet in flight; later if its report may be late.
    pub(super) oldest_sent: Option<Instant>,
    /// Send time of the newest packet.
    pub(super) last_sent: Instant,
    pub(super) keepalive: Keepalive,
    /// Whether it carried a packet lately.
    pub(super) is_in_use: bool,
    /// Whether its answers are late: it is asked more often, so that it is soon used again.
    pub(super) is_doubted: bool,
    /// Whether the path is to be closed; it is then not probed.
    pub(super) is_closed: bool,
}

impl Observed {
    fn feedback_timeout(&self) -> Duration {
        self.rtt.unwrap_or_default() + self.feedback_delay * 3 + FEEDBACK_MARGIN
    }
}

/// A change that the rest of the path follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transition {
    /// It was down and answers: its rate is unknown.
    Answered,
    /// It is up after this share of copies was lost.
    Recovered(f64),
    /// Its feedback is overdue.
    Overdue,
    /// It was declared down: nothing is in flight any more.
    Down,
}

/// Judges the liveness of a path.
#[derive(Debug)]
pub(super) struct LivenessMonitor {
    pub(super) liveness: Liveness,
    /// The reason for the liveness, one sentence.
    pub(super) reason: String,
    /// Packets delivered and lost since it is recovering.
    recovery: (u32, u32),
    pub(super) probe_wanted: bool,
    /// Time of the last tail-loss probe.
    tail_probed: Instant,
    tunnel: TunnelState,
}

impl LivenessMonitor {
    pub(super) fn new(now: Instant) -> LivenessMonitor {
        LivenessMonitor {
            liveness: Liveness::Unknown,
            reason: "no feedback yet".into(),
            recovery: (0, 0),
            probe_wanted: true,
            tail_probed: now,
            tunnel: TunnelState::default(),
        }
    }

    /// Counts a packet that was delivered or lost.
    pub(super) fn on_packet(&mut self, is_lost: bool) {
        self.recovery.0 = self.recovery.0.saturating_add(u32::from(!is_lost));
        self.recovery.1 = self.recovery.1.saturating_add(u32::from(is_lost));
    }

    /// Updates the liveness after a delivery with this RTT; `loss` is the recent share of lost packets.
    pub(super) fn on_delivery(&mut self, rtt: Duration, min_rtt: Duration, loss: f64) -> Option<Transition> {
        let in_time = rtt < min_rtt * LATE_RTTS + LATE_MARGIN;
        match self.liveness {
            Liveness::Probing | Liveness::Unknown if in_time => self.set(Liveness::Up, "it delivers".into()),
            Liveness::Down if in_time => {
                self.recovery = (0, 0);
                self.set(Liveness::Recovering, format!("it answers within {} ms", rtt.as_millis()));
                return Some(Transition::Answered);
            }
            Liveness::Recovering => return self.judge_recovery(),
            Liveness::Up if loss > UNTRUSTED_LOSS => {
                self.recovery = (0, 0);
                self.set(Liveness::Recovering, format!("it loses {:.0} % of packets", loss * 100.0));
            }
            _ => {}
        }
        None
    }

    fn judge_recovery(&mut self) -> Option<Transition> {
        let (arrived, lost) = self.recovery;
        if arrived + lost < RECOVERY_PACKETS {
            return None;
        }
        self.recovery = (0, 0);
        let share = f64::from(lost) / f64::from(arrived + lost);
        (share <= RECOVERY_LOSS).then(|| {
            self.set(Liveness::Up, format!("{arrived} of {} copies arrived", arrived + lost));
            Transition::Recovered(share)
        })
    }

    fn set(&mut self, liveness: Liveness, reason: String) {
        (self.liveness, self.reason) = (liveness, reason);
    }

    /// Updates the liveness at `now`.
    pub(super) fn advance(&mut self, now: Instant, tunnel: TunnelState, path: &Observed) -> Option<Transition> {
        self.tunnel = tunnel;
        if self.tail_probe_at(path).is_some_and(|at| now >= at) {
            self.tail_probed = now;
            self.probe_wanted = true;
        }
        if self.expires_at(path).is_none_or(|at| now < at) {
            return None;
        }
        let waited_ms = path.oldest_sent.map_or(Duration::ZERO, |sent| now.since(sent)).as_millis();
        if self.liveness == Liveness::Probing {
            self.set(Liveness::Down, format!("no answer for {waited_ms} ms"));
            return Some(Transition::Down);
        }
        self.probe_wanted = true;
        if self.liveness == Liveness::Recovering {
            self.set(Liveness::Down, format!("copies unacknowledged for {waited_ms} ms"));
        } else {
            self.set(Liveness::Probing, format!("packets unacknowledged for {waited_ms} ms"));
        }
        Some(Transition::Overdue)
    }

    /// When the present liveness ends without feedback.
    fn expires_at(&self, path: &Observed) -> Option<Instant> {
        let timeout = match self.liveness {
            Liveness::Down => return None,
            Liveness::Probing => (path.feedback_timeout() + self.tunnel.delay_difference) * 2 + PROBE_TIMEOUT,
            _ if path.rtt.is_some() => path.feedback_timeout(),
            _ => PROBE_INTERVAL_UNANSWERED,
        };
        path.oldest_sent.map(|sent| sent + timeout)
    }

    /// When to send a tail-loss probe: a loss at the end of a burst shows only by a later packet.
    fn tail_probe_at(&self, path: &Observed) -> Option<Instant> {
        let since = path.oldest_sent.filter(|sent| self.liveness == Liveness::Up && *sent >= self.tail_probed)?;
        Some(since + path.rtt.unwrap_or_default() + path.feedback_delay * 4)
    }

    /// When a probe is due.
    pub(super) fn probe_at(&self, path: &Observed) -> Option<Instant> {
        if path.is_closed {
            return None;
        }
        if self.probe_wanted {
            return Some(path.last_sent);
        }
        let has_nothing_in_flight = path.oldest_sent.is_none();
        let interval = match self.liveness {
            Liveness::Up if !has_nothing_in_flight => return None,
            Liveness::Up if path.is_doubted => PROBE_INTERVAL,
            Liveness::Up if self.tunnel.is_idle => path.keepalive.idle?,
            Liveness::Up if path.is_in_use => {
                path.keepalive.unused.map_or(KEEPALIVE_IN_USE, |it| it.min(KEEPALIVE_IN_USE))
            }
            Liveness::Up => path.keepalive.unused?,
            Liveness::Recovering => PROBE_INTERVAL,
            _ if has_nothing_in_flight || !self.tunnel.is_idle => PROBE_INTERVAL,
            _ => PROBE_INTERVAL_UNANSWERED,
        };
        Some(path.last_sent + interval)
    }

    /// When [`advance`](Self::advance) or a probe is due.
    pub(super) fn next_wakeup(&self, path: &Observed) -> Option<Instant> {
        self.expires_at(path).into_iter().chain(self.tail_probe_at(path)).chain(self.probe_at(path)).min()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::tunnel::send_path::rtt::FEEDBACK_DELAY;

    const RTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A path with a packet in flight since 1 s, and nothing sent since.
    fn observed() -> Observed {
        Observed {
            rtt: Some(RTT),
            feedback_delay: FEEDBACK_DELAY,
            oldest_sent: Some(at(1000)),
            last_sent: at(1000),
            keepalive: Keepalive::DEFAULT,
            is_in_use: true,
            is_doubted: false,
            is_closed: false,
        }
    }

    fn up() -> LivenessMonitor {
        let mut monitor = LivenessMonitor::new(at(0));
        assert_eq!(monitor.on_delivery(RTT, RTT, 0.0), None);
        monitor.probe_wanted = false;
        monitor
    }

    /// The times and transitions while no feedback arrives.
    fn without_feedback(monitor: &mut LivenessMonitor, tunnel: TunnelState) -> Vec<(u64, Transition)> {
        let advance = |ms| Some((ms - 1000, monitor.advance(at(ms), tunnel, &observed())?));
        (1000..2000).filter_map(advance).collect()
    }

    #[test]
    fn a_path_without_feedback_is_probed_and_then_down() {
        let mut monitor = up();
        let expected = [(54, Transition::Overdue), (133, Transition::Down)];
        assert_eq!(without_feedback(&mut monitor, TunnelState::default()), expected);
        assert_eq!((monitor.liveness, monitor.reason.as_str()), (Liveness::Down, "no answer for 133 ms"));
    }

    #[test]
    fn the_delay_difference_of_the_paths_extends_the_time_until_a_path_is_down() {
        let tunnel = TunnelState { delay_difference: Duration::from_millis(50), ..TunnelState::default() };
        assert_eq!(without_feedback(&mut up(), tunnel), [(54, Transition::Overdue), (233, Transition::Down)]);
    }

    #[test]
    fn a_tail_loss_probe_is_sent_once_for_each_burst() {
        let (path, mut monitor) = (observed(), up());
        assert_eq!(monitor.probe_at(&path), None, "a packet is in flight");
        assert_eq!(monitor.next_wakeup(&path), Some(at(1032)), "an RTT and the delay of feedback");
        assert_eq!(monitor.advance(at(1032), TunnelState::default(), &path), None);
        assert_eq!(monitor.probe_at(&path), Some(at(1000)));
        monitor.probe_wanted = false;
        assert_eq!(monitor.next_wakeup(&path), Some(at(1054)));
    }

    #[test]
    fn an_idle_path_is_probed_less_often_while_the_whole_tunnel_is_idle() {
        let (path, mut monitor) = (Observed { oldest_sent: None, ..observed() }, up());
        assert_eq!(monitor.probe_at(&path), Some(at(1500)));
        let is_idle = TunnelState { is_idle: true, ..TunnelState::default() };
        monitor.advance(at(1100), is_idle, &path);
        assert_eq!(monitor.probe_at(&path), Some(at(16_000)));
        let expensive = Observed { keepalive: Keepalive::PRICED, ..path };
        assert_eq!(monitor.probe_at(&expensive), Some(at(26_000)));
        assert_eq!(monitor.probe_at(&Observed { keepalive: Keepalive::OFF, ..path }), None);
        assert_eq!(monitor.probe_at(&Observed { is_closed: true, ..path }), None);
    }

    #[test]
    fn a_path_that_answers_is_up_when_eight_of_ten_copies_arrive() {
        for (lost, recovered) in [(2, Some(Transition::Recovered(0.2))), (3, None)] {
            let mut monitor = up();
            without_feedback(&mut monitor, TunnelState::default());
            assert_eq!(monitor.on_delivery(RTT * 10, RTT, 0.0), None, "an answer that late proves nothing");
            assert_eq!(monitor.on_delivery(RTT, RTT, 0.0), Some(Transition::Answered));
            (0..9).for_each(|packet| monitor.on_packet(packet < lost));
            assert_eq!(monitor.on_delivery(RTT, RTT, 0.0), None, "nine copies do not suffice");
            monitor.on_packet(false);
            assert_eq!(monitor.on_delivery(RTT, RTT, 0.0), recovered);
            let expected = if recovered.is_some() { Liveness::Up } else { Liveness::Recovering };
            assert_eq!(monitor.liveness, expected, "{lost} lost");
        }
    }

    #[test]
    fn a_path_that_loses_more_than_a_third_must_recover() {
        for (loss, liveness) in [(0.3, Liveness::Up), (0.4, Liveness::Recovering)] {
            let mut monitor = up();
            assert_eq!(monitor.on_delivery(RTT, RTT, loss), None);
            assert_eq!(monitor.liveness, liveness);
        }
    }
}
