use alloc::vec;

use proptest::prelude::*;

use super::super::messages::Role;
use super::*;

const A: u32 = 1001;
const B: u32 = 1002;
const CAR: u32 = 7;

fn unit(number: u32) -> UnitSpec {
    UnitSpec {
        station: 1000 + number,
        name: format!("rsu{number}"),
        address: Ipv4Addr::new(10, 80, 0, number as u8),
        port: 4760,
        key: [number as u8; 32],
        prefix: (Ipv4Addr::new(10, 80_u8.wrapping_add(number as u8), 0, 0), 24),
        next_hop: Ipv4Addr::new(192, 0, 2, number as u8),
    }
}

fn vehicle(station: u32) -> VehicleSpec {
    let home = Ipv4Addr::new(10, 99, 0, station as u8);
    VehicleSpec { station, name: format!("car{station}"), host: station, home }
}

fn directory() -> Directory {
    Directory { units: (1..=3).map(unit).collect(), vehicles: vec![vehicle(CAR), vehicle(8)] }
}

/// A controller whose redirector answers at once, if it answers.
struct Bench {
    controller: Controller,
    now: Instant,
    answers: bool,
    outputs: Vec<Output>,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench { controller: Controller::new(), now: Instant::ZERO, answers: true, outputs: Vec::new() };
        bench.input(Input::Directory(directory()));
        for unit in [A, B] {
            bench.input(Input::Connected(Peer::Unit(unit)));
        }
        bench.outputs.clear();
        bench
    }

    fn input(&mut self, input: Input) {
        self.controller.handle(self.now, input);
        self.run();
    }

    fn run(&mut self) {
        while let Some(output) = self.controller.poll(self.now) {
            self.outputs.push(output.clone());
            if let (Output::Redirect { vehicle, unit, .. }, true) = (output, self.answers) {
                self.controller.handle(self.now, Input::Redirected { vehicle, unit, fault: None });
            }
        }
    }

    fn wait(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some(at) = self.controller.next_wakeup().filter(|at| *at <= end) {
            assert!(at > self.now, "a wakeup at {at} leads nowhere");
            self.now = at;
            self.run();
        }
        self.now = end;
    }

    fn report(&mut self, unit: u32, rssi_dbm: f32, has_tunnel: bool, carries: bool) {
        let report = Report::Vehicle { station: CAR, rssi_dbm: Some(rssi_dbm), position: None, has_tunnel, carries };
        self.input(Input::Report { unit, report });
    }

    /// Both units report for this time.
    fn reports(&mut self, ms: u64, a: (f32, bool, bool), b: (f32, bool, bool)) {
        for _ in 0..ms / 100 {
            self.report(A, a.0, a.1, a.2);
            self.report(B, b.0, b.1, b.2);
            self.wait(100);
        }
    }

    fn serving(&self) -> Option<u32> {
        self.controller.vehicles[&CAR].serving().map(|(unit, _)| unit)
    }

    fn rules(&mut self) -> Vec<&'static str> {
        let rule = |output: Output| match output {
            Output::Event(Event::Decided { reason, .. }) => Some(reason.rule),
            _ => None,
        };
        self.outputs.drain(..).filter_map(rule).collect()
    }

    fn redirects(&self) -> Vec<Option<u32>> {
        let unit = |output: &Output| match output {
            Output::Redirect { unit, .. } => Some(*unit),
            _ => None,
        };
        self.outputs.iter().filter_map(unit).collect()
    }
}

const TUNNEL: bool = true;
const NO_TUNNEL: bool = false;

#[test]
fn a_unit_serves_only_when_its_tunnel_stands_however_strong_it_receives_the_vehicle() {
    let mut bench = Bench::new();
    bench.reports(2000, (-40.0, NO_TUNNEL, false), (-90.0, NO_TUNNEL, false));
    assert_eq!(bench.serving(), None);
    bench.reports(2000, (-40.0, NO_TUNNEL, false), (-90.0, TUNNEL, false));
    assert_eq!(bench.serving(), Some(B));
    assert_eq!(bench.rules(), ["controller.first"]);
}

