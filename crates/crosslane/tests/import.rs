//! Import of public recordings as traces: valid, invalid and arbitrary text.

use clap::Parser;
use crosslane::error::Error;
use crosslane::import::{self, Cut, Imc23Operator, Operator, Source, import, import_file, import_named};
use proptest::prelude::*;

const PAM_HEADER: &str = "TIME_STAMP_x,ULtput_x,modified_tech_x,handover_status_x,\
                          TIME_STAMP_y,ULtput_y,modified_tech_y,handover_status_y,timediff";
const FEUP_HEADER: &str = "senderId,receiverId,systime,receiverDist,isIperfOn,rssiMean,dataRateMean,nBytesReceived";
const ATT: Source = Source::Pam2025(Operator::Att);
const VERIZON: Source = Source::Pam2025(Operator::Verizon);

fn pam(rows: &[&str]) -> String {
    format!("{PAM_HEADER}\r\n{}\r\n", rows.join("\r\n"))
}

fn feup(rows: &[&str]) -> String {
    format!("{FEUP_HEADER}\n{}\n", rows.join("\n"))
}

fn ap2() -> Source {
    Source::Feup("ap2".into())
}

const PINGS_HEADER: &str = "t_s,operator,rtt_ms,lost,rssi_dbm";
const IMC23_ATT: Source = Source::Imc23(Imc23Operator::Att);

fn mine() -> Source {
    Source::Pings("mine".into())
}

fn all(source: &Source, text: &str) -> Result<String, Error> {
    import(source, &Cut::default(), text, "drive.csv")
}

/// The rows of the trace, without comments and header.
fn rows(source: &Source, cut: Cut, text: &str) -> Vec<String> {
    let trace = import(source, &cut, text, "drive.csv").expect("a trace");
    let mut lines = trace.lines().skip_while(|line| line.starts_with('#'));
    assert_eq!(lines.next(), Some("t_s,rate_mbit_s,delay_ms,loss,rssi_dbm"));
    lines.map(String::from).collect()
}

fn drive() -> String {
    pam(&[
        "1000.0,5.5,LTE,,1000.4,9,LTE-A,,0.4",
        "1000.5,0,LTE,,1000.9,8,LTE-A,,0.5",
        "1001.0,7,LTE,,1001.4,1.25,LTE-A,,0.5",
        "1001.5,8,LTE,,1001.9,3,LTE-A,,0.5",
    ])
}

#[test]
fn both_operators_of_a_drive_share_one_zero() {
    assert_eq!(rows(&ATT, Cut::default(), &drive()), ["0,5.5,,,", "0.5,0,,,", "1,7,,,", "1.5,8,,,"]);
    assert_eq!(rows(&VERIZON, Cut::default(), &drive()), ["0,9,,,", "0.9,8,,,", "1.4,1.25,,,", "1.9,3,,,"]);
}

#[test]
fn handover_rows_of_either_operator_are_not_samples() {
    let text = pam(&[
        "1000.0,5,LTE,,1000.0,9,LTE,,0",
        "1000.2,77,LTE,,1000.2,,,Start,0",
        "1000.3,77,LTE,,1000.3,,,End,0",
        "1000.4,77,LTE,,1000.4,8,LTE,newtput,0",
        "1000.45,,LTE,Start,,99,LTE,,0",
        "1000.5,6,LTE,,1000.5,8,LTE,,0",
        ",6,LTE,,1000.2,,,Start,0",
    ]);
    assert_eq!(rows(&ATT, Cut::default(), &text), ["0,5,,,", "0.5,6,,,"]);
    assert_eq!(rows(&VERIZON, Cut::default(), &text), ["0,9,,,", "0.5,8,,,"]);
}

#[test]
fn the_first_of_several_samples_with_the_same_time_is_used() {
    let text = pam(&["1000,5,LTE,,1000,9,LTE,,0", "1000,6,LTE,,1000.5,8,LTE,,0", "1001,7,LTE,,1001,8,LTE,,0"]);
    assert_eq!(rows(&ATT, Cut::default(), &text), ["0,5,,,", "1,7,,,"]);
}

#[test]
fn a_cut_starts_with_the_value_in_effect_at_its_start() {
    let cut = |from, to| Cut { from_s: from, to_s: to };
    assert_eq!(rows(&ATT, cut(Some(0.7), Some(1.5)), &drive()), ["0,0,,,", "0.3,7,,,"]);
    assert_eq!(rows(&ATT, cut(Some(1.0), None), &drive()), ["0,7,,,", "0.5,8,,,"]);
    assert_eq!(rows(&ATT, cut(None, Some(0.5)), &drive()), ["0,5.5,,,"]);
}

