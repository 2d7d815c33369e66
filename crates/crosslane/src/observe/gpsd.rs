//! Position, heading and speed of the vehicle from gpsd: its TPV reports, one JSON object a
//! line over TCP (gpsd_json(5)).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use chrono::DateTime;
use crosslane_core::path::Position;
use crosslane_core::path::VehicleState;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::worker::{RETRY_PAUSE, Reporter, Wording, Worker};
use super::{Fix, Observed};
use crate::clock::Clock;

mod plausibility;

use plausibility::Plausibility;

/// Request for a stream of reports.
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"json\":true};\n";
/// Longest line, in bytes (gpsd's GPS_JSON_RESPONSE_MAX is 10,240).
const MAX_LINE_BYTES: u64 = 16_384;
/// Time without a report after which the position is unknown and the connection is replaced:
/// receivers report at least once a second.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// What is known without a report that can be believed.
const UNKNOWN: Fix = Fix { state: VehicleState { position: None, heading_deg: None, speed_m_s: None }, unix_ms: None };
/// Below this speed the course over ground is noise, and the heading unknown.
const MIN_COURSE_SPEED_M_S: f64 = 1.0;

/// Receives the reports of gpsd at this address, over a connection that is replaced when it fails; must be called
/// within a runtime.
pub fn connect(address: SocketAddr) -> Worker {
    let wording = Wording {
        attempt: format!("receiving the position from gpsd at {address}"),
        remedy: "start gpsd there with a receiver, or correct observe.gpsd",
        lacks: "a position",
    };
    Worker::task("gpsd", wording, move |reporter| follow(address, reporter))
}

/// Follows the reports; while there is none, the state of the vehicle is unknown.
async fn follow(address: SocketAddr, mut reporter: Reporter) {
    let (mut plausibility, clock) = (Plausibility::default(), Clock::start());
    loop {
        let Err(cause) = read_reports(address, &mut reporter, &mut plausibility, clock).await;
        reporter.send(Ok(Observed::Fix(UNKNOWN))).await;
        if let Some(note) = reporter.fails(cause) {
            reporter.send(Ok(note)).await;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Passes on the reports of one connection, until it fails.
async fn read_reports(
    address: SocketAddr,
    reporter: &mut Reporter,
    plausibility: &mut Plausibility,
    clock: Clock,
) -> io::Result<Infallible> {
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer");
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.map_err(timed_out)??;
    let mut reader = BufReader::new(stream);
    reader.write_all(WATCH).await?;
    let (mut line, mut waited_for) = (Vec::new(), "TPV report");
    let mut deadline = Box::pin(tokio::time::sleep(REPORT_TIMEOUT));
    loop {
        line.clear();
        let mut limited = (&mut reader).take(MAX_LINE_BYTES);
        tokio::select! {
            length = limited.read_until(b'\n', &mut line) => drop(length?),
            () = &mut deadline => {
                let cause = format!("no {waited_for} for {} s", REPORT_TIMEOUT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, cause));
            }
        }
        if line.last() != Some(&b'\n') {
            let cause = if line.is_empty() { "it closed the connection" } else { "a line is too long or incomplete" };
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cause));
        }
        let observed = match read(&line) {
            Ok(None) => continue,
            Ok(Some(fix)) => {
                (deadline, waited_for) = (Box::pin(tokio::time::sleep(REPORT_TIMEOUT)), "further TPV report");
                if let Some(note) = reporter.works() {
                    reporter.send(Ok(note)).await;
                }
                match plausibility.admit(clock.now(), &fix) {
                    Ok(()) => Ok(Observed::Fix(fix)),
                    Err(cause) => {
                        reporter.send(Ok(Observed::Fix(UNKNOWN))).await;
                        Err(format!("a report of gpsd is rejected: {cause}"))
                    }
                }
            }
            Err(cause) => Err(format!("not a report of gpsd: {cause}")),
        };
        reporter.send(observed).await;
    }
}

