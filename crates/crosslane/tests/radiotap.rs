//! An agent that receives CAMs as frames on a monitor interface: a TAP device whose frames begin with a radiotap header.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::{self, two_links};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::{Namespace, Wiring, vehicle_address};
use crosslane_sim::radio::cam::{self, Cam, ROADSIDE_UNIT};

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "its-g5"
rat = "80211p"
stations = [1001]
[strategy]
name = "threshold"
[observe]
radiotap = "mon0"
[log]
events = "EVENTS"
"#;
/// `ARPHRD_IEEE80211_RADIOTAP`.
const RADIOTAP: nix::libc::c_ulong = 803;
/// Period of the roadside unit's messages.
const PERIOD: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(20);

nix::ioctl_write_ptr_bad!(
    /// Creates the interface that the request names.
    set_interface,
    nix::libc::TUNSETIFF,
    nix::libc::ifreq
);
nix::ioctl_write_int!(
    /// Sets the hardware type.
    set_link,
    b'T',
    205
);

/// A monitor interface, up; it is removed with the file.
fn monitor(namespace: &Namespace, name: &str) -> File {
    let make = || {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: zeros are a valid ifreq.
        let mut request: nix::libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as nix::libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (nix::libc::IFF_TAP | nix::libc::IFF_NO_PI) as i16;
        // SAFETY: `request` is a whole ifreq whose name ends with a zero; the hardware type is an integer.
        unsafe {
            set_interface(file.as_raw_fd(), &request).unwrap();
            set_link(file.as_raw_fd(), RADIOTAP).unwrap();
        }
        Wiring::open().unwrap().bring_up(name, 2300, 100).unwrap();
        file
    };
    namespace.enter(make).unwrap()
}

/// The frame of a CAM: radiotap header with flags and signal, data frame with QoS.
fn frame(station_id: u32, dbm: i8) -> Vec<u8> {
    let cam = Cam {
        protocol_version: 2,
        station_id,
        station_type: ROADSIDE_UNIT,
        generation_delta_time: 5,
        latitude_deg: Some(40.64),
        longitude_deg: Some(-8.655),
        vehicle: None,
    };
    let mut frame = vec![0, 0, 10, 0, 1 << 1 | 1 << 5, 0, 0, 0, 0, dbm as u8];
    frame.extend([0x88, 0, 0, 0]);
    frame.extend([0xff; 6]);
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend([0xff; 6]);
    frame.extend([0x10, 0, 3, 0]);
    frame.extend([0xaa, 0xaa, 3, 0, 0, 0, 0x89, 0x47]);
    frame.extend(cam::encode(&cam).unwrap());
    frame
}

#[test]
fn the_signal_of_frames_decides_about_the_path_of_their_sender() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 10.0, 5);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let began = Instant::now();
    while !agent.read("stderr").contains("while receiving frames on mon0") {
        assert!(began.elapsed() < SOON, "a monitor interface that is missing is named: {}", agent.read("stderr"));
        sleep(PERIOD);
    }
    let mut device = monitor(&testbed.vehicle, "mon0");
    let _connection = links::connect(&testbed, &listener);
    let backup_flag = || {
        let found = testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let local = IpAddr::from(vehicle_address(1));
        let mut subflows = found.iter().flat_map(|connection| &connection.subflows);
        subflows.find(|info| info.subflow.local.ip() == local).map(|info| info.mptcp.backup_local())
    };
    let mut send_until = |dbm, expected: Option<bool>| {
        let began = Instant::now();
        while backup_flag() != expected {
            assert!(began.elapsed() < SOON, "{dbm} dBm: {:?}; {}", backup_flag(), agent.read("stderr"));
            // Another station is no roadside unit of the path, and a short frame none at all.
            for frame in [frame(1001, dbm), frame(7, -20), frame(1001, -20)[..60].to_vec()] {
                device.write_all(&frame).unwrap();
            }
            sleep(PERIOD);
        }
    };
    send_until(-60, Some(false));
    send_until(-95, Some(true));
    send_until(-60, Some(false));
    let stderr = agent.read("stderr");
    assert!(stderr.contains("receiving frames on mon0 works now"), "{stderr}");
    let (events, _) = agent.end();
    assert!(events.contains("a CAM from station 7, which no path names"));
}

#[test]
fn an_interface_whose_frames_have_no_radiotap_header_is_named() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "its-g5"], 10.0, 5);
    let agent = Agent::start(&testbed.vehicle, &CONFIGURATION.replace("mon0", "lte"));
    let began = Instant::now();
    let expected =
        "it has frames of the hardware type 65534, not 803 (radiotap); set observe.radiotap to a monitor interface";
    while !agent.read("stderr").contains(expected) {
        assert!(began.elapsed() < SOON, "{}", agent.read("stderr"));
        sleep(PERIOD);
    }
}
