//! Each error in a scenario, or in a file that it names, is one sentence with
//! file, line and remedy.

use std::collections::BTreeMap;

use crosslane_sim::bounds::feasibility;
use crosslane_sim::record::metrics::METRICS;
use crosslane_sim::scenario::{Scenario, ScenarioError};

const VALID: &str = r#"name = "drive"
duration_s = 40
[map]
x_m = [0, 1000]
y_m = [-10, 10]
[vehicle]
route = { from_m = [40, 4], to_m = [590, 4], speed_kmh = 50 }
[[radio]]
name = "its-g5"
rat = "80211p"
rate_mbit_s = 6
path_loss = "cheng"
[[roadside_unit]]
name = "rsu1"
radio = "its-g5"
position_m = [0, 0]
[[cellular]]
name = "lte"
rat = "lte"
rate_mbit_s = 20
delay_ms = 25
[traffic]
kind = "messages"
size_bytes = 1000
every_ms = 20
[[strategy]]
name = "mine"
base = "threshold"
silence.cam_periods = 3
[[expect]]
crossing = "its-g5"
threshold_dbm = -82
direction = "below"
between_s = [8, 30]
[[expect]]
strategy = "mine"
metric = "gap_ms.max"
at_most = 60
"#;

const MESSAGES: &str = "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20";

const ROUTE: &str = "route = { from_m = [40, 4], to_m = [590, 4], speed_kmh = 50 }";

const ATTACKER: &str = "position_m = [0, 0]\n[[attacker]]\nradio = \"its-g5\"\nnames = [\"rsu1\"]\ncams_per_s = 10\n\
                        rssi_dbm = -60\nposition_m = [0, nan]";

