//! What is observed of a vehicle's radios and of its motion: an agent's inputs, and what a run records of them.

use crosslane_core::agent::Input;
use crosslane_core::path::{PathId, Position, RadioLink, Sample, SampleKind, Signal, VehicleState};

use super::WorldEvent;

/// An observation, of the vehicle's on-board unit or of a roadside unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorldSample {
    /// The vehicle received a CAM of a roadside unit.
    Cam(PathId, Signal),
    /// A radio reported its signal, and perhaps its PHY rate in Mbit/s, which stands for both directions.
    Radio(PathId, Signal, Option<f64>),
    /// The roadside unit of the path received a CAM of the vehicle.
    VehicleCam(PathId, Signal),
    /// A modem reported a measurement that precedes a handover, or the end of the handover.
    Handover {
        /// Path of the modem.
        path: PathId,
        /// True for the report.
        is_announced: bool,
    },
    /// The vehicle's satellite receiver reported.
    Vehicle(VehicleState),
}

impl WorldSample {
    /// The kind in records.
    pub fn kind(&self) -> &'static str {
        match self {
            WorldSample::Cam(..) => "cam",
            WorldSample::Radio(..) => "radio",
            WorldSample::VehicleCam(..) => "vehicle-cam",
            WorldSample::Handover { .. } => "handover",
            WorldSample::Vehicle(_) => "vehicle",
        }
    }

    /// The path; a vehicle's motion has none.
    pub fn path(&self) -> Option<PathId> {
        match *self {
            WorldSample::Cam(path, _)
            | WorldSample::Radio(path, ..)
            | WorldSample::VehicleCam(path, _)
            | WorldSample::Handover { path, .. } => Some(path),
            WorldSample::Vehicle(_) => None,
        }
    }

    /// The received signal.
    pub fn signal(&self) -> Option<Signal> {
        match *self {
            WorldSample::Cam(_, signal) | WorldSample::Radio(_, signal, _) | WorldSample::VehicleCam(_, signal) => {
                Some(signal)
            }
            WorldSample::Handover { .. } | WorldSample::Vehicle(_) => None,
        }
    }

    /// PHY rate that the radio reported, in Mbit/s.
    pub fn phy_mbit_s(&self) -> Option<f64> {
        if let WorldSample::Radio(_, _, phy_mbit_s) = *self { phy_mbit_s } else { None }
    }

    /// The state of the vehicle.
    pub fn vehicle(&self) -> Option<VehicleState> {
        if let WorldSample::Vehicle(state) = *self { Some(state) } else { None }
    }

    /// The position of the sender, or of the vehicle in its own state.
    pub fn position(&self) -> Option<Position> {
        self.vehicle().map_or_else(|| self.signal()?.sender, |state| state.position)
    }

    /// Whether the modem announced a handover, or that it is over.
    pub fn announced(&self) -> Option<bool> {
        if let WorldSample::Handover { is_announced, .. } = *self { Some(is_announced) } else { None }
    }

    /// What the vehicle's agent receives.
    pub fn inputs(&self) -> impl Iterator<Item = Input> + use<> {
        let of = |path, kind| Some(Input::Sample(Sample { path, kind }));
        let inputs = match *self {
            WorldSample::Cam(path, signal) => [of(path, SampleKind::Signal(signal)), None],
            WorldSample::Radio(path, signal, phy_mbit_s) => {
                let bit_s = phy_mbit_s.map(|mbit_s| mbit_s * 1e6);
                let link = RadioLink { tx_bit_s: bit_s, rx_bit_s: bit_s, ..RadioLink::default() };
                let rates = bit_s.and_then(|_| of(path, SampleKind::Radio(link)));
                [of(path, SampleKind::Signal(signal)), rates]
            }
            WorldSample::Handover { path, is_announced } => [of(path, SampleKind::Handover { is_announced }), None],
            WorldSample::Vehicle(state) => [Some(Input::Vehicle(state)), None],
            WorldSample::VehicleCam(..) => [None, None],
        };
        inputs.into_iter().flatten()
    }
}

impl WorldEvent {
    /// What the vehicle observes of it.
    pub fn sample(&self) -> Option<WorldSample> {
        match self {
            WorldEvent::CamSent(cam) => {
                let (station, sender) = (Some(cam.station), Some(cam.position()));
                let signal = |dbm| Signal { rssi_dbm: dbm as f32, station, sender, ..Signal::default() };
                cam.received.map(|dbm| WorldSample::Cam(cam.path, signal(dbm)))
            }
            WorldEvent::Signal { path, rssi_dbm, quality, .. } => {
                let [rsrq_db, sinr_db] = [quality.rsrq_db, quality.sinr_db].map(|db| db.map(|db| db as f32));
                let signal = Signal { rssi_dbm: *rssi_dbm as f32, rsrq_db, sinr_db, ..Signal::default() };
                Some(WorldSample::Radio(*path, signal, quality.phy_mbit_s))
            }
            WorldEvent::Handover { path, is_announced } => {
                Some(WorldSample::Handover { path: *path, is_announced: *is_announced })
            }
            WorldEvent::Vehicle(state) => Some(WorldSample::Vehicle(*state)),
            WorldEvent::LinkParams { .. } | WorldEvent::VehicleCam(_) | WorldEvent::Truth(_) => None,
        }
    }
}
