//! One flow through the multipath tunnel, compared with a single path and with the
//! kernel's MPTCP in the same world.

use std::error::Error;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::MessageRow;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const EQUAL: &str = include_str!("../../../scenarios/tunnel/equal-60-60.toml");
const NARROW: &str = include_str!("../../../scenarios/tunnel/narrow-25-47.toml");
const WIDE: &str = include_str!("../../../scenarios/tunnel/wide-246-469.toml");
const UNEQUAL: &str = include_str!("../../../scenarios/tunnel/unequal-20-80.toml");
const SPREAD: &str = include_str!("../../../scenarios/tunnel/spread-100.toml");
const FAR: &str = include_str!("../../../scenarios/tunnel/far-20-100.toml");
const STREAM: &str = include_str!("../../../scenarios/tunnel/udp-stream.toml");
const THROTTLED: &str = include_str!("../../../scenarios/tunnel/throttled.toml");
const TRACE: &str = include_str!("../../../scenarios/tunnel/throttled.csv");
const REDUNDANT: &str = include_str!("../../../scenarios/tunnel/redundant-loss.toml");
const LEAVE: &str = include_str!("../../../scenarios/tunnel/udp-leave-coverage.toml");
const SUDDEN: &str = include_str!("../../../scenarios/tunnel/udp-sudden-loss.toml");

type Outcome = Result<(), Box<dyn Error>>;

/// Payload of a segment of plain TCP, and of one in each tunnel, in bytes.
const PAYLOAD: f64 = 1448.0;
const TUNNELS: [(&str, f64); 2] = [("tunnel-plain", 1408.0), ("tunnel", 1389.0)];

fn read(text: &str) -> Result<Scenario, Box<dyn Error>> {
    let mut scenario = Scenario::parse(text, "test.toml")?;
    let contents = scenario.files().into_iter().map(|file| (file.name, TRACE.to_string()));
    scenario.resolve(&contents.collect())?;
    Ok(scenario)
}

