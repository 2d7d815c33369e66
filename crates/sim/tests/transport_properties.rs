//! Properties of the transport model under any behaviour of links, path managers
//! and writers. `pair::watch` checks the segments.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Congestion;
use crosslane_sim::transport::scheduler::Scheduler;
use proptest::prelude::*;

/// Duration of the disturbances, in ms; then everything works.
const DISTURBED_MS: u64 = 8_000;
/// Time by which all data has arrived, in ms: a timeout may have grown during the
/// disturbances to four times its length, and each of the few subflows may wait for
/// it in turn.
const END_MS: u64 = DISTURBED_MS * 9;

const ALGORITHMS: [Congestion; 5] =
    [Congestion::Reno, Congestion::Cubic, Congestion::Lia, Congestion::Olia, Congestion::Bbr];
const SCHEDULERS: [Scheduler; 4] = [Scheduler::Default, Scheduler::MinRtt, Scheduler::RoundRobin, Scheduler::Priority];

fn test_path(max_loss: f64) -> impl Strategy<Value = TestPath> {
    (0.2f64..50.0, 0u64..200, 0.0..max_loss, 3_000u32..300_000, prop_oneof![Just(0u64), 1u64..30]).prop_map(
        |(mbit_s, delay_ms, loss, queue_bytes, jitter_ms)| TestPath { mbit_s, delay_ms, loss, queue_bytes, jitter_ms },
    )
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        (1u64..20_000, 5u64..200).prop_map(|(bytes, every_ms)| Source::Messages { bytes, every_ms }),
        Just(Source::Bulk),
    ]
}

/// Any action of a path manager at any time.
fn command(paths: u8) -> impl Strategy<Value = (u64, Action)> {
    let action = (0u8..4, 0..paths, any::<bool>()).prop_map(|(kind, path, flag)| match kind {
        0 | 1 => Action::Create { path, backup: flag },
        2 => Action::Destroy { path },
        _ => Action::Flag { path, backup: flag },
    });
    (0..DISTURBED_MS, action)
}

fn outage(paths: u8) -> impl Strategy<Value = (u64, Action)> {
    (0..DISTURBED_MS, 0..paths, any::<bool>()).prop_map(|(ms, path, on)| (ms, Action::Carry { path, on }))
}

prop_compose! {
    fn disturbances(max_loss: f64, outages: usize)(paths in 1u8..=3)(
        test_paths in prop::collection::vec(test_path(max_loss), usize::from(paths)),
        source in source(),
        algorithm in prop::sample::select(&ALGORITHMS[..]),
        scheduler in prop::sample::select(&SCHEDULERS[..]),
        plain in 0u8..8,
        send_buffer_bytes in prop::sample::select(vec![0, 0, 4_608, 32_768, 262_144]),
        stale_loss_count in 0u32..9,
        seed in any::<u64>(),
        mut plan in prop::collection::vec(command(paths), 0..12),
        outages in prop::collection::vec(outage(paths), 0..=outages),
    ) -> (Setup, Vec<(u64, Action)>) {
        let protocol = if plain == 0 { Protocol::Tcp } else { Protocol::Mptcp };
        let plain = Setup::new(&test_paths, source);
        let setup = Setup { protocol, algorithm, scheduler, send_buffer_bytes, stale_loss_count, seed, ..plain };
        plan.extend(outages);
        plan.push((DISTURBED_MS, Action::Write { on: false }));
        plan.push((DISTURBED_MS, Action::Restore { mbit_s: 4.0 }));
        (setup, plan)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_delivered_once_and_in_order((setup, plan) in disturbances(0.2, 6)) {
        let mut pair = Pair::new(setup, &plan);
        pair.run_until_ms(END_MS);
        prop_assert_eq!(pair.server.delivered(), pair.written());
        prop_assert_eq!(pair.client.outstanding(), 0);
    }

    #[test]
    fn a_backup_sends_no_new_data_while_a_subflow_is_active((setup, plan) in disturbances(0.01, 0)) {
        let mut pair = Pair::new(Setup { stale_loss_count: 0, ..setup }, &plan);
        pair.watch.backups = true;
        pair.run_until_ms(DISTURBED_MS);
    }
}

#[test]
fn the_same_seed_gives_the_same_segments() {
    let run = |seed| {
        let test_paths =
            [TestPath { loss: 0.02, ..TestPath::new(8.0, 20) }, TestPath { loss: 0.01, ..TestPath::new(20.0, 25) }];
        let plan = [(100, Action::Create { path: 1, backup: false }), (900, Action::Carry { path: 0, on: false })];
        let mut pair = Pair::new(Setup { seed, ..Setup::new(&test_paths, Source::Bulk) }, &plan);
        pair.run_until_ms(3000);
        format!("{:?}", pair.carried)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
