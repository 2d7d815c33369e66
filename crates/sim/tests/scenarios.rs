//! The shipped scenarios are valid, and their expectations are feasible.

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

#[test]
fn a_trace_with_delay_and_rate_needs_no_keys_for_them() -> Result<(), Box<dyn Error>> {
    let text = "name = \"a\"\nduration_s = 9\n[vehicle]\nroute = { from_m = [0, 0], to_m = [9, 0], speed_kmh = 9 }\n\
                [[cellular]]\nname = \"lte\"\nrat = \"lte\"\ntrace = \"lte.csv\"\n\
                [traffic]\nkind = \"bulk\"\nstart_s = 1\n";
    let read = |trace: &str| -> Result<Scenario, Box<dyn Error>> {
        let mut scenario = Scenario::parse(text, "drive.toml")?;
        scenario.resolve(&BTreeMap::from([("lte.csv".into(), trace.into())]))?;
        Ok(scenario)
    };
    read("t_s,rate_mbit_s,delay_ms\n0,20,25\n")?;
    let sentence = read("t_s,rate_mbit_s,delay_ms\n0,20,\n1,20,25\n").err().map(|error| error.to_string());
    let expected = "while reading drive.toml, line 5: `lte` has no `delay_ms`, and its trace has none in the first row; \
                    give its one-way delay";
    assert_eq!(sentence.as_deref(), Some(expected));
    let sentence = read("t_s,delay_ms\n0,25\n").err().map(|error| error.to_string());
    let expected = "while reading drive.toml, line 5: `lte` has no `rate_mbit_s`, and its trace has none in the first row; \
                    give its rate";
    assert_eq!(sentence.as_deref(), Some(expected));
    Ok(())
}
