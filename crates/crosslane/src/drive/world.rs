//! The emulated world: the world model advances, the emulator applies its link
//! parameters, and the on-board unit sends the CAMs that it receives.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crosslane_core::path::{PathId, Signal};
use crosslane_core::roadside::connection_manager::Cam;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::record::rows::{LinkRow, SampleRow};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, World, WorldEvent, WorldSample};

use super::onboard_unit::OnBoardUnit;
use crate::clock::{Clock, unix_s};
use crate::error::{Error, Result};
use crate::observe::vanetza::USABLE_DBM;
use crate::output;
use crate::testbed::emulator::{Control, EmulatedLink, Emulator, EmulatorReport, PacketRecord, packet_channel};
use crate::testbed::realtime::become_realtime;
use crate::testbed::wire::WireCount;
use crate::testbed::{PathDevices, Testbed};

/// Real-time priority of the traffic and the world; the emulator's is higher.
pub const PRIORITY: i32 = 5;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

pub struct EmulatedWorld {
    /// The clock of the run, which starts with the emulator.
    pub clock: Clock,
    world: World,
    /// `None` if every path is a wire.
    emulation: Option<Emulation>,
    /// Index of each path's link in the emulator; `None` for wires.
    places: Vec<Option<usize>>,
    unit: OnBoardUnit,
    names: Vec<String>,
    /// Who else is to know of the CAMs that the vehicle receives.
    receptions: Option<Sender<Cam>>,
    samples: Vec<SampleRow>,
    links: Vec<LinkRow>,
}

struct Emulation {
    emulator: Emulator,
    control: Control,
    recorder: JoinHandle<Vec<PacketRecord>>,
}

/// What was recorded of the world and the links.
pub struct WorldRecord {
    pub samples: Vec<SampleRow>,
    pub links: Vec<LinkRow>,
    /// Every packet that entered a link; `link` is the path's id.
    pub packets: Vec<PacketRecord>,
    /// Counters of the wires: up, down.
    pub wires: Vec<(PathId, [WireCount; 2])>,
    pub report: Option<EmulatorReport>,
}

impl EmulatedWorld {
    /// Creates the world and starts the emulator.
    pub fn new(scenario: &Scenario, seed: u64, testbed: &mut Testbed, unit: OnBoardUnit) -> Result<EmulatedWorld> {
        let mut world = World::new(scenario, seed)?;
        let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
        let (models, _) = world.links(scenario, seed);
        let mut present: BTreeMap<String, PathDevices> =
            testbed.take_devices().into_iter().map(|devices| (devices.name.clone(), devices)).collect();
        let (mut links, mut places, mut count) = (Vec::new(), vec![None; names.len()], 0);
        for (entry, link) in scenario.links().into_iter().zip(models) {
            let devices: Vec<PathDevices> =
                names[entry.paths.clone()].iter().filter_map(|name| present.remove(name)).collect();
            if devices.is_empty() {
                continue;
            }
            for path in entry.paths {
                places[path] = Some(count);
                count += 1;
            }
            links.push(EmulatedLink { devices, link });
        }
        let clock = Clock::start();
        let emulation = if links.is_empty() { None } else { Some(Emulation::start(clock, links)?) };
        let (samples, links) = (Vec::new(), Vec::new());
        Ok(EmulatedWorld { clock, world, emulation, places, unit, names, receptions: None, samples, links })
    }

    /// The CAMs that the vehicle receives from now on.
    pub fn receptions(&mut self) -> Receiver<Cam> {
        let (sender, receiver) = channel();
        self.receptions = Some(sender);
        receiver
    }

    /// Runs for `duration_s` or until `should_continue` returns false, and prints the
    /// progress on standard output.
    pub fn run(&mut self, duration_s: f64, mut should_continue: impl FnMut() -> bool) -> Result<()> {
        become_realtime(PRIORITY);
        let end = Instant::from_secs_f64(duration_s);
        let mut next_report = Instant::ZERO;
        loop {
            let now = self.clock.now();
            while let Some(event) = self.world.poll(now) {
                self.apply(event)?;
            }
            if now >= end || self.emulation.as_ref().is_some_and(|emulation| emulation.emulator.has_failed()) {
                return Ok(());
            }
            if now >= next_report {
                if !should_continue() {
                    return Ok(());
                }
                output::print("reporting the progress", format!("at {:.1}\n", now.as_secs_f64()))?;
                next_report = now + PROGRESS_INTERVAL;
            }
            let until = self.world.next_wakeup().unwrap_or(end).min(end);
            std::thread::sleep(until.since(self.clock.now()));
        }
    }

