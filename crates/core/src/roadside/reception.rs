//! What a roadside unit knows of the vehicles with home addresses: which of them it receives,
//! which tunnels deliver, and what of it is reported to the controller.
//!
//! A received CAM only says that a vehicle is received: anybody can forge one. That a tunnel stands
//! and carries follows from the hellos that arrive through it. While it stands, the vehicle's
//! home address has a route into it, also without a controller.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::connection_manager::Cam;
use super::messages::{Report, VehicleEntry};
use crate::engine::Engine;
use crate::path::Position;
use crate::time::{Duration, Instant};

/// Interval of the hellos of a vehicle through each of its tunnels.
pub const HELLO_INTERVAL: Duration = Duration::from_millis(100);
/// A tunnel carries if a hello arrived within this time: two in a row may be lost.
pub const CARRIES_FOR: Duration = Duration::from_millis(350);
/// A tunnel stands for this time after its last hello.
pub const STANDS_FOR: Duration = Duration::from_secs(1);
/// A vehicle is received for this time after its last CAM: three times T_GenCamMax (EN 302 637-2 clause 6.1.3).
pub const RECEIVED_FOR: Duration = Duration::from_secs(3);
/// Shortest interval of reports about a vehicle of which only signal and position changed.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of reports about a vehicle of which nothing changed: a controller leaves a unit that is silent for
/// 500 ms.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// An input of a [`Reception`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The vehicles with home addresses, all of them.
    Vehicles(Vec<VehicleEntry>),
    /// A CAM arrived. Only those of these vehicles count.
    Cam(Cam),
    /// A hello of the vehicle with this host number arrived through its tunnel.
    Hello(u32),
    /// The controller knows nothing: everything is reported again.
    Forgotten,
}

/// An output of a [`Reception`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// To the controller.
    Report(Report),
    /// The home address of this vehicle has a route into its tunnel, or none.
    Route(VehicleEntry, bool),
}

/// The vehicles of one unit.
#[derive(Debug, Default)]
pub struct Reception {
    vehicles: BTreeMap<u32, Vehicle>,
    /// Station ids by host number.
    hosts: BTreeMap<u32, u32>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Vehicle {
    entry: VehicleEntry,
    cam: Option<(Instant, f32, Option<Position>)>,
    hello: Option<Instant>,
    has_route: bool,
    /// The last report, and when it was sent.
    reported: Option<(Instant, Report)>,
    /// When that was last compared with what is.
    compared: Instant,
    /// When the next report is due.
    again: Option<Instant>,
}

impl Vehicle {
    fn unknown(entry: VehicleEntry) -> Vehicle {
        let (cam, hello, has_route, reported, again) = (None, None, false, None, None);
        Vehicle { entry, cam, hello, has_route, reported, compared: Instant::ZERO, again }
    }

    fn within(now: Instant, since: Option<Instant>, limit: Duration) -> bool {
        since.is_some_and(|since| now.since(since) < limit)
    }

    fn stands(&self, now: Instant) -> bool {
        Vehicle::within(now, self.hello, STANDS_FOR)
    }

    /// The present state as a report; `None`: neither received nor with a tunnel.
    fn report(&self, now: Instant) -> Option<Report> {
        let cam = self.cam.filter(|(at, ..)| now.since(*at) < RECEIVED_FOR);
        let has_tunnel = self.stands(now);
        (cam.is_some() || has_tunnel).then(|| Report::Vehicle {
            station: self.entry.station,
            rssi_dbm: cam.map(|(_, rssi_dbm, _)| rssi_dbm),
            position: cam.and_then(|(.., position)| position),
            has_tunnel,
            carries: Vehicle::within(now, self.hello, CARRIES_FOR),
        })
    }

