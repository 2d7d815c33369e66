//! An agent that sends the vehicle's CAMs: position from gpsd, messages to an on-board unit's MQTT broker.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::two_links;
use crate::program::on_board_unit::{Broker, Published, encoded};
use crosslane::testbed::Namespace;
use crosslane_sim::radio::cam::{self, Cam};
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[strategy]
name = "threshold"
[observe]
gpsd = "127.0.0.1:2947"
[cam]
broker = "127.0.0.1:1883"
[log]
events = "EVENTS"
"#;
const GPSD: &str = "127.0.0.1:2947";
const BROKER: &str = "127.0.0.1:1883";
/// Longer than any CAM or any attempt takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Period of the receiver's reports.
const PERIOD: Duration = Duration::from_millis(100);
/// Longer than the agent waits for a report, and than T_GenCamMax.
const SILENCE: Duration = Duration::from_secs(5);
/// Degrees of longitude for each metre to the east, at this latitude.
const LATITUDE: f64 = 40.64;
const DEGREES_PER_M: f64 = 1.0 / (111_195.0 * 0.758_840);

/// gpsd with a receiver that drives to the east.
#[derive(Clone)]
struct Gpsd {
    speed_cm_s: Arc<AtomicU32>,
    /// It reports nothing more, and keeps the connection.
    is_silent: Arc<AtomicBool>,
    /// It reports a place 111 km further to the north.
    is_deceived: Arc<AtomicBool>,
}

impl Gpsd {
    fn start(namespace: &Namespace) -> Gpsd {
        let listener = namespace.enter(|| TcpListener::bind(GPSD)).unwrap().unwrap();
        let speed_cm_s = Arc::new(AtomicU32::new(1800));
        let gpsd = Gpsd { speed_cm_s, is_silent: Arc::default(), is_deceived: Arc::default() };
        let shared = gpsd.clone();
        thread::spawn(move || {
            let mut longitude = -8.65;
            for stream in listener.incoming() {
                drop(shared.report(&stream.unwrap(), &mut longitude));
            }
        });
        gpsd
    }

    fn report(&self, mut stream: &TcpStream, longitude: &mut f64) -> std::io::Result<()> {
        stream.write_all(b"{\"class\":\"VERSION\",\"release\":\"3.22\"}\r\n")?;
        let mut request = String::new();
        BufReader::new(stream).read_line(&mut request)?;
        assert_eq!(request, "?WATCH={\"enable\":true,\"json\":true};\n");
        loop {
            let speed = f64::from(self.speed_cm_s.load(Relaxed)) / 100.0;
            let latitude = LATITUDE + if self.is_deceived.load(Relaxed) { 1.0 } else { 0.0 };
            *longitude += speed * PERIOD.as_secs_f64() * DEGREES_PER_M;
            if !self.is_silent.load(Relaxed) {
                writeln!(
                    stream,
                    "{{\"class\":\"TPV\",\"mode\":3,\"time\":\"2026-05-04T10:20:30.250Z\",\"lat\":{latitude},\
                 \"lon\":{longitude},\"track\":90.0,\"speed\":{speed}}}\r"
                )?;
            }
            sleep(PERIOD);
        }
    }
}

/// The next CAM, as the on-board unit transmits it and a receiver decodes it.
fn next(messages: &Receiver<Published>) -> Cam {
    let (topic, text) = messages.recv_timeout(LIMIT).expect("a CAM");
    assert_eq!(topic, "vanetza/in/cam");
    cam::decode(&cam::encode(&encoded(&serde_json::from_str(&text).unwrap())).unwrap()).unwrap()
}

fn metres_east(cam: &Cam) -> f64 {
    (cam.longitude_deg.unwrap() + 8.65) / DEGREES_PER_M
}

