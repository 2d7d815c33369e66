//! Signal, rates and failures of Wi-Fi and 802.11p interfaces, from the kernel.
//!
//! The stations of each interface are read every 100 ms, and at once when the kernel's connection quality monitoring
//! reports something. A sample is made only if a frame arrived since: one that ages is none. The thread is separate,
//! since some drivers ask the device.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crosslane_core::path::{PathId, Sample, SampleKind, Signal};
use nix::net::if_::if_nametoindex;

use super::Observed;
use super::worker::{RETRY_PAUSE, Reporter, Wording, Worker};
use crate::error::{Error, Result};
use crate::netlink::EventError;
use crate::netlink::wireless::{Station, Wireless};

/// Longest time between two readings: access points send a beacon every 102.4 ms.
const PERIOD: Duration = Duration::from_millis(100);
/// Shortest time between two readings, however many events there are.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// A path over a Wi-Fi or 802.11p interface.
pub struct WirelessPath {
    /// The path.
    pub path: PathId,
    /// Its interface.
    pub interface: String,
    /// Whether the signal of its stations is that of the path; not if it is known from their CAMs: in OCB mode any
    /// vehicle is a station.
    pub has_signal: bool,
}

/// Starts to watch these paths.
///
/// # Errors
/// The system starts no thread.
pub fn watch(paths: Vec<WirelessPath>) -> Result<Worker> {
    let attempt = "reading signals of Wi-Fi and 802.11p from nl80211";
    let wording = Wording {
        attempt: attempt.into(),
        remedy: "plug in or enable the device, or remove observe.nl80211",
        lacks: "these signals",
    };
    let worker = Worker::thread("nl80211", wording, move |reporter| work(paths, reporter));
    worker.map_err(|cause| Error::failure(attempt, cause))
}

