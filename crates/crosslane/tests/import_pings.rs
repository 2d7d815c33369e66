//! Import of pings as traces: of the data set imc23, and of one's own phones.

use crosslane::error::Error;
use crosslane::import::{Cut, Imc23Operator, Source, import};

const PINGS_HEADER: &str = "t_s,operator,rtt_ms,lost,rssi_dbm";
const IMC23_HEADER: &str = "t_s,verizon_rtt_ms,verizon_lost,verizon_rsrp_dbm,att_rtt_ms,att_lost,att_rsrp_dbm,\
                            tmobile_rtt_ms,tmobile_lost,tmobile_rsrp_dbm";
const IMC23_ATT: Source = Source::Imc23(Imc23Operator::Att);

fn pings(rows: &[&str]) -> String {
    format!("{PINGS_HEADER}\n{}\n", rows.join("\n"))
}

fn mine() -> Source {
    Source::Pings("mine".into())
}

fn all(source: &Source, text: &str) -> Result<String, Error> {
    import(source, &Cut::default(), text, "drive.csv")
}

/// The rows of a trace of pings, without comments and header.
fn delay_rows(source: &Source, cut: Cut, text: &str) -> Vec<String> {
    let trace = import(source, &cut, text, "drive.csv").expect("a trace");
    let mut lines = trace.lines().skip_while(|line| line.starts_with('#'));
    assert_eq!(lines.next(), Some("t_s,delay_ms,delay_down_ms,loss,loss_down,rssi_dbm"));
    lines.map(String::from).collect()
}

#[test]
fn pings_become_delay_loss_and_signal_of_their_operator() {
    let text = pings(&[
        "5.00,mine,60,0,-90",
        "5.01,other,400,0,-80",
        "5.02,mine,,,-95",
        "5.03,mine,60,,",
        "5.04,mine,,1,",
        "5.05,mine,,1,",
        "5.07,mine,100,0,",
    ]);
    assert_eq!(
        delay_rows(&mine(), Cut::default(), &text),
        ["0,30,30,0,0,-90", "0.01,30,30,,,", "0.02,30,30,,,-95", "0.03,30,30,,,", "0.04,30,30,1,,", "0.07,70,30,0,,"]
    );
    assert_eq!(
        delay_rows(&Source::Pings("other".into()), Cut::default(), &text),
        ["0,200,200,0,0,", "0.01,200,200,,,-80"]
    );
}

#[test]
fn an_operator_of_imc23_is_read_from_its_columns_from_the_beginning_of_the_segment() {
    let text = format!(
        "{IMC23_HEADER}\n0.0,40.5,0,-101,,,,,,\n0.2,,,,116,0,-90,,,\n0.4,41,0,,,1,,,,\n0.6,41,0,-102,116,0,,,,\n"
    );
    let cut = Cut { from_s: Some(0.4), to_s: None };
    assert_eq!(delay_rows(&IMC23_ATT, cut, &text), ["0,58,58,1,0,-90", "0.2,58,58,0,,"]);
    let trace = all(&IMC23_ATT, &text).expect("a trace");
    assert!(trace.contains("\n0,58,58,0,0,\n"), "{trace}");
    for phrase in ["pings over AT&T", "IMC 2023", "No rate was recorded"] {
        assert!(trace.contains(phrase), "{phrase} in {trace}");
    }
    let error = all(&Source::Imc23(Imc23Operator::Tmobile), &text).expect_err("not in the segment").to_string();
    let expected =
        "while importing drive.csv: it contains no sample of an answered ping of T-Mobile; choose another recording";
    assert_eq!(error, expected);
}

#[test]
fn a_trace_names_the_times_without_pings_and_an_operator_that_appears_late() {
    let text = pings(&["0,other,1,0,", "3,mine,60,0,", "3.2,mine,80,0,", "8,mine,60,0,"]);
    let trace = all(&mine(), &text).expect("a trace");
    for phrase in ["# Not measured: 0 s to 3 s of the recording", "# Not measured: 3.2 s to 8 s"] {
        assert!(trace.contains(phrase), "{phrase} in {trace}");
    }
    assert!(trace.contains("\n3.2,50,30,,,\n8,30,30,,,\n"), "{trace}");
    let late = pings(&["0,other,1,0,", "70,mine,60,0,", "70.2,mine,80,0,"]);
    let error = all(&mine(), &late).expect_err("late").to_string();
    assert_eq!(
        error,
        "while importing drive.csv: nothing was measured from 0 s to 70 s, longer than 60 s; import the part before \
         or after it with --to-s or --from-s (of a scenario: @SECONDS)"
    );
    assert_eq!(delay_rows(&mine(), Cut { from_s: Some(70.0), to_s: None }, &late).len(), 21);
}