fn record(scenario: &Scenario, name: &str, seed: u64, detail: Detail) -> Result<Recording, Box<dyn Error>> {
    let mut strategy = scenario.strategy(name.split(':').next().unwrap_or(name)).ok_or("no such strategy")?;
    if let Some((_, path)) = name.split_once(':') {
        strategy.parameters.insert("path".into(), path.into());
    }
    let mut simulation = Simulation::new(scenario, &strategy, seed, detail)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

fn messages(text: &str, strategy: &str, seed: u64) -> Result<Vec<MessageRow>, Box<dyn Error>> {
    Ok(record(&read(text)?, strategy, seed, Detail::METRICS)?.messages)
}

/// Goodput between two times (in s), in Mbit/s.
fn goodput(messages: &[MessageRow], from_s: f64, to_s: f64) -> f64 {
    let read = |row: &&MessageRow| row.received_ns.is_some_and(|at| (from_s..to_s).contains(&(at as f64 / 1e9)));
    let bytes: u64 = messages.iter().filter(read).map(|row| u64::from(row.size_bytes)).sum();
    bytes as f64 * 8e-6 / (to_s - from_s)
}

/// Maximum delay of the delivered messages, in ms, and the number of lost ones.
fn worst(messages: &[MessageRow]) -> (f64, usize) {
    let delays = messages.iter().filter_map(|row| Some(row.received_ns? - row.sent_ns));
    let lost = messages.iter().filter(|row| row.received_ns.is_none()).count();
    (delays.max().unwrap_or(0) as f64 / 1e6, lost)
}

/// Share of lost messages, and share received after a later one.
fn faults(messages: &[&MessageRow]) -> (f64, f64) {
    let mut came: Vec<(u64, u64)> = messages.iter().filter_map(|row| Some((row.received_ns?, row.number))).collect();
    came.sort_unstable();
    let (mut newest, mut late) = (0, 0);
    for &(_, number) in &came {
        late += usize::from(number < newest);
        newest = newest.max(number);
    }
    (1.0 - came.len() as f64 / messages.len() as f64, late as f64 / came.len() as f64)
}

fn with(text: &str, key: &str, value: &str) -> String {
    assert!(text.contains(key), "{key}");
    text.replace(key, value)
}

fn with_congestion(text: &str, congestion: &str) -> String {
    with(text, "duration_s", &format!("congestion = \"{congestion}\"\nduration_s"))
}

/// Bulk over paths: rate in Mbit/s, one-way delay in ms, loss.
fn over(paths: &[(f64, f64, f64)]) -> String {
    let mut text = "name = \"pair\"\nduration_s = 20\n".to_string();
    text += "[vehicle]\nroute = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }\n[traffic]\nkind = \"bulk\"\n";
    for (name, (rate, delay, loss)) in ["a", "b"].iter().zip(paths) {
        text += &format!("[[cellular]]\nname = \"{name}\"\nrat = \"lte\"\nrate_mbit_s = {rate}\ndelay_ms = {delay}\n");
        text += &format!("loss = {loss}\nqueue_ms = 50\n");
    }
    text
}

#[test]
fn two_paths_carry_as_much_as_multipath_tcp_less_the_headers() -> Outcome {
    let shorter = with(WIDE, "duration_s = 20", "duration_s = 10");
    for (text, shares) in [(EQUAL, [0.98, 0.95]), (NARROW, [0.98, 0.95]), (&shorter, [0.96, 0.93])] {
        for congestion in ["cubic", "bbr"] {
            let text = with_congestion(text, congestion);
            let figure = |strategy: &str| messages(&text, strategy, 1).map(|rows| goodput(&rows, 3.0, 9.0));
            let kernel = figure("kernel")?;
            for ((strategy, _), share) in TUNNELS.into_iter().zip(shares) {
                let tunnel = figure(strategy)?;
                println!("{strategy} {congestion}: {tunnel:.1}, kernel {kernel:.1} Mbit/s: {:.3}", tunnel / kernel);
                assert!(tunnel >= kernel * share, "{strategy} {congestion}: {tunnel} of {kernel} Mbit/s");
            }
        }
    }
    Ok(())
}

#[test]
fn paths_with_different_rates_and_delays_are_aggregated() -> Outcome {
    for congestion in ["cubic", "bbr"] {
        let text = with_congestion(UNEQUAL, congestion);
        for (strategy, _) in TUNNELS {
            let tunnel = goodput(&messages(&text, strategy, 1)?, 3.0, 19.0);
            println!("{strategy} {congestion}: {tunnel:.1} of 100 Mbit/s");
            assert!(tunnel >= 80.0, "{strategy} {congestion}: {tunnel} Mbit/s");
        }
    }
    Ok(())
}

#[test]
fn a_second_path_with_up_to_100_ms_more_delay_does_no_harm() -> Outcome {
    for paths in [
        [(100.0, 5.0, 0.0), (20.0, 105.0, 0.0)],
        [(20.0, 5.0, 0.0), (100.0, 55.0, 0.0)],
        [(5.0, 5.0, 0.0), (100.0, 105.0, 0.0)],
    ] {
        compare_with_the_best(&over(&paths), ["single:a", "single:b"], 0.97)?;
    }
    // The target is 97 %; BBR without encryption misses it: docs/limitations.md.
    for (congestion, min) in [("cubic", 0.97), ("bbr", 0.95)] {
        compare_one(
            &with_congestion(&over(&[(5.0, 5.0, 0.0), (100.0, 25.0, 0.0)]), congestion),
            ["single:a", "single:b"],
            min,
        )?;
    }
    compare_with_the_best(FAR, ["single:near", "single:far"], 0.97)
}

#[test]
fn a_second_path_does_no_harm_if_one_of_the_two_loses_packets() -> Outcome {
    for paths in [
        [(100.0, 5.0, 0.02), (5.0, 105.0, 0.0)],
        [(100.0, 5.0, 0.0), (5.0, 55.0, 0.02)],
        [(50.0, 5.0, 0.0), (50.0, 105.0, 0.02)],
        [(20.0, 5.0, 0.02), (100.0, 25.0, 0.0)],
        [(20.0, 5.0, 0.0), (100.0, 105.0, 0.02)],
    ] {
        compare_with_the_best(&over(&paths), ["single:a", "single:b"], 0.97)?;
    }
    compare_with_the_best(SPREAD, ["single:near", "single:far"], 0.97)
}

/// BBR has 0.79 times what it has without a tunnel if an acknowledgement waits until a lost one is repaired.
#[test]
fn acknowledgements_wait_for_no_lost_one() -> Outcome {
    compare_with_the_best(&over(&[(40.0, 55.0, 0.02)]), ["single:a"], 0.87)
}

/// Pairs of 5 to 100 Mbit/s and 5 to 105 ms: ratios up to 1:20, delay differences up to 100 ms, 2 % loss on at most one.
#[test]
#[ignore = "takes a minute; for docs/limitations.md"]
fn few_pairs_of_paths_are_slower_than_the_better_path() -> Outcome {
    let mut missed = Vec::new();
    for (near, far) in [(100.0, 20.0), (100.0, 5.0), (50.0, 50.0), (20.0, 100.0), (5.0, 100.0)] {
        for far_ms in [5.0, 25.0, 55.0, 105.0] {
            for (near_loss, far_loss) in [(0.0, 0.0), (0.0, 0.02), (0.02, 0.0)] {
                let paths = [(near, 5.0, near_loss), (far, far_ms, far_loss)];
                for congestion in ["cubic", "bbr"] {
                    let text = with_congestion(&over(&paths), congestion);
                    let figure = |strategy: &str| messages(&text, strategy, 1).map(|rows| goodput(&rows, 3.0, 19.0));
                    let best = figure("single:a")?.max(figure("single:b")?);
                    let share = figure("tunnel")? / (best * TUNNELS[1].1 / PAYLOAD);
                    println!("{congestion} {paths:?}: {share:.2}");
                    missed.extend((share < 0.97).then_some((congestion, paths, share)));
                }
            }
        }
    }
    assert!(missed.len() <= 3 && missed.iter().all(|(.., share)| *share > 0.9), "{missed:?}");
    Ok(())
}

#[test]
fn a_single_high_delay_path_carries_most_of_its_rate_in_the_tunnel() -> Outcome {
    compare_with_the_best(&over(&[(20.0, 55.0, 0.0)]), ["single:a"], 0.8)?;
    compare_with_the_best(&over(&[(100.0, 55.0, 0.0)]), ["single:a"], 0.9)
}

/// Compares the tunnel with the best single path, corrected for the headers of the tunnel.
fn compare_with_the_best<const N: usize>(text: &str, singles: [&str; N], min: f64) -> Outcome {
    for congestion in ["cubic", "bbr"] {
        let text = &with_congestion(text, congestion);
        compare_one(text, singles, min)?;
    }
    Ok(())
}

fn compare_one<const N: usize>(text: &str, singles: [&str; N], min: f64) -> Outcome {
    let figures = singles.iter().map(|path| median(text, path)).collect::<Result<Vec<f64>, _>>()?;
    let best = figures.into_iter().fold(0.0, f64::max);
    for (strategy, payload) in TUNNELS {
        let target = best * payload / PAYLOAD;
        let figures = until_decided(text, strategy, target * min)?;
        println!("{strategy}: {figures:.1?} Mbit/s, the best single path without a tunnel {best:.1}");
        let reached = figures.iter().filter(|figure| **figure >= target * min).count();
        assert!(2 * reached > figures.len(), "{strategy}: {figures:?} of {best} Mbit/s in\n{text}");
    }
    Ok(())
}

/// Number of seeds: without random losses their figures differ by less than 3 %, mostly not at all.
fn seeds(text: &str) -> u64 {
    if text.contains("loss = 0.02") { 3 } else { 1 }
}

/// Goodput after 3 s, in Mbit/s.
fn figure(text: &str, strategy: &str, seed: u64) -> Result<f64, Box<dyn Error>> {
    messages(text, strategy, seed).map(|rows| goodput(&rows, 3.0, 19.0))
}

/// The same, the median of the seeds.
fn median(text: &str, strategy: &str) -> Result<f64, Box<dyn Error>> {
    let figures = (1..=seeds(text)).map(|seed| figure(text, strategy, seed)).collect::<Result<Vec<f64>, _>>();
    let mut figures = figures?;
    figures.sort_by(f64::total_cmp);
    Ok(figures[figures.len() / 2])
}

/// The same, of as many seeds as decide whether the median reaches the limit.
fn until_decided(text: &str, strategy: &str, limit: f64) -> Result<Vec<f64>, Box<dyn Error>> {
    let majority = seeds(text) as usize / 2 + 1;
    let mut figures = Vec::new();
    for seed in 1..=seeds(text) {
        figures.push(figure(text, strategy, seed)?);
        let reached = figures.iter().filter(|figure| **figure >= limit).count();
        if reached.max(figures.len() - reached) == majority {
            break;
        }
    }
    Ok(figures)
}

#[test]
fn datagrams_at_nine_tenths_of_the_total_rate_arrive_in_order() -> Outcome {
    for (strategy, _) in TUNNELS {
        let messages = messages(STREAM, strategy, 1)?;
        let settled: Vec<&MessageRow> = messages.iter().filter(|row| row.sent_ns >= 5_000_000_000).collect();
        let (lost, late) = faults(&settled);
        println!("{strategy}: {lost:.5} lost, {late:.5} reordered of {}", settled.len());
        assert!(settled.len() > 50_000 && lost < 0.001 && late < 0.005, "{strategy}: {lost} lost, {late} reordered");
    }
    let (lost, _) = faults(&messages(STREAM, "single", 1)?.iter().collect::<Vec<_>>());
    assert!(lost > 0.2, "no single path carries the stream: {lost} lost");
    Ok(())
}

#[test]
fn a_failed_path_is_left_within_300_ms_and_used_again_within_a_second() -> Outcome {
    let bulk = with(THROTTLED, "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20", "kind = \"bulk\"");
    let silent = with(&bulk, "trace = \"throttled.csv\"", "rate_mbit_s = 20\noutages_s = [[8, 14]]");
    for (what, text) in [("throttled", bulk), ("silent", silent)] {
        let messages = messages(&text, "tunnel", 1)?;
        let other = 20.0 * 1389.0 / 1500.0;
        let meanwhile: Vec<f64> = (0..11).map(|step| 8.3 + 0.5 * f64::from(step)).collect();
        let figures = meanwhile.iter().map(|&from_s| goodput(&messages, from_s, from_s + 0.5) / other);
        let min = figures.fold(f64::MAX, f64::min);
        let afterwards = goodput(&messages, 15.0, 19.0) / other;
        println!("{what}: at least {min:.2} of the other path meanwhile, {afterwards:.2} times it afterwards");
        assert!(min >= 0.9, "{what}: only {min} of the other path");
        assert!(afterwards >= 1.7, "{what}: afterwards only {afterwards} times one path");
        let (delay, _) = worst(&self::messages(&text.replace("kind = \"bulk\"", MESSAGES), "tunnel", 1)?);
        println!("{what}: messages wait at most {delay:.0} ms");
        assert!(delay <= 300.0, "{what}: a message waited {delay} ms");
    }
    Ok(())
}

const MESSAGES: &str = "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20";

#[test]
fn datagrams_are_not_lost_with_the_coverage() -> Outcome {
    for (text, limit_ms) in [(LEAVE, 60.0), (SUDDEN, 150.0)] {
        for strategy in ["tunnel", "tunnel-plain", "tunnel-redundant"] {
            for seed in 1..=5 {
                let (delay, lost) = worst(&messages(text, strategy, seed)?);
                println!("{strategy}, seed {seed}: worst {delay:.1} ms, {lost} lost");
                assert!(delay <= limit_ms && lost <= 2, "{strategy}, seed {seed}: {delay} ms, {lost} lost");
            }
        }
    }
    Ok(())
}

/// IP bytes of messages of 0.4 Mbit/s beyond their payload, as a share of it, in the direction of the messages;
/// and the share of all IP bytes that is on the reserve.
fn cost_of_messages(traffic: &str) -> Result<[f64; 2], Box<dyn Error>> {
    let text = with(&over(&[(10.0, 30.0, 0.0), (10.0, 20.0, 0.0)]), "kind = \"bulk\"", traffic);
    let scenario = read(&with(&text, "duration_s = 20", "duration_s = 60"))?;
    let mut strategy = scenario.strategy("tunnel").ok_or("no such strategy")?;
    strategy.parameters.insert("mode".into(), "standby".into());
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::ALL)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    let run = simulation.finish();
    let payload: u64 = run.messages.iter().map(|row| u64::from(row.size_bytes)).sum();
    let on = |paths: &[PathId]| -> f64 {
        run.packets.iter().filter(|row| paths.contains(&row.path)).map(|row| f64::from(row.ip_bytes)).sum()
    };
    let reserve = on(&[PathId(1)]) / on(&[PathId(0), PathId(1)]);
    Ok([run.sums.sent_ip_bytes[0] as f64 / payload as f64 - 1.0, reserve])
}

