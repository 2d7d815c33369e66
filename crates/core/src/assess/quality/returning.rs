//! When a path that was left may be entered again.

use alloc::format;

use super::evidence::Left;
use super::{
    CAUTION_DB, CAUTIOUS_GROWTH_DB, GROWTH_DB, LOOKAHEAD, MAX_PAUSE, MAX_VAIN, PAUSE, Quality, RETURN_DB, SIGNAL_PAUSE,
    STALE,
};
use crate::reason::{Reason, Sentence, Words};
use crate::time::{Duration, Instant};

impl Quality {
    /// When the path may be entered, as far as time decides.
    pub(super) fn pause_ends(&self, left: &Left) -> Instant {
        left.at + if left.by_signal { SIGNAL_PAUSE } else { PAUSE * (1 << self.short_returns) }
    }

    /// The signal at which the path may be entered.
    fn entry_dbm(&self) -> Option<f64> {
        let (margin_db, growth_db) = match self.forecast.is_cautious() {
            true if !self.is_only_network => (CAUTION_DB, CAUTIOUS_GROWTH_DB),
            false if self.forecast.is_proven() => (-RETURN_DB, GROWTH_DB),
            _ => (0.0, GROWTH_DB),
        };
        Some(self.forecast.level_dbm()? + growth_db * f64::from(self.short_returns) + margin_db)
    }

    /// Whether echo requests alone tell when the path that was left recovers.
    pub(super) fn returns_by_echo(&self, left: &Left) -> bool {
        let active = self.echo.active();
        !self.needs_signal && !left.by_signal && active.is_some_and(|active| left.by_echo || active > left.at)
    }

    pub(super) fn watch_return(&mut self, now: Instant) {
        let Some(left) = self.left else { return };
        if self.returns_by_echo(&left) {
            return self.return_by_echo(now, &left);
        }
        if self.echo.is_late() {
            return;
        }
        let by_signal = if now >= self.pause_ends(&left) { self.return_by_signal(now, &left) } else { None };
        let is_by_position = by_signal.is_none();
        if let Some(reason) = by_signal.or_else(|| self.return_by_position(now, &left)) {
            self.is_by_position = is_by_position;
            self.enter(now, reason);
        }
    }

    fn return_by_echo(&mut self, now: Instant, left: &Left) {
        let pause = if left.by_echo { Duration::ZERO } else { SIGNAL_PAUSE * ((1 << self.short_returns) - 1) };
        if let Some(reason) = self.echo.proof(now, pause) {
            self.is_by_position = false;
            self.enter(now, reason);
        }
    }

    /// Whether a signal is recent, and does not fall towards the level.
    fn is_steady(&self, now: Instant) -> bool {
        let is_fresh = self.signal_at.is_some_and(|at| now.since(at) < STALE) || !self.needs_signal;
        is_fresh && self.forecast.time_to_loss(now).is_none_or(|time| time >= LOOKAHEAD)
    }

    /// Why the path may be entered after its pause.
    fn return_by_signal(&self, now: Instant, left: &Left) -> Option<Reason> {
        let (level, dbm) = (self.forecast.level_dbm(), self.forecast.dbm_now(now));
        if self.needs_signal || (left.by_signal && now < left.at + MAX_PAUSE) {
            let is_above = dbm.zip(self.entry_dbm()).is_some_and(|(dbm, entry)| dbm >= entry);
            if !is_above || !self.is_steady(now) {
                return None;
            }
        }
        let sentence: Sentence = match dbm.zip(level) {
            Some(_) => |[dbm, level, ..]| format!("signal {dbm:.1} dBm, messages were late at {level:.1} dBm"),
            None => |_| "tried again after a pause".into(),
        };
        let inputs = dbm.map(|dbm| ("rssi_dbm", dbm)).into_iter().chain(level.map(|level| ("level_dbm", level)));
        Some(Reason::plain("quality.return", Words::Figures(sentence)).with(inputs))
    }

    /// Why the path may be entered towards its roadside unit.
    fn return_by_position(&self, now: Instant, left: &Left) -> Option<Reason> {
        let (distance_m, closing_m_s) = self.motion.approach(now)?;
        let (level, dbm) = self.forecast.level_dbm().zip(self.forecast.dbm_now(now))?;
        let is_trusted = self.needs_signal && !self.forecast.is_cautious() && self.vain < MAX_VAIN;
        if !is_trusted || now < left.at + SIGNAL_PAUSE || dbm < level - RETURN_DB || !self.is_steady(now) {
            return None;
        }
        let inputs =
            [("rssi_dbm", dbm), ("level_dbm", level), ("distance_m", distance_m), ("closing_m_s", closing_m_s)];
        Some(Reason::new("forecast.position", inputs, |[dbm, level, distance_m, closing_m_s]| {
            format!(
                "signal {dbm:.1} dBm, {distance_m:.0} m from the unit and {closing_m_s:.0} m/s towards it, messages \
                 were late at {level:.1} dBm"
            )
        }))
    }
}
