//! The error for a scenario that only the simulator supports names the key, its
//! line and the remedy.

use std::error::Error;

use crosslane_sim::scenario::{Engine, Scenario};

const PLAIN: &str = "name = \"drive\"\nduration_s = 5\n\
    [vehicle]\nroute = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }\n\
    [[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = 10\ndelay_ms = 20\n\
    [traffic]\nkind = \"bulk\"\n";

fn error_for_the_kernel(text: &str) -> Result<String, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "drive.toml")?;
    scenario.check_engine(Engine::Simulator)?;
    Ok(scenario.check_engine(Engine::Kernel).err().map_or(String::new(), |error| error.to_string()))
}

#[test]
fn only_the_simulator_runs_this() -> Result<(), Box<dyn Error>> {
    assert_eq!(error_for_the_kernel(PLAIN)?, "", "both run this");
    let with = |key: &str| PLAIN.replace("duration_s = 5\n", &format!("duration_s = 5\n{key}\n"));
    assert_eq!(error_for_the_kernel(&with("congestion = \"lia\""))?, "", "the kernel runs it once it is loaded");
    let uploads = PLAIN.replace("\"bulk\"", "\"uploads\"\nsize_mb = [1, 2]\npause_s = [0, 1]");
    let objects = "\"deadline\"\nobject_bytes = 1000\nperiod_s = 1\ndeadline_s = 1\ndirection = \"down\"";
    let down = PLAIN.replace("\"bulk\"", objects);
    for (text, line, what) in [
        (down, 15, "`traffic.direction`: the agent, which uses the deadlines, runs on the vehicle"),
        (with("congestion = \"olia\""), 3, "`congestion`: no kernel has `olia`"),
        (with("scheduler = \"minrtt\""), 3, "`scheduler`: upstream Linux has no other packet scheduler"),
        (with("scheduler = \"priority\""), 3, "`scheduler`: upstream Linux has no other packet scheduler"),
        (uploads, 11, "`traffic.kind`: the emulator does not support uploads"),
    ] {
        let error_text = error_for_the_kernel(&text)?;
        println!("{error_text}");
        for part in [&format!("drive.toml, line {line}: only the simulator can run this"), what, "crosslane simulate"] {
            assert!(error_text.contains(part), "`{part}` is not in: {error_text}");
        }
    }
    Ok(())
}

#[test]
fn only_the_simulator_runs_the_oracle() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(PLAIN, "drive.toml")?;
    let oracle = scenario.strategy("oracle").ok_or("no oracle")?;
    scenario.check_strategy(Engine::Simulator, &oracle)?;
    let error_text =
        scenario.check_strategy(Engine::Kernel, &oracle).err().map_or(String::new(), |error| error.to_string());
    assert!(error_text.contains("strategy `oracle`") && error_text.contains("crosslane simulate"), "{error_text}");
    assert!(error_text.contains("threshold") && !error_text.contains("from oracle"), "{error_text}");
    Ok(())
}

#[test]
fn third_party_tunnels_are_driven_and_not_simulated() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(PLAIN, "drive.toml")?;
    for base in ["vxlan", "wireguard-go"] {
        let strategy = scenario.strategy(base).ok_or("no such base")?;
        scenario.check_strategy(Engine::Kernel, &strategy)?;
        let rejected = scenario.check_strategy(Engine::Simulator, &strategy);
        let error_text = rejected.err().map_or(String::new(), |error| error.to_string());
        let what = format!("only `crosslane drive` can run strategy `{base}`");
        assert!(
            error_text.contains(&what) && error_text.ends_with("torrinhas, smartps, learned, oracle, tunnel"),
            "{error_text}"
        );
    }
    Ok(())
}

#[test]
fn a_single_path_strategy_must_name_an_existing_path() -> Result<(), Box<dyn Error>> {
    for base in ["single", "vxlan", "wireguard-go"] {
        let with = |path: &str| format!("{PLAIN}[[strategy]]\nname = \"mine\"\nbase = \"{base}\"\npath = {path}\n");
        Scenario::parse(&with("\"lte\""), "drive.toml")?;
        for (wrong, what) in
            [("\"lt\"", "there is no path `lt`; did you mean `lte`?"), ("5", "`path`: this is not a name")]
        {
            let error_text =
                Scenario::parse(&with(wrong), "drive.toml").err().map_or(String::new(), |error| error.to_string());
            assert!(error_text.contains(&format!("drive.toml, line 15: {what}")), "{error_text}");
        }
    }
    Ok(())
}
