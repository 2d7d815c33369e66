//! Effects of a cellular link in a scenario: gaps of handovers, a policer, jitter that reorders, steps of the delay.

use std::collections::BTreeMap;
use std::error::Error;

use crosslane_core::link::{Bottleneck, Direction, DirectionParams, DropReason, Link, PacketId};
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::scenario::{Engine, Scenario};
use crosslane_sim::world::{World, WorldEvent};

/// A drive of 10 minutes at 108 km/h over one link with these keys.
fn scenario(keys: &str) -> String {
    format!(
        "name = 'effects'\nduration_s = 600\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [18000, 0], speed_kmh = 108 }}\n\
         [[cellular]]\nname = 'lte'\nrat = 'lte'\nrate_mbit_s = 10\ndelay_ms = 25\n{keys}\n\
         [traffic]\nkind = 'messages'\nsize_bytes = 1000\nevery_ms = 20\n"
    )
}

/// Parameters of the uplink, each with the time from which they apply.
type Changes = Vec<(Instant, DirectionParams)>;

/// The parameters of the uplink over time, and the link.
fn world(keys: &str) -> Result<(Changes, Link), Box<dyn Error>> {
    let mut scenario = Scenario::parse(&scenario(keys), "effects.toml")?;
    scenario.resolve(&BTreeMap::new())?;
    let mut world = World::new(&scenario, 1)?;
    let (mut links, _) = world.links(&scenario, 1);
    world.set_truth_period(None);
    let mut changes = Changes::new();
    while let Some(now) = world.next_wakeup() {
        while let Some(event) = world.poll(now) {
            if let WorldEvent::LinkParams { direction: Direction::Up, params, .. } = event {
                changes.push((now, params));
            }
        }
    }
    Ok((changes, links.remove(0)))
}

fn is_closed((_, params): &(Instant, DirectionParams)) -> bool {
    params.bottleneck == Bottleneck::Rate { bit_s: 0.0 }
}

#[test]
fn handovers_close_the_link_for_tens_of_ms_a_few_times_a_minute() -> Result<(), Box<dyn Error>> {
    let (changes, _) = world("handovers = 'nsa-low'")?;
    assert_eq!(changes.iter().filter(|change| is_closed(change)).count() * 2, changes.len());
    let gaps_ms: Vec<f64> = changes.chunks(2).map(|pair| pair[1].0.since(pair[0].0).as_secs_f64() * 1000.0).collect();
    assert!((15..40).contains(&gaps_ms.len()), "{} handovers in 10 minutes", gaps_ms.len());
    assert!(gaps_ms.iter().all(|ms| (20.0..=110.0).contains(ms)), "{gaps_ms:?}");
    Ok(())
}

#[test]
fn the_delay_steps_every_period() -> Result<(), Box<dyn Error>> {
    let (changes, _) = world("delay_steps = { period_s = 15, most_ms = 30 }")?;
    assert!((38..=40).contains(&changes.len()), "{} steps", changes.len());
    for (_, params) in changes {
        assert!((25..=55).contains(&params.delay.as_millis()), "{:?}", params.delay);
    }
    Ok(())
}

#[test]
fn a_used_up_volume_leaves_its_rate() -> Result<(), Box<dyn Error>> {
    let (_, mut link) = world("policer = { after_mb = 1, rate_mbit_s = 0.064 }")?;
    let mut passed = 0;
    for packet in 0..6000 {
        match link.send(Instant::from_millis(10 * packet), Direction::Up, PacketId(packet), 1000) {
            Ok(()) => passed += 1,
            Err(reason) => assert_eq!(reason, DropReason::Policer),
        }
    }
    // 1 MB, 20 kB of the bucket, and 50 s of 64 kbit/s.
    assert!((1415..=1425).contains(&passed), "{passed}");
    Ok(())
}

#[test]
fn jitter_lets_packets_overtake_others() -> Result<(), Box<dyn Error>> {
    let (_, mut link) = world("jitter = { most_ms = 50, share = 0.2 }")?;
    let mut order = Vec::new();
    for packet in 0..1000 {
        let now = Instant::from_millis(5 * packet);
        link.send(now, Direction::Up, PacketId(packet), 1000).map_err(|reason| reason.to_string())?;
        order.extend(std::iter::from_fn(|| link.poll(now)).map(|exit| exit.packet));
    }
    order.extend(
        std::iter::from_fn(|| link.poll(Instant::ZERO + Duration::from_secs_f64(60.0))).map(|exit| exit.packet),
    );
    let overtaken = order.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(order.len() == 1000 && overtaken > 80, "{overtaken} of {}", order.len());
    Ok(())
}

#[test]
fn a_middlebox_is_emulated_and_not_simulated() -> Result<(), Box<dyn Error>> {
    let text = scenario("middlebox = 'drops-mp-join'");
    let mut scenario = Scenario::parse(&text, "effects.toml")?;
    scenario.resolve(&BTreeMap::new())?;
    scenario.check_engine(Engine::Kernel)?;
    let sentence = scenario.check_engine(Engine::Simulator).err().map(|error| error.to_string());
    let expected = "while reading effects.toml, line 5: the simulator cannot run the `middlebox` of `lte`: its MPTCP has no \
                    fallback to TCP; use `crosslane drive`, or remove the key";
    assert_eq!(sentence.as_deref(), Some(expected));
    // A SYN with MP_JOIN over IPv4.
    let mut syn = vec![0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 2, 10, 255, 0, 1];
    syn.extend([0x10, 0, 0x23, 0x28, 0, 0, 0, 1, 0, 0, 0, 0, 8 << 4, 2, 0xff, 0xff, 0, 0, 0, 0]);
    syn.extend([30, 12, 0x10, 5, 1, 2, 3, 4, 9, 8, 7, 6]);
    let (_, link) = world("middlebox = 'drops-mp-join'")?;
    assert_eq!(link.pass_middlebox(&mut syn.clone()), Err(DropReason::Middlebox));
    assert_eq!(world("")?.1.pass_middlebox(&mut syn), Ok(()));
    Ok(())
}

#[test]
fn without_their_keys_nothing_changes() -> Result<(), Box<dyn Error>> {
    assert!(world("")?.0.is_empty());
    Ok(())
}

#[test]
fn a_fault_in_an_effect_is_one_sentence_with_its_line() {
    let table = [
        (
            "middlebox = 'strips'",
            "line 10: `middlebox`: `strips` is no middlebox; choose one of strips-mp-capable, strips-mp-join, strips-mptcp, \
             drops-mp-capable, drops-mp-join",
        ),
        (
            "handovers = 'gsm'",
            "line 10: `handovers`: `gsm` is no network of handovers; choose one of lte, nsa-low, nsa-mid, sa-low",
        ),
        ("policer = { after_mb = 1 }", "line 10: `policer`: `rate_mbit_s` is missing; add it"),
        ("policer = { rate_mbit_s = 0 }", "line 10: `rate_mbit_s`: 0 is not above 0 and up to 100000; choose"),
        ("jitter = { most_ms = 5, share = 2 }", "line 10: `share`: 2 is outside 0 to 1; choose"),
        ("jitter = { ms = 5 }", "line 10: unknown key `ms`"),
        (
            "delay_steps = { period_s = 0.001, most_ms = 5 }",
            "line 10: `period_s`: 0.001 is outside 0.01 to 7200; choose",
        ),
    ];
    for (keys, expected) in table {
        let error = Scenario::parse(&scenario(keys), "effects.toml").map(|_| ()).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{keys}: {error:?}");
    }
}