#[test]
fn a_gap_of_years_before_a_lost_ping_is_named_and_can_be_cut_away() {
    let text =
        pings(&["0,mine,20,,", "0.05,mine,30,,", "0.1,mine,30,,", "1700000000,mine,,1,", "1700000001,mine,20,,"]);
    let error = all(&mine(), &text).expect_err("a gap").to_string();
    assert!(error.contains("nothing was measured from 0.1 s to 1700000000 s, longer than 60 s; import"), "{error}");
    let after = Cut { from_s: Some(1.7e9), to_s: None };
    assert_eq!(delay_rows(&mine(), after, &text), ["0,10,10,1,0,", "1,10,10,0,,"]);
    let before = Cut { from_s: Some(0.025), to_s: Some(0.08) };
    let rows =
        ["0,12,12,0,0,", "0.005,13,13,,,", "0.015,14,14,,,", "0.025,15,15,,,", "0.035,15,15,,,", "0.045,15,15,,,"];
    assert_eq!(delay_rows(&mine(), before, &text), rows);
}

#[test]
fn a_trace_of_more_rows_than_a_scenario_reads_is_refused_unless_it_is_cut() {
    let lines: Vec<String> = (0..300).map(|n| format!("{},mine,20,,\n{},mine,,1,", 60 * n, 60 * n + 50)).collect();
    let text = pings(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let error = all(&mine(), &text).expect_err("too long").to_string();
    assert!(
        error.ends_with("its trace has more than 1000000 rows; import a part of it with --from-s and --to-s"),
        "{error}"
    );
    assert!(delay_rows(&mine(), Cut { from_s: Some(15000.0), to_s: None }, &text).len() > 100_000);
}

/// Case, source, text, expected message.
type Case = (&'static str, Source, String, &'static str);

fn faults() -> Vec<Case> {
    let ping_line = |line: &str| pings(&["1,mine,60,0,-90", line]);
    vec![
        (
            "minutes",
            mine(),
            ping_line("2,mine,120000,0,"),
            "while importing drive.csv, line 3: an RTT of 120 s, but a trace has at most 60 s; count the ping as lost: leave `rtt_ms` empty and set `lost` to 1",
        ),
        (
            "lost and answered",
            mine(),
            ping_line("2,mine,60,1,"),
            "while importing drive.csv, line 3: the ping has an RTT in `rtt_ms` and is lost in `lost`; keep one of them",
        ),
        (
            "same time",
            mine(),
            ping_line("1,mine,60,0,"),
            "while importing drive.csv, line 3: time does not increase: 1 s before, 1 s here; sort the lines by time and keep one line for each time",
        ),
        (
            "other operator",
            Source::Pings("yours".into()),
            ping_line("2,other,60,0,"),
            "while importing drive.csv: it has no operator `yours`; choose one of mine, other",
        ),
        (
            "all lost",
            mine(),
            pings(&["1,mine,,1,"]),
            "while importing drive.csv: it contains no sample of an answered ping of mine; choose another recording",
        ),
        (
            "negative",
            mine(),
            ping_line("2,mine,-1,0,"),
            "while importing drive.csv, line 3: `-1` in column `rtt_ms` is not an RTT in ms from 0 to 1000000000; correct or remove the line, or fetch the file again",
        ),
    ]
}

#[test]
fn every_fault_of_pings_is_reported_in_one_message_with_its_line_and_a_remedy() {
    for (case, source, text, sentence) in faults() {
        let error = all(&source, &text).expect_err(case);
        assert_eq!((error.to_string().as_str(), error.exit_code()), (sentence, 2), "{case}");
    }
}