    /// The report that is due now.
    fn due(&mut self, now: Instant) -> Option<Report> {
        self.compared = now;
        let Some(report) = self.report(now) else {
            (self.cam, self.hello, self.again) = (None, None, None);
            return self.reported.take().map(|_| Report::Left { station: self.entry.station });
        };
        let due_at = match &self.reported {
            Some((at, known)) if *known == report => *at + REFRESH_INTERVAL,
            Some((at, known)) if urgent(known) == urgent(&report) => *at + REPORT_INTERVAL,
            _ => now,
        };
        if now < due_at {
            self.again = Some(due_at);
            return None;
        }
        self.again = Some(now + REFRESH_INTERVAL);
        self.reported = Some((now, report.clone()));
        Some(report)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let hello = [CARRIES_FOR, STANDS_FOR].map(|limit| self.hello.map(|at| at + limit));
        let cam = self.cam.map(|(at, ..)| at + RECEIVED_FOR);
        let limits = hello.into_iter().chain([cam]).flatten().filter(|at| *at > self.compared);
        limits.chain(self.again).min()
    }
}

/// What is reported at once: whether it is received, has a tunnel, carries.
fn urgent(report: &Report) -> Option<(bool, bool, bool)> {
    match report {
        Report::Vehicle { rssi_dbm, has_tunnel, carries, .. } => Some((rssi_dbm.is_some(), *has_tunnel, *carries)),
        _ => None,
    }
}

impl Reception {
    /// The vehicles of this list, whatever was known of them before; routes of the others go.
    fn list(&mut self, entries: &[VehicleEntry]) {
        let mut former = core::mem::take(&mut self.vehicles);
        self.hosts = entries.iter().map(|entry| (entry.host, entry.station)).collect();
        for &entry in entries {
            let vehicle = match former.remove(&entry.station) {
                Some(known) if known.entry == entry => known,
                other => {
                    self.withdraw(other);
                    Vehicle::unknown(entry)
                }
            };
            self.vehicles.insert(entry.station, vehicle);
        }
        former.into_values().for_each(|gone| self.withdraw(Some(gone)));
    }

    fn withdraw(&mut self, vehicle: Option<Vehicle>) {
        let routed = vehicle.filter(|vehicle| vehicle.has_route);
        self.outputs.extend(routed.map(|vehicle| Output::Route(vehicle.entry, false)));
    }
}

impl Engine for Reception {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Vehicles(entries) => self.list(&entries),
            Input::Cam(cam) => {
                if let Some(vehicle) = self.vehicles.get_mut(&cam.station) {
                    vehicle.cam = Some((now, cam.rssi_dbm, cam.position));
                }
            }
            Input::Hello(host) => {
                let station = self.hosts.get(&host);
                if let Some(vehicle) = station.and_then(|station| self.vehicles.get_mut(station)) {
                    vehicle.hello = Some(now);
                }
            }
            Input::Forgotten => self.vehicles.values_mut().for_each(|vehicle| vehicle.reported = None),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.vehicles.values_mut().find_map(|vehicle| {
            let stands = vehicle.stands(now);
            if core::mem::replace(&mut vehicle.has_route, stands) != stands {
                return Some(Output::Route(vehicle.entry, stands));
            }
            vehicle.due(now).map(Output::Report)
        })
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.vehicles.values().filter_map(Vehicle::next_wakeup).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const CAR: VehicleEntry = VehicleEntry { station: 7, host: 2, home: Ipv4Addr::new(10, 99, 0, 7) };

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn cam(rssi_dbm: f32) -> Input {
        Input::Cam(Cam { station: CAR.station, rssi_dbm, position: None })
    }

    fn report(rssi_dbm: Option<f32>, has_tunnel: bool, carries: bool) -> Output {
        let (station, position) = (CAR.station, None);
        Output::Report(Report::Vehicle { station, rssi_dbm, position, has_tunnel, carries })
    }

    fn left() -> Output {
        Output::Report(Report::Left { station: CAR.station })
    }

    fn unit() -> Reception {
        let mut unit = Reception::default();
        unit.handle(at(0), Input::Vehicles([CAR].into()));
        unit
    }

    /// The outputs after an input, with the time of each, until the unit sleeps for more than `until_ms`; without
    /// reports of what is known.
    fn outputs(unit: &mut Reception, now: Instant, until_ms: u64) -> Vec<(u64, Output)> {
        let mut outputs = all_outputs(unit, now, until_ms);
        outputs.dedup_by(|later, earlier| later.1 == earlier.1);
        outputs
    }

