//! Every recording can be imported as a trace, and the scenarios of real drives are valid;
//! tested where the data is available.

use std::path::{Path, PathBuf};

use crosslane::import::{Cut, Operator, Source, import_file};
use crosslane::scenario_file;
use crosslane_sim::radio::wifi::{self, Curve};

const ATT: Source = Source::Pam2025(Operator::Att);
const VERIZON: Source = Source::Pam2025(Operator::Verizon);

/// The folder of recordings; `None`, with a message, if `CROSSLANE_DATA` names none.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("CROSSLANE_DATA").map(PathBuf::from);
    let data = folder.filter(|folder| folder.join("pam2025").is_dir() && folder.join("feup-wifi").is_dir());
    if data.is_none() {
        eprintln!("SKIPPED: CROSSLANE_DATA names no folder with pam2025 and feup-wifi (docs/guide/real-data.md)");
    }
    data
}

/// Recordings that contain only a header.
const EMPTY: [&str; 3] =
    ["DL_atnt_verizon_1_run_71.csv", "DL_atnt_verizon_2_run_90.csv", "DL_atnt_verizon_4_run_44.csv"];

#[derive(Default)]
struct TraceStats {
    drives: usize,
    samples: usize,
    below_1: usize,
    zero: usize,
    longest_s: f64,
    longest_gap_s: f64,
}

impl TraceStats {
    fn add(&mut self, trace: &str) {
        let times = times_of(trace);
        self.drives += 1;
        self.longest_s = self.longest_s.max(times[times.len() - 1]);
        self.longest_gap_s = times.windows(2).map(|pair| pair[1] - pair[0]).fold(self.longest_gap_s, f64::max);
        for row in trace.lines().skip_while(|line| !line.starts_with("t_s")).skip(1) {
            let rate: f64 = row.split(',').nth(1).and_then(|cell| cell.parse().ok()).expect("a rate");
            self.samples += 1;
            self.below_1 += usize::from(rate < 1.0);
            self.zero += usize::from(rate == 0.0);
        }
    }

    fn print(&self, name: &str) {
        let share = |count: usize| 100.0 * count as f64 / self.samples as f64;
        println!(
            "| {name} | {} | {} | {:.1} % | {:.1} % | {:.1} | {:.1} |",
            self.drives,
            self.samples,
            share(self.below_1),
            share(self.zero),
            self.longest_s,
            self.longest_gap_s
        );
    }
}

/// `--nocapture` prints the table of `docs/guide/real-data.md`.
#[test]
fn every_real_drive_becomes_a_trace() {
    let Some(data) = data() else { return };
    println!("| traces | number | samples | below 1 Mbit/s | zero | longest, s | longest gap, s |");
    for (direction, drives) in [("uplink", 225), ("downlink", 223 - EMPTY.len())] {
        for (name, source) in [("AT&T", ATT), ("Verizon", VERIZON)] {
            let mut stats = TraceStats::default();
            for entry in std::fs::read_dir(data.join("pam2025").join(direction)).expect("a folder") {
                let path = entry.expect("an entry").path();
                let trace = import_file(&source, &Cut::default(), &path);
                if EMPTY.iter().any(|name| path.ends_with(name)) {
                    assert!(trace.expect_err("empty").to_string().contains("contains no sample"));
                } else {
                    stats.add(&trace.unwrap_or_else(|error| panic!("{error}")));
                }
            }
            stats.print(&format!("{name} {direction}"));
            assert_eq!(stats.drives, drives);
            assert!(stats.longest_gap_s < 3.0, "{}", stats.longest_gap_s);
        }
    }
    for ap in ["ap1", "ap2", "ap3", "ap4"] {
        let path = data.join("feup-wifi/summary/final-exp-log.csv");
        let trace =
            import_file(&Source::Feup(ap.into()), &Cut::default(), &path).unwrap_or_else(|error| panic!("{error}"));
        let mut stats = TraceStats::default();
        stats.add(&trace);
        stats.print(ap);
        assert_eq!(stats.samples, 3749);
    }
}

#[test]
fn real_scenarios_are_valid_with_the_data_and_report_the_missing_option_without() {
    for name in ["two-operators", "roadside-wifi", "three-operators"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/real/{name}.toml"));
        let message = scenario_file::read(&file, None).expect_err("no data").to_string();
        assert!(message.contains("--data DIR"), "{message}");
        let Some(data) = data().filter(|data| name != "three-operators" || data.join("imc23").is_dir()) else {
            continue;
        };
        crosslane::check::run(&file, Some(&data), false, false).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn times_of(trace: &str) -> Vec<f64> {
    let rows = trace.lines().skip_while(|line| line.starts_with('#')).skip(1);
    rows.map(|row| row.split(',').next().and_then(|cell| cell.parse().ok()).expect("a time")).collect()
}

/// Errors of the Wi-Fi model on the recordings: (access points, model, RMSE of RSSI
/// in dB, median factor between goodput and the median of the model).
const WIFI: [([&str; 2], Curve, f64, f64); 2] =
    [(["ap1", "ap3"], wifi::BAND_2_4, 6.3, 1.7), (["ap2", "ap4"], wifi::BAND_5, 4.6, 2.0)];

/// Seconds in which frames were received: access point, distance in m, RSSI in dBm,
/// and goodput of the flow in Mbit/s, if there was one.
fn seconds_of(log: &str) -> impl Iterator<Item = (&str, f64, f64, Option<f64>)> {
    log.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |place: usize| cells[place].parse::<f64>().expect("a number");
        let mbit_s = number(15) * 8.0 / 1e6;
        let flows = number(12) == 1.0 && mbit_s > 0.0;
        let received = number(11) == 1.0 && number(13) > -100.0;
        received.then(|| (cells[0], number(3), number(13), flows.then_some(mbit_s)))
    })
}

/// `--nocapture` prints figures of `docs/design/radio.md`.
#[test]
fn the_error_of_the_wifi_model_on_the_recordings_is_as_documented() {
    let Some(data) = data() else { return };
    let log = std::fs::read_to_string(data.join("feup-wifi/summary/final-exp-log.csv")).unwrap();
    for (points, curve, rmse_db, factor) in WIFI {
        let seconds: Vec<_> = seconds_of(&log).filter(|(point, ..)| points.contains(point)).collect();
        let error_db = |distance_m: f64, rssi_dbm: f64| 20.0 - curve.loss_db(distance_m) - rssi_dbm;
        let squares: f64 = seconds.iter().map(|second| error_db(second.1, second.2).powi(2)).sum();
        let rmse = (squares / seconds.len() as f64).sqrt();
        let factor_of = |&(_, _, rssi_dbm, mbit_s): &(&str, f64, f64, Option<f64>)| {
            let median = curve.median_mbit_s(rssi_dbm.max(curve.sensitivity_dbm));
            mbit_s.map(|mbit_s| (mbit_s / median).ln().abs().exp())
        };
        let mut factors: Vec<f64> = seconds.iter().filter_map(factor_of).collect();
        factors.sort_by(f64::total_cmp);
        let median = factors[factors.len() / 2];
        println!("{points:?}: RSSI {rmse:.2} dB over {}, goodput factor {median:.2}", seconds.len());
        assert!(rmse < rmse_db, "RMSE {rmse} dB");
        assert!(median < factor, "factor {median}");
    }
}