#[test]
fn a_moving_vehicle_sends_a_cam_every_few_metres_and_one_that_stands_by_time() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 20.0, 5);
    let (gpsd, broker) = (Gpsd::start(&testbed.vehicle), Broker::start(&testbed.vehicle, BROKER));
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let moving: Vec<Cam> = (0..12).map(|_| next(&broker.messages)).collect();
    let moved_m: Vec<f64> = moving.windows(2).map(|pair| metres_east(&pair[1]) - metres_east(&pair[0])).collect();
    // 4 m or more by three reports; by two if the next one is late, when the last interval has passed again. One of
    // 18 m would be a second.
    let few = moved_m.iter().filter(|moved_m| (3.0..9.5).contains(*moved_m)).count();
    assert!(few > moved_m.len() / 2, "{moved_m:?}");
    for cam in &moving {
        let vehicle = cam.vehicle.unwrap();
        assert_eq!((cam.station_type, vehicle.heading_deg, vehicle.speed_m_s), (5, Some(90.0), Some(18.0)));
        // 2026-05-04T10:20:30.250 UTC.
        assert_eq!(cam.generation_delta_time, ((1_777_890_030_250_u64 - 1_072_915_200_000 + 5_000) % 65_536) as u16);
    }
    let has_low_frequency = |cam: &Cam| cam.vehicle.unwrap().low_frequency.is_some();
    assert!(has_low_frequency(&moving[0]) && !moving.iter().all(has_low_frequency));
    gpsd.speed_cm_s.store(0, Relaxed);
    let stands = |cam: &Cam| cam.vehicle.unwrap().speed_m_s == Some(0.0);
    let first = std::iter::repeat_with(|| next(&broker.messages)).find(stands).unwrap();
    let later = next(&broker.messages);
    assert_eq!((later.longitude_deg, stands(&later)), (first.longitude_deg, true));
    assert_eq!(first.vehicle.unwrap().heading_deg, None, "a vehicle that stands has no course");
    let (_, stderr) = agent.end();
    assert_eq!(stderr.matches("gpsd").count() + stderr.matches("CAM").count(), 0, "{stderr}");
}

#[test]
fn a_position_that_jumps_is_not_announced() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 20.0, 5);
    let (gpsd, broker) = (Gpsd::start(&testbed.vehicle), Broker::start(&testbed.vehicle, BROKER));
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let is_true = |cam: &Cam| cam.latitude_deg.is_some_and(|latitude_deg| (latitude_deg - LATITUDE).abs() < 0.01);
    assert!(is_true(&next(&broker.messages)));
    gpsd.is_deceived.store(true, Relaxed);
    // Until the agent has rejected one: what was sent before is on its way.
    let began = std::time::Instant::now();
    while !agent.read("events.jsonl").contains("a report of gpsd is rejected: the position jumps by 111.2 km") {
        assert!(began.elapsed() < LIMIT, "{}", agent.read("events.jsonl"));
        sleep(PERIOD);
    }
    gpsd.is_deceived.store(false, Relaxed);
    let after: Vec<Cam> = (0..12).map(|_| next(&broker.messages)).collect();
    assert!(after.iter().all(is_true), "{after:?}");
    let (_, stderr) = agent.end();
    assert!(!stderr.contains("gpsd"), "{stderr}");
}

#[test]
fn without_position_or_broker_the_agent_says_so_once_and_sends_when_they_are_there() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 20.0, 5);
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    // Several attempts.
    sleep(Duration::from_secs(3));
    let (gpsd, broker) = (Gpsd::start(&testbed.vehicle), Broker::start(&testbed.vehicle, BROKER));
    next(&broker.messages);
    gpsd.is_silent.store(true, Relaxed);
    sleep(SILENCE);
    while broker.messages.try_recv().is_ok() {}
    let silent = broker.messages.recv_timeout(SILENCE);
    assert_eq!(silent.err(), Some(mpsc::RecvTimeoutError::Timeout), "a CAM with a position that is old");
    gpsd.is_silent.store(false, Relaxed);
    next(&broker.messages);
    let (_, stderr) = agent.end();
    let count = |sentence: &str| stderr.matches(sentence).count();
    let begin = "crosslane: while receiving the position from gpsd at 127.0.0.1:2947: ";
    assert_eq!(count(begin), 2, "not there, and silent: {stderr}");
    assert!(stderr.contains("no further TPV report for 3 s; start gpsd there with a receiver"), "{stderr}");
    assert_eq!(count("receiving the position from gpsd at 127.0.0.1:2947 works now"), 2, "{stderr}");
    assert_eq!(count("crosslane: while sending CAMs to the MQTT broker 127.0.0.1:1883: "), 1, "{stderr}");
    assert!(stderr.contains("; start the on-board unit's broker, or correct cam.broker; the agent continues"));
    assert_eq!(count("sending CAMs to the MQTT broker 127.0.0.1:1883 works now"), 1, "{stderr}");
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(namespace: &Namespace, program: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Running(namespace.spawn(&mut command).unwrap())
}

