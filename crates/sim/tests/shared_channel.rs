//! One channel that many stations share, against two independent models of the same: a link for
//! each station with the share of the air time that the others leave (as vehicles of a fleet),
//! and links that are always saturated.

use std::error::Error;

use crosslane_core::link::ieee80211p::{PhyRate, attempt_air_time, broadcast_air_time, packet_error_rate};
use crosslane_core::link::{Bottleneck, Channel, Direction, DirectionParams, Hop, Link, Loss, PacketId, QueueLimit};
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::fleet::STEP;
use crosslane_sim::fleet::airtime::{AirtimeUse, shares};
use crosslane_sim::radio::cam;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};
use crosslane_sim::world::WorldSample;

/// SNR without losses.
const STRONG_DB: f64 = 40.0;
const BYTES: u32 = 1500;
const END: Instant = Instant::from_millis(20_000);

/// A station: its SNR, and the interval between its packets; none: it always has one.
#[derive(Clone, Copy)]
struct Station {
    snr_db: f64,
    every: Option<Duration>,
}

/// What a station got through, in packets.
type Delivered = Vec<u64>;

fn params(snr_db: f64, share: f64) -> DirectionParams {
    let channel = Channel {
        rate: PhyRate::Mbit6,
        mean_snr_db: snr_db,
        nakagami_m: f64::INFINITY,
        tries: 7,
        share,
        limit_bit_s: f64::INFINITY,
    };
    DirectionParams {
        bottleneck: Bottleneck::Ieee80211p(channel),
        delay: Duration::ZERO,
        loss: Loss::NONE,
        queue: QueueLimit::Packets(100),
        codel: None,
    }
}

fn down(station: usize) -> Hop {
    Hop { station, direction: Direction::Down }
}

/// The packets of one station over one hop.
struct Source {
    station: Station,
    hop: Hop,
    next: Instant,
}

impl Source {
    fn new(station: Station, hop: Hop) -> Source {
        Source { station, hop, next: Instant::ZERO }
    }