/// Text replaced in the valid scenario, its replacement, and the expected error.
const TABLE: [(&str, &str, &str); 102] = [
    (
        "duration_s = 40\n",
        "duration_s = 40\nip_version = 5\n",
        "line 3: `ip_version`: there is no IP version 5; write 4 or 6",
    ),
    (
        "duration_s = 40\n[map]\nx_m = [0, 1000]\ny_m = [-10, 10]\n[vehicle]\nroute = { from_m = [40, 4], to_m = [590, 4], \
         speed_kmh = 50 }\n[[radio]]\n",
        "duration_s = 40\nip_version = 6\n[vehicle]\nroute = { from_m = [40, 4], to_m = [590, 4], speed_kmh = 50 }\n\
         [[radio]]\npaths = \"units\"\n",
        "line 3: paths to roadside units have IPv4; write 4, or leave `paths = \"units\"` out",
    ),
    (
        "position_m = [0, 0]",
        "position_m = [0, 0]\nstation_id = 0",
        "line 17: `station_id`: 0 is no station id; choose one from 1",
    ),
    ("duration_s", "duration", "line 2: unknown key `duration`; did you mean `duration_s`?"),
    ("speed_kmh", "spede_kmh", "line 7: unknown key `spede_kmh`; did you mean `speed_kmh`?"),
    ("rate_mbit_s = 6", "colour = 6", "line 11: unknown key `colour`; choose from `name`, `rat`"),
    ("duration_s = 40\n", "", "`duration_s` is missing; add it"),
    ("name = \"rsu1\"\n", "", "line 13: `name` is missing"),
    ("[traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20\n", "", "`traffic` is missing"),
    ("duration_s = 40", "duration_s = -1", "line 2: `duration_s`: -1 is not above 0 and up to 7200"),
    ("duration_s = 40", "duration_s = nan", "line 2: `duration_s`: NaN is not above 0"),
    ("duration_s = 40", "duration_s = \"long\"", "line 2: `duration_s`: invalid type: string \"long\"; give a number"),
    ("duration_s = 40", "duration_s = ", "line 2: "),
    ("duration_s = 40", "duration_s = 40\nduration_s = 41", "line 3: `duration_s` is already in line 2; remove"),
    ("name = \"drive\"", "name = \"My Drive\"", "line 1: the name `My Drive` is not made of"),
    ("speed_kmh = 50", "speed_kmh = 0", "line 7: `speed_kmh`: 0 is not above 0"),
    ("to_m = [590, 4]", "to_m = [1590, 4]", "line 7: the route's end, [1590, 4] m, is outside the map; move"),
    ("to_m = [590, 4]", "to_m = [inf, 4]", "line 7: the route's end is not at a finite position"),
    ("position_m = [0, 0]", "position_m = [0, 99]", "line 16: roadside unit `rsu1`, [0, 99] m, is outside"),
    ("route = {", "mobility = \"a.csv\"\nroute = {", "line 7: the vehicle has both `route` and `mobility`"),
    (
        "name = \"its-g5\"\nrat",
        "name = \"its-g5-in-the-front\"\nrat",
        "line 9: the name `its-g5-in-the-front` is longer than 15",
    ),
    ("name = \"lte\"", "name = \"its-g5\"", "line 18: the path name `its-g5` is taken"),
    ("name = \"lte\"", "name = \"lo\"", "line 18: the path name `lo` is taken"),
    ("rat = \"80211p\"", "rat = \"lte\"", "line 10: a `[[radio]]` is always 802.11p; write"),
    ("rat = \"80211p\"", "rat = \"80211\"", "line 10: `rat`: unknown word `80211`; did you mean `80211p`?"),
    ("rat = \"lte\"", "rat = \"wifi\"", "line 19: a `[[cellular]]` is `lte` or `nr`"),
    ("rate_mbit_s = 6", "rate_mbit_s = 54", "line 11: `rate_mbit_s`: 802.11p has no rate of 54 Mbit/s; choose 3"),
    ("rate_mbit_s = 20", "rate_mbit_s = -20", "line 20: `rate_mbit_s`: -20 is outside 0 to 100000"),
    ("rate_mbit_s = 20\n", "", "line 17: `lte` has neither `rate_mbit_s` nor `trace`"),
    ("delay_ms = 25", "", "line 17: the link has no `delay_ms`; give its one-way delay"),
    ("delay_ms = 25", "delay_ms = 25\nloss = 2", "line 22: `loss`: 2 is outside 0 to 1"),
    ("delay_ms = 25", "delay_ms = 25\nqueue_ms = 9\nqueue_packets = 9", "line 17: the queue has more than one size"),
    (
        "delay_ms = 25",
        "delay_ms = 25\nqueue_packets = 0",
        "line 17: a queue has one size and must hold at least one packet",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\nqueue_packets = -3",
        "line 22: `queue_packets`: invalid value: integer `-3`; give a whole number",
    ),
    ("delay_ms = 25", "delay_ms = 25\noutages_s = [[5, 4]]", "line 22: `outages_s`: [5, 4] does not begin"),
    ("delay_ms = 25", "delay_ms = 25\ntrace_down = \"a.down\"", "line 17: `lte` has `trace_down` without `trace`"),
    (
        "delay_ms = 25",
        "delay_ms = 25\n[cellular.model]\ncells_m = [[0, 0]]",
        "line 22: `lte` has both a model and a rate, signal or trace; keep",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\n[[wifi]]\nname = \"ap\"\ndelay_ms = 3",
        "line 22: `ap` does not have exactly one of `trace` and `model`; give",
    ),
    (
        "path_loss = \"cheng\"",
        "path_loss = \"chang\"",
        "line 12: `path_loss`: unknown word `chang`; did you mean `cheng`?",
    ),
    (
        "path_loss = \"cheng\"",
        "path_loss = \"cheng\"\nfading = 0.1",
        "line 13: `fading`: m = 0.1 is outside 0.3 to 100",
    ),
    ("path_loss = \"cheng\"", "path_loss = \"cheng\"\nfading = \"rice\"", "line 13: `fading`: unknown word `rice`"),
    ("path_loss = \"cheng\"", "path_loss = \"cheng\"\ntries = 9", "line 8: `its-g5` needs 1 to 7 tries"),
    ("radio = \"its-g5\"", "radio = \"its-g6\"", "line 15: there is no radio `its-g6`; did you mean `its-g5`?"),
    (
        "[[cellular]]",
        "[[radio]]\nname=\"b\"\nrat=\"80211p\"\nrate_mbit_s=6\npath_loss=\"cheng\"\n[[cellular]]",
        "line 17: radio `b` has no roadside unit",
    ),
    (
        "[[cellular]]",
        "[[roadside_unit]]\nname=\"rsu1\"\nradio=\"its-g5\"\nposition_m=[0,0]\n[[cellular]]",
        "line 18: the roadside unit name `rsu1` is taken",
    ),
    (
        "position_m = [0, 0]",
        "position_m = [0, 0]\nstation_id = 1001\n[[roadside_unit]]\nname=\"b\"\nradio=\"its-g5\"\nposition_m=[0,0]",
        "the station id 1001 is taken",
    ),
    ("every_ms = 20", "every_ms = 20\nstop_s = 0.5", "line 26: traffic from 1 s to 0.5 s does not fit"),
    ("every_ms = 20", "every_ms = 20\nstop_s = 41", "line 26: traffic from 1 s to 41 s does not fit"),
    ("every_ms = 20\n", "", "line 23: traffic of kind `messages` needs `every_ms`; add it"),
    (
        ROUTE,
        "mobility = \"a.csv\"\nvehicle = -1",
        "line 8: `vehicle`: invalid value: integer `-1`; give a whole number",
    ),
    ("[[radio]]", "vehicle = 3\n[[radio]]", "line 8: `vehicle` selects a vehicle of a mobility file, and"),
    ("[[radio]]", "[fleet]\n[[radio]]", "line 8: a fleet needs a mobility file; give `vehicle.mobility`"),
    (ROUTE, "mobility = \"a.csv\"\nvehicle = 3\n[fleet]", "line 8: a fleet uses every vehicle of the file; leave"),
    (ROUTE, "mobility = \"a.csv\"\n[fleet]\nvehicles = 0", "line 9: a fleet has 1 to 10000 vehicles; choose"),
    (ROUTE, "mobility = \"a.csv\"\n[fleet]\ncars = 9", "line 9: unknown key `cars`; choose from `vehicles`"),
    (
        ROUTE,
        "mobility = \"a.csv\"\n[fleet]\nrate_mbit_s = [0, 1]",
        "line 9: `rate_mbit_s`: [0, 1] is no range within 0.001 to 100; give",
    ),
    ("path_loss = \"cheng\"", "path_loss = \"manhatan\"", "unknown word `manhatan`; did you mean `manhattan`?"),
    (MESSAGES, "kind = \"uploads\"\nsize_mb = [1, 2]", "line 23: traffic of kind `uploads` needs `pause_s`; add it"),
    (
        "every_ms = 20",
        "every_ms = 20\nsize_mb = [1, 2]",
        "line 26: traffic of kind `messages` has no `size_mb`; leave it out, or change the kind",
    ),
    ("\"messages\"", "\"uploads\"", "line 23: traffic of kind `uploads` needs `size_mb`; add it"),
    (
        MESSAGES,
        "kind = \"bulk\"\npause_s = [1, 2]",
        "line 24: traffic of kind `bulk` has no `pause_s`; leave it out, or change the kind",
    ),
    (
        MESSAGES,
        "kind = \"uploads\"\nsize_mb = [0, 2]",
        "line 24: `size_mb`: [0, 2] is no range within 0.001 to 1000; give",
    ),
    (
        MESSAGES,
        "kind = \"uploads\"\nsize_mb = [1, 2]\npause_s = [2, 1]",
        "line 25: `pause_s`: [2, 1] is no range within 0 to 3600; give",
    ),
    (MESSAGES, "kind = \"upload\"", "line 23: `kind`: unknown word `upload`; did you mean `uploads`?"),
    ("every_ms = 20", "every_ms = 1e-5", "line 25: `every_ms`: 0.00001 is outside 0.01 to 60000; choose"),
    (
        MESSAGES,
        "kind = \"stream\"\nsize_bytes = 24\nrate_mbit_s = 20",
        "line 25: this rate with 24 bytes each is more than 100000 messages a second; choose a lower `rate_mbit_s`",
    ),
    (
        MESSAGES,
        "kind = \"messages\"\nsize_bytes = 100\nevery_ms = 20\n[fleet]\nrate_mbit_s = [1, 90]",
        "line 27: this rate with 100 bytes each is more than 100000 messages a second",
    ),
    ("x_m = [0, 1000]", "x_m = [nan, nan]", "line 4: `x_m`: [NaN, NaN] is no range; give the minimum and the"),
    ("y_m = [-10, 10]", "y_m = [10, -10]", "line 5: `y_m`: [10, -10] is no range; give"),
    ("position_m = [0, 0]", ATTACKER, "line 22: `position_m`: [0, NaN] is not within 1000 km of the origin; give"),
    ("size_bytes = 1000", "size_bytes = 3", "line 24: a message of 3 bytes is outside"),
    ("[traffic]", "[service]\nprefer = [\"wlan\"]\n[traffic]", "line 23: there is no path `wlan`"),
    ("name = \"mine\"", "name = \"kernel\"", "line 27: the strategy name `kernel` is taken"),
    (
        "base = \"threshold\"",
        "base = \"treshold\"",
        "line 28: there is no strategy `treshold` to base on; did you mean `threshold`?",
    ),
    ("strategy = \"mine\"", "strategy = \"yours\"", "line 36: there is no strategy `yours`"),
    ("gap_ms.max", "gap_ms", "line 37: there is no metric `gap_ms`; did you mean `gap_ms.max`?"),
    ("gap_ms.max", "path.wlan.share", "line 37: there is no path `wlan`"),
    ("between_s = [8, 30]", "between_s = [30, 80]", "line 34: [30, 80] is not an interval within 40 s"),
    ("at_most = 60", "at_most = 60\nat_least = 3", "line 35: `gap_ms.max` does not have exactly one limit"),
    (
        "delay_ms = 25",
        "delay_ms = 25\nloss = \"much\"",
        "line 22: `loss`: invalid type: string \"much\"; give a number, or a table of `good`, `bad`, `to_bad`",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\nloss = { bad = 0.3, to_bad = 0.1 }",
        "line 22: `loss`: `to_good` is missing; add it",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\nloss = { bad = 2, to_bad = 0.1, to_good = 0.2 }",
        "line 22: `bad`: 2 is outside 0 to 1",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\nloss = { bad = 0.3, to_bad = 0.1, to_good = 0 }",
        "line 22: `to_good`: 0 is not above 0 and up to 1",
    ),
    (
        "delay_ms = 25",
        "delay_ms = 25\nloss = { bad = 0.3, to_bad = 0.1, to_god = 0.2 }",
        "line 22: unknown key `to_god`; did you mean `to_good`?",
    ),
    ("delay_ms = 25", "delay_ms = 25\ncodel = { target_ms = 0 }", "line 22: `target_ms`: 0 is not above 0"),
    ("delay_ms = 25", "delay_ms = 25\ncodel = true", "line 22: `codel`: invalid type: boolean `true`"),
    ("delay_ms = 25", "delay_ms = 25\ncodel = { quantum = 3 }", "line 22: unknown key `quantum`; choose from"),
    (
        "delay_ms = 25",
        "delay_ms = 25\ncodel = { target_ms = 5, interval_ms = 5 }",
        "line 22: `codel`: the target of 5 ms is not below the interval of 5 ms; choose a longer `interval_ms`",
    ),
    (
        "path_loss = \"cheng\"",
        "path_loss = \"cheng\"\nbackground = { stations = 400 }",
        "line 13: the `background` takes 106 % of the channel, more than 95 %; choose fewer `stations`",
    ),
    (
        "path_loss = \"cheng\"",
        "path_loss = \"cheng\"\nbackground = { stations = 1001 }",
        "line 13: `stations`: 1001 is outside 0 to 1000; choose",
    ),
    (
        "path_loss = \"cheng\"",
        "path_loss = \"cheng\"\nbackground = { stations = 2, cam_period_ms = 1 }",
        "line 13: `cam_period_ms`: 1 is outside 10 to 10000",
    ),
    ("path_loss = \"cheng\"", "path_loss = \"cheng\"\nbackground = {}", "line 13: `background`: `stations` is missing"),
    ("position_m = [0, 0]", "position_m = [0, 2e6]", "line 16: roadside unit `rsu1` is more than 1000 km from"),
    ("to_m = [590, 4], ", "", "line 7: the route is not given by either both `from_m` and `to_m` or `waypoints_m`"),
    ("to_m = [590, 4], ", "to_m = [590, 4], waypoints_m = [[1, 1], [2, 2]], ", "line 7: the route is not given by"),
    ("from_m = [40, 4], to_m = [590, 4]", "waypoints_m = [[40, 4]]", "line 7: 1 waypoints are not 2 to 1000; change"),
    (
        "from_m = [40, 4], to_m = [590, 4]",
        "waypoints_m = [[40, 4], [50, 4], [1590, 4]]",
        "line 7: waypoint 3, [1590, 4] m, is outside the map; move",
    ),
    ("from_m = [40, 4], to_m = [590, 4]", "waypoints_m = [[40, 4], 7]", "line 7: "),
    (", speed_kmh = 50", "", "line 7: the route does not have exactly one of `speed_kmh` and `speeds_kmh`; give one"),
    ("speed_kmh = 50", "speeds_kmh = [50, 60]", "line 7: `speeds_kmh` has 2 speeds for 1 legs; give one speed"),
    ("speed_kmh = 50", "speeds_kmh = [-50]", "line 7: `speeds_kmh`: -50 is not above 0 and up to 500; choose"),
    ("speed_kmh = 50", "speed_kmh = 50, pause_s = -1", "line 7: `pause_s`: -1 is outside 0 to 3600"),
];

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    let scenario = Scenario::parse(text, "drive.toml")?;
    scenario.check_metrics(METRICS.iter().map(|metric| metric.name))?;
    Ok(scenario)
}