#[test]
fn a_unit_whose_tunnel_carries_precedes_a_stronger_one_whose_tunnel_does_not() {
    let mut bench = Bench::new();
    bench.reports(1000, (-80.0, TUNNEL, true), (-50.0, TUNNEL, false));
    assert_eq!(bench.serving(), Some(A));
    bench.reports(2000, (-80.0, TUNNEL, true), (-90.0, TUNNEL, false));
    bench.reports(1000, (-80.0, TUNNEL, false), (-90.0, TUNNEL, true));
    assert_eq!(bench.serving(), Some(B));
    assert_eq!(bench.rules(), ["controller.first", "controller.carries"]);
}

#[test]
fn among_equals_a_clearly_stronger_unit_takes_over_and_a_slightly_stronger_one_does_not() {
    let mut bench = Bench::new();
    bench.reports(3000, (-70.0, TUNNEL, true), (-66.0, TUNNEL, true));
    assert_eq!(bench.serving(), Some(A));
    bench.reports(3000, (-70.0, TUNNEL, true), (-60.0, TUNNEL, true));
    assert_eq!(bench.serving(), Some(B));
    assert_eq!(bench.rules(), ["controller.first", "controller.stronger"]);
}

#[test]
fn a_single_strong_message_changes_nothing() {
    let mut bench = Bench::new();
    bench.reports(2000, (-70.0, TUNNEL, true), (-70.0, TUNNEL, true));
    bench.report(B, -50.0, TUNNEL, true);
    assert_eq!(bench.serving(), Some(A));
}

#[test]
fn the_new_unit_serves_before_the_route_changes_and_the_old_one_until_it_is_confirmed() {
    let mut bench = Bench::new();
    bench.reports(300, (-70.0, TUNNEL, true), (-70.0, TUNNEL, true));
    (bench.answers, bench.outputs) = (false, Vec::new());
    bench.report(A, -70.0, NO_TUNNEL, false);
    let serving = |unit, serves| vehicle::serving(unit, CAR, serves);
    assert_eq!(bench.outputs.len(), 3);
    assert_eq!(bench.outputs[0], serving(B, true));
    assert_eq!(bench.redirects(), [Some(B)]);
    assert_eq!(bench.serving(), Some(A));
    bench.outputs.clear();
    bench.input(Input::Redirected { vehicle: CAR, unit: Some(B), fault: None });
    assert_eq!(bench.outputs[0], serving(A, false));
    assert_eq!(bench.serving(), Some(B));
}

#[test]
fn a_unit_that_is_silent_is_left_after_half_a_second() {
    let mut bench = Bench::new();
    bench.reports(300, (-50.0, TUNNEL, true), (-90.0, TUNNEL, false));
    for waited in [100, 200, 300, 400] {
        assert_eq!(bench.serving(), Some(A), "after {waited} ms");
        bench.report(B, -90.0, TUNNEL, false);
        bench.wait(100);
    }
    assert_eq!(bench.serving(), Some(B));
    assert_eq!(bench.rules(), ["controller.first", "controller.silent"]);
}

#[test]
fn a_unit_that_connects_again_learns_that_another_one_serves_since() {
    let mut bench = Bench::new();
    bench.reports(1000, (-70.0, TUNNEL, true), (-90.0, NO_TUNNEL, false));
    bench.input(Input::Disconnected(Peer::Unit(A)));
    bench.report(B, -70.0, TUNNEL, true);
    assert_eq!(bench.serving(), Some(B));
    // What was announced while it was not connected did not reach it.
    bench.outputs.clear();
    bench.input(Input::Connected(Peer::Unit(A)));
    assert!(bench.outputs.contains(&vehicle::serving(A, CAR, false)), "{:?}", bench.outputs);
}

#[test]
fn a_unit_whose_connection_is_gone_is_left_at_once() {
    let mut bench = Bench::new();
    bench.reports(300, (-50.0, TUNNEL, true), (-90.0, TUNNEL, false));
    bench.report(B, -90.0, TUNNEL, false);
    bench.input(Input::Disconnected(Peer::Unit(A)));
    assert_eq!(bench.serving(), Some(B));
    assert_eq!(bench.rules(), ["controller.first", "controller.disconnected"]);
}

