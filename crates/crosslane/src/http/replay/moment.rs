//! A moment of a recorded run, in the form in which an agent reports itself.

use std::collections::{BTreeMap, BTreeSet};

use crosslane_core::allocate::Mode;

use super::super::Signals;
use super::recording::{Change, Recording, SubflowRow};
use crate::control::report::{
    AgentStatus, ChangeReport, ConnectionPage, ConnectionReport, DEFAULT_CLASS, PathReport, ReasonReport,
    SubflowReport, TokenName,
};
use crate::version;

/// A subflow of which nothing was recorded for this time is closed, in s.
const PRESENT_S: f64 = 0.5;
/// Which network carries is found from the bytes of this time, in s.
const CARRIES_S: f64 = 1.0;
/// Changes that are shown.
const MAX_CHANGES: usize = 200;
/// How far signals are shown, in s.
const SIGNALS_S: f64 = 300.0;

/// A moment of a run, `at_s` since its start.
pub struct Moment<'a> {
    pub recording: &'a Recording,
    pub at_s: f64,
}

impl Moment<'_> {
    /// The status; `configuration` is the run's folder.
    pub fn status(&self, configuration: String, strategy: String, mode: Mode) -> AgentStatus {
        let happened = self.changes();
        let report = |(place, change): (usize, &Change)| ChangeReport {
            number: place as u64 + 1,
            ago_s: self.at_s - change.at_s,
            path: self.recording.paths[change.path].clone(),
            of: change.of.into(),
            to: change.to.clone(),
            reason: change.reason.clone(),
        };
        let changes = happened.iter().enumerate().skip(happened.len().saturating_sub(MAX_CHANGES)).map(report);
        let tokens: BTreeSet<u32> = self.subflows().map(|row| row.token).collect();
        AgentStatus {
            version: version::version().into(),
            pid: 0,
            configuration,
            uptime_s: self.at_s,
            longest_answer_ms: 0.0,
            strategy: Some(strategy),
            tree: None,
            mode,
            preferred: None,
            connections: tokens.len(),
            paths: (0..self.recording.paths.len()).map(|path| self.path(path)).collect(),
            tunnel: None,
            units: Vec::new(),
            problems: Vec::new(),
            changes: changes.collect(),
        }
    }

    /// The connections with their subflows; all in one part.
    pub fn connections(&self) -> ConnectionPage {
        let mut connections: BTreeMap<u32, ConnectionReport> = BTreeMap::new();
        for row in self.subflows() {
            let connection = connections.entry(row.token).or_insert_with(|| ConnectionReport {
                token: TokenName(row.token),
                class: DEFAULT_CLASS.into(),
                peer: Some(row.remote.clone()),
                accepted: false,
                is_foreign: false,
                subflows: Vec::new(),
            });
            connection.subflows.push(SubflowReport {
                path: self.recording.paths[row.path].clone(),
                local: row.local.clone(),
                remote: row.remote.clone(),
                state: if row.is_backup { "backup" } else { "active" }.into(),
                open_s: self.at_s
                    - self.recording.subflows.iter().find(|one| is_same(one, row)).map_or(0.0, |one| one.at_s),
                rtt_ms: Some(row.rtt_ms),
                acked_bytes: Some(row.acked_bytes),
                received_bytes: Some(row.received_bytes),
            });
        }
        ConnectionPage { connections: connections.into_values().collect(), next: None }
    }

    /// The signals of the last minutes.
    pub fn signals(&self) -> Signals {
        let of_path = |(path, signals): (&usize, &Vec<(f64, f32)>)| {
            let shown = until(signals, self.at_s, |one| one.0).iter().filter(|(at_s, _)| *at_s > self.at_s - SIGNALS_S);
            let ages = shown.map(|(at_s, dbm)| ((self.at_s - at_s) as f32, *dbm)).collect();
            (self.recording.paths[*path].clone(), ages)
        };
        self.recording.signals.iter().map(of_path).collect()
    }

    /// The path that carries the most bytes about this moment.
    pub fn carrier(&self) -> Option<usize> {
        let total = |path: usize, at_s: f64| self.bytes(path, at_s).map_or(0, |bytes| bytes.iter().sum());
        let carried = |path: usize| {
            total(path, self.at_s + CARRIES_S / 2.0).saturating_sub(total(path, self.at_s - CARRIES_S / 2.0))
        };
        let most = (0..self.recording.paths.len()).map(|path| (carried(path), path)).max_by_key(|(bytes, _)| *bytes);
        most.filter(|(bytes, _)| *bytes > 0).map(|(_, path)| path)
    }

    fn path(&self, path: usize) -> PathReport {
        let name = &self.recording.paths[path];
        let last = |of: &str| self.changes().iter().rev().find(|change| change.path == path && change.of == of);
        let (state, belief) = (last("state"), last("belief"));
        let since = |change: Option<&Change>| self.at_s - change.map_or(0.0, |change| change.at_s);
        let reason =
            |change: Option<&Change>| change.map_or_else(ReasonReport::default, |change| change.reason.clone());
        let present: Vec<&SubflowRow> = self.subflows().filter(|row| row.path == path).collect();
        let signal = self.recording.signals.get(&path).and_then(|all| until(all, self.at_s, |one| one.0).last());
        let bytes = self.bytes(path, self.at_s);
        PathReport {
            path: name.clone(),
            interface: name.clone(),
            address: present.first().map(|row| row.local.rsplit_once(':').map_or("", |(host, _)| host).to_owned()),
            preference: path as u16 + 1,
            state: state.map_or_else(|| observed_state(&present), |change| change.to.clone()),
            state_since_s: since(state),
            state_reason: reason(state),
            belief: belief.map_or_else(|| "unknown".into(), |change| change.to.clone()),
            belief_since_s: since(belief),
            belief_reason: reason(belief),
            signal_dbm: signal.map(|(_, dbm)| f64::from(*dbm)),
            signal_age_s: signal.map(|(at_s, _)| self.at_s - at_s),
            signal_source: None,
            radio: None,
            rtt_ms: present.last().map(|row| row.rtt_ms),
            connections: present.iter().map(|row| row.token).collect::<BTreeSet<_>>().len(),
            sent_bytes: bytes.map_or(Some(0), |[up, _]| Some(up)),
            received_bytes: bytes.map_or(Some(0), |[_, down]| Some(down)),
            network: None,
            volume: None,
            echo: None,
        }
    }

    fn changes(&self) -> &[Change] {
        until(&self.recording.changes, self.at_s, |change| change.at_s)
    }

    /// Bytes that a path has delivered, up and down.
    fn bytes(&self, path: usize, at_s: f64) -> Option<[u64; 2]> {
        Some(until(self.recording.bytes.get(&path)?, at_s, |one| one.0).last()?.1)
    }

    /// The last row of each present subflow.
    fn subflows(&self) -> impl Iterator<Item = &SubflowRow> {
        let rows = until(&self.recording.subflows, self.at_s, |row| row.at_s);
        let recent = rows.iter().rev().take_while(|row| row.at_s > self.at_s - PRESENT_S);
        let mut last = BTreeMap::new();
        recent.for_each(|row| {
            last.entry((&row.local, &row.remote)).or_insert(row);
        });
        last.into_values()
    }
}

/// The state that the kernel shows, for a strategy without an agent.
fn observed_state(present: &[&SubflowRow]) -> String {
    let state = match present {
        [] => "closed",
        _ if present.iter().all(|row| row.is_backup) => "backup",
        _ => "active",
    };
    state.into()
}

fn is_same(one: &SubflowRow, other: &SubflowRow) -> bool {
    (&one.local, &one.remote) == (&other.local, &other.remote)
}

/// The beginning of a list in the order of time.
fn until<T>(all: &[T], at_s: f64, time: impl Fn(&T) -> f64) -> &[T] {
    &all[..all.partition_point(|one| time(one) <= at_s)]
}