#[test]
fn every_error_is_one_sentence_with_file_line_and_remedy() {
    for (from, to, expected) in TABLE {
        assert!(VALID.contains(from), "{from}");
        let text = VALID.replacen(from, to, 1);
        let Err(error) = parse(&text) else {
            panic!("accepted: {to}");
        };
        let sentence = error.to_string();
        assert!(sentence.starts_with("while reading drive.toml"), "{sentence}");
        assert!(sentence.contains(expected), "{to}: {sentence}");
        assert!(!error.remedy.is_empty() && !sentence.contains('\n'), "{sentence}");
    }
}

/// A model in place of the constants of the cellular link, and the expected error.
const CELLULAR_MODELS: [(&str, &str); 12] = [
    ("", "line 21: `cells_m` is missing; add it"),
    ("cells_m = []", "line 22: 0 cells are not 1 to 32; give the positions"),
    ("cells_m = [[0, nan]]", "line 22: the cell is not at a finite x and y; give both"),
    ("cells_m = [[0, 0, 0]]", "line 22: the cell is not at a finite x and y; give both"),
    ("cells_m = [[0, 0]]\nposition_m = [0, 0]", "line 23: unknown key `position_m`"),
    ("cells_m = [[0, 0]]\nbandwidth_mhz = 0", "line 23: `bandwidth_mhz`: 0 is outside 1 to 100"),
    ("cells_m = [[0, 0]]\nlayers = 9", "line 23: `layers`: 9 is outside 1 to 8"),
    ("cells_m = [[0, 0]]\nload = 1.5", "line 23: `load`: 1.5 is outside 0 to 1"),
    ("cells_m = [[0, 0]]\nshare = -0.1", "line 23: `share`: -0.1 is outside 0 to 1"),
    ("cells_m = [[0, 0]]\nup_ratio = 2", "line 23: `up_ratio`: 2 is outside 0 to 1"),
    ("cells_m = [[0, 0]]\nhysteresis_db = -1", "line 23: `hysteresis_db`: -1 is outside 0 to 20"),
    ("cells_m = [[0, 0]]\nshadowing_distance_m = 0", "line 23: `shadowing_distance_m`: 0 is not above 0"),
];

