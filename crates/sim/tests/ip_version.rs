//! With IPv6 each packet of a path is 20 bytes longer, and nothing else differs.

use std::error::Error;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::{Engine, Scenario};
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const SCENARIO: &str = "name = 'paths'\nduration_s = 4\nip_version = 4\n\
     [vehicle]\nroute = { from_m = [0, 0], to_m = [100, 0], speed_kmh = 36 }\n\
     [[cellular]]\nname = 'lte'\nrat = 'lte'\nrate_mbit_s = 10\ndelay_ms = 25\n\
     [[cellular]]\nname = 'nr'\nrat = 'nr'\nrate_mbit_s = 10\ndelay_ms = 20\n\
     [traffic]\nkind = 'messages'\nsize_bytes = 1000\nevery_ms = 20\n";

type Outcome = Result<(), Box<dyn Error>>;

fn record(text: &str, strategy: &str) -> Result<Recording, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail { packets: true, ..Detail::METRICS })?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

#[test]
fn each_packet_is_20_bytes_longer_and_carries_the_same() -> Outcome {
    let v6 = SCENARIO.replace("ip_version = 4", "ip_version = 6");
    for strategy in ["kernel", "threshold", "tunnel"] {
        let (old, new) = (record(SCENARIO, strategy)?, record(&v6, strategy)?);
        assert_eq!(old.messages.len(), new.messages.len(), "{strategy}");
        let longest = |recording: &Recording| recording.packets.iter().map(|row| row.ip_bytes).max();
        assert_eq!(longest(&old).map(|bytes| bytes + 20), longest(&new), "{strategy}");
        let shortest = |recording: &Recording| recording.packets.iter().map(|row| row.ip_bytes).min();
        assert_eq!(shortest(&old).map(|bytes| bytes + 20), shortest(&new), "{strategy}");
        let payload = |recording: &Recording| recording.sums.delivered_payload_bytes.iter().sum::<u64>();
        assert!(payload(&old).abs_diff(payload(&new)) <= 3000, "{strategy}: {} {}", payload(&old), payload(&new));
    }
    Ok(())
}

#[test]
fn a_full_segment_fills_the_mtu() -> Outcome {
    let bulk = SCENARIO.replace("kind = 'messages'\nsize_bytes = 1000\nevery_ms = 20", "kind = 'bulk'");
    for text in [&bulk, &bulk.replace("ip_version = 4", "ip_version = 6")] {
        for strategy in ["kernel", "tunnel"] {
            let longest = record(text, strategy)?.packets.iter().map(|row| row.ip_bytes).max();
            assert_eq!(longest, Some(1500), "{strategy}");
        }
    }
    Ok(())
}

#[test]
fn what_has_ipv4_only_is_refused_in_one_sentence() -> Outcome {
    let scenario = Scenario::parse(&SCENARIO.replace("ip_version = 4", "ip_version = 6"), "test.toml")?;
    let vxlan = scenario.strategy("vxlan").ok_or("no such strategy")?;
    let error = scenario.check_strategy(Engine::Kernel, &vxlan).unwrap_err().to_string();
    let expected = "strategy `vxlan` is driven over IPv4 only; write 4, or choose another strategy";
    assert!(error.ends_with(expected), "{error}");
    let datagrams = SCENARIO.replace("size_bytes = 1000", "size_bytes = 1460\nprotocol = 'udp'");
    Scenario::parse(&datagrams, "test.toml")?;
    let longer = Scenario::parse(&datagrams.replace("ip_version = 4", "ip_version = 6"), "test.toml");
    let error = longer.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("a datagram of 1460 bytes is outside 24 to 1452"), "{error}");
    Ok(())
}
