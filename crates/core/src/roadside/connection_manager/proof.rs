//! What proves that a roadside unit is in reach.
//!
//! Anybody can send a CAM in a unit's name, at any signal strength. So a unit with a slot is
//! sent small probes through its tunnel, and what counts is the answer, or data delivered
//! over its path. Frames for a station that is gone are tried seven times and hold up all
//! others, so one probe is in flight at a time, and a unit that does not answer is probed
//! more and more rarely.

use crate::time::{Duration, Instant};

/// Payload of the first probe of a unit and of its answer, in bytes.
const SMALL_BYTES: u16 = 1;
/// Payload of the probes after it, in bytes: where a small packet still arrives, data
/// may not.
pub const MAX_PROBE_BYTES: u16 = 500;
/// How long the next probe waits for the answer to the last one.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest interval of probes to a unit that does not answer.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// A unit that answers is probed again after this time.
const REFRESH: Duration = Duration::from_millis(500);
/// An answer, or data delivered, proves a unit for this long.
const VALIDITY: Duration = Duration::from_secs(1);
/// Consecutive answers that are a proof, all but the first to large probes.
const MIN_ANSWERS: u32 = 4;
/// Consecutive probes without an answer after which another unit may take the slot.
const MAX_UNANSWERED: u32 = 2;

/// The proof of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Proof {
    /// When it took its slot.
    opened: Instant,
    /// When it last answered, or data was delivered over its path, since it has its slot.
    answered: Option<Instant>,
    /// Consecutive answers.
    answers: u32,
    /// When it was last probed, since it has its slot.
    probed: Option<Instant>,
    /// Probes since the last answer.
    unanswered: u32,
}

impl Proof {
    /// The unit takes a slot.
    pub(super) fn new(now: Instant) -> Proof {
        Proof { opened: now, ..Proof::default() }
    }

    /// It answered, or data was delivered over its path.
    pub(super) fn on_answer(&mut self, now: Instant) {
        (self.answered, self.unanswered) = (Some(now), 0);
        self.answers = self.answers.saturating_add(1);
    }

    /// A probe is sent.
    pub(super) fn on_probe(&mut self, now: Instant) {
        if self.unanswered > 0 && !self.is_given(now) {
            self.answers = 0;
        }
        (self.probed, self.unanswered) = (Some(now), self.unanswered.saturating_add(1));
    }

    /// When the unit took its slot.
    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether it is proven to be in reach.
    pub(super) fn is_given(&self, now: Instant) -> bool {
        self.expires_at().is_some_and(|at| now < at)
    }

    /// When the proof expires, if it was ever given.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.answered.filter(|_| self.answers >= MIN_ANSWERS).map(|at| at + VALIDITY)
    }

    /// Whether it should have answered by now, and did not.
    pub(super) fn is_refuted(&self, now: Instant) -> bool {
        let waited = self.probed.is_some_and(|at| now >= at + ANSWER_TIMEOUT);
        !self.is_given(now) && self.unanswered >= MAX_UNANSWERED && waited
    }

    /// Payload of the next probe, in bytes.
    pub(super) fn probe_bytes(&self) -> u16 {
        if self.answers == 0 { SMALL_BYTES } else { MAX_PROBE_BYTES }
    }

    /// When the next probe is due.
    pub(super) fn probe_at(&self) -> Instant {
        let Some(probed) = self.probed.filter(|_| self.unanswered > 0) else {
            let pause = if self.answers < MIN_ANSWERS { ANSWER_TIMEOUT } else { REFRESH };
            return self.answered.map_or(Instant::ZERO, |at| at + pause);
        };
        let doublings = self.unanswered.saturating_sub(MAX_UNANSWERED).min(4);
        probed + (ANSWER_TIMEOUT * (1 << doublings)).min(MAX_INTERVAL)
    }
}