    /// Sends what is due. A station that always has a packet keeps two waiting.
    fn send(&mut self, now: Instant, link: &mut Link) {
        match self.station.every {
            None => {
                while link.waiting(self.hop).0 < 2 {
                    let _ = link.send(now, self.hop, PacketId(0), BYTES);
                }
            }
            Some(every) => {
                while self.next <= now {
                    let _ = link.send(self.next, self.hop, PacketId(0), BYTES);
                    self.next = self.next + every;
                }
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.station.every.map(|_| self.next)
    }
}

/// Runs a link with its sources until a time; adds what arrived over each hop to `delivered`.
fn advance(link: &mut Link, sources: &mut [Source], until: Instant, delivered: &mut [u64]) {
    loop {
        let due = sources.iter().filter_map(Source::next_wakeup).chain(link.next_wakeup()).min();
        let Some(now) = due.filter(|at| *at < until) else { return };
        while let Some(exit) = link.poll(now) {
            delivered[exit.hop.station] += u64::from(exit.dropped.is_none());
        }
        sources.iter_mut().for_each(|source| source.send(now, link));
    }
}

/// All stations on one channel: packets delivered, and the air time used.
fn one_channel(stations: &[Station]) -> (Delivered, Duration) {
    let names: Vec<String> = (0..stations.len()).map(|number| format!("unit{number}")).collect();
    let of = |station: &Station| [params(station.snr_db, 1.0), params(station.snr_db, 1.0)];
    let mut link = Link::shared(1, "radio", names.iter().map(String::as_str).zip(stations.iter().map(of)));
    let mut sources: Vec<Source> =
        stations.iter().enumerate().map(|(number, station)| Source::new(*station, down(number))).collect();
    sources.iter_mut().for_each(|source| source.send(Instant::ZERO, &mut link));
    let mut delivered = vec![0; stations.len()];
    advance(&mut link, &mut sources, END, &mut delivered);
    (delivered, link.air_used())
}

/// A link for each station, coupled as vehicles of a fleet: after each step each gets the share
/// of the air time that the others leave.
fn coupled_links(stations: &[Station]) -> (Delivered, Duration) {
    let mut links: Vec<(Link, [Source; 1], Duration)> = stations
        .iter()
        .enumerate()
        .map(|(number, station)| {
            let params = || params(station.snr_db, 1.0);
            let mut link = Link::new(1, &format!("unit{number}"), params(), params());
            let mut source = Source::new(*station, down(0));
            source.send(Instant::ZERO, &mut link);
            (link, [source], Duration::ZERO)
        })
        .collect();
    let mut delivered = vec![0; stations.len()];
    let mut now = Instant::ZERO;
    while now < END {
        now = now + STEP;
        let mut uses = Vec::new();
        for ((link, source, queried), delivered) in links.iter_mut().zip(&mut delivered) {
            advance(link, source, now, std::slice::from_mut(delivered));
            let used = link.air_used();
            let part = (used.saturating_sub(*queried).as_secs_f64() / STEP.as_secs_f64()).min(1.0);
            *queried = used;
            uses.push(AirtimeUse { part, backlog: link.waiting(down(0)).0 > 0 });
        }
        for (((link, ..), station), share) in links.iter_mut().zip(stations).zip(shares(&uses)) {
            link.set(now, down(0), params(station.snr_db, share));
        }
    }
    let used = links.iter().fold(Duration::ZERO, |sum, (link, ..)| sum + link.air_used());
    (delivered, used)
}

fn assert_near(found: f64, expected: f64, part: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= part, "{what}: {found} and {expected}");
}

#[test]
fn saturated_stations_of_one_channel_get_what_a_fleet_gets_by_shares() {
    for count in [1, 2, 4, 8] {
        let stations = vec![Station { snr_db: STRONG_DB, every: None }; count];
        let ((one, used), (coupled, of_all)) = (one_channel(&stations), coupled_links(&stations));
        for (one, coupled) in one.iter().zip(&coupled) {
            assert_near(*one as f64, *coupled as f64, 0.05, &format!("packets of one of {count}"));
        }
        assert_near(one.iter().sum::<u64>() as f64, coupled.iter().sum::<u64>() as f64, 0.02, "all packets");
        assert_near(used.as_secs_f64(), of_all.as_secs_f64(), 0.02, "air time");
    }
}

#[test]
fn the_same_load_takes_the_same_air_time_on_one_channel_as_in_a_fleet() {
    let every = |ms| Some(Duration::from_millis(ms));
    let loads = [every(20), every(30), every(50), every(100), every(40)];
    let stations = loads.map(|every| Station { snr_db: STRONG_DB, every });
    let ((one, used), (coupled, of_all)) = (one_channel(&stations), coupled_links(&stations));
    assert_eq!(one, coupled);
    let packets = one.iter().sum::<u64>() as f64;
    assert_near(used.as_secs_f64(), of_all.as_secs_f64(), 0.001, "air time");
    assert_near(used.as_secs_f64(), packets * attempt_air_time(PhyRate::Mbit6, BYTES).as_secs_f64(), 0.005, "tries");
}

#[test]
fn a_saturated_station_gets_what_unsaturated_ones_leave_in_both_models() {
    let every = |ms| Some(Duration::from_millis(ms));
    let stations = [None, every(10), every(25), every(40)].map(|every| Station { snr_db: STRONG_DB, every });
    let ((one, used), (coupled, of_all)) = (one_channel(&stations), coupled_links(&stations));
    assert_near(one[0] as f64, coupled[0] as f64, 0.06, "packets of the saturated one");
    for (one, coupled) in one[1..].iter().zip(&coupled[1..]) {
        assert_near(*one as f64, *coupled as f64, 0.01, "packets of an unsaturated one");
    }
    assert_near(used.as_secs_f64(), of_all.as_secs_f64(), 0.04, "air time");
}

#[test]
fn a_station_whose_tries_fail_takes_no_air_time_from_another_beyond_its_half() {
    let fails = |snr_db: &f64| packet_error_rate(PhyRate::Mbit6, *snr_db, BYTES) > 0.5;
    let weak_db = (0..400).map(|tenth| f64::from(tenth) / 10.0).take_while(fails).last().unwrap_or(0.0);
    let stations = [weak_db, STRONG_DB].map(|snr_db| Station { snr_db, every: None });
    let ((one, _), (coupled, _)) = (one_channel(&stations), coupled_links(&stations));
    assert!(one[0] * 4 < one[1] * 3, "some tries of the weak one fail: {one:?}");
    for (one, coupled) in one.iter().zip(&coupled) {
        assert_near(*one as f64, *coupled as f64, 0.1, "packets");
    }
}

#[test]
fn two_stations_of_one_channel_carry_as_much_as_two_saturated_links_with_half_of_the_air() {
    let saturated = Station { snr_db: STRONG_DB, every: None };
    let (one, _) = one_channel(&[saturated; 2]);
    let half = |number: usize| {
        let mut link = Link::new(2, &format!("half{number}"), params(STRONG_DB, 0.5), params(STRONG_DB, 0.5));
        let mut source = [Source::new(saturated, down(0))];
        source[0].send(Instant::ZERO, &mut link);
        let mut delivered = [0];
        advance(&mut link, &mut source, END, &mut delivered);
        delivered[0]
    };
    for (number, packets) in one.iter().enumerate() {
        assert_near(*packets as f64, half(number) as f64, 0.03, "packets of one of two");
    }
}

/// A vehicle at 200 km/h beside two units; 100 bytes each 1.7 ms, without losses.
const FAST: &str = "name = \"fast\"\nduration_s = 20\n\
    [vehicle]\nroute = { from_m = [0, 0], to_m = [1100, 0], speed_kmh = 200 }\n\
    [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\npaths = \"units\"\nrate_mbit_s = 3\neirp_dbm = 33\nfading = \"none\"\n\
    path_loss = \"cheng\"\nshadowing_db = 0\n\
    [[roadside_unit]]\nname = \"rsu1\"\nradio = \"its-g5\"\nposition_m = [500, 10]\n\
    [[roadside_unit]]\nname = \"rsu2\"\nradio = \"its-g5\"\nposition_m = [600, 10]\n\
    [traffic]\nkind = \"messages\"\nprotocol = \"udp\"\nsize_bytes = 100\nevery_ms = 1.7\n";

fn run(text: &str) -> Result<Recording, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let strategy = scenario.strategy("kernel").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail { packets: true, ..Detail::NONE })?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

#[test]
fn a_packet_waits_until_the_cam_of_the_vehicle_has_left_the_air() -> Result<(), Box<dyn Error>> {
    let run = run(FAST)?;
    let least = broadcast_air_time(PhyRate::Mbit3, cam::VEHICLE_BYTES).as_nanos() as u64;
    let delays = || run.packets.iter().filter_map(|row| Some((row.t_ns, row.delivered_ns? - row.t_ns)));
    let alone = delays().map(|(_, delay)| delay).min().ok_or("nothing arrived")?;
    let sent: std::collections::BTreeSet<u64> = run
        .samples
        .iter()
        .filter(|row| matches!(row.sample, WorldSample::VehicleCam(..)))
        .map(|row| row.t_ns)
        .collect();
    assert!(sent.len() > 150, "{} CAMs", sent.len());
    let mut waited = 0;
    for (t_ns, delay) in delays() {
        if let Some(began) = sent.range(t_ns.saturating_sub(least)..t_ns).next_back() {
            assert!(t_ns + delay >= began + least + alone, "{t_ns}: {delay} ns, the CAM began at {began}");
            waited += 1;
        }
    }
    assert!(waited >= 20, "{waited} packets entered during a CAM");
    Ok(())
}
