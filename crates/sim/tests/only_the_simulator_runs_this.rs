//! A scenario that only the simulator can run says so by the name of the key,
//! its line and the way out.
#![allow(missing_docs)]

use std::error::Error;

use crosslane_sim::scenario::{Engine, Scenario};

const PLAIN: &str = "name = \"drive\"\nduration_s = 5\n\
    [vehicle]\nroute = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }\n\
    [[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = 10\ndelay_ms = 20\n\
    [traffic]\nkind = \"bulk\"\n";

fn refusal(text: &str) -> Result<String, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "drive.toml")?;
    scenario.check_engine(Engine::Simulator)?;
    Ok(scenario.check_engine(Engine::Kernel).err().map_or(String::new(), |error| error.to_string()))
}

#[test]
fn only_the_simulator_runs_this() -> Result<(), Box<dyn Error>> {
    assert_eq!(refusal(PLAIN)?, "", "both run this");
    let with = |key: &str| PLAIN.replace("duration_s = 5\n", &format!("duration_s = 5\n{key}\n"));
    let uploads = PLAIN.replace("\"bulk\"", "\"uploads\"\nsize_mb = [1, 2]\npause_s = [0, 1]");
    let objects = "\"deadline\"\nobject_bytes = 1000\nperiod_s = 1\ndeadline_s = 1\ndirection = \"down\"";
    let down = PLAIN.replace("\"bulk\"", objects);
    for (text, line, what) in [
        (down, 15, "`traffic.direction`: the agent that knows the deadlines is the vehicle's"),
        (with("congestion = \"lia\""), 3, "`congestion`: upstream Linux has no coupled congestion control"),
        (with("congestion = \"olia\""), 3, "`congestion`: upstream Linux has no coupled congestion control"),
        (with("scheduler = \"minrtt\""), 3, "`scheduler`: upstream Linux has no packet scheduler"),
        (with("scheduler = \"priority\""), 3, "`scheduler`: upstream Linux has no packet scheduler"),
        (uploads, 11, "`traffic.kind`: the emulator's traffic has no uploads"),
    ] {
        let said = refusal(&text)?;
        println!("{said}");
        for part in [&format!("drive.toml, line {line}: only the simulator can run this"), what, "crosslane simulate"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    }
    Ok(())
}

#[test]
fn no_kernel_runs_the_oracle() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(PLAIN, "drive.toml")?;
    let oracle = scenario.strategy("oracle").ok_or("no oracle")?;
    scenario.check_strategy(Engine::Simulator, &oracle)?;
    let said = scenario.check_strategy(Engine::Kernel, &oracle).err().map_or(String::new(), |error| error.to_string());
    assert!(said.contains("strategy `oracle`") && said.contains("crosslane simulate"), "{said}");
    assert!(said.contains("threshold") && !said.contains("choose from oracle"), "{said}");
    Ok(())
}

#[test]
fn tunnels_of_others_are_driven_and_not_simulated() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(PLAIN, "drive.toml")?;
    for base in ["vxlan", "wireguard-go"] {
        let strategy = scenario.strategy(base).ok_or("no such base")?;
        scenario.check_strategy(Engine::Kernel, &strategy)?;
        let refused = scenario.check_strategy(Engine::Simulator, &strategy);
        let said = refused.err().map_or(String::new(), |error| error.to_string());
        let what = format!("only `crosslane drive` can run strategy `{base}`");
        assert!(said.contains(&what) && said.ends_with("oracle, mp-dpa, deadline, tunnel"), "{said}");
    }
    Ok(())
}

#[test]
fn a_strategy_of_one_path_names_one_that_there_is() -> Result<(), Box<dyn Error>> {
    for base in ["single", "vxlan", "wireguard-go"] {
        let with = |path: &str| format!("{PLAIN}[[strategy]]\nname = \"mine\"\nbase = \"{base}\"\npath = {path}\n");
        Scenario::parse(&with("\"lte\""), "drive.toml")?;
        for wrong in ["\"lt\"", "5"] {
            let said =
                Scenario::parse(&with(wrong), "drive.toml").err().map_or(String::new(), |error| error.to_string());
            assert!(said.contains("drive.toml, line 15: there is no path") && said.contains("lte"), "{said}");
        }
    }
    Ok(())
}
