//! Received CAMs as frames of an 802.11p radio in OCB mode, on a monitor interface: a radiotap header with the signal, an
//! 802.11 header, EtherType 0x8947, GeoNetworking. Without an on-board unit's software (decision 82).
//!
//! Sources: radiotap.org (version 0), IEEE 802.11-2020 §9.2.4 and §9.3.2.1, ETSI EN 302 636-4-1 and TS 103 097.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use crosslane_core::path::{Position, Sample, SampleKind, Signal};
use crosslane_sim::radio::cam;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use super::Observed;
use super::vanetza::Senders;
use super::worker::{RETRY_PAUSE, Reporter, Wording, Worker};
use crate::error::{Error, Result};

/// EtherType of GeoNetworking.
pub const ETHERTYPE: u16 = 0x8947;
/// Largest frame read, in bytes: an MPDU of 802.11p has at most 2,346, and a radiotap header some dozens.
const MAX_FRAME: usize = 4096;
/// How often it is seen that nothing listens any more.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Hardware type of an interface whose frames begin with a radiotap header (`ARPHRD_IEEE80211_RADIOTAP`).
const RADIOTAP: u16 = 803;

/// A CAM and the signal of its frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Signal at the antenna, in dBm.
    pub rssi_dbm: f32,
    /// Station id of the sender.
    pub station: u32,
    /// Its position.
    pub position: Option<Position>,
}

/// Reads a frame that begins with a radiotap header; `None` if it is no CAM, is damaged, or has no signal.
pub fn read(frame: &[u8]) -> Option<Received> {
    let (rssi_dbm, mpdu) = radiotap(frame)?;
    let packet = unsigned(geonetworking(mpdu)?)?;
    let cam = cam::decode(&packet).ok()?;
    let position = cam.latitude_deg.zip(cam.longitude_deg);
    let position = position.map(|(latitude_deg, longitude_deg)| Position { latitude_deg, longitude_deg });
    Some(Received { rssi_dbm: rssi_dbm.into(), station: cam.station_id, position })
}

/// Bits of the word of present fields.
mod present {
    pub const FLAGS: usize = 1;
    pub const SIGNAL: usize = 5;
    pub const ANOTHER_WORD: u32 = 1 << 31;
}

/// Alignment and size of the fields up to the signal: TSFT, flags, rate, channel, FHSS, antenna signal.
const FIELDS: [(usize, usize); present::SIGNAL + 1] = [(8, 8), (1, 1), (1, 1), (2, 4), (1, 2), (1, 1)];
/// Bits of the flags: the frame ends with its checksum; data begin at a multiple of 4 bytes; the checksum is wrong.
const HAS_FCS: u8 = 0x10;
const HAS_PADDING: u8 = 0x20;
const IS_DAMAGED: u8 = 0x40;

/// An 802.11 frame without its checksum.
struct Mpdu<'a> {
    bytes: &'a [u8],
    is_padded: bool,
}

/// The signal in dBm, and the frame behind the header. With several antennas the first signal is that of all together.
fn radiotap(frame: &[u8]) -> Option<(i8, Mpdu<'_>)> {
    let length = usize::from(u16::from_le_bytes([*frame.get(2)?, *frame.get(3)?]));
    let (header, rest) = frame.split_at_checked(length)?;
    if header.first() != Some(&0) {
        return None;
    }
    let word = |place: usize| Some(u32::from_le_bytes(header.get(place..place + 4)?.try_into().ok()?));
    let (fields, mut end) = (word(4)?, 8);
    let mut last = fields;
    while last & present::ANOTHER_WORD != 0 {
        last = word(end)?;
        end += 4;
    }
    let (mut flags, mut signal) = (0, None);
    for (bit, (alignment, size)) in FIELDS.into_iter().enumerate().filter(|(bit, _)| fields >> bit & 1 == 1) {
        let at = end.next_multiple_of(alignment);
        end = at + size;
        match bit {
            present::FLAGS => flags = *header.get(at)?,
            present::SIGNAL => signal = Some(i8::from_le_bytes([*header.get(at)?])),
            _ => {}
        }
    }
    let bytes = if flags & HAS_FCS == 0 { rest } else { rest.get(..rest.len().checked_sub(4)?)? };
    let signal = signal.filter(|dbm| (-120..=0).contains(dbm) && flags & IS_DAMAGED == 0)?;
    Some((signal, Mpdu { bytes, is_padded: flags & HAS_PADDING != 0 }))
}

/// The GeoNetworking packet in a data frame.
fn geonetworking(mpdu: Mpdu<'_>) -> Option<&[u8]> {
    const LLC_SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
    let control = u16::from_le_bytes([*mpdu.bytes.first()?, *mpdu.bytes.get(1)?]);
    let bit = |number: u16| control >> number & 1 == 1;
    let (is_data, has_body, is_qos) = (control >> 2 & 3 == 2, !bit(6), bit(7));
    if !is_data || !has_body {
        return None;
    }
    // With three addresses, as all frames outside the context of a BSS.
    let header = 24 + 2 * usize::from(is_qos);
    let header = if mpdu.is_padded { header.next_multiple_of(4) } else { header };
    let body = mpdu.bytes.get(header..)?.strip_prefix(&LLC_SNAP)?;
    body.strip_prefix(&ETHERTYPE.to_be_bytes())
}