/// A model of a Wi-Fi link, and the expected error.
const WIFI_MODELS: [(&str, &str); 10] = [
    ("position_m = [0, 0]", "line 21: `band` is missing; add it"),
    ("band = \"5\"", "line 21: `position_m` is missing; add it"),
    ("position_m = [0, inf]\nband = \"5\"", "line 22: the access point is not at a finite x and y"),
    ("position_m = [0, 0]\nband = \"6\"", "line 23: `band`: unknown word `6`"),
    ("position_m = [0, 0]\nband = 5", "line 23: `band`: "),
    ("position_m = [0, 0]\nband = \"5\"\neirp_dbm = 99", "line 24: `eirp_dbm`: 99 is outside -30 to 60"),
    ("position_m = [0, 0]\nband = \"5\"\nexponent = -2", "line 24: `exponent`: -2 is outside 0 to 10"),
    ("position_m = [0, 0]\nband = \"5\"\npeak_mbit_s = 0", "line 24: `peak_mbit_s`: 0 is not above 0"),
    ("position_m = [0, 0]\nband = \"5\"\nshadowing_db = 21", "line 24: `shadowing_db`: 21 is outside 0 to 20"),
    ("position_m = [0, 0]\nband = \"5\"\nload = 0.5", "line 24: unknown key `load`"),
];