    fn all_outputs(unit: &mut Reception, mut now: Instant, until_ms: u64) -> Vec<(u64, Output)> {
        let mut outputs = Vec::new();
        for _ in 0..1000 {
            while let Some(output) = unit.poll(now) {
                outputs.push((now.as_nanos() / 1_000_000, output));
            }
            match unit.next_wakeup() {
                Some(wakeup) if wakeup <= at(until_ms) => {
                    assert!(wakeup > now, "it wakes up for nothing at {now:?}");
                    now = wakeup;
                }
                _ => return outputs,
            }
        }
        panic!("it does not sleep");
    }

    #[test]
    fn a_forged_cam_only_says_that_a_vehicle_is_received() {
        let mut unit = unit();
        unit.handle(at(0), cam(-40.0));
        assert_eq!(outputs(&mut unit, at(0), 9000), [(0, report(Some(-40.0), false, false)), (3000, left())]);
        unit.handle(at(9000), Input::Cam(Cam { station: 8, rssi_dbm: -40.0, position: None }));
        assert_eq!(outputs(&mut unit, at(9000), 20_000), [], "a station without a home address");
    }

    #[test]
    fn a_tunnel_stands_and_carries_while_hellos_arrive_and_the_home_address_has_a_route_as_long() {
        let mut unit = unit();
        unit.handle(at(5), Input::Hello(9));
        assert_eq!(outputs(&mut unit, at(5), 10), [], "an unknown host");
        unit.handle(at(10), Input::Hello(CAR.host));
        let expected = [
            (10, Output::Route(CAR, true)),
            (10, report(None, true, true)),
            (360, report(None, true, false)),
            (1010, Output::Route(CAR, false)),
            (1010, left()),
        ];
        assert_eq!(outputs(&mut unit, at(10), 9000), expected);
    }

    #[test]
    fn a_signal_is_reported_at_most_ten_times_a_second_and_a_change_of_the_tunnel_at_once() {
        let mut unit = unit();
        unit.handle(at(0), cam(-70.0));
        assert_eq!(outputs(&mut unit, at(0), 10), [(0, report(Some(-70.0), false, false))]);
        unit.handle(at(10), cam(-71.0));
        assert_eq!(outputs(&mut unit, at(10), 20), []);
        unit.handle(at(20), Input::Hello(CAR.host));
        let now = [(20, Output::Route(CAR, true)), (20, report(Some(-71.0), true, true))];
        assert_eq!(outputs(&mut unit, at(20), 30), now);
        unit.handle(at(30), cam(-72.0));
        assert_eq!(outputs(&mut unit, at(30), 200), [(120, report(Some(-72.0), true, true))]);
        unit.handle(at(200), cam(-72.0));
        assert_eq!(outputs(&mut unit, at(200), 300), [], "nothing changed");
    }

    #[test]
    fn a_vehicle_of_which_nothing_changes_is_reported_five_times_a_second() {
        let mut unit = unit();
        unit.handle(at(0), cam(-70.0));
        let times: Vec<u64> = all_outputs(&mut unit, at(0), 700).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [0, 200, 400, 600]);
    }

    #[test]
    fn a_controller_that_knows_nothing_gets_everything_and_a_vehicle_that_is_removed_loses_its_route() {
        let mut unit = unit();
        unit.handle(at(0), Input::Hello(CAR.host));
        assert_eq!(outputs(&mut unit, at(0), 10).len(), 2);
        unit.handle(at(10), Input::Forgotten);
        assert_eq!(outputs(&mut unit, at(10), 20), [(10, report(None, true, true))]);
        unit.handle(at(20), Input::Vehicles([CAR].into()));
        assert_eq!(outputs(&mut unit, at(20), 30), [], "the same list");
        let moved = VehicleEntry { host: 3, ..CAR };
        unit.handle(at(30), Input::Vehicles([moved].into()));
        assert_eq!(outputs(&mut unit, at(30), 40), [(30, Output::Route(CAR, false))]);
        unit.handle(at(40), Input::Hello(CAR.host));
        assert_eq!(outputs(&mut unit, at(40), 50), [], "no vehicle has the former host number");
        unit.handle(at(50), Input::Hello(moved.host));
        assert_eq!(outputs(&mut unit, at(50), 60)[0], (50, Output::Route(moved, true)));
    }
}