/// The headers are 11.1 % of the payload over TCP and 8.7 % over UDP; the rest is feedback and keepalives.
#[test]
fn messages_cost_little_more_than_their_headers_and_the_reserve_next_to_nothing() -> Outcome {
    for (traffic, most) in [(MESSAGES, 0.12), ("kind = \"stream\"\nsize_bytes = 1000\nrate_mbit_s = 0.4", 0.10)] {
        let [overhead, reserve] = cost_of_messages(traffic)?;
        println!("{traffic:?}: overhead {:.1} %, reserve {:.2} % of all bytes", overhead * 100.0, reserve * 100.0);
        assert!(overhead < most && reserve < 0.02, "{traffic:?}: {overhead}, {reserve}");
    }
    Ok(())
}

#[test]
fn copies_over_two_lossy_paths_hide_their_losses() -> Outcome {
    let alike = with(REDUNDANT, "delay_ms = 20", "delay_ms = 10");
    // The slower path determines the delay of the copy of a lost packet.
    for (text, delay_ms) in [(REDUNDANT, 20.0), (&alike, 10.0)] {
        let messages = messages(text, "tunnel-redundant", 1)?;
        let (lost, _) = faults(&messages.iter().collect::<Vec<_>>());
        let mut delays: Vec<u64> = messages.iter().filter_map(|row| Some(row.received_ns? - row.sent_ns)).collect();
        delays.sort_unstable();
        let p99_ms = delays[delays.len() * 99 / 100] as f64 / 1e6;
        println!("{:.4} of {} lost, p99 {p99_ms:.1} ms", lost, messages.len());
        assert!(messages.len() >= 20_000 && lost <= 0.004, "{lost} lost");
        assert!(p99_ms <= delay_ms + 0.8, "p99 {p99_ms} ms");
    }
    Ok(())
}