#[test]
fn every_error_of_a_model_is_one_sentence_with_line_and_remedy() {
    let constants = "[[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 25\n";
    let cellular = "[[cellular]]\nname = \"lte\"\nrat = \"lte\"\ndelay_ms = 25\n[cellular.model]\n";
    let wifi = "[[wifi]]\nname = \"lte\"\ndelay_ms = 25\n\n[wifi.model]\n";
    let cases = CELLULAR_MODELS.iter().map(|case| (cellular, case)).chain(WIFI_MODELS.iter().map(|case| (wifi, case)));
    for (link, (keys, expected)) in cases {
        let text = VALID.replacen(constants, &format!("{link}{keys}\n"), 1);
        assert_ne!(text, VALID);
        let sentence = Scenario::parse(&text, "drive.toml").map_err(|error| error.to_string());
        assert!(sentence.as_ref().is_err_and(|sentence| sentence.contains(expected)), "{keys}: {sentence:?}");
    }
}

#[test]
fn the_valid_scenario_is_accepted() -> Result<(), Box<dyn std::error::Error>> {
    let scenario = Scenario::parse(VALID, "drive.toml")?;
    assert!(feasibility::prove(&scenario, &[1])?.iter().all(|proof| proof.ok));
    assert_eq!(scenario.paths().len(), 2);
    Ok(())
}

