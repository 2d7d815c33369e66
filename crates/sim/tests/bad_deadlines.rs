//! Each error in traffic with deadlines and in prices is one sentence with the
//! remedy.

use crosslane_sim::scenario::{Engine, Scenario};

const VALID: &str = r#"name = "drive"
duration_s = 40
[vehicle]
route = { from_m = [40, 4], to_m = [590, 4], speed_kmh = 50 }
[[cellular]]
name = "its-g5"
rat = "nr"
rate_mbit_s = 6
delay_ms = 5
[[cellular]]
name = "lte"
rat = "lte"
rate_mbit_s = 20
delay_ms = 25
[traffic]
kind = "messages"
size_bytes = 1000
every_ms = 20
"#;

const MESSAGES: &str = "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20";

#[test]
fn errors_in_deadlines_and_prices_are_reported() -> Result<(), Box<dyn std::error::Error>> {
    let kind = "kind = \"deadline\"";
    let all = "kind = \"deadline\"\nobject_bytes = 1000000\nperiod_s = 10\ndeadline_s = 9";
    let priced = |prices: &str| format!("{all}\n[service]\ncost_per_gb = {prices}");
    let table = [
        (format!("{kind}\nobject_bytes = 1000000\nperiod_s = 10"), "needs `deadline_s`; add it"),
        (format!("{kind}\ndeadline_s = 9"), "needs `object_bytes`; add it"),
        (all.replace("deadline_s = 9", "deadline_s = 0"), "`deadline_s`: 0 is not above 0"),
        (all.replace("deadline_s = 9", "deadline_s = -1"), "`deadline_s`: -1 is not above 0"),
        (all.replace("deadline_s = 9", "deadline_s = nan"), "`deadline_s`: NaN is not above 0"),
        (all.replace("period_s = 10", "period_s = 1e-300"), "is outside 0.001 to 3600; choose"),
        (all.replace("= 1000000", "= 10"), "`object_bytes`: 10 is outside 1000 to"),
        (format!("{all}\nobjects = 0"), "`objects`: 0 is outside 1 to"),
        (format!("{all}\nmin_object_bytes = 2000000"), "`min_object_bytes`: 2000000 is outside 1000 to 1000000"),
        (format!("{all}\ndroppable_every = 0"), "`droppable_every`: 0 is outside 1 to"),
        (format!("{all}\nlate = \"drop\""), "unknown word `drop`; choose from `give-up`, `continue`"),
        (format!("{all}\nevery_ms = 20"), "traffic of kind `deadline` has no `every_ms`; leave"),
        (format!("{MESSAGES}\ndeadline_s = 9"), "traffic of kind `messages` has no `deadline_s`; leave"),
        (priced("{ lte = 1, its-g6 = 2 }"), "there is no path `its-g6`; did you mean `its-g5`?"),
        (priced("{ lte = 1 }"), "path `its-g5` has no price, but other paths have one; give"),
        (priced("{ lte = -1, its-g5 = 0 }"), "-1 per GB is outside 0 to"),
        (
            format!("{}\nprefer = [\"lte\", \"its-g5\"]", priced("{ lte = 2, its-g5 = 1 }")),
            "`lte` is preferred to `its-g5` and costs more; name the cheaper",
        ),
        (
            format!("{}\nprefer = [\"lte\"]", priced("{ lte = 2, its-g5 = 1 }")),
            "`lte` is preferred to `its-g5` and costs more; name the cheaper",
        ),
    ];
    for (traffic, expected) in table {
        let text = VALID.replacen(MESSAGES, &traffic, 1);
        let sentence = Scenario::parse(&text, "drive.toml").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(sentence.contains(expected), "{traffic}: {sentence}");
    }
    let good = VALID.replacen(MESSAGES, &priced("{ lte = 2, its-g5 = 1 }"), 1);
    let drive = Scenario::parse(&good, "drive.toml")?;
    drive.check_engine(Engine::Kernel)?;
    let none = Scenario::parse(VALID, "drive.toml")?;
    for (scenario, known) in [(&drive, true), (&none, false)] {
        let deadline = scenario.strategy("deadline").ok_or("no such strategy")?;
        let checked = scenario.check_strategy(Engine::Kernel, &deadline);
        assert_eq!(checked.is_ok(), known, "{checked:?}");
    }
    let refused = [(
        good.replace("kind = \"deadline\"", "kind = \"deadline\"\ndirection = \"down\""),
        "the vehicle must be the sender",
    )];
    for (text, expected) in refused {
        let scenario = Scenario::parse(&text, "drive.toml")?;
        let deadline = scenario.strategy("deadline").ok_or("no such strategy")?;
        let sentence = scenario.check_strategy(Engine::Simulator, &deadline).err().map(|error| error.to_string());
        assert!(sentence.as_ref().is_some_and(|sentence| sentence.contains(expected)), "{sentence:?}");
        let over_mptcp = scenario.strategy("deadline-mptcp").ok_or("no such strategy")?;
        assert!(scenario.check_strategy(Engine::Simulator, &over_mptcp).is_ok());
    }
    Ok(())
}