/// A sentence of NMEA 0183 with its checksum.
fn nmea(body: &str) -> String {
    format!("${body}*{:02X}\r\n", body.bytes().fold(0, |sum, byte| sum ^ byte))
}

#[test]
fn gpsd_and_mosquitto_carry_what_the_agent_sends() {
    let is_installed = |program: &&str| Command::new(program).arg("-h").output().is_err();
    if let Some(missing) = ["gpsd", "mosquitto", "mosquitto_sub"].iter().find(|program| is_installed(program)) {
        drop(writeln!(
            std::io::stderr(),
            "interop NOT RUN: no {missing} (apt install gpsd mosquitto mosquitto-clients)"
        ));
        return;
    }
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 20.0, 5);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mosquitto.conf");
    std::fs::write(&file, "listener 1883 127.0.0.1\nallow_anonymous true\npersistence false\n").unwrap();
    let vehicle = &testbed.vehicle;
    let _broker = start(vehicle, "mosquitto", &["-c", file.to_str().unwrap()]);
    let _gpsd = start(vehicle, "gpsd", &["-N", "-n", "-S", "2947", "udp://127.0.0.1:15000"]);
    let receiver = vehicle.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    thread::spawn(move || {
        for tenth in (0..600).cycle() {
            // 20 m/s (38.9 knots) to the east: 0.00142 minutes in 100 ms.
            let (minutes, time) = (39.0 - 0.001_42 * f64::from(tenth), format!("1020{:04.1}", f64::from(tenth) / 10.0));
            let rmc = format!("GPRMC,{time},A,4038.4000,N,008{minutes:07.4},W,038.9,090.0,040526,,,A");
            let gga = format!("GPGGA,{time},4038.4000,N,008{minutes:07.4},W,1,08,1.0,12.3,M,50.0,M,,");
            drop(receiver.send_to((nmea(&rmc) + &nmea(&gga)).as_bytes(), "127.0.0.1:15000"));
            sleep(PERIOD);
        }
    });
    let agent = Agent::start(vehicle, CONFIGURATION);
    // Until the broker listens, a subscriber fails.
    let (sender, messages) = channel();
    let namespace = Arc::new(testbed);
    let subscribed = namespace.clone();
    thread::spawn(move || {
        loop {
            let mut subscriber = start(&subscribed.vehicle, "mosquitto_sub", &["-v", "-t", "vanetza/in/#", "-C", "5"]);
            for line in BufReader::new(subscriber.0.stdout.take().unwrap()).lines() {
                let (topic, text) = line.as_ref().unwrap().split_once(' ').unwrap();
                if sender.send((topic.to_owned(), text.to_owned())).is_err() {
                    return;
                }
            }
            sleep(PERIOD);
        }
    });
    let cams: Vec<Cam> = (0..5).map(|_| next(&messages)).collect();
    for cam in &cams {
        let vehicle = cam.vehicle.unwrap();
        assert_eq!((vehicle.heading_deg, cam.latitude_deg), (Some(90.0), Some(LATITUDE)));
        assert!(vehicle.speed_m_s.is_some_and(|speed| (speed - 20.0).abs() < 0.1), "{vehicle:?}");
    }
    assert!(metres_east(&cams[4]) > metres_east(&cams[0]) + 12.0 || metres_east(&cams[4]) < metres_east(&cams[0]));
    drop(agent.end());
}