/// The packet without its signature, which is not verified: the data of an `EtsiTs103097Data-Signed` begin behind the
/// hash's name and the bytes that say that they are there and not encrypted.
fn unsigned(packet: &[u8]) -> Option<Vec<u8>> {
    let (basic, rest) = packet.split_at_checked(4)?;
    match basic[0] & 0x0f {
        1 => Some(packet.to_vec()),
        2 => {
            let signed = rest.strip_prefix(&[3, 0x81])?;
            let data = signed.get(1..)?.strip_prefix(&[0x40, 3, 0x80])?;
            let (length, data) = match *data {
                [length @ ..=0x7f, ref data @ ..] => (usize::from(length), data),
                [0x81, length, ref data @ ..] => (usize::from(length), data),
                [0x82, high, low, ref data @ ..] => (usize::from(u16::from_be_bytes([high, low])), data),
                _ => return None,
            };
            let basic = [basic[0] & 0xf0 | 1, basic[1], basic[2], basic[3]];
            Some([&basic, data.get(..length)?].concat())
        }
        _ => None,
    }
}

/// Reads the frames on a monitor interface, in a separate thread.
///
/// # Errors
/// The system starts no thread.
pub fn watch(interface: &str, senders: Senders) -> Result<Worker> {
    let wording = Wording {
        attempt: format!("receiving frames on {interface}"),
        remedy: "set observe.radiotap to a monitor interface (iw dev DEVICE interface add mon0 type monitor), up, and give \
                 the agent CAP_NET_RAW",
        lacks: "its CAMs",
    };
    let name = interface.to_owned();
    let worker = Worker::thread("radiotap", wording, move |mut reporter| {
        while !reporter.is_over() {
            let Err(cause) = follow(&name, &mut reporter, &senders) else { return };
            reporter.fails(cause).into_iter().for_each(|note| reporter.send_blocking(Ok(note)));
            sleep(RETRY_PAUSE);
        }
    });
    worker.map_err(|cause| Error::failure("starting a thread for frames", cause))
}

/// Passes on the CAMs until nothing listens any more.
///
/// # Errors
/// The interface is gone, or no monitor interface.
fn follow(interface: &str, reporter: &mut Reporter, senders: &Senders) -> io::Result<()> {
    let socket = open(interface)?;
    reporter.works().into_iter().for_each(|note| reporter.send_blocking(Ok(note)));
    let mut buffer = [0; MAX_FRAME];
    while !reporter.is_over() {
        let length = match io::Read::read(&mut &socket, &mut buffer) {
            Err(cause) if matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            read => read?,
        };
        let Some(Received { rssi_dbm, station, position }) = read(&buffer[..length]) else { continue };
        let signal = Signal { rssi_dbm, station: Some(station), sender: position, ..Signal::default() };
        reporter.send_blocking(match senders.stations.get(&station) {
            Some(&path) => Ok(Sample { path, kind: SampleKind::Signal(signal) }.into()),
            None if senders.has_units => Ok(Observed::Station(signal)),
            None => Err(format!("a CAM from station {station}, which no path names")),
        });
    }
    Ok(())
}

/// A socket for the frames on an interface, in the network namespace of this thread. Before it is bound it receives
/// nothing.
fn open(interface: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.attach_filter(&filter())?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let if_index = if_nametoindex(interface)?;
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a sockaddr_ll is a socket address of the family AF_PACKET.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = if_index as i32;
    // SAFETY: the storage has an address of this length.
    let address = unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
    socket.bind(&address)?;
    let mut bound = socket.local_addr()?.as_storage();
    // SAFETY: the kernel has written a sockaddr_ll; what it left out is zero.
    match unsafe { bound.view_as::<libc::sockaddr_ll>() }.sll_hatype {
        RADIOTAP => Ok(socket),
        kind => Err(io::Error::other(format!("it has frames of the hardware type {kind}, not {RADIOTAP} (radiotap)"))),
    }
}

/// Accepts frames that may have the EtherType behind a short radiotap header: a monitor interface has every frame on the
/// channel. The program loads the header's length, and compares the EtherType of a data frame without and with QoS, and with
/// padding.
fn filter() -> [SockFilter; 10] {
    let statement = |code: u32, k: u32| SockFilter::new(code as u16, 0, 0, k);
    let jump = |equal: u8, other: u8| {
        SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, equal, other, u32::from(ETHERTYPE))
    };
    let half = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    [
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 2),
        SockFilter::new(libc::BPF_MISC as u16 | libc::BPF_TAX as u16, 0, 0, 0),
        statement(half, 30),
        jump(5, 0),
        statement(half, 32),
        jump(3, 0),
        statement(half, 34),
        jump(1, 0),
        statement(libc::BPF_RET | libc::BPF_K, 0),
        statement(libc::BPF_RET | libc::BPF_K, MAX_FRAME as u32),
    ]
}

#[cfg(test)]
mod tests;