#[test]
fn without_a_tunnel_datagrams_take_the_first_path() -> Outcome {
    for (strategy, share) in [("kernel", 0.0), ("single", 0.0), ("single:a", 1.0)] {
        let run = record(&read(STREAM)?, strategy, 1, Detail::METRICS)?;
        assert_eq!(run.sums.share(PathId(0)), Some(share), "{strategy}");
        assert_eq!(run.duplicates, Some(0));
    }
    Ok(())
}

#[test]
fn the_packets_of_the_tunnel_fill_the_mtu_of_the_paths() -> Outcome {
    for (strategy, payload) in TUNNELS {
        let run = record(&read(&with(NARROW, "duration_s = 20", "duration_s = 4"))?, strategy, 1, Detail::ALL)?;
        let longest = run.packets.iter().map(|row| row.ip_bytes).max();
        assert_eq!(longest, Some(1500), "{strategy}");
        assert!(run.packets.iter().all(|row| row.payload_bytes + 28 == row.ip_bytes && row.subflow.is_none()), "UDP");
        let carried = goodput(&run.messages, 0.0, 4.0) * 4e6 / 8.0;
        let full = run.packets.iter().filter(|row| row.ip_bytes == 1500).count() as f64 * payload;
        println!("{strategy}: full packets {full:.0}, bytes read {carried:.0}");
        assert!((0.95..1.05).contains(&(full / carried)), "{strategy}: {full} bytes in full packets, {carried} read");
    }
    Ok(())
}

#[test]
fn a_datagram_that_does_not_fit_is_rejected() -> Outcome {
    let scenario = read(&with(STREAM, "size_bytes = 1200", "size_bytes = 1414"))?;
    let rejected = record(&scenario, "tunnel", 1, Detail::NONE).err().ok_or("it was accepted")?;
    assert!(rejected.to_string().contains("more than 1413 bytes do not fit"), "{rejected}");
    assert!(record(&scenario, "tunnel-plain", 1, Detail::NONE).is_ok());
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_packets_through_the_tunnel() -> Outcome {
    let digest = |text: &str, seed| -> Result<String, Box<dyn Error>> {
        let run = record(&read(text)?, "tunnel", seed, Detail::ALL)?;
        assert!(run.packets.len() > 1000 && run.messages.len() > 100);
        Ok(format!("{:?}{:?}{:?}{:?}", run.packets, run.messages, run.agent_outputs, run.liveness))
    };
    let lossy = with(REDUNDANT, "duration_s = 23", "duration_s = 5");
    for text in [LEAVE, &lossy] {
        assert!(digest(text, 7)? == digest(text, 7)?, "two runs in one process");
        assert!(digest(text, 7)? != digest(text, 8)?, "another seed");
    }
    Ok(())
}