/// What is used of a report.
#[derive(Deserialize)]
struct Report {
    class: String,
    /// 0 unknown, 1 no fix, 2 two-dimensional, 3 three-dimensional.
    mode: Option<u8>,
    time: Option<String>,
    lat: Option<f64>,
    lon: Option<f64>,
    track: Option<f64>,
    speed: Option<f64>,
}

/// Reads a line: the fix of a TPV report, without a position if there is none; `None` for
/// other reports.
///
/// # Errors
/// It is no JSON object with a class.
pub fn read(line: &[u8]) -> Result<Option<Fix>, serde_json::Error> {
    let report: Report = serde_json::from_slice(line)?;
    if report.class != "TPV" {
        return Ok(None);
    }
    let unix_ms = report.time.and_then(|time| DateTime::parse_from_rfc3339(&time).ok());
    let unix_ms = unix_ms.and_then(|time| u64::try_from(time.timestamp_millis()).ok());
    let is_fix = report.mode.is_some_and(|mode| mode >= 2);
    let latitude = report.lat.filter(|degrees| is_fix && degrees.abs() <= 90.0);
    let longitude = report.lon.filter(|degrees| degrees.abs() <= 180.0);
    let Some((latitude_deg, longitude_deg)) = latitude.zip(longitude) else {
        return Ok(Some(Fix { state: VehicleState::default(), unix_ms }));
    };
    let speed_m_s = report.speed.filter(|speed| *speed >= 0.0);
    let is_moving = speed_m_s.is_some_and(|speed| speed >= MIN_COURSE_SPEED_M_S);
    let heading_deg = report.track.filter(|track| is_moving && (0.0..=360.0).contains(track));
    let position = Some(Position { latitude_deg, longitude_deg });
    Ok(Some(Fix { state: VehicleState { position, heading_deg, speed_m_s }, unix_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As gpsd 3.22 writes it.
    const TPV: &str = r#"{"class":"TPV","device":"/dev/ttyACM0","mode":3,"time":"2026-05-04T10:20:30.250Z","ept":0.005,
        "lat":40.640500000,"lon":-8.653750000,"altHAE":65.1,"altMSL":12.3,"epx":2.5,"epy":3.1,"track":93.2500,
        "magtrack":95.1,"speed":13.892,"climb":0.000,"eps":0.5,"sep":6.8}"#;

    fn fix(text: &str) -> Fix {
        read(text.as_bytes()).expect("a report").expect("of the position")
    }

    #[test]
    fn a_tpv_report_is_position_heading_speed_and_time() {
        let position = Some(Position { latitude_deg: 40.6405, longitude_deg: -8.65375 });
        let state = VehicleState { position, heading_deg: Some(93.25), speed_m_s: Some(13.892) };
        assert_eq!(fix(TPV), Fix { state, unix_ms: Some(1_777_890_030_250) });
    }

    #[test]
    fn without_a_fix_the_state_is_unknown() {
        for text in [
            &TPV.replace("\"mode\":3", "\"mode\":1"),
            &TPV.replace("\"mode\":3,", ""),
            &TPV.replace("40.640500000", "91"),
            &TPV.replace("-8.653750000", "-181"),
            r#"{"class":"TPV","mode":3}"#,
        ] {
            assert_eq!(fix(text).state, VehicleState::default(), "{text}");
        }
    }

    #[test]
    fn the_course_of_a_vehicle_that_stands_is_no_heading() {
        let slow = fix(&TPV.replace("13.892", "0.31"));
        assert_eq!((slow.state.heading_deg, slow.state.speed_m_s), (None, Some(0.31)));
        assert!(slow.state.position.is_some());
        assert_eq!(fix(&TPV.replace(",\"speed\":13.892", "")).state.heading_deg, None);
    }

    #[test]
    fn other_reports_are_ignored_and_other_bytes_rejected() {
        assert_eq!(read(br#"{"class":"VERSION","release":"3.22"}"#).expect("a report"), None);
        for bad in ["", "hello", "{}", r#"{"class":"TPV","lat":"north"}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&bytes);
        }
    }
}
