//! How wrong the labels are that come about on board, where the order that is not in force is tried in adjacent windows:
//! compared with those of the simulator, which runs both orders with the same seed. And what the trials cost.
//! `CROSSLANE_SEEDS=10` makes the figures of decision 91.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::allocate::learned::trial::{Label, Trial};
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const DURATION_S: f64 = 300.0;
/// Windows over which the orders are compared, as a trial does.
const COUNTED: usize = 4;

/// A vehicle at this speed between an access point and a cell, with bulk traffic.
fn scenario(place: &Place, tree: &str, more: &str) -> String {
    let Place { from_m, speed_kmh, share, load, buffer_bytes, .. } = *place;
    let to_m = from_m + speed_kmh / 3.6 * DURATION_S + 1.0;
    format!(
        "name = \"labels\"\ntitle = \"Trials beside exact labels\"\nduration_s = {DURATION_S}\nscheduler = \"priority\"\n\
         [vehicle]\nroute = {{ from_m = [{from_m}, 0], to_m = [{to_m}, 0], speed_kmh = {} }}\n\
         [[wifi]]\nname = \"wifi\"\ndelay_ms = 8\n[wifi.model]\nposition_m = [0, 10]\nband = \"5\"\n\
         [[cellular]]\nname = \"cell\"\nrat = \"lte\"\ndelay_ms = 25\n\
         [cellular.model]\ncells_m = [[200, 300]]\nshare = {share}\nload = {load}\n\
         [service]\nprefer = [\"wifi\", \"cell\"]\n[traffic]\nkind = \"bulk\"\nsend_buffer_bytes = {buffer_bytes}\n\
         [[strategy]]\nname = \"x\"\nbase = \"smartps\"\ntree = \"{tree}\"\n{more}\n",
        speed_kmh.max(0.01)
    )
}

struct Place {
    name: &'static str,
    from_m: f64,
    speed_kmh: f64,
    share: f64,
    load: f64,
    buffer_bytes: u32,
}

const fn place(name: &'static str, from_m: f64, speed_kmh: f64, share: f64, load: f64, buffer_bytes: u32) -> Place {
    Place { name, from_m, speed_kmh, share, load, buffer_bytes }
}

const PLACES: [Place; 6] = [
    place("at rest near the access point, 64 kB", 30.0, 0.0, 0.2, 0.5, 64_000),
    place("at rest far from it, 64 kB", 70.0, 0.0, 0.3, 0.4, 64_000),
    place("walking past it, 64 kB", -150.0, 4.0, 0.3, 0.4, 64_000),
    place("walking past it, autotuning", -150.0, 4.0, 0.3, 0.4, 0),
    place("at 10 km/h past it, 64 kB", -400.0, 10.0, 0.3, 0.4, 64_000),
    place("at 10 km/h past it, autotuning", -400.0, 10.0, 0.3, 0.4, 0),
];

fn run(place: &Place, tree: &str, more: &str, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let mut scenario = Scenario::parse(&scenario(place, tree, more), "labels.toml")?;
    let says = |a_first: f64| {
        format!(
            "{{\"format\": \"crosslane-tree\", \"version\": 1, \"strategy\": \"smartps\", \"nodes\": [{{\"a_first\": {a_first}}}]}}"
        )
    };
    let trees = [("wifi.json", 1.0), ("cell.json", 0.0)].map(|(name, a_first)| (name.to_owned(), says(a_first)));
    scenario.resolve(&trees.into_iter().collect())?;
    let strategy = scenario.strategy("x").ok_or("no such strategy")?;
    let detail = Detail { windows: true, ..Detail::METRICS };
    let mut simulation = Simulation::new(&scenario, &strategy, seed, detail)?;
    simulation.run_until(Instant::from_secs_f64(DURATION_S));
    Ok(simulation.finish())
}

fn trials(run: &Recording) -> impl Iterator<Item = (Instant, &Trial)> {
    run.agent_outputs.iter().filter_map(|(at, output)| match output {
        Output::Trial(trial) => Some((*at, trial)),
        _ => None,
    })
}

