//! Checks that involve several keys of a configuration.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::{Config, UNITS};
use crate::control::protocol::MAX_NAME_BYTES;

/// Maximum price of 10⁹ bytes, as in scenarios.
const MAX_COST_PER_GB: f64 = 1e6;
/// Poll periods with which deadlines can be planned, in ms: plans are made for
/// a poll every 10 ms.
const POLL_PERIODS_MS: RangeInclusive<u32> = 10..=20;

/// Place, cause and remedy.
pub(super) type Complaint = (usize, String, &'static str);

pub(super) fn ranges(config: &Config) -> Result<(), Complaint> {
    let ranges = [
        ("overlap_ms", &config.service.overlap_ms, 0..=1000, "give 0 to 1000"),
        ("transport_period_ms", &config.observe.transport_period_ms, 1..=1000, "give 1 to 1000"),
        ("events_max_mb", &config.log.events_max_mb, 1..=10_000, "give 1 to 10000"),
    ];
    match ranges.into_iter().find(|(_, value, range, _)| !range.contains(value.get_ref())) {
        Some((key, value, _, remedy)) => Err((value.span().start, format!("{key} is {}", value.get_ref()), remedy)),
        None => Ok(()),
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

/// Either every path has a price or none, and a preferred path costs no more than the next.
pub(super) fn costs(config: &Config) -> Result<(), Complaint> {
    let service = &config.service;
    let units = config.roadside.iter().map(|_| UNITS);
    let names: Vec<&str> = config.paths.iter().map(|path| path.get_ref().name.as_str()).chain(units).collect();
    let Some((_, first)) = service.cost_per_gb.iter().next() else { return Ok(()) };
    for (name, cost) in &service.cost_per_gb {
        let (place, cost) = (cost.span().start, cost.get_ref());
        if !names.contains(&name.as_str()) {
            return Err((place, format!("`cost_per_gb` names {name:?}, which is no path"), "name paths of this file"));
        }
        if !(0.0..=MAX_COST_PER_GB).contains(cost) {
            return Err((place, format!("{cost} per GB is outside 0 to {MAX_COST_PER_GB}"), "choose a price inside"));
        }
    }
    let place = first.span().start;
    if service.demands.is_none() && config.tunnel.is_none() {
        let cause = "paths have a price, but `demands` is not set".into();
        return Err((place, cause, "set `demands`, or remove `cost_per_gb`: without it prices serve a tunnel only"));
    }
    if let Some(path) = names.iter().find(|name| !service.cost_per_gb.contains_key(**name)) {
        let cause = format!("path {path:?} has no price, but others have");
        return Err((place, cause, "give a price to every path or to none"));
    }
    let price = |name: &Spanned<String>| service.cost_per_gb.get(name.get_ref()).map_or(0.0, |cost| *cost.get_ref());
    if let Some(pair) = service.prefer.windows(2).find(|pair| price(&pair[0]) > price(&pair[1])) {
        let cause = format!("{:?} is preferred to {:?} and costs more", pair[0].get_ref(), pair[1].get_ref());
        return Err((pair[0].span().start, cause, "name the cheaper path first"));
    }
    Ok(())
}
