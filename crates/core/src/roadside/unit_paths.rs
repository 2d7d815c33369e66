//! Roadside units as paths of an agent: the connection manager, and the path of each unit
//! that has a slot.
//!
//! A driver carries out what [`UnitPaths::poll`] returns: it builds or removes the tunnel,
//! adds or removes the path of the agent, and sends probes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::connection_manager::{Cam, ConnectionManager, Input, Output, Params, Station, Unit};
use crate::assess::Belief;
use crate::engine::Engine;
use crate::path::{PathId, Sample, SampleKind, Signal, Transport};
use crate::time::Instant;

/// The units of one radio.
pub struct UnitPaths {
    manager: ConnectionManager,
    paths: BTreeMap<u32, PathId>,
    /// Connection and delivered segments of each path's last statistics.
    delivered: BTreeMap<PathId, (u32, u32)>,
    /// The last CAM. If it opens a slot, it is also the first sample of the path.
    last: Option<Signal>,
}

impl UnitPaths {
    /// The units of this directory, all out of reach.
    pub fn new(params: Params, directory: Vec<Station>) -> UnitPaths {
        let mut manager = ConnectionManager::new(params);
        manager.handle(Instant::ZERO, Input::Directory(directory));
        UnitPaths { manager, paths: BTreeMap::new(), delivered: BTreeMap::new(), last: None }
    }

    /// Replaces the directory. A unit that is no longer in it keeps its path while that carries data.
    pub fn set_directory(&mut self, now: Instant, directory: Vec<Station>) {
        self.manager.handle(now, Input::Directory(directory));
    }

    /// Processes a CAM. Returns it as a sample if it counts and its sender is a path.
    pub fn on_signal(&mut self, now: Instant, signal: Signal) -> Option<Sample> {
        let station = signal.station?;
        let cam = Cam { station, rssi_dbm: signal.rssi_dbm, position: signal.sender };
        if !self.manager.on_cam(now, &cam) {
            return None;
        }
        self.last = Some(signal);
        self.paths.get(&station).map(|path| Sample { path: *path, kind: SampleKind::Signal(signal) })
    }

    /// Processes what the agent believes of a path, whether it is one of the units or not.
    pub fn on_belief(&mut self, now: Instant, path: PathId, belief: Belief) {
        if let Some((&station, _)) = self.paths.iter().find(|(_, known)| **known == path) {
            self.manager.handle(now, Input::Belief { station, belief });
        }
    }

    /// The units in reach and those that hold a slot, by station id.
    pub fn units(&self) -> impl Iterator<Item = (u32, &Unit)> {
        self.manager.units()
    }

    /// Processes the statistics of a subflow over a path, whether it is one of the units or
    /// not. If more has been delivered, the unit is in reach.
    pub fn on_subflow(&mut self, now: Instant, path: PathId, transport: &Transport) {
        let Some((&station, _)) = self.paths.iter().find(|(_, known)| **known == path) else { return };
        let (token, delivered) = (transport.token, transport.delivered);
        let before = self.delivered.insert(path, (token, delivered));
        if before.is_some_and(|(known, before)| known == token && before != delivered) {
            self.manager.handle(now, Input::Proof { station });
        }
    }

    /// A unit answered a probe.
    pub fn on_answer(&mut self, now: Instant, station: u32) {
        self.manager.handle(now, Input::Proof { station });
    }

    /// Whether a unit answers, as a sample of its path.
    pub fn answers(&self, station: u32, answers: bool) -> Option<Sample> {
        self.paths.get(&station).map(|path| Sample { path: *path, kind: SampleKind::UnitAnswers(answers) })
    }

    /// The next decision.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        self.manager.poll(now)
    }

    /// When the next decision is due without an input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.manager.next_wakeup()
    }

    /// Smoothed RSSI of a unit in reach, in dBm.
    pub fn rssi_dbm(&self, station: u32) -> Option<f32> {
        self.manager.units().find(|(id, _)| *id == station).map(|(_, unit)| unit.rssi_dbm)
    }

    /// A unit is this path from now on. Returns the sample of the CAM by which it became one.
    pub fn add(&mut self, station: u32, path: PathId) -> Option<Sample> {
        self.paths.insert(station, path);
        let signal = self.last.filter(|signal| signal.station == Some(station))?;
        Some(Sample { path, kind: SampleKind::Signal(signal) })
    }

    /// A unit is no path any more. Returns the one that it was.
    pub fn remove(&mut self, station: u32) -> Option<PathId> {
        let path = self.paths.remove(&station)?;
        self.delivered.remove(&path);
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn signal(station: u32) -> Signal {
        Signal { rssi_dbm: -90.0, station: Some(station), ..Signal::default() }
    }

    #[test]
    fn the_cam_that_opens_a_slot_is_the_first_sample_of_the_path() {
        let directory = [7, 8].map(|id| Station { id, name: id.to_string() });
        let mut units = UnitPaths::new(Params { slots: 1, ..Params::default() }, directory.into());
        let (now, path) = (Instant::from_millis(5), PathId(3));
        let sample = |station| Sample { path, kind: SampleKind::Signal(signal(station)) };
        assert_eq!(units.on_signal(now, signal(7)), None);
        assert!(matches!(units.poll(now), Some(Output::Open { station: 7, .. })));
        assert_eq!(units.add(7, path), Some(sample(7)));
        assert_eq!(units.on_signal(now, signal(7)), Some(sample(7)));
        // What is believed of the path decides whether another unit takes the slot.
        units.on_belief(now, path, Belief::Good);
        units.on_signal(now, signal(8));
        assert_eq!(units.poll(now), None);
        units.on_belief(now, PathId(0), Belief::Lost);
        units.on_signal(now, signal(8));
        assert_eq!(units.poll(now), None);
        units.on_belief(now, path, Belief::Lost);
        units.on_signal(now, signal(8));
        assert!(matches!(units.poll(now), Some(Output::Close { station: 7, .. })));
        assert_eq!((units.remove(7), units.remove(7)), (Some(path), None));
    }

    fn transport(token: u32, delivered: u32) -> Transport {
        let rtt = crate::time::Duration::from_millis(20);
        Transport { token, rtt, rttvar: rtt, unacked: 1, delivered, ..Transport::IDLE }
    }

    #[test]
    fn data_proves_a_unit_only_when_more_of_one_connection_is_delivered_and_a_rejected_cam_is_no_sample() {
        let directory = [Station { id: 7, name: "7".to_string() }];
        let mut units = UnitPaths::new(Params::default(), directory.into());
        let (now, path) = (Instant::from_millis(5), PathId(3));
        units.on_signal(now, signal(7));
        while units.poll(now).is_some() {}
        units.add(7, path);
        let mut reports = |token, delivered| {
            units.on_subflow(now, path, &transport(token, delivered));
            core::iter::from_fn(|| units.poll(now)).any(|output| matches!(output, Output::Answers { .. }))
        };
        assert!(!reports(1, 10) && !reports(1, 10) && !reports(2, 20), "nothing more of one connection");
        assert!(reports(2, 21));
        assert_eq!(units.on_signal(now, Signal { rssi_dbm: -40.0, ..signal(7) }), None, "another sender's");
    }
}