#[test]
fn without_another_unit_nothing_is_withdrawn_from_one_that_is_silent_or_gone() {
    let mut bench = Bench::new();
    bench.report(A, -50.0, TUNNEL, true);
    bench.wait(60_000);
    bench.input(Input::Disconnected(Peer::Unit(A)));
    bench.wait(60_000);
    assert_eq!((bench.serving(), bench.redirects()), (Some(A), vec![Some(A)]));
}

#[test]
fn a_route_is_withdrawn_ten_seconds_after_the_unit_has_said_that_its_tunnel_is_gone() {
    let mut bench = Bench::new();
    bench.report(A, -50.0, TUNNEL, true);
    bench.input(Input::Report { unit: A, report: Report::Left { station: CAR } });
    bench.wait(9_999);
    assert_eq!(bench.serving(), Some(A));
    bench.wait(1);
    assert_eq!((bench.serving(), bench.redirects()), (None, vec![Some(A), None]));
    bench.report(A, -50.0, TUNNEL, false);
    assert_eq!(bench.serving(), Some(A));
}

#[test]
fn a_controller_that_starts_again_leaves_the_routes_that_it_finds() {
    let mut bench = Bench { controller: Controller::new(), now: Instant::ZERO, answers: true, outputs: vec![] };
    bench.input(Input::Directory(directory()));
    bench.input(Input::Present { vehicle: CAR, unit: A });
    bench.input(Input::Connected(Peer::Unit(B)));
    bench.report(B, -40.0, TUNNEL, true);
    bench.wait(300);
    bench.outputs.clear();
    bench.input(Input::Connected(Peer::Unit(A)));
    assert_eq!(bench.outputs[1], vehicle::serving(A, CAR, true));
    bench.reports(2500, (-45.0, TUNNEL, true), (-40.0, TUNNEL, true));
    assert_eq!((bench.serving(), bench.redirects()), (Some(A), vec![]));
}

#[test]
fn a_unit_found_at_the_start_that_does_not_come_back_is_left_after_two_seconds() {
    let mut bench = Bench { controller: Controller::new(), now: Instant::ZERO, answers: true, outputs: vec![] };
    bench.input(Input::Directory(directory()));
    bench.input(Input::Present { vehicle: CAR, unit: A });
    bench.input(Input::Connected(Peer::Unit(B)));
    for waited in 0..20 {
        bench.report(B, -40.0, TUNNEL, true);
        assert_eq!(bench.serving(), Some(A), "after {waited}00 ms");
        bench.wait(100);
    }
    assert_eq!(bench.serving(), Some(B));
}

#[test]
fn a_redirection_that_fails_is_tried_again_each_second_with_what_is_best_then() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.report(A, -50.0, TUNNEL, true);
    bench.input(Input::Redirected { vehicle: CAR, unit: Some(A), fault: Some("the switch hung up".into()) });
    assert!(bench.outputs.contains(&vehicle::serving(A, CAR, false)));
    bench.reports(900, (-50.0, NO_TUNNEL, false), (-60.0, TUNNEL, true));
    assert_eq!(bench.redirects(), [Some(A)]);
    bench.reports(200, (-50.0, NO_TUNNEL, false), (-60.0, TUNNEL, true));
    assert_eq!(bench.redirects(), [Some(A), Some(B)]);
    // No answer is a failure too.
    bench.reports(2100, (-50.0, NO_TUNNEL, false), (-60.0, TUNNEL, true));
    assert_eq!(bench.redirects(), [Some(A), Some(B), Some(B)]);
}

#[test]
fn after_a_failure_packets_are_led_again_to_the_unit_that_serves() {
    let mut bench = Bench::new();
    bench.reports(300, (-50.0, TUNNEL, true), (-60.0, TUNNEL, false));
    (bench.answers, bench.outputs) = (false, Vec::new());
    bench.reports(100, (-50.0, TUNNEL, false), (-60.0, TUNNEL, true));
    bench.input(Input::Redirected { vehicle: CAR, unit: Some(B), fault: Some("no".into()) });
    bench.answers = true;
    bench.reports(2000, (-50.0, TUNNEL, true), (-60.0, TUNNEL, false));
    assert_eq!((bench.serving(), bench.redirects()), (Some(A), vec![Some(B), Some(A)]));
}

