//! What the vehicle drives through: the world plays, the emulator follows it,
//! the on-board unit hands on what it hears.

use std::collections::BTreeMap;

use crosslane_core::link::{Direction, DirectionParams};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::records::{LinkRow, SampleRow, SampleSource};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, Truth, World, WorldEvent};

use super::obu::OnBoardUnit;
use crate::clock::{Clock, unix_s};
use crate::error::{Error, Result};
use crate::testbed::emulator::{Emulator, EmulatorReport, LinkPlan};
use crate::testbed::{Namespace, PathDevices};

/// How often the progress is told.
const TELL: Duration = Duration::from_millis(500);

/// World, emulator and on-board unit.
pub struct Stage {
    clock: Clock,
    world: World,
    emulator: Emulator,
    unit: OnBoardUnit,
    names: Vec<String>,
    samples: Vec<SampleRow>,
    links: Vec<LinkRow>,
}

/// What was staged.
pub struct Staged {
    /// Rows for `samples.arrow`.
    pub samples: Vec<SampleRow>,
    /// Rows for `links.arrow`.
    pub links: Vec<LinkRow>,
    /// The emulator's report, packets included.
    pub emulator: EmulatorReport,
}

impl Stage {
    /// Sets the stage and starts the emulator.
    ///
    /// # Errors
    /// What is wrong with the scenario, or what the system refused.
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        clock: Clock,
        devices: Vec<PathDevices>,
        vehicle: &Namespace,
    ) -> Result<Stage> {
        let mut world = World::new(scenario, seed)?;
        let mut first: BTreeMap<(PathId, Direction), DirectionParams> = BTreeMap::new();
        while let Some(event) = world.poll(Instant::ZERO) {
            if let WorldEvent::LinkParams { path, direction, params } = event {
                first.insert((path, direction), params);
            }
        }
        let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
        let mut plans = Vec::new();
        for (place, devices) in devices.into_iter().enumerate() {
            let params = |direction| first.get(&(PathId(place as u8), direction)).cloned();
            let (Some(up), Some(down)) = (params(Direction::Up), params(Direction::Down)) else {
                let cause = format!("the world says nothing of {}", names[place]);
                return Err(Error::failure("setting up the links", cause));
            };
            plans.push(LinkPlan { devices, up, down });
        }
        let socket = vehicle.enter(OnBoardUnit::new)?;
        let unit = socket.map_err(|cause| Error::failure("opening the on-board unit's socket", cause))?;
        let emulator = Emulator::start(plans, seed, clock)?;
        Ok(Stage { clock, world, emulator, unit, names, samples: Vec::new(), links: Vec::new() })
    }

    /// Plays for `duration_s`, telling the progress on standard output.
    ///
    /// # Errors
    /// The emulator ended early.
    pub fn play(mut self, duration_s: f64) -> Result<Staged> {
        let end = Instant::from_secs_f64(duration_s);
        let mut tell = Instant::ZERO;
        loop {
            let now = self.clock.now();
            while let Some(event) = self.world.poll(now) {
                self.stage(event)?;
            }
            if now >= end {
                break;
            }
            if now >= tell {
                println!("at {:.1}", now.as_secs_f64());
                tell = now + TELL;
            }
            let until = self.world.next_wakeup().unwrap_or(end).min(end);
            std::thread::sleep(until.since(self.clock.now()));
        }
        Ok(Staged { samples: self.samples, links: self.links, emulator: self.emulator.stop()? })
    }

    fn stage(&mut self, event: WorldEvent) -> Result<()> {
        match event {
            WorldEvent::LinkParams { path, direction, params } => self.emulator.set(path, direction, params)?,
            WorldEvent::CamSent(cam) => self.send_cam(&cam)?,
            WorldEvent::Signal { path, rssi_dbm, .. } => {
                self.unit.report(unix_s(), &self.names[usize::from(path.0)], rssi_dbm);
                self.note_sample(path, SampleSource::Radio, rssi_dbm, None);
            }
            WorldEvent::Truth(truth) => self.links.push(row(&truth)),
        }
        Ok(())
    }

    fn send_cam(&mut self, cam: &CamSent) -> Result<()> {
        self.emulator.occupy(cam.path, cam.air_time)?;
        if let Some(rssi_dbm) = cam.received
            && self.unit.receive(unix_s(), &cam.bytes, rssi_dbm)
        {
            self.note_sample(cam.path, SampleSource::Cam, rssi_dbm, Some(cam.station));
        }
        Ok(())
    }

    fn note_sample(&mut self, path: PathId, kind: SampleSource, rssi_dbm: f64, station: Option<u32>) {
        let t_ns = self.clock.now().as_nanos();
        self.samples.push(SampleRow { t_ns, path, kind, rssi_dbm: rssi_dbm as f32, station });
    }
}

fn row(truth: &Truth) -> LinkRow {
    LinkRow {
        t_ns: truth.at.as_nanos(),
        path: truth.path,
        x_m: truth.position_m[0],
        y_m: truth.position_m[1],
        speed_m_s: truth.speed_m_s,
        distance_m: truth.distance_m,
        rssi_dbm: truth.rssi_dbm.map_or(f32::NAN, |rssi| rssi as f32),
        up_mbit_s: truth.up_mbit_s,
        down_mbit_s: truth.down_mbit_s,
        delay_ms: truth.delay_ms,
        loss: truth.loss,
    }
}