    /// Ends the emulator and returns the records.
    pub fn finish(self, testbed: &Testbed) -> Result<WorldRecord> {
        let (mut packets, report) = match self.emulation {
            Some(emulation) => emulation.stop(testbed).map(|(packets, report)| (packets, Some(report)))?,
            None => (Vec::new(), None),
        };
        let of_place = |link: u8| self.places.iter().position(|place| *place == Some(usize::from(link)));
        for packet in &mut packets {
            packet.link = of_place(packet.link).unwrap_or_default() as u8;
        }
        let path_of = |name: &str| self.names.iter().position(|other| other == name).unwrap_or_default();
        let counted = testbed.wires.iter().map(|wire| Ok((PathId(path_of(&wire.name) as u8), wire.counts()?)));
        let wires = counted.collect::<Result<_>>()?;
        Ok(WorldRecord { samples: self.samples, links: self.links, packets, wires, report })
    }

    fn apply(&mut self, event: WorldEvent) -> Result<()> {
        let sample = event.sample();
        match event {
            WorldEvent::LinkParams { path, direction, params } => {
                if let Some((control, link)) = self.link(path) {
                    control.set(link, direction, params)?;
                }
            }
            WorldEvent::CamSent(cam) => return self.send_cam(&cam),
            WorldEvent::VehicleCam(cam) => {
                if let Some((control, link)) = self.link(cam.path) {
                    control.occupy(link, cam.air_time)?;
                }
                self.samples.extend(SampleRow::receptions(&cam, self.clock.now().as_nanos()));
            }
            WorldEvent::Signal { path, rssi_dbm, quality, .. } => {
                self.unit.report(unix_s(), &self.names[usize::from(path.0)], rssi_dbm, quality);
            }
            WorldEvent::Vehicle(state) => self.unit.fix(&state),
            WorldEvent::Handover { path, is_announced } => {
                self.unit.handover(unix_s(), &self.names[usize::from(path.0)], is_announced);
            }
            WorldEvent::Truth(truth) => self.links.push(LinkRow::from(&truth)),
        }
        sample.into_iter().for_each(|sample| self.record(sample));
        Ok(())
    }

    fn send_cam(&mut self, cam: &CamSent) -> Result<()> {
        if let Some((control, link)) = self.link(cam.path) {
            control.occupy(link, cam.air_time)?;
        }
        if let Some(rssi_dbm) = cam.received
            && let Ok(frame) = cam.frame()
            && let Some(sender) = self.unit.receive(unix_s(), &frame, rssi_dbm)
        {
            let (rssi_dbm, station) = (rssi_dbm as f32, Some(cam.station));
            self.record(WorldSample::Cam(cam.path, Signal { rssi_dbm, station, sender, ..Signal::default() }));
            let seen = Cam { station: cam.station, rssi_dbm, position: Some(cam.position()) };
            // One that has ended no longer needs them.
            let _ = self.receptions.as_ref().map(|receptions| receptions.send(seen));
        }
        Ok(())
    }

    /// The emulated link of a path; `None` for wires.
    fn link(&self, path: PathId) -> Option<(&Control, usize)> {
        let place = *self.places.get(usize::from(path.0))?;
        Some((&self.emulation.as_ref()?.control, place?))
    }

    /// Records what the agent does not reject.
    fn record(&mut self, sample: WorldSample) {
        if sample.signal().is_some_and(|signal| !USABLE_DBM.contains(&f64::from(signal.rssi_dbm))) {
            return;
        }
        self.samples.push(SampleRow { t_ns: self.clock.now().as_nanos(), sample });
    }
}

impl Emulation {
    fn start(clock: Clock, links: Vec<EmulatedLink>) -> Result<Emulation> {
        let (sink, source) = packet_channel();
        let recorder = std::thread::spawn(move || {
            let mut packets = Vec::new();
            while source.receive(|record| packets.push(*record)).is_some() {}
            packets
        });
        let emulator = Emulator::start(clock, links, Some(sink))?;
        let control = emulator.control();
        Ok(Emulation { emulator, control, recorder })
    }

    fn stop(self, testbed: &Testbed) -> Result<(Vec<PacketRecord>, EmulatorReport)> {
        let report = self.emulator.stop(testbed)?;
        let packets = self.recorder.join().map_err(|_| Error::failure("recording packets", "the thread panicked"))?;
        Ok((packets, report))
    }
}
