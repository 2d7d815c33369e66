//! A recording of pings, replayed over a link, gives back its delays: as `drive` and `simulate` replay it,
//! with the world's link updates and the link's own time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crosslane::import::{Cut, Imc23Operator, Source, import};
use crosslane_core::link::{Direction, Link, PacketId};
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{World, WorldEvent};

/// A recording's pings: when each was sent, in ms, and its RTT in ms, unless it was lost.
type Pings = Vec<(u64, Option<f64>)>;

/// The world and the only link of a scenario with this trace.
fn world(trace: &str) -> (World, Link) {
    let text = "name = 'pings'\nduration_s = 7200\n\
        [vehicle]\nroute = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }\n\
        [[cellular]]\nname = 'lte'\nrat = 'lte'\nrate_mbit_s = 20\ntrace = 'trace.csv'\n\
        [traffic]\nkind = 'messages'\nsize_bytes = 1000\nevery_ms = 20\n";
    let mut scenario = Scenario::parse(text, "pings.toml").unwrap_or_else(|error| panic!("{error}"));
    scenario.resolve(&BTreeMap::from([("trace.csv".into(), trace.into())])).unwrap_or_else(|error| panic!("{error}"));
    let mut world = World::new(&scenario, 1).unwrap_or_else(|error| panic!("{error}"));
    let (mut links, _) = world.links(&scenario, 1);
    world.set_truth_period(None);
    (world, links.remove(0))
}

/// When each packet that is sent up at `sent` arrives, and when its answer does.
fn replay(trace: &str, sent: &[Instant]) -> Vec<[Option<Instant>; 2]> {
    let (mut world, mut link) = world(trace);
    let mut found = vec![[None; 2]; sent.len()];
    let mut next = 0;
    let end = sent[sent.len() - 1] + Duration::from_secs_f64(120.0);
    while let Some(now) = [world.next_wakeup(), link.next_wakeup(), sent.get(next).copied()].into_iter().flatten().min()
    {
        if now > end {
            break;
        }
        while let Some(event) = world.poll(now) {
            if let WorldEvent::LinkParams { direction, params, .. } = event {
                link.set(now, direction, params);
            }
        }
        while let Some(exit) = link.poll(now) {
            let place = exit.packet.0 as usize;
            if exit.dropped.is_none() {
                found[place][exit.hop.direction as usize] = Some(exit.at);
            }
            if exit.dropped.is_none() && exit.hop.direction == Direction::Up {
                link.send(now, Direction::Down, exit.packet, 66).expect("room");
            }
        }
        if sent.get(next).is_some_and(|at| *at <= now) {
            link.send(now, Direction::Up, PacketId(next as u64), 66).expect("room");
            next += 1;
        }
    }
    found
}

/// p50, p95 and p99 of the answered pings in ms, and the share of those lost or over 200 ms, in %.
fn figures(rtts: &[Option<f64>]) -> [f64; 4] {
    let mut answered: Vec<f64> = rtts.iter().flatten().copied().collect();
    answered.sort_by(f64::total_cmp);
    let at = |share: f64| answered[(share * answered.len() as f64) as usize];
    let bad = rtts.iter().filter(|rtt| rtt.is_none_or(|rtt| rtt > 200.0)).count();
    [at(0.5), at(0.95), at(0.99), 100.0 * bad as f64 / rtts.len() as f64]
}

/// The recorded RTTs and those of the same pings over the trace.
fn recorded_and_replayed(trace: &str, pings: &Pings) -> [Vec<Option<f64>>; 2] {
    let sent: Vec<Instant> = pings.iter().map(|(t_ms, _)| Instant::from_millis(*t_ms)).collect();
    let answers = replay(trace, &sent);
    let rtt = |(sent, [_, answer]): (&Instant, &[Option<Instant>; 2])| {
        answer.map(|answer| answer.since(*sent).as_secs_f64() * 1000.0)
    };
    [pings.iter().map(|(_, rtt)| *rtt).collect(), sent.iter().zip(&answers).map(rtt).collect()]
}

/// The targets: percentiles within 5 %, share of bad pings within 0.3 points.
fn assert_alike(name: &str, recorded: &[Option<f64>], replayed: &[Option<f64>]) {
    let (recorded, replayed) = (figures(recorded), figures(replayed));
    println!("| {name} | {recorded:.2?} | {replayed:.2?} |");
    for (quantity, (recorded, replayed)) in recorded.iter().zip(replayed).enumerate() {
        let limit = if quantity < 3 { recorded * 0.05 } else { 0.3 };
        assert!((recorded - replayed).abs() <= limit, "{name}: {replayed} instead of {recorded}");
    }
}

/// Pings every 0.2 s with varying RTTs, lost ones, and stalls of up to 4 s whose answers come together.
fn synthetic() -> Pings {
    let mut rng = Rng::new(7, "pings");
    let mut stall_until_ms = 0.0_f64;
    let mut ping = |slot: u64| {
        let t_ms = slot * 200;
        if rng.chance(0.01) {
            stall_until_ms = t_ms as f64 + 4000.0 * rng.uniform();
        }
        let rtt_ms = (60.0 + 30.0 * rng.uniform()).max(stall_until_ms - t_ms as f64);
        (t_ms, (!rng.chance(0.02)).then_some((rtt_ms * 10.0).round() / 10.0))
    };
    (0..6000).map(&mut ping).collect()
}