#[test]
fn a_trace_states_its_source_and_the_meaning_of_its_rate() {
    let trace = import(&VERIZON, &Cut { from_s: Some(0.5), to_s: Some(1.5) }, &drive(), "UL_run.csv").expect("a trace");
    assert!(trace.starts_with("# Trace of the uplink of Verizon in UL_run.csv, 0.5 s to 1.5 s\n"), "{trace}");
    for phrase in ["PAM 2025", "CC0", "TCP goodput", "not the capacity of the link"] {
        assert!(trace.contains(phrase), "{phrase} in {trace}");
    }
    let downlink = all(&ATT, &drive().replace("ULtput", "DLtput")).expect("a trace");
    assert!(downlink.starts_with("# Trace of the downlink of AT&T"), "{downlink}");
}

#[test]
fn a_control_character_in_a_file_name_stays_inside_the_comment() {
    let trace = import(&ATT, &Cut::default(), &drive(), "a\nb.csv").expect("a trace");
    assert!(trace.starts_with("# Trace of the uplink of AT&T in a?b.csv"), "{trace}");
}

#[test]
fn a_trace_of_an_access_point_has_the_bytes_received_each_second_and_the_signal() {
    let text = feup(&[
        "ap1,w2,100,3,1,-40,72,9000000",
        "ap2,m1,101,9,1,-60.5,65,2500000",
        "ap2,m1,102,9,0,-100.0,0.0,0",
        "ap2,m1,103,9,1,-100.0,19.5,1000",
    ]);
    assert_eq!(rows(&ap2(), Cut::default(), &text), ["0,20,,,-60.5", "2,0,,,-100", "3,0.008,,,"]);
    let trace = all(&ap2(), &text).expect("a trace");
    for phrase in ["access point ap2 received by m1", "CC BY 4.0", "In 1 of the recording's 3 seconds no flow"] {
        assert!(trace.contains(phrase), "{phrase} in {trace}");
    }
}

#[test]
fn an_unknown_signal_keeps_its_last_value_across_a_cut() {
    let text = feup(&["ap2,m1,101,9,1,-60,65,10", "ap2,m1,102,9,1,-100,65,20", "ap2,m1,103,9,1,-70,65,30"]);
    let cut = Cut { from_s: Some(1.0), to_s: None };
    assert_eq!(rows(&ap2(), cut, &text), ["0,0.00016,,,-60", "1,0.00024,,,-70"]);
}

#[test]
fn a_trace_format_is_parsed_as_scenarios_write_it() {
    assert_eq!(Source::parse("pam2025:att"), Ok(ATT));
    assert_eq!(Source::parse("pam2025:verizon"), Ok(VERIZON));
    assert_eq!(Source::parse("feup:ap2"), Ok(ap2()));
    assert_eq!(Source::parse("imc23:att"), Ok(IMC23_ATT));
    assert_eq!(Source::parse("imc23:tmobile"), Ok(Source::Imc23(Imc23Operator::Tmobile)));
    assert_eq!(Source::parse("pings:mine"), Ok(mine()));
    for wrong in
        ["", "pam2025", "pam2025:", "pam2025:t-mobile", "feup:", "feup", "imc23:orange", "pings:", "mahimahi:x"]
    {
        let message = Source::parse(wrong).expect_err(wrong).to_string();
        assert!(message.contains("pam2025:att") && message.contains("feup:ap2"), "{message}");
    }
}

