//! Scheduling of data to subflows, re-injection, and the timer that marks subflows
//! stale. Source: Linux `net/mptcp/protocol.c` and `pm.c`, release 6.18.

use crosslane_core::time::{Duration, Instant};

use super::super::receiver::Mapping;
use super::super::rtt::RTO_MIN;
use super::super::scheduler::{BURST_BYTES, Candidate, Scheduler};
use super::super::subflow::Phase;
use super::{Endpoint, Protocol};

/// Timer periods without progress on every subflow after which an idle backup is
/// used for re-injection.
const BACKUP_AFTER: u32 = 1;

impl Endpoint {
    /// Passes waiting data to subflows as far as scheduler, buffers and the
    /// peer's window allow (`__mptcp_push_pending`).
    pub(super) fn push(&mut self, now: Instant) {
        let mut pushed = false;
        while self.frags.next().is_some() {
            let Some(place) = self.schedule(now) else { break };
            if self.push_to(now, place) == 0 {
                break;
            }
            pushed = true;
        }
        if pushed {
            self.timer.start(now, self.settings.ticks);
            self.transmit(now);
        }
    }

    /// The subflow for the next data (`mptcp_subflow_get_send`).
    fn schedule(&mut self, now: Instant) -> Option<usize> {
        let mut candidates = Vec::with_capacity(self.subflows.len());
        let mut longest = Duration::ZERO;
        for (place, subflow) in self.subflows.iter_mut().enumerate() {
            if !subflow.is_active() {
                continue;
            }
            longest = longest.max(subflow.time_left(now));
            let pace = *subflow.pace.get_or_insert_with(|| subflow.tx.pacing_rate());
            let holds = u64::from(subflow.tx.in_flight()) + subflow.tx.queue.bytes.div_ceil(subflow.tx.mss);
            candidates.push(Candidate {
                place,
                backup: subflow.is_backup(),
                rank: self.ranks.get(usize::from(subflow.path.0)).copied().unwrap_or(u8::MAX),
                drain_s: subflow.tx.memory() as f64 / pace.max(1.0),
                has_room: self.settings.protocol == Protocol::Tcp || subflow.tx.has_room(),
                has_window: holds < u64::from(subflow.tx.control.window),
                rtt: subflow.smoothed_rtt(),
            });
        }
        self.timer.interval = if longest.is_zero() { RTO_MIN } else { longest };
        let scheduler = match self.settings.scheduler {
            Scheduler::Priority if self.is_free => Scheduler::MinRtt,
            scheduler => scheduler,
        };
        let place = scheduler.choose(&candidates, self.last_chosen)?;
        self.last_chosen = place;
        Some(place)
    }

    /// Passes data to a subflow until its burst is over, its buffer is full at
    /// the end of a fragment, or the peer's window ends; returns the number of
    /// bytes.
    fn push_to(&mut self, now: Instant, place: usize) -> u64 {
        let mss = self.subflows[place].tx.mss;
        let (burst, longest) =
            if self.settings.scheduler == Scheduler::Default { (BURST_BYTES, u64::MAX) } else { (mss, mss) };
        self.average_pace(place, burst);
        let mut pushed = 0;
        while let Some(Mapping { dsn, len }) = self.frags.next() {
            let len = len.min(longest).min(self.data.room_from(dsn));
            if len == 0 {
                break;
            }
            self.enqueue(now, place, Mapping { dsn, len });
            self.frags.mark_sent(len);
            pushed += len;
            let full = self.settings.protocol == Protocol::Mptcp && !self.subflows[place].tx.has_room();
            if pushed >= burst || full {
                break;
            }
        }
        pushed
    }

    fn enqueue(&mut self, now: Instant, place: usize, mapping: Mapping) {
        self.data.sent = self.data.sent.max(mapping.dsn + mapping.len);
        self.subflows[place].tx.enqueue(now, mapping);
    }

    /// Updates the scheduler's mean pacing rate, weighted by the queued bytes.
    fn average_pace(&mut self, place: usize, burst: u64) {
        let window = self.data.room_from(self.data.sent);
        let (subflow, burst) = (&mut self.subflows[place], burst.min(window));
        if burst == 0 {
            return;
        }
        let (memory, burst) = (subflow.tx.memory() as f64, burst as f64);
        let pace = subflow.pace.unwrap_or_default();
        subflow.pace = Some((pace * memory + subflow.tx.pacing_rate() * burst) / (burst + memory));
    }

    /// Handles the expiry of the connection's timer (`__mptcp_retrans`): checks
    /// for stale subflows, and sends the oldest data over an idle one.
    pub(super) fn retransmit(&mut self, now: Instant) {
        if self.settings.protocol == Protocol::Tcp || self.frags.is_empty() {
            return;
        }
        if let (Some(place), Some(mapping)) = (self.idle_subflow(now), self.frags.head()) {
            self.enqueue(now, place, mapping);
        }
        self.push(now);
        self.timer.start(now, self.settings.ticks);
    }

    /// A subflow with nothing in flight (`mptcp_subflow_get_retrans`); a backup
    /// only if no other subflow makes progress.
    fn idle_subflow(&mut self, now: Instant) -> Option<usize> {
        let (mut pick, mut backup) = (None, None);
        let mut least_stale = u32::MAX;
        for place in 0..self.subflows.len() {
            let subflow = &self.subflows[place];
            if !subflow.is_usable() {
                continue;
            }
            if !subflow.tx.is_empty() {
                self.check_stale(now, place);
                least_stale = least_stale.min(self.subflows[place].stale_count);
            } else if subflow.is_backup() {
                backup = backup.or(Some(place));
            } else {
                pick = pick.or(Some(place));
            }
        }
        pick.or(backup.filter(|_| least_stale > BACKUP_AFTER))
    }

    /// Counts the timer periods in which a subflow received nothing
    /// (`mptcp_pm_subflow_chk_stale`).
    fn check_stale(&mut self, now: Instant, place: usize) {
        let subflow = &mut self.subflows[place];
        if subflow.stale_count == 0 {
            subflow.stale_last_received = subflow.last_received;
            subflow.stale_count = 1;
        } else if subflow.stale_last_received == subflow.last_received {
            subflow.stale_count = subflow.stale_count.saturating_add(1);
            self.mark_stale(now, place);
        } else {
            subflow.stale_count = 0;
            subflow.stale = false;
        }
    }

    /// Marks a subflow without progress stale and re-injects its data, if
    /// another subflow makes progress (`mptcp_pm_subflows_chk_stale`).
    fn mark_stale(&mut self, now: Instant, place: usize) {
        let allowed = self.settings.stale_loss_count;
        let subflow = &self.subflows[place];
        if subflow.stale || allowed == 0 || subflow.stale_count <= allowed {
            return;
        }
        let max_stale_count = (allowed - 1).max(1);
        let mut others = self.subflows.iter_mut().enumerate().filter(|(other, _)| *other != place);
        if others.any(|(_, other)| other.stale_count < max_stale_count && other.is_active()) {
            self.subflows[place].stale = true;
            self.reinject(now);
        }
    }

    /// Re-injects all unacknowledged data (`__mptcp_retransmit_pending_data`).
    pub(super) fn reinject(&mut self, now: Instant) {
        if self.settings.protocol == Protocol::Mptcp && !self.frags.is_empty() {
            self.frags.restart();
            self.push(now);
        }
    }

    /// Closes a subflow; its data is re-injected, and still drains over it.
    pub(super) fn close(&mut self, now: Instant, place: usize) {
        self.subflows[place].phase = Phase::Closing;
        self.reinject(now);
        self.transmit(now);
    }
}
