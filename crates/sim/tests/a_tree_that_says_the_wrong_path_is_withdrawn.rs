//! A learned tree whose order brings less than the user's is withdrawn within a minute, and one that brings more is
//! not: bulk traffic, the priority scheduler and a send buffer of 64 kB.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::time::Instant;
use crosslane_core::wanted::Order;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const DURATION_S: f64 = 60.0;
/// Two cellular links of constant rates, the first one better, with losses at random.
const STEADY: &str = "[[cellular]]\nname = \"first\"\nrat = \"nr\"\nrate_mbit_s = 24\ndelay_ms = 12\nloss = 0.001\n\
                      [[cellular]]\nname = \"second\"\nrat = \"lte\"\nrate_mbit_s = 4\ndelay_ms = 40\nloss = 0.001";
/// At rest near an access point, far from a loaded cell; the rates of both vary by more than a factor of ten within
/// seconds, and now and then the cell is better.
const FADING: &str = "[[wifi]]\nname = \"first\"\ndelay_ms = 12\n[wifi.model]\nposition_m = [0, 10]\nband = \"5\"\n\
                      [[cellular]]\nname = \"second\"\nrat = \"lte\"\ndelay_ms = 30\n\
                      [cellular.model]\ncells_m = [[900, 400]]\nshare = 0.2\nload = 0.5";

/// A minute of bulk traffic with a tree that says that one of the paths is first, and prefers the other or this one.
fn scenario(paths: &str, prefer: &str, says: &str, trials: f64) -> String {
    let (strategy, other) = (strategy(paths), if prefer == "first" { "second" } else { "first" });
    format!(
        "name = \"wrong\"\ntitle = \"A tree that always says the same\"\nduration_s = {DURATION_S}\n\
         scheduler = \"priority\"\n[vehicle]\nroute = {{ from_m = [30, 0], to_m = [31, 0], speed_kmh = 0.01 }}\n\
         {paths}\n[service]\nprefer = [\"{prefer}\", \"{other}\"]\n\
         [traffic]\nkind = \"bulk\"\nsend_buffer_bytes = 64000\n\
         [[strategy]]\nname = \"x\"\nbase = \"{strategy}\"\ntree = \"{says}.json\"\ntrials = {trials}\n"
    )
}

fn strategy(paths: &str) -> &'static str {
    if paths == STEADY { "learned" } else { "smartps" }
}

/// A tree that is sure to this degree that the first path is to be first: of `smartps` the Wi-Fi path, of `learned` the
/// one with the shorter RTT.
fn tree(paths: &str, first: f64) -> String {
    let (strategy, second) = (strategy(paths), 1.0 - first);
    format!(
        "{{\"format\": \"crosslane-tree\", \"version\": 1, \"strategy\": \"{strategy}\", \"nodes\": [{}]}}",
        match strategy {
            "smartps" => format!("{{\"a_first\": {first}}}"),
            _ => format!(
                "{{\"feature\": \"a-b.rtt_ms\", \"at_most\": 0, \"yes\": 1, \"no\": 2}}, {{\"a_first\": {first}}}, \
                 {{\"a_first\": {second}}}"
            ),
        }
    )
}

fn run(paths: &str, prefer: &str, says: &str, trials: f64, seed: u64) -> Result<Recording, Box<dyn Error>> {
    run_with([tree(paths, 1.0), tree(paths, 0.0)], paths, prefer, says, trials, seed)
}

/// With these trees for the first and for the second path.
fn run_with(
    [first, second]: [String; 2],
    paths: &str,
    prefer: &str,
    says: &str,
    trials: f64,
    seed: u64,
) -> Result<Recording, Box<dyn Error>> {
    let mut scenario = Scenario::parse(&scenario(paths, prefer, says, trials), "wrong.toml")?;
    let trees = [("first.json".to_owned(), first), ("second.json".to_owned(), second)];
    scenario.resolve(&trees.into_iter().collect())?;
    let strategy = scenario.strategy("x").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(DURATION_S));
    Ok(simulation.finish())
}

/// When the order changed, with the rule and the reason.
fn orders(run: &Recording) -> impl Iterator<Item = (f64, &'static str, String)> {
    run.agent_outputs.iter().filter_map(|(at, output)| match output {
        Output::Order { reason, .. } => Some((at.as_secs_f64(), reason.rule, reason.text())),
        _ => None,
    })
}