/// What was delivered, in Mbit/s, and the mean RTT of that, in the windows from a time on.
fn brought(run: &Recording, from_ns: u64) -> Option<[f32; 2]> {
    let mut rows = run.windows.iter().filter(|row| row.t_ns > from_ns);
    let (mut mbit, mut weighted, mut ends) = (0.0, 0.0, Vec::new());
    while ends.len() <= COUNTED {
        let row = rows.next()?;
        if !ends.contains(&row.t_ns) {
            ends.push(row.t_ns);
        }
        if ends.len() <= COUNTED {
            let [rtt_ms, mbit_s] = [5, 8].map(|place: usize| row.values[place]);
            if !rtt_ms.is_nan() && !mbit_s.is_nan() {
                mbit += mbit_s;
                weighted += mbit_s * rtt_ms;
            }
        }
    }
    Some([mbit / COUNTED as f32, weighted / mbit])
}

/// The label of the second from a time on, by both orders run with the same seed.
fn exact(wifi: &Recording, cell: &Recording, from_ns: u64) -> Option<Label> {
    let [with_wifi, with_cell] = [brought(wifi, from_ns)?, brought(cell, from_ns)?];
    let trial = Trial {
        paths: [PathId(0), PathId(1)],
        values: [[0.0; 9]; 2],
        was_a_first: true,
        is_a_preferred: true,
        goodput_mbit_s: [with_wifi[0], with_cell[0]],
        delay_ms: [with_wifi[1], with_cell[1]],
    };
    trial.label()
}

fn delivered(run: &Recording) -> f64 {
    let delivered = run.messages.iter().filter(|message| message.received_ns.is_some());
    delivered.map(|message| f64::from(message.size_bytes)).sum()
}

/// Labels of trials beside exact ones.
#[derive(Debug, Default)]
struct Sums {
    trials: f64,
    /// Those of which both have a label.
    labelled: f64,
    wrong: f64,
    /// By how much the better order is better in all of these, and in those that are wrong.
    stake: f64,
    lost: f64,
    /// Bytes delivered with swaps and without any trial, with the tree that agrees with the user.
    delivered: [f64; 2],
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.trials += other.trials;
        self.labelled += other.labelled;
        self.wrong += other.wrong;
        self.stake += other.stake;
        self.lost += other.lost;
        self.delivered.iter_mut().zip(other.delivered).for_each(|(sum, bytes)| *sum += bytes);
    }

    fn print(&self, name: &str) {
        let percent = |part: f64, whole: f64| 100.0 * part / whole;
        println!(
            "{name}: {} trials, {} with both labels, {:.1} % wrong, {:.1} % of the stake; swaps cost {:.1} % of the goodput",
            self.trials,
            self.labelled,
            percent(self.wrong, self.labelled),
            percent(self.lost, self.stake),
            100.0 - percent(self.delivered[0], self.delivered[1])
        );
    }
}

/// Compares the labels, with a tree that puts either path first.
fn compare(place: &Place, seeds: u64) -> Result<Sums, Box<dyn Error>> {
    let mut sums = Sums::default();
    for seed in 1..=seeds {
        let wifi = run(place, "wifi.json", "trials = 0", seed)?;
        let cell = run(place, "cell.json", "trials = 0", seed)?;
        for tree in ["wifi.json", "cell.json"] {
            let tried = run(place, tree, "store = \"x\"", seed)?;
            if tree == "wifi.json" {
                sums.delivered[0] += delivered(&tried);
                sums.delivered[1] += delivered(&wifi);
            }
            for (at, trial) in trials(&tried) {
                sums.trials += 1.0;
                // The trial was in the middle: as many windows counted after it.
                let from_ns = at.as_nanos().saturating_sub(2 * COUNTED as u64 * 250_000_000);
                let (Some(ours), Some(exact)) = (trial.label(), exact(&wifi, &cell, from_ns)) else { continue };
                sums.labelled += 1.0;
                sums.stake += f64::from(exact.stake);
                if ours.a_first != exact.a_first {
                    sums.wrong += 1.0;
                    sums.lost += f64::from(exact.stake);
                }
            }
        }
    }
    Ok(sums)
}

#[test]
fn most_labels_of_trials_are_those_of_both_orders_with_the_same_seed() -> Result<(), Box<dyn Error>> {
    let seeds = std::env::var("CROSSLANE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    let mut sums = Sums::default();
    for place in &PLACES {
        let found = compare(place, seeds)?;
        found.print(place.name);
        sums.add(&found);
    }
    sums.print("all");
    assert!(sums.labelled > 20.0 && sums.wrong < 0.4 * sums.labelled, "{sums:?}");
    Ok(())
}