/// A recording in the columns of `crosslane import pings`.
fn recording(pings: &Pings) -> String {
    let mut text = String::from("t_s,operator,rtt_ms,lost,rssi_dbm\n");
    for (t_ms, rtt) in pings {
        let (rtt, lost) = rtt.map_or((String::new(), 1), |rtt| (rtt.to_string(), 0));
        let _ = writeln!(text, "{},mine,{rtt},{lost},-95", *t_ms as f64 / 1000.0);
    }
    text
}

fn trace_of(pings: &Pings) -> String {
    import(&Source::Pings("mine".into()), &Cut::default(), &recording(pings), "mine.csv").expect("a trace")
}

#[test]
fn replayed_pings_have_the_recorded_delays_and_losses() {
    let pings = synthetic();
    let [recorded, replayed] = recorded_and_replayed(&trace_of(&pings), &pings);
    assert_alike("synthetic", &recorded, &replayed);
    for (recorded, replayed) in recorded.iter().zip(&replayed) {
        assert_eq!(recorded.is_none(), replayed.is_none());
    }
}

#[test]
fn everything_sent_in_a_stall_arrives_together_at_its_end_and_in_order() {
    // From 1 s on nothing arrives until 3 s: the pings' RTTs fall from 2 s by 0.2 s each.
    let rtt = |t_ms: u64| if (1000..3000).contains(&t_ms) { (3060 - t_ms) as f64 } else { 60.0 };
    let pings: Pings = (0..30).map(|slot| (slot * 200, Some(rtt(slot * 200)))).collect();
    let sent: Vec<Instant> = (0..280).map(|message| Instant::from_millis(message * 20 + 3)).collect();
    let arrived = replay(&trace_of(&pings), &sent);
    let up_ms: Vec<f64> = arrived.iter().map(|[up, _]| up.expect("arrives").as_secs_f64() * 1000.0).collect();
    assert!(up_ms.windows(2).all(|pair| pair[0] <= pair[1]));
    // The stall began between the pings at 0.8 and 1 s; it ends at 3.03 s for the network.
    for (sent, up_ms) in sent.iter().zip(up_ms) {
        let sent_ms = sent.as_secs_f64() * 1000.0;
        let expected = if (900.0..3000.0).contains(&sent_ms) { 3030.0 } else { sent_ms + 30.0 };
        assert!((0.0..=12.0).contains(&(up_ms - expected)), "sent at {sent_ms} ms, arrived at {up_ms}");
    }
}

#[test]
fn a_lost_ping_takes_what_was_sent_until_the_next() {
    let pings: Pings = (0..20).map(|slot| (slot * 200, (slot != 5 && slot != 6).then_some(60.0))).collect();
    let sent: Vec<Instant> = (0..180).map(|message| Instant::from_millis(message * 20 + 3)).collect();
    for (sent, [up, _]) in sent.iter().zip(replay(&trace_of(&pings), &sent)) {
        let sent_ms = sent.as_secs_f64() * 1000.0;
        assert_eq!(up.is_none(), (1000.0..1400.0).contains(&sent_ms), "sent at {sent_ms} ms");
    }
}

#[test]
fn each_operator_of_the_recorded_drives_has_its_recorded_delays_when_replayed_alone() {
    let folder = std::env::var_os("CROSSLANE_DATA").map(|data| PathBuf::from(data).join("imc23"));
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        eprintln!("SKIPPED: CROSSLANE_DATA names no folder with imc23 (docs/guide/real-data.md)");
        return;
    };
    for (name, operator) in
        [("verizon", Imc23Operator::Verizon), ("att", Imc23Operator::Att), ("tmobile", Imc23Operator::Tmobile)]
    {
        let (mut recorded, mut replayed) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            let pings = pings_of(&text, name);
            if path.ends_with("index.csv") || pings.is_empty() {
                continue;
            }
            let trace = import(&Source::Imc23(operator), &Cut::default(), &text, &shown(&path));
            let [of, again] = recorded_and_replayed(&trace.unwrap_or_else(|error| panic!("{error}")), &pings);
            recorded.extend(of);
            replayed.extend(again);
        }
        assert_alike(name, &recorded, &replayed);
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The pings of one operator in a segment of imc23.
fn pings_of(text: &str, operator: &str) -> Pings {
    let header: Vec<&str> = text.lines().next().unwrap_or_default().split(',').collect();
    let column = |end: &str| header.iter().position(|name| *name == format!("{operator}_{end}"));
    let (Some(rtt), Some(lost)) = (column("rtt_ms"), column("lost")) else { return Pings::new() };
    let ping = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let t_ms = (cells[0].parse::<f64>().expect("a time") * 1000.0).round() as u64;
        (!cells[lost].is_empty()).then(|| (t_ms, cells[rtt].parse().ok()))
    };
    text.lines().skip(1).filter_map(ping).collect()
}
