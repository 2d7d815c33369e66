//! The built program, run as a user runs it.

#![allow(dead_code, clippy::unwrap_used)]

pub mod agent;
pub mod busy;
pub mod controller;
pub mod drive;
pub mod links;
pub mod on_board_unit;
pub mod tunnelled;
pub mod units;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crosslane::testbed::Namespace;
use socket2::{Domain, SockAddr, Socket, Type};

/// Listens at an abstract name of a namespace as another user, with room for one connection that is not accepted.
pub fn squat(namespace: &Namespace, name: &str) -> Socket {
    let bind = || {
        // SAFETY: the system call accesses no memory, and affects this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
        socket.listen(0).unwrap();
        socket
    };
    namespace.enter(bind).unwrap()
}

/// Path of the program.
pub const CROSSLANE: &str = env!("CARGO_BIN_EXE_crosslane");

/// A drive of 4 s past a roadside unit, with a cellular link.
pub const SCENARIO: &str = r#"name = "short"
duration_s = 4
[map]
x_m = [0, 200]
y_m = [-10, 10]
[vehicle]
route = { from_m = [40, 4], to_m = [100, 4], speed_kmh = 50 }
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
delay_ms = 25
rate_mbit_s = 20
[traffic]
kind = "messages"
size_bytes = 500
every_ms = 20
[[strategy]]
name = "mine"
base = "threshold"
[strategy.signal]
threshold_dbm = -84
"#;

/// Columns of each record, as `docs/reference/records.md` lists them.
pub const RECORDS: [(&str, &str); 6] = [
    (
        "packets",
        "t_ns delivered_ns path direction ip_bytes payload_bytes subflow tcp_seq tcp_ack tcp_flags dsn data_ack mptcp \
         drop tries",
    ),
    ("throughput", "t_ns path direction ip_bytes payload_bytes reinjected_bytes"),
    (
        "samples",
        "t_ns path kind rssi_dbm station rsrq_db sinr_db phy_mbit_s latitude_deg longitude_deg heading_deg speed_m_s \
         announced",
    ),
    (
        "tcp_info",
        "t_ns path subflow local remote token backup rtt_us rttvar_us cwnd unacked lost total_retrans bytes_acked \
         bytes_received notsent_bytes delivery_rate_bit_s",
    ),
    ("messages", "number sent_ns written_ns received_ns size_bytes"),
    (
        "links",
        "t_ns path x_m y_m speed_m_s distance_m rssi_dbm up_mbit_s down_mbit_s delay_ms loss \
         sinr_db rsrq_db carrier_rssi_dbm cell",
    ),
];

/// Metrics that every run of the scenario with an agent has.
pub const METRICS: [&str; 16] = [
    "delivery_delay_ms.p50",
    "delivery_delay_ms.p99",
    "delivery_delay_ms.max",
    "gap_ms.max",
    "messages.sent",
    "messages.lost",
    "goodput_mbit_s",
    "path.its-g5.share",
    "path.lte.share",
    "handover.count",
    "reinjected_bytes",
    "retransmitted_bytes",
    "overhead_share",
    "alarms",
    "alarms.false",
    "join_latency_ms",
];

/// Exit code and output of the program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> ProgramOutput {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        ProgramOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl ProgramOutput {
    /// The error message; panics unless standard error is exactly one line and standard output is empty.
    pub fn sentence(&self) -> &str {
        let sentence = self.stderr.strip_suffix('\n').unwrap_or_else(|| panic!("no line: {self:?}"));
        assert!(!sentence.contains('\n'), "more than one line: {self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(sentence.starts_with("crosslane: while "), "no attempt: {sentence}");
        sentence
    }
}

/// Runs the program in `folder` and waits for its exit.
pub fn crosslane(folder: &Path, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(CROSSLANE);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap().into()
}

/// True if this machine can run `crosslane drive`. Otherwise prints the reason directly to standard
/// error (the test harness captures the output of passing tests); in CI it fails.
pub fn can_drive() -> bool {
    let output = crosslane(Path::new("/"), &["drive-probe"]);
    output.code == Some(0) || not_run(output.stderr.trim())
}

/// A number of the environment, as `TIMES`.
pub fn from_environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Median, 99th percentile and maximum, in ms.
pub fn quantiles(mut times: Vec<std::time::Duration>) -> String {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    format!("median {:.3} ms, p99 {:.3} ms, maximum {:.3} ms of {}", at(0.5), at(0.99), at(1.0), times.len())
}

/// Prints why a test is not run and returns false; fails in CI.
pub fn not_run(why: &str) -> bool {
    use std::io::Write;
    assert!(std::env::var("CI").as_deref() != Ok("true"), "e2e NOT RUN: {why}");
    drop(writeln!(std::io::stderr(), "e2e NOT RUN: {why}"));
    false
}

/// A description of the difference if the error message is not as `expected` or has no remedy, or the call is not at fault.
pub fn complaint(output: &ProgramOutput, expected: &str) -> Option<String> {
    complaint_with(output, expected, 2)
}

/// The same with another exit code.
pub fn complaint_with(output: &ProgramOutput, expected: &str, code: i32) -> Option<String> {
    let sentence = output.sentence();
    let remedy = sentence.rsplit_once("; ").map_or("", |(_, remedy)| remedy);
    let good = sentence.contains(expected) && remedy.len() > 5 && output.code == Some(code);
    (!good).then(|| format!("expected: {expected}\n     got: {sentence} (exit code {:?})", output.code))
}

/// Fails with all complaints if there are any.
pub fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