#[test]
fn a_vehicle_learns_its_address_at_each_unit_and_a_unit_the_vehicles() {
    let mut bench = Bench::new();
    bench.input(Input::Connected(Peer::Vehicle(CAR)));
    let Some(Output::Announce { announcement: Announcement::Units(units), .. }) = bench.outputs.pop() else {
        panic!("{:?}", bench.outputs)
    };
    let inner: Vec<_> = units.iter().map(|unit| (unit.station, unit.inner)).collect();
    let address = |third| (Ipv4Addr::new(10, third, 0, 7), 24);
    assert_eq!(inner, [(A, address(81)), (B, address(82)), (1003, address(83))]);
    bench.input(Input::Connected(Peer::Unit(A)));
    let Some(Output::Announce { announcement: Announcement::Vehicles(vehicles), .. }) = bench.outputs.pop() else {
        panic!("{:?}", bench.outputs)
    };
    assert_eq!(vehicles.len(), 2);
}

#[test]
fn a_new_unit_of_the_configuration_is_announced_to_everybody_and_a_removed_vehicle_is_served_no_longer() {
    let mut bench = Bench::new();
    bench.input(Input::Connected(Peer::Vehicle(CAR)));
    bench.reports(300, (-50.0, TUNNEL, true), (-60.0, TUNNEL, true));
    bench.outputs.clear();
    let mut changed = directory();
    changed.units.push(unit(4));
    bench.input(Input::Directory(changed.clone()));
    let to: Vec<_> = bench.outputs.iter().map(|output| matches!(output, Output::Announce { .. })).collect();
    assert_eq!(to, [true; 3]);
    assert_eq!(bench.serving(), Some(A));
    bench.outputs.clear();
    changed.vehicles.remove(0);
    bench.input(Input::Directory(changed));
    assert_eq!(bench.redirects(), [None]);
    assert!(bench.outputs.contains(&vehicle::serving(A, CAR, false)));
}

#[test]
fn a_unit_with_a_new_address_on_the_backhaul_is_led_to_there() {
    let mut bench = Bench::new();
    bench.reports(300, (-50.0, TUNNEL, true), (-60.0, TUNNEL, true));
    bench.outputs.clear();
    let mut changed = directory();
    changed.units[0].next_hop = Ipv4Addr::new(192, 0, 2, 99);
    bench.input(Input::Directory(changed));
    assert_eq!((bench.redirects(), bench.rules()), (vec![Some(A)], vec!["controller.again"]));
}

#[test]
fn a_peer_that_says_other_than_the_configuration_is_not_admitted() {
    let (directory, spec) = (directory(), unit(1));
    let role = |prefix, address| Role::Unit { prefix, address };
    let admit = |peer, role: &Role| directory.admit(peer, role).err().unwrap_or_default();
    assert_eq!(admit(Peer::Unit(A), &role(spec.prefix, spec.next_hop)), "");
    assert_eq!(admit(Peer::Vehicle(CAR), &Role::Vehicle), "");
    let other = (Ipv4Addr::new(10, 9, 0, 0), 24);
    assert!(admit(Peer::Unit(A), &role(other, spec.next_hop)).contains("its prefix is 10.9.0.0/24"));
    assert!(admit(Peer::Unit(A), &role(spec.prefix, Ipv4Addr::LOCALHOST)).contains("on the backhaul is 127.0.0.1"));
    assert!(admit(Peer::Unit(A), &Role::Vehicle).contains("that of a unit"));
    assert!(admit(Peer::Vehicle(CAR), &role(spec.prefix, spec.next_hop)).contains("that of a vehicle"));
}

#[test]
fn reports_of_unknown_vehicles_and_of_too_many_units_are_counted_and_take_no_room() {
    let mut bench = Bench::new();
    let units = (1..=200).map(unit).collect();
    bench.input(Input::Directory(Directory { units, vehicles: vec![vehicle(CAR)] }));
    for number in 1..=200 {
        bench.input(Input::Connected(Peer::Unit(1000 + number)));
        bench.report(1000 + number, -60.0, TUNNEL, true);
    }
    assert_eq!(bench.controller.vehicles[&CAR].sights().count(), MAX_SIGHTS);
    assert_eq!(bench.controller.ignored(), 200 - MAX_SIGHTS as u64);
    bench.input(Input::Report { unit: A, report: Report::Left { station: 99 } });
    assert_eq!(bench.controller.ignored(), 201 - MAX_SIGHTS as u64);
}