#[test]
fn a_scenario_names_a_part_of_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = |name: &str| import_named(&folder.path().join(name));
    std::fs::write(folder.path().join("drive.csv"), drive()).expect("written");
    assert!(named("drive.csv").is_none());
    assert!(
        named("drive.csv#pam2025:att")
            .expect("named")
            .expect("a trace")
            .ends_with("\n0,5.5,,,\n0.5,0,,,\n1,7,,,\n1.5,8,,,\n")
    );
    assert!(
        named("drive.csv#pam2025:verizon@0.9")
            .expect("named")
            .expect("a trace")
            .ends_with("\n0,8,,,\n0.5,1.25,,,\n1,3,,,\n")
    );
    for wrong in ["drive.csv#", "drive.csv#pam2025:att@", "drive.csv#pam2025:att@soon", "drive.csv#lte@5"] {
        let error = named(wrong).expect("named").expect_err(wrong);
        assert!(error.to_string().contains("is not a part of a recording; write pam2025:att"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    import: import::Options,
}

#[test]
fn the_command_writes_the_requested_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let (drive_csv, out) = (folder.path().join("drive.csv"), folder.path().join("trace.csv"));
    std::fs::write(&drive_csv, drive()).expect("written");
    let (drive_csv, out_text) = (drive_csv.display().to_string(), out.display().to_string());
    let line =
        ["import", "pam2025", &drive_csv, "--operator", "att", "--from-s", "0.5", "--to-s", "1.5", "--out", &out_text];
    import::run(&Cli::try_parse_from(line).expect("a valid line").import).expect("imported");
    assert!(std::fs::read_to_string(out).expect("a trace").ends_with("\n0,0,,,\n0.5,7,,,\n"));
    for wrong in [
        &["import", "pam2025", "f"][..],
        &["import", "feup", "f"],
        &["import", "feup", "f", "--operator", "att"],
        &["import", "mp4", "f"],
    ] {
        assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
    }
}

/// Case, source, text, expected message.
type Case = (&'static str, Source, String, &'static str);

fn faults_of_files() -> Vec<Case> {
    vec![
        (
            "nothing",
            ATT,
            String::new(),
            "while importing drive.csv: it is empty; give a file of this format (docs/guide/real-data.md)",
        ),
        (
            "bytes",
            ATT,
            "PK\0\u{3}".into(),
            "while importing drive.csv: it is not a text file; unpack it and give the CSV file",
        ),
        (
            "LFS pointer",
            ap2(),
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".into(),
            "while importing drive.csv: it is a Git LFS pointer, not the recording; run `git lfs pull` in the data set's repository",
        ),
        (
            "other data set",
            ATT,
            feup(&["ap2,m1,101,9,1,-60,65,10"]),
            "while importing drive.csv, line 1: it has no column `TIME_STAMP_x`; give a file of this format (docs/guide/real-data.md)",
        ),
        (
            "no throughput",
            ATT,
            drive().replace("ULtput", "rate"),
            "while importing drive.csv, line 1: it has no column `ULtput_x` or `DLtput_x`; give a file of this format (docs/guide/real-data.md)",
        ),
        (
            "only a header",
            ATT,
            pam(&[]),
            "while importing drive.csv: it contains no sample of AT&T; choose another recording",
        ),
        (
            "one operator",
            VERIZON,
            pam(&["1000,5,LTE,,,,LTE,,0"]),
            "while importing drive.csv: it contains no sample of Verizon; choose another recording",
        ),
    ]
}

fn faults_of_drives() -> Vec<Case> {
    let pam_line = |line: &str| pam(&["1000,5,LTE,,1000,9,LTE,,0", line]);
    vec![
        (
            "broken line",
            ATT,
            pam_line("1001,5,LT"),
            "while importing drive.csv, line 3: 3 columns where the header has 9; correct or remove the line, or fetch the file again",
        ),
        (
            "after an empty line",
            ATT,
            pam_line("\n\r\n1001,5,LT"),
            "while importing drive.csv, line 5: 3 columns where the header has 9; correct or remove the line, or fetch the file again",
        ),
        (
            "word",
            ATT,
            pam_line("1001,fast,LTE,,1001,9,LTE,,0"),
            "while importing drive.csv, line 3: `fast` in column `ULtput_x` is not a rate in Mbit/s from 0 to 100000; correct or remove the line, or fetch the file again",
        ),
        (
            "negative",
            VERIZON,
            pam_line("1001,5,LTE,,1001,-9,LTE,,0"),
            "while importing drive.csv, line 3: `-9` in column `ULtput_y` is not a rate in Mbit/s from 0 to 100000; correct or remove the line, or fetch the file again",
        ),
        (
            "NaN",
            ATT,
            pam_line("1001,NaN,LTE,,1001,9,LTE,,0"),
            "while importing drive.csv, line 3: `NaN` in column `ULtput_x` is not a rate in Mbit/s from 0 to 100000; correct or remove the line, or fetch the file again",
        ),
        (
            "time",
            ATT,
            pam_line("now,5,LTE,,1001,9,LTE,,0"),
            "while importing drive.csv, line 3: `now` in column `TIME_STAMP_x` is not a Unix time in seconds from 0 to 10000000000; correct or remove the line, or fetch the file again",
        ),
        (
            "back in time",
            ATT,
            pam_line("999.5,5,LTE,,1001,9,LTE,,0"),
            "while importing drive.csv, line 3: time does not increase: 1000 s before, 999.5 s here; sort the lines by time and keep one line for each time",
        ),
        (
            "far ahead in time",
            ATT,
            pam_line("9999999,5,LTE,,1001,9,LTE,,0"),
            "while importing drive.csv: its last sample is 9998999 s after its beginning, but a trace lasts at most 1000000 s; correct the time of the lines at fault, or cut it with --to-s",
        ),
    ]
}

fn faults_of_access_points() -> Vec<Case> {
    let feup_line = |line: &str| feup(&["ap2,m1,101,9,1,-60,65,10", line]);
    vec![
        (
            "no access point",
            Source::Feup("ap9".into()),
            feup(&["ap3,w3,1,9,1,-60,65,10", "ap1,w2,1,9,1,-60,65,10"]),
            "while importing drive.csv: it has no access point `ap9`; choose one of ap1, ap3",
        ),
        (
            "no row",
            ap2(),
            feup(&[]),
            "while importing drive.csv: it contains no sample of any access point; choose another recording",
        ),
        (
            "two clients",
            ap2(),
            feup_line("ap2,w1,102,9,1,-60,65,10"),
            "while importing drive.csv, line 3: access point `ap2` has sent to m1 and to w1; keep the lines of one client (column `receiverId`)",
        ),
        (
            "same second",
            ap2(),
            feup_line("ap2,m1,101,9,1,-60,65,10"),
            "while importing drive.csv, line 3: time does not increase: 101 s before, 101 s here; sort the lines by time and keep one line for each time",
        ),
        (
            "signal",
            ap2(),
            feup_line("ap2,m1,102,9,1,loud,65,10"),
            "while importing drive.csv, line 3: `loud` in column `rssiMean` is not an RSSI in dBm from -150 to 0; correct or remove the line, or fetch the file again",
        ),
    ]
}

#[test]
fn every_fault_is_reported_in_one_message_with_its_line_and_a_remedy() {
    for (case, source, text, sentence) in [faults_of_files(), faults_of_drives(), faults_of_access_points()].concat() {
        let error = all(&source, &text).expect_err(case);
        assert_eq!((error.to_string().as_str(), error.exit_code()), (sentence, 2), "{case}");
    }
}

#[test]
fn a_cut_outside_the_recording_is_rejected() {
    for (from_s, to_s) in [(-1.0, 1.0), (1.0, 1.0), (1.0, 9.0), (9.0, 10.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let cut = Cut { from_s: Some(from_s), to_s: Some(to_s) };
        let error = import(&ATT, &cut, &drive(), "drive.csv").expect_err("outside");
        let cause = format!("it covers 0 to 1.5 s, not {from_s} to {to_s} s");
        assert!(error.to_string().contains(&cause), "{error}");
    }
}

#[test]
fn a_binary_or_missing_file_is_reported_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = folder.path().join("drive.zip");
    std::fs::write(&binary, [0x50, 0x4b, 0xff, 0xfe]).expect("written");
    let error = import_file(&ATT, &Cut::default(), &binary).expect_err("binary").to_string();
    assert!(error.contains("drive.zip: it is not a text file; unpack it"), "{error}");
    let error = import_file(&ATT, &Cut::default(), &folder.path().join("gone.csv")).expect_err("absent");
    assert!(error.to_string().contains("gone.csv: No such file"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn importers_do_not_panic_on_any_text(text in any::<String>(), from in any::<Option<f64>>(), to in any::<Option<f64>>()) {
        for source in [ATT, VERIZON, ap2(), IMC23_ATT, mine()] {
            let _ = import(&source, &Cut { from_s: from, to_s: to }, &text, &text);
        }
    }

    #[test]
    fn importers_do_not_panic_on_any_cells_and_trace_times_increase_from_zero(
        cells in prop::collection::vec(
            prop::collection::vec(prop_oneof![
                Just(String::new()), Just("ap2".into()), Just("\"".into()), Just("1e308".into()), Just("-0".into()),
                (0u32..2000).prop_map(|n| (f64::from(n) / 8.0).to_string()), "[-0-9.eEnaif]{0,6}",
            ], 9),
            0..12,
        ),
    ) {
        for (source, header, width) in [(ATT, PAM_HEADER, 9), (VERIZON, PAM_HEADER, 9), (ap2(), FEUP_HEADER, 8), (Source::Pings("ap2".into()), PINGS_HEADER, 5)] {
            let lines: Vec<String> = cells.iter().map(|line| line[..width].join(",")).collect();
            if let Ok(trace) = all(&source, &format!("{header}\n{}", lines.join("\n"))) {
                let times = times_of(&trace);
                prop_assert_eq!(times[0], 0.0);
                prop_assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}

fn times_of(trace: &str) -> Vec<f64> {
    let rows = trace.lines().skip_while(|line| line.starts_with('#')).skip(1);
    rows.map(|row| row.split(',').next().and_then(|cell| cell.parse().ok()).expect("a time")).collect()
}
