//! The shipped scenarios are valid, and their expectations are feasible.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use crosslane_sim::bounds::feasibility;
use crosslane_sim::scenario::Scenario;

fn shipped(below: &str) -> Result<Vec<Scenario>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(below);
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let name = path.to_string_lossy();
            let mut scenario = Scenario::parse(&fs::read_to_string(&path)?, &name)?;
            let mut contents = BTreeMap::new();
            for file in scenario.files() {
                contents.insert(file.name, fs::read_to_string(folder.join(file.path))?);
            }
            scenario.resolve(&contents)?;
            scenarios.push(scenario);
        }
    }
    Ok(scenarios)
}

#[test]
fn the_cases_of_the_thesis_on_mp_dpa_are_valid_with_their_traces() -> Result<(), Box<dyn Error>> {
    let cases = shipped("nota")?;
    assert_eq!(cases.len(), 10);
    assert!(cases.iter().all(|case| case.paths().len() == 2));
    Ok(())
}

#[test]
fn the_scenarios_of_the_tunnel_are_valid_and_short() -> Result<(), Box<dyn Error>> {
    let scenarios = shipped("tunnel")?;
    assert_eq!(scenarios.len(), 12);
    for scenario in scenarios {
        assert!(scenario.paths().len() == 2 && scenario.duration_s <= 40.0, "{}", scenario.name);
        for proof in feasibility::prove(&scenario, &[1, 2, 3, 4, 5])? {
            assert!(proof.ok, "{}: {}", scenario.name, proof.text);
        }
    }
    Ok(())
}

#[test]
fn every_shipped_scenario_is_valid_and_proves_its_crossings_without_a_warning() -> Result<(), Box<dyn Error>> {
    let scenarios = shipped("")?;
    assert!(scenarios.len() >= 8);
    for scenario in scenarios {
        let proofs = feasibility::prove(&scenario, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])?;
        for proof in &proofs {
            println!("{}: {}", scenario.name, proof.text);
            assert!(proof.ok, "{}: {}", scenario.name, proof.text);
        }
        let warnings = feasibility::warnings(&scenario, &proofs);
        assert!(warnings.is_empty(), "{}: {warnings:?}", scenario.name);
    }
    Ok(())
}