#[test]
fn a_parameter_that_the_base_does_not_take_is_found_with_its_line() {
    let cases = [
        ("silence.cam_periods = -3", "`silence.cam_periods`: -3 is outside 0 to 1000; choose a number inside"),
        ("leave_dbm = -84", "`leave_dbm`: there is no such parameter; choose from signal, silence"),
    ];
    for (parameter, expected) in cases {
        let text = VALID.replacen("silence.cam_periods = 3", parameter, 1);
        let sentence = Scenario::parse(&text, "drive.toml").map_err(|error| error.to_string());
        assert_eq!(sentence.err(), Some(format!("while reading drive.toml, line 29: {expected}")));
    }
}

#[test]
fn a_missing_crossing_is_reported_with_the_actual_signal() -> Result<(), Box<dyn std::error::Error>> {
    let table = [
        ("threshold_dbm = -82", "threshold_dbm = -120", "never falls below -120 dBm: lowest -95"),
        ("between_s = [8, 30]", "between_s = [1, 3]", "falls below -82 dBm at 17.0 s, not between 1 and 3 s"),
        ("\"below\"", "\"above\"", "its-g5"),
        ("position_m = [0, 0]", "position_m = [0, 0]\noutages_s = [[0, 99]]", "its-g5 has no signal"),
    ];
    for (from, to, expected) in table {
        let scenario = Scenario::parse(&VALID.replacen(from, to, 1), "drive.toml")?;
        let proofs = feasibility::prove(&scenario, &[])?;
        assert!(!proofs[0].ok && proofs[0].text.contains(expected), "{}", proofs[0].text);
    }
    Ok(())
}

