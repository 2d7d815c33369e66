//! Feasibility of a scenario: proof that the mean signal crosses the thresholds
//! of its `[[expect]]` entries, and warnings.

use crate::input::mobility::Track;
use crate::radio::access_link::Channel;
use crate::scenario::{Crossing, CrossingDirection, Expectation, Scenario, ScenarioError};
use crate::world::coverage::Coverage;

/// Result for one expected crossing.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Index into the scenario's expectations.
    pub expectation: usize,
    /// True if every signal evaluated crosses within the expected interval.
    pub ok: bool,
    /// One sentence: the time of the crossing, or what the signal does instead.
    pub text: String,
    /// Time of the first expected crossing, in s, without shadowing.
    pub at_s: Option<f64>,
}

/// Time constant of the smoothing, in s.
const SMOOTHING_S: f64 = 0.5;
/// Step in which the signal is evaluated, in s.
const STEP_S: f64 = 0.01;

/// Evaluates each expected crossing: once with path loss only, and once per
/// seed with shadowing. The signal is the mean before fading, smoothed with a
/// time constant of half a second.
pub fn prove(scenario: &Scenario, seeds: &[u64]) -> Result<Vec<Proof>, ScenarioError> {
    let track = scenario.track()?;
    let proofs = scenario.expectations.iter().enumerate().filter_map(|(place, expectation)| match expectation {
        Expectation::Crossing(crossing) => Some(prove_one(scenario, &track, seeds, place, crossing)),
        Expectation::Bound(_) => None,
    });
    Ok(proofs.collect())
}

/// Warnings for `check`: problems that are not errors.
pub fn warnings(scenario: &Scenario, proofs: &[Proof]) -> Vec<String> {
    let mut warnings = Vec::new();
    let traffic = &scenario.traffic;
    for at_s in proofs.iter().filter_map(|proof| proof.at_s) {
        if at_s < traffic.start_s || at_s > traffic.stop_s {
            warnings.push(format!(
                "the signal crosses at {at_s:.1} s, but traffic runs from {} s to {} s",
                traffic.start_s, traffic.stop_s
            ));
        }
    }
    let track = scenario.known_track().unwrap_or_default();
    let over_s = scenario.vehicle.start_s + track.points.last().map_or(0.0, |point| point.t_s) - scenario.duration_s;
    if over_s > 0.5 {
        warnings.push(format!("the vehicle moves for {over_s:.1} s longer than the drive lasts"));
    }
    warnings
}

fn prove_one(scenario: &Scenario, track: &Track, seeds: &[u64], expectation: usize, crossing: &Crossing) -> Proof {
    let [from_s, to_s] = crossing.between_s;
    let mut found = Vec::new();
    for seed in std::iter::once(None).chain(seeds.iter().copied().map(Some)) {
        let signal = smoothed(scenario, track, &crossing.path, seed);
        let within = crossings(&signal, crossing).into_iter().find(|t_s| (from_s..=to_s).contains(t_s));
        let Some(t_s) = within else {
            let case = seed.map_or("without shadowing".into(), |seed| format!("with seed {seed}"));
            let text = format!("{case}, {}", instead(&signal, crossing));
            return Proof { expectation, ok: false, text, at_s: found.first().copied() };
        };
        found.push(t_s);
    }
    let first = found.iter().copied().fold(f64::INFINITY, f64::min);
    let last = found.iter().copied().fold(0.0, f64::max);
    let text = format!(
        "{} {} {} dBm at {:.1} s ({first:.1} to {last:.1} s over {} seeds)",
        crossing.path,
        words(crossing.direction).0,
        crossing.threshold_dbm,
        found[0],
        seeds.len(),
    );
    Proof { expectation, ok: true, text, at_s: Some(found[0]) }
}

/// Smoothed mean signal of a path over the drive: (s, dBm). It has no entries
/// while every transmitter is off.
fn smoothed(scenario: &Scenario, track: &Track, path: &str, seed: Option<u64>) -> Vec<(f64, f64)> {
    let radio = scenario.radio_of(path);
    let link = scenario.access.iter().find(|link| link.name == path);
    let start_m = track.at(0.0).position_m;
    let mut coverage = radio.map(|(radio, unit)| (Coverage::new(scenario, radio, seed, start_m), unit));
    let model = link.and_then(|link| link.model.as_ref());
    let mut channel = model.map(|model| Channel::new(model, path, seed, start_m));
    let mut mean_dbm = |t_s: f64| {
        if let Some((coverage, unit)) = &mut coverage {
            let position_m = track.at(t_s - scenario.vehicle.start_s).position_m;
            let signal = match unit {
                Some(unit) => coverage.signal_if_on(*unit, t_s, position_m),
                None => coverage.serving(t_s, position_m),
            };
            return signal.map(|signal| signal.mean_dbm);
        }
        let link = link?;
        let trace = link.trace.as_ref().and_then(|name| scenario.data.traces.get(name));
        let recorded = trace.and_then(|trace| trace.at(t_s).rssi_dbm);
        let on = !crate::world::coverage::is_within(t_s, &link.outages_s);
        if let Some(channel) = &mut channel {
            let received = channel.signal_at(t_s, track.at(t_s - scenario.vehicle.start_s).position_m);
            return received.dbm.filter(|_| on);
        }
        on.then(|| recorded.unwrap_or(link.rssi_dbm))
    };
    let mut signal: Vec<(f64, f64)> = Vec::new();
    let steps = (scenario.duration_s / STEP_S) as u32;
    for t_s in (0..=steps).map(|step| f64::from(step) * STEP_S) {
        let Some(dbm) = mean_dbm(t_s) else { continue };
        let smooth = signal.last().map_or(dbm, |&(before_s, before)| {
            let weight = 1.0 - libm::exp(-(t_s - before_s) / SMOOTHING_S);
            before + weight * (dbm - before)
        });
        signal.push((t_s, smooth));
    }
    signal
}

/// Times of the expected crossings, in s.
fn crossings(signal: &[(f64, f64)], crossing: &Crossing) -> Vec<f64> {
    let below = |dbm: f64| dbm < crossing.threshold_dbm;
    let falls = crossing.direction == CrossingDirection::Below;
    signal
        .windows(2)
        .filter(|pair| below(pair[0].1) != falls && below(pair[1].1) == falls)
        .map(|pair| pair[1].0)
        .collect()
}

/// Describes a signal that does not cross as expected.
fn instead(signal: &[(f64, f64)], crossing: &Crossing) -> String {
    let Crossing { path, threshold_dbm, direction, between_s: [from_s, to_s] } = crossing;
    let (verb, extreme) = words(*direction);
    if let Some(t_s) = crossings(signal, crossing).first() {
        return format!("{path} {verb} {threshold_dbm} dBm at {t_s:.1} s, not between {from_s} and {to_s} s");
    }
    let sign = if *direction == CrossingDirection::Below { 1.0 } else { -1.0 };
    let Some((t_s, dbm)) = signal.iter().min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1))) else {
        return format!("{path} has no signal");
    };
    format!("{path} never {verb} {threshold_dbm} dBm: {extreme} {dbm:.1} dBm at {t_s:.1} s")
}

/// What a signal does that crosses, and the extreme of one that does not.
fn words(direction: CrossingDirection) -> (&'static str, &'static str) {
    match direction {
        CrossingDirection::Below => ("falls below", "lowest"),
        CrossingDirection::Above => ("rises above", "highest"),
    }
}