fn inputs() -> impl Strategy<Value = Input> {
    let units = || prop::sample::select(vec![A, B, 1003, 1004]);
    let cars = || prop::sample::select(vec![CAR, 8, 9]);
    let report = (units(), cars(), prop::option::of(-100.0_f32..-40.0), any::<[bool; 2]>()).prop_map(
        |(unit, station, rssi_dbm, [has_tunnel, carries])| Input::Report {
            unit,
            report: Report::Vehicle { station, rssi_dbm, position: None, has_tunnel, carries },
        },
    );
    let left = (units(), cars()).prop_map(|(unit, station)| Input::Report { unit, report: Report::Left { station } });
    let answer = (cars(), prop::option::of(units()), any::<bool>()).prop_map(|(vehicle, unit, ok)| Input::Redirected {
        vehicle,
        unit,
        fault: (!ok).then(|| "no".into()),
    });
    let smaller = any::<[bool; 5]>().prop_map(|keeps| {
        let mut kept = keeps.into_iter();
        let mut directory = directory();
        directory.units.retain(|_| kept.next() == Some(true));
        directory.vehicles.retain(|_| kept.next() == Some(true));
        Input::Directory(directory)
    });
    prop_oneof![
        20 => report,
        2 => left,
        4 => answer,
        1 => smaller,
        1 => Just(Input::Directory(directory())),
        2 => units().prop_map(|unit| Input::Connected(Peer::Unit(unit))),
        1 => units().prop_map(|unit| Input::Disconnected(Peer::Unit(unit))),
        1 => (cars(), units()).prop_map(|(vehicle, unit)| Input::Present { vehicle, unit }),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_packets_are_led_only_to_a_tunnel_that_stands_and_one_request_is_open_at_once(
        steps in prop::collection::vec((inputs(), 0..400_u64), 1..150),
    ) {
        let mut bench = Bench::new();
        bench.answers = false;
        let mut open: BTreeMap<u32, (Option<u32>, Instant)> = BTreeMap::new();
        for (input, ms) in steps {
            if let Input::Redirected { vehicle, unit, .. } = &input
                && open.get(vehicle).is_some_and(|(open, _)| open == unit)
            {
                open.remove(vehicle);
            }
            bench.controller.handle(bench.now, input.clone());
            // A vehicle that is removed takes its request along.
            open.retain(|vehicle, _| bench.controller.vehicles.contains_key(vehicle));
            bench.run();
            bench.wait(ms);
            for output in bench.outputs.drain(..) {
                let Output::Redirect { vehicle, unit, .. } = output else { continue };
                let Some(of) = bench.controller.vehicles.get(&vehicle) else { continue };
                let earlier = open.insert(vehicle, (unit, bench.now)).map(|(_, at)| bench.now.since(at));
                // An unanswered request is given up after a second; a change of the directory replaces one.
                let is_directory = matches!(input, Input::Directory(_));
                prop_assert!(is_directory || earlier.is_none_or(|waited| waited + Duration::from_millis(ms) >= ANSWER_TIMEOUT));
                if let Some(unit) = unit {
                    let has_tunnel = of.sights().any(|(of, sight)| of == unit && sight.has_tunnel);
                    prop_assert!(has_tunnel || of.serving().is_some_and(|(serving, _)| serving == unit), "{unit} has no tunnel");
                }
            }
            for vehicle in bench.controller.vehicles.values() {
                prop_assert!(vehicle.sights().count() <= MAX_SIGHTS);
                prop_assert!(vehicle.sights().all(|(unit, _)| bench.controller.connected.contains(&Peer::Unit(unit))));
            }
        }
    }

    #[test]
    fn a_unit_that_carries_is_not_left_for_one_that_does_not(
        reports in prop::collection::vec((-100.0_f32..-30.0, -100.0_f32..-30.0, any::<bool>()), 1..100),
    ) {
        let mut bench = Bench::new();
        bench.reports(100, (-70.0, TUNNEL, true), (-70.0, NO_TUNNEL, false));
        for (a, b, has_tunnel) in reports {
            bench.reports(100, (a, TUNNEL, true), (b, has_tunnel, false));
            prop_assert_eq!(bench.serving(), Some(A));
        }
    }
}