#[test]
fn a_missing_or_broken_file_is_reported_with_its_line() -> Result<(), Box<dyn std::error::Error>> {
    let text = VALID.replacen("rate_mbit_s = 20", "trace = \"data:lte.csv\"", 1);
    let mut scenario = Scenario::parse(&text, "drive.toml")?;
    let missing = scenario.resolve(&BTreeMap::new()).map_err(|error| error.to_string());
    assert!(missing.is_err_and(|sentence| {
        sentence.starts_with("while reading drive.toml, line 20: `data:lte.csv` was not found")
    }));
    let broken = BTreeMap::from([("data:lte.csv".into(), "t_s,rate_mbit_s\n0,x\n".into())]);
    let error = scenario.resolve(&broken).map_err(|error| error.to_string());
    assert!(
        error
            .is_err_and(|sentence| { sentence.starts_with("while reading data:lte.csv, line 2: `x` is not a number") })
    );
    Ok(())
}

#[test]
fn files_that_begin_with_a_byte_order_mark_are_read() -> Result<(), Box<dyn std::error::Error>> {
    let text = VALID.replacen(ROUTE, "mobility = \"a.csv\"", 1).replacen("rate_mbit_s = 20", "trace = \"a.up\"", 1);
    let files = [("a.csv", "\u{feff}t_s,x_m,y_m\n0,40,4\n"), ("a.up", "\u{feff}0\n5\n")];
    Scenario::parse(&text, "drive.toml")?.resolve(&files.map(|(name, text)| (name.into(), text.into())).into())?;
    Ok(())
}

#[test]
fn vehicles_missing_from_the_mobility_file_are_reported() -> Result<(), Box<dyn std::error::Error>> {
    let track = "t_s,vehicle,x_m,y_m\n0,3,40,4\n9,3,50,4\n2,5,40,4\n4,5,50,4\n";
    let table = [
        ("vehicle = 4", "line 8: the mobility file has no vehicle 4; choose from 3 to 5"),
        ("", "line 7: the mobility file has 2 vehicles; choose one with `vehicle = …`, or add `[fleet]`"),
        ("[fleet]\nvehicles = 3", "line 9: the mobility file has 2 vehicles, not 3; choose fewer"),
    ];
    let read = |more: &str| -> Result<Scenario, Box<dyn std::error::Error>> {
        let text = VALID.replacen(ROUTE, &format!("mobility = \"track.csv\"\n{more}"), 1);
        let mut scenario = Scenario::parse(&text, "drive.toml")?;
        scenario.resolve(&BTreeMap::from([("track.csv".into(), track.into())]))?;
        Ok(scenario)
    };
    for (more, expected) in table {
        let sentence = read(more).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(sentence.contains(expected), "{more}: {sentence}");
    }
    assert_eq!(read("vehicle = 5")?.data.mobility.map(|track| track.points[0].t_s), Some(2.0));
    assert_eq!(read("[fleet]")?.data.fleet.len(), 2);
    assert_eq!(read("[fleet]\nvehicles = 1")?.data.fleet.len(), 1);
    Ok(())
}
