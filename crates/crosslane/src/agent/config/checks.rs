//! Checks that involve several keys of a configuration.

use std::ops::RangeInclusive;

use super::Config;
use crate::control::protocol::MAX_NAME_BYTES;

/// Poll periods with which deadlines can be planned, in ms: plans are made for
/// a poll every 10 ms.
const POLL_PERIODS_MS: RangeInclusive<u32> = 10..=20;

/// Place, cause and remedy.
pub(super) type Complaint = (usize, String, &'static str);

pub(super) fn ranges(config: &Config) -> Result<(), Complaint> {
    let ranges = [
        ("overlap_ms", &config.service.overlap_ms, 0..=1000, "give 0 to 1000"),
        ("transport_period_ms", &config.observe.transport_period_ms, 1..=1000, "give 1 to 1000"),
    ];
    match ranges.into_iter().find(|(_, value, range, _)| !range.contains(value.get_ref())) {
        Some((key, value, _, remedy)) => Err((value.span().start, format!("{key} is {}", value.get_ref()), remedy)),
        None => config.log.check(),
    }
}

pub(super) fn mode(config: &Config) -> Result<(), Complaint> {
    let Some(table) = &config.strategy_table else { return Ok(()) };
    match config.lacks(config.service.mode) {
        Some(cause) => Err((table.span().start, cause, "choose another mode, or another strategy")),
        None => Ok(()),
    }
}

pub(super) fn demands(config: &Config) -> Result<(), Complaint> {
    let Some(name) = &config.service.demands else {
        if let Some(group) = &config.service.demands_group {
            let remedy = "set `demands`, or remove `demands_group`";
            return Err((group.span().start, "`demands_group` without `demands`".into(), remedy));
        }
        if !config.strategy.as_ref().is_some_and(|strategy| strategy.needs_deadlines()) {
            return Ok(());
        }
        let cause = "the strategy needs objects with deadlines, and `demands` is not set".into();
        let remedy = "set service.demands to the name of a socket, as \"/run/crosslane/demands.sock\"";
        return Err((config.strategy_table.as_ref().map_or(0, |table| table.span().start), cause, remedy));
    };
    let (place, name) = (name.span().start, name.get_ref());
    if name.is_empty() || name == "@" || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        let cause = format!("{name:?} is no name of a socket");
        return Err((place, cause, "give `demands` 1 to 107 bytes, or more than @"));
    }
    let period_ms = &config.observe.transport_period_ms;
    if !POLL_PERIODS_MS.contains(period_ms.get_ref()) {
        let cause = format!("transport_period_ms is {}, too far from the planning period", period_ms.get_ref());
        return Err((period_ms.span().start, cause, "give 10 to 20 with `demands`"));
    }
    Ok(())
}
