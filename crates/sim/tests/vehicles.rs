//! Many vehicles in one run: each gets the result of a single vehicle except for
//! the shared airtime, and the results do not depend on order and threads.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

use crosslane_core::time::Instant;
use crosslane_sim::fleet::{Fleet, Outcome, table};
use crosslane_sim::scenario::{Scenario, Strategy};

/// Nearly parked vehicles around one RSU, with LTE; `traffic` is appended.
fn square(vehicles: u32, lte_mbit_s: f64, traffic: &str) -> Result<(Scenario, Strategy), Box<dyn Error>> {
    let text = format!(
        "name = \"square\"\nduration_s = 12\n[vehicle]\nmobility = \"way.csv\"\n\
         [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\nrate_mbit_s = 6\npath_loss = \"manhattan\"\nfading = 3\n\
         [[roadside_unit]]\nname = \"rsu1\"\nradio = \"its-g5\"\nposition_m = [0, 0]\n\
         [[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = {lte_mbit_s}\ndelay_ms = 25\n\
         [service]\nprefer = [\"its-g5\", \"lte\"]\n{traffic}"
    );
    let mut tracks = String::from("t_s,vehicle,x_m,y_m\n");
    for vehicle in 0..vehicles {
        writeln!(tracks, "0,{vehicle},{},3\n12,{vehicle},{},3", 20 + vehicle, 21 + vehicle)?;
    }
    let mut scenario = Scenario::parse(&text, "square.toml")?;
    scenario.resolve(&BTreeMap::from([("way.csv".into(), tracks)]))?;
    let strategy = scenario.strategy("threshold").ok_or("no threshold")?;
    Ok((scenario, strategy))
}

const BULK: &str = "[fleet]\n[traffic]\nkind = \"bulk\"\nover = \"its-g5\"\n";
const MESSAGES: &str = "[fleet]\nrate_mbit_s = [0.05, 0.5]\n\
                        [traffic]\nkind = \"messages\"\nsize_bytes = 500\nevery_ms = 20\nover = \"lte\"\n";

fn run(scenario: &Scenario, strategy: &Strategy) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let mut fleet = Fleet::new(scenario, strategy, 1)?;
    fleet.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(fleet.finish())
}

fn bytes(outcomes: &[Outcome], path: usize) -> Vec<f64> {
    outcomes.iter().map(|outcome| outcome.path_bytes[path] as f64).collect()
}

#[test]
fn saturated_vehicles_share_the_rate_of_a_single_one() -> Result<(), Box<dyn Error>> {
    let carried = |vehicles: u32| -> Result<Vec<f64>, Box<dyn Error>> {
        let (scenario, strategy) = square(vehicles, 1.0, BULK)?;
        Ok(bytes(&run(&scenario, &strategy)?, 0))
    };
    let single = carried(1)?[0];
    assert!(single > 4e6, "{single}");
    for vehicles in [2, 5] {
        let each = carried(vehicles)?;
        let (sum, fair) = (each.iter().sum::<f64>(), single / f64::from(vehicles));
        assert!((0.75..1.1).contains(&(sum / single)), "{vehicles}: {sum} of {single}");
        assert!(each.iter().all(|outcome| (0.5..1.6).contains(&(outcome / fair))), "{vehicles}: {each:?}, not {fair}");
    }
    Ok(())
}

#[test]
fn vehicles_with_little_traffic_do_not_affect_each_other() -> Result<(), Box<dyn Error>> {
    let (scenario, strategy) = square(4, 10.0, MESSAGES)?;
    for outcome in run(&scenario, &strategy)? {
        assert!(outcome.messages > 100 && outcome.lost == 0, "{outcome:?}");
        assert!(outcome.delays.longest().as_secs_f64() < 0.2, "{:?}", outcome.delays.longest());
    }
    Ok(())
}

#[test]
fn rates_are_drawn_for_each_vehicle_within_the_range() -> Result<(), Box<dyn Error>> {
    let (scenario, strategy) = square(12, 10.0, MESSAGES)?;
    let mut rates: Vec<f64> =
        run(&scenario, &strategy)?.iter().map(|outcome| outcome.messages as f64 * 500.0 * 8e-6 / 10.0).collect();
    rates.sort_by(f64::total_cmp);
    assert!(rates[0] > 0.045 && rates[11] < 0.51 && rates[11] > 2.0 * rates[0], "{rates:?}");
    Ok(())
}

#[test]
fn results_do_not_depend_on_the_order_and_threads_of_the_vehicles() -> Result<(), Box<dyn Error>> {
    let (scenario, strategy) = square(6, 2.0, BULK)?;
    let names = ["its-g5".to_string(), "lte".to_string()];
    let expected = table(&run(&scenario, &strategy)?, &names);
    let mut fleet = Fleet::new(&scenario, &strategy, 1)?;
    while let Some(next) = fleet.next() {
        std::thread::scope(|scope| {
            for part in fleet.vehicles().rchunks_mut(2) {
                scope.spawn(move || part.iter_mut().rev().for_each(|vehicle| vehicle.run_until(next)));
            }
        });
        fleet.share_airtime();
    }
    assert_eq!(table(&fleet.finish(), &names), expected);
    Ok(())
}

#[test]
fn a_vehicle_is_present_from_its_first_point_to_its_last() -> Result<(), Box<dyn Error>> {
    let (mut scenario, strategy) = square(2, 10.0, MESSAGES)?;
    let tracks = "t_s,vehicle,x_m,y_m\n3,0,20,3\n8,0,30,3\n0,1,20,3\n12,1,30,3\n";
    scenario.resolve(&BTreeMap::from([("way.csv".into(), tracks.into())]))?;
    let outcomes = run(&scenario, &strategy)?;
    assert_eq!(outcomes[0].here, [Instant::from_millis(3000), Instant::from_millis(8000)]);
    assert_eq!(outcomes[1].here, [Instant::ZERO, Instant::from_millis(12_000)]);
    let rate = |outcome: &Outcome, s: f64| outcome.messages as f64 / s;
    assert!(rate(&outcomes[0], 4.0) > 5.0 && outcomes[0].lost == 0, "{:?}", outcomes[0]);
    Ok(())
}
