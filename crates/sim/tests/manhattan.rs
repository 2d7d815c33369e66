//! The grid city: coverage of its RSUs, and capacity for an oracle.

use std::collections::BTreeMap;
use std::error::Error;

use crosslane_sim::bounds::oracle::Foresight;
use crosslane_sim::scenario::{OracleParams, Scenario};
use crosslane_sim::world::World;

const TRACKS: &str = include_str!("../../../data/manhattan.csv");
const DENSITIES: [(usize, &str); 3] = [
    (4, include_str!("../../../scenarios/manhattan-4.toml")),
    (8, include_str!("../../../scenarios/manhattan.toml")),
    (16, include_str!("../../../scenarios/manhattan-16.toml")),
];

fn read(text: &str) -> Result<Scenario, Box<dyn Error>> {
    let mut scenario = Scenario::parse(text, "manhattan.toml")?;
    scenario.resolve(&BTreeMap::from([("../data/manhattan.csv".into(), TRACKS.into())]))?;
    Ok(scenario)
}

#[test]
fn more_rsus_carry_more_and_lte_is_always_usable() -> Result<(), Box<dyn Error>> {
    let mut before = 0.0;
    for (units, text) in DENSITIES {
        let scenario = read(text)?;
        assert_eq!(scenario.units.len(), units);
        let foresight = Foresight::new(World::new(&scenario, 1)?, &scenario, OracleParams::default());
        let [its_g5, lte] = foresight.bytes()[..] else { return Err("two paths".into()) };
        let share = its_g5 / (5.1e6 / 8.0 * 1798.0);
        println!("{units} units: {its_g5:.0} bytes over its-g5, {:.0} % of a link without interruption", share * 100.0);
        assert!(its_g5 > before + 20e6, "{its_g5} after {before}");
        assert!((0.1..0.95).contains(&share), "{share}");
        assert!((lte / (10e6 / 8.0 * 1798.0) - 1.0).abs() < 1e-3, "{lte}");
        before = its_g5;
    }
    Ok(())
}