fn work(paths: Vec<WirelessPath>, mut reporter: Reporter) {
    let mut watched: Vec<Watched> = paths.into_iter().map(Watched::new).collect();
    while !reporter.is_over() {
        if let Err(cause) = read(&mut watched, &mut reporter)
            && let Some(note) = reporter.fails(cause)
        {
            reporter.send_blocking(Ok(note));
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// Reads until a socket fails, or the agent does not listen any more.
fn read(watched: &mut [Watched], reporter: &mut Reporter) -> Result<(), String> {
    let mut wireless = Wireless::open().map_err(|cause| cause.to_string())?;
    let mut events = wireless.events().map_err(|cause| cause.to_string())?;
    if let Some(note) = reporter.works() {
        reporter.send_blocking(Ok(note));
    }
    while !reporter.is_over() {
        let observed = watched.iter_mut().flat_map(|watched| watched.read(&mut wireless));
        observed.for_each(|observed| reporter.send_blocking(observed));
        thread::sleep(MIN_PAUSE);
        if let Err(fault @ EventError::Io(_)) = events.recv(PERIOD - MIN_PAUSE) {
            return Err(fault.to_string());
        }
    }
    Ok(())
}

/// What was received of a station, and its signal.
type Reading = ((u64, u64), Option<i8>);

struct Watched {
    of: WirelessPath,
    /// The last reading of each station, by its address.
    known: BTreeMap<[u8; 6], Reading>,
    /// Whether a note says that the interface cannot be read.
    is_noted: bool,
}

impl Watched {
    fn new(of: WirelessPath) -> Watched {
        Watched { of, known: BTreeMap::new(), is_noted: false }
    }

    fn read(&mut self, wireless: &mut Wireless) -> Vec<Result<Observed, String>> {
        let interface = self.of.interface.as_str();
        // That an interface is missing is the agent's to say.
        let Ok(if_index) = if_nametoindex(interface) else { return Vec::new() };
        match wireless.stations(if_index) {
            Ok(stations) => {
                self.is_noted = false;
                self.samples(&stations)
            }
            Err(_) if self.is_noted => Vec::new(),
            Err(cause) => {
                self.is_noted = true;
                let fault = Error::failure(format!("reading the stations of {interface} from nl80211"), cause);
                let fault = fault.with_remedy("give the path a Wi-Fi or 802.11p interface, or another `rat`");
                Vec::from([Ok(Observed::Note(fault.to_string()))])
            }
        }
    }

    /// Samples of the strongest station from which a frame arrived since the last reading.
    fn samples(&mut self, stations: &[Station]) -> Vec<Result<Observed, String>> {
        let state = |station: &Station| (station.received, station.signal_dbm);
        let known = stations.iter().map(|station| (station.address, state(station))).collect();
        let known = std::mem::replace(&mut self.known, known);
        let fresh = stations.iter().filter(|station| known.get(&station.address) != Some(&state(station)));
        let Some(station) = fresh.max_by_key(|station| station.signal_dbm) else { return Vec::new() };
        let sample = |kind| Ok(Sample { path: self.of.path, kind }.into());
        let signal = station.signal_dbm.filter(|_| self.of.has_signal).map(|dbm| match dbm {
            -120..0 => sample(SampleKind::Signal(Signal { rssi_dbm: dbm.into(), ..Signal::default() })),
            _ => Err(format!("a signal of {dbm} dBm over {}", self.of.interface)),
        });
        signal.into_iter().chain([sample(SampleKind::Radio(station.link))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use crosslane_core::agent::Input;
    use crosslane_core::path::RadioLink;

    use super::*;

    fn watched(has_signal: bool) -> Watched {
        Watched::new(WirelessPath { path: PathId(2), interface: "wlan0".into(), has_signal })
    }

    fn station(last: u8, signal_dbm: i8, beacons: u64) -> Station {
        let link = RadioLink { failures: Some(last.into()), ..RadioLink::default() };
        let address = [2, 0, 0, 0, 0, last];
        Station { address, signal_dbm: Some(signal_dbm), received: (7, beacons), link, ..Station::default() }
    }

    /// The signals, and the failures that tell the station.
    fn read(watched: &mut Watched, stations: &[Station]) -> (Vec<f32>, Vec<u32>) {
        let (mut signals, mut failures) = (Vec::new(), Vec::new());
        for observed in watched.samples(stations) {
            match observed {
                Ok(Observed::Input(Input::Sample(Sample { path: PathId(2), kind: SampleKind::Signal(signal) }))) => {
                    signals.push(signal.rssi_dbm);
                }
                Ok(Observed::Input(Input::Sample(Sample { kind: SampleKind::Radio(link), .. }))) => {
                    failures.extend(link.failures);
                }
                _ => signals.push(f32::NAN),
            }
        }
        (signals, failures)
    }

    #[test]
    fn a_signal_without_a_frame_since_the_last_reading_is_no_sample() {
        let mut watched = watched(true);
        assert_eq!(read(&mut watched, &[station(1, -60, 5)]), (vec![-60.0], vec![1]));
        assert_eq!(read(&mut watched, &[station(1, -60, 5)]), (vec![], vec![]));
        assert_eq!(read(&mut watched, &[station(1, -60, 6)]).0, [-60.0], "a beacon of the same strength");
        assert_eq!(read(&mut watched, &[station(1, -61, 6)]).0, [-61.0], "a driver that filters beacons");
        assert_eq!(read(&mut watched, &[]), (vec![], vec![]));
        assert_eq!(read(&mut watched, &[station(1, -61, 6)]).0, [-61.0], "associated again");
    }

    #[test]
    fn the_strongest_station_that_sent_counts_unless_cams_tell_the_signal() {
        let mut both = [station(1, -60, 5), station(2, -50, 5)];
        assert_eq!(read(&mut watched(false), &both), (vec![], vec![2]));
        let mut watched = watched(true);
        assert_eq!(read(&mut watched, &both), (vec![-50.0], vec![2]));
        both[0].received.1 += 1;
        assert_eq!(read(&mut watched, &both), (vec![-60.0], vec![1]), "the other one sent nothing");
        both[1].signal_dbm = Some(5);
        assert!(read(&mut watched, &both).0[0].is_nan(), "no signal has 5 dBm");
    }
}