fn withdrawn(run: &Recording) -> Option<(f64, String)> {
    orders(run).find(|(_, rule, _)| *rule == "learned.withdrawn").map(|(at, _, text)| (at, text))
}

fn delivered_mb(run: &Recording) -> u64 {
    let delivered = run.messages.iter().filter(|message| message.received_ns.is_some());
    delivered.map(|message| u64::from(message.size_bytes)).sum::<u64>() / 1_000_000
}

/// Number of seeds of which the tree that says the wrong path is withdrawn.
fn withdrawals(paths: &str, seeds: u64) -> Result<usize, Box<dyn Error>> {
    let mut count = 0;
    for seed in 1..=seeds {
        let with = run(paths, "first", "second", 0.02, seed)?;
        let without = run(paths, "first", "second", 0.0, seed)?;
        let user = run(paths, "first", "first", 0.02, seed)?;
        let [with_mb, without_mb, user_mb] = [&with, &without, &user].map(delivered_mb);
        let found = withdrawn(&with);
        println!("seed {seed}: {with_mb} MB, without trials {without_mb}, by the user's order {user_mb}: {found:?}");
        assert_eq!(withdrawn(&without), None, "without trials nothing is withdrawn");
        assert!(
            orders(&user).all(|(_, rule, _)| rule != "learned.trial"),
            "nothing is compared where the tree agrees with the user"
        );
        if let Some((at, text)) = found {
            assert!(
                text.starts_with("the tree is withdrawn, since in ") && text.ends_with(" times as much as the tree's")
            );
            // Where the user's order does not bring more, the tree is not wrong. A late withdrawal only pays for the trials, one
            // in the last quarter not even for these.
            let is_last = at > 0.75 * DURATION_S;
            assert!(with_mb >= without_mb || user_mb <= without_mb || is_last, "seed {seed}");
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn a_tree_that_always_says_the_wrong_path_is_withdrawn_within_a_minute() -> Result<(), Box<dyn Error>> {
    assert_eq!(withdrawals(STEADY, 20)?, 20);
    Ok(())
}

#[test]
fn where_paths_fade_within_seconds_most_wrong_trees_are_withdrawn_within_a_minute() -> Result<(), Box<dyn Error>> {
    let count = withdrawals(FADING, 20)?;
    println!("{count} of 20");
    assert!(count > 10, "{count} of 20");
    Ok(())
}

/// The user prefers the wrong path too, so that only the comparison with the scheduler's own choice can show it.
#[test]
fn a_tree_whose_fallback_is_no_order_is_withdrawn_if_it_brings_less_than_the_scheduler_itself()
-> Result<(), Box<dyn Error>> {
    let with_fallback = |first| tree(STEADY, first).replace("\"nodes\"", "\"fallback\": \"no-order\", \"nodes\"");
    for seed in 1..=10 {
        let trees = || [1.0, 0.0].map(with_fallback);
        let with = run_with(trees(), STEADY, "second", "second", 0.02, seed)?;
        let without = run_with(trees(), STEADY, "second", "second", 0.0, seed)?;
        let (at, text) = withdrawn(&with).ok_or("not withdrawn")?;
        println!("seed {seed}: after {at} s, {} MB, without trials {}", delivered_mb(&with), delivered_mb(&without));
        assert!(text.contains("trials the packet scheduler's own choice delivered"), "{text}");
        let last = with.agent_outputs.iter().rev().find_map(|(_, output)| match output {
            Output::Order { order, .. } => Some(order),
            _ => None,
        });
        assert!(last == Some(&Order::Free) && delivered_mb(&with) > delivered_mb(&without), "seed {seed}: {last:?}");
    }
    Ok(())
}

/// A new tree is judged at a level of 5 %, so over paths that fade chance withdraws some: one of 80 here.
#[test]
fn a_good_tree_is_not_withdrawn() -> Result<(), Box<dyn Error>> {
    for (paths, seeds, by_chance) in [(STEADY, 20, 0), (FADING, 80, 1)] {
        let mut count = 0;
        for seed in 1..=seeds {
            let run = run(paths, "second", "first", 0.02, seed)?;
            let trials = orders(&run).filter(|(_, rule, _)| *rule == "learned.trial").count();
            let found = withdrawn(&run);
            println!("seed {seed}: {trials} trials, {} MB: {found:?}", delivered_mb(&run));
            assert!((1..=10).contains(&trials), "seed {seed}: {trials}");
            count += usize::from(found.is_some());
        }
        assert!(count <= by_chance, "{count} of {seeds}");
    }
    Ok(())
}
