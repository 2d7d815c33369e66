//! Control messages between the endpoints, with a separate EtherType
//! ([`Payload::Control`](super::gre::Payload)). All fields are big-endian.
//!
//! ```text
//! probe    1 | 1 | mode | flags | epoch (4) | padding
//! train    1 | 3 | mode | flags | epoch (4) | padding
//! report   1 | 2 | mode | flags | epoch (4) | peer epoch (4) | paths (1) | paths times:
//!            path (1) | overdue (1 bit), wanted state (7 bits) | rank (1) | highest (4) | arrival in us (4)
//!            | held in us (4) | packets (4) | bytes (4) | ranges (1) | ranges times:
//!              first (4) | length (2)
//! ```
//!
//! Probes have path sequence numbers like data, so a report covers them; so have the packets of a train,
//! whose spacing on arrival gives the path's rate. Reports have none. A probe with additional padding shows
//! that the path carries packets of its length.

use alloc::vec::Vec;

pub use crate::path::MAX_PATHS;
use crate::path::{PathId, PathState};
use crate::tunnel::Mode;

const VERSION: u8 = 1;
const PROBE: u8 = 1;
const REPORT: u8 = 2;
const TRAIN: u8 = 3;
/// Flag of a report: the sender retransmits lost packets.
const RETRANSMITS: u8 = 1;
/// Flag: the receiver follows the sender's mode, wanted states and ranks.
const IS_INITIATOR: u8 = 2;
/// Flag: the sender reads feedback that packets carry, and the bit below.
const READS_FEEDBACK: u8 = 4;
/// Bit of a wanted state: feedback on the sender's packets on the path is overdue.
const OVERDUE: u8 = 0x80;

/// Maximum number of ranges of missing packets reported per path.
pub const MAX_MISSING_RANGES: usize = 12;
/// Length of a probe on the wire, without GRE header, in bytes.
pub const PROBE_BYTES: usize = 8;
/// Length of a packet of a train on the wire, without GRE header, in bytes: with all headers it passes any
/// path of 576 bytes, the IPv4 minimum (RFC 791).
pub const TRAIN_BYTES: usize = 480;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Changes with each start of the sender, so that a restart is detected.
    pub epoch: u32,
    /// The sender's mode.
    pub mode: Mode,
    /// Whether the sender retransmits lost packets.
    pub retransmits: bool,
    /// Whether the receiver follows the sender's mode, wanted states and ranks.
    pub is_initiator: bool,
    /// Whether the sender reads feedback that packets carry.
    pub reads_feedback: bool,
    /// Type and contents.
    pub body: Body,
}

/// Type and contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A packet to be reported at once.
    Probe,
    /// A probe padded to this length, more than [`PROBE_BYTES`], to test the path MTU.
    MtuProbe(u16),
    /// A packet of a train.
    PacketTrain,
    /// Feedback on the paths.
    Report {
        /// The receiver's epoch as known to the sender; 0 if unknown.
        peer_epoch: u32,
        /// One for each path.
        paths: Vec<PathReport>,
    },
}

/// Feedback on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// The sender's wanted state of the path.
    pub wanted_state: PathState,
    /// The path's place in the sender's order, 0 first.
    pub rank: u8,
    /// Whether feedback on the sender's packets on the path is overdue. Only for a peer that reads feedback.
    pub is_overdue: bool,
    /// Path sequence number of the newest packet, modulo 2³².
    pub highest: u32,
    /// Arrival of the newest packet by the sender's clock, in µs modulo 2³².
    pub arrival_us: u32,
    /// Time from that arrival to the report, in µs.
    pub held_us: u32,
    /// Packets received since the epoch began, modulo 2³².
    pub packets: u32,
    /// Their bytes, as sent in datagrams, modulo 2³².
    pub bytes: u32,
    /// Ranges of packets recently missing: first sequence number and length.
    pub missing: Vec<(u32, u16)>,
}

impl Body {
    /// Length on the wire, without GRE header, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Body::PacketTrain => TRAIN_BYTES,
            Body::MtuProbe(bytes) => usize::from(*bytes).max(PROBE_BYTES),
            Body::Probe => PROBE_BYTES,
            Body::Report { paths, .. } => 13 + paths.iter().map(|path| 24 + 6 * path.missing.len()).sum::<usize>(),
        }
    }
}

impl Message {
    /// Appends the message.
    pub fn write(&self, into: &mut Vec<u8>) {
        let flags = (u8::from(self.retransmits) * RETRANSMITS)
            | (u8::from(self.is_initiator) * IS_INITIATOR)
            | (u8::from(self.reads_feedback) * READS_FEEDBACK);
        let kind = match self.body {
            Body::Probe | Body::MtuProbe(_) => PROBE,
            Body::PacketTrain => TRAIN,
            Body::Report { .. } => REPORT,
        };
        into.extend([VERSION, kind, self.mode as u8, flags]);
        into.extend(self.epoch.to_be_bytes());
        let Body::Report { peer_epoch, paths } = &self.body else {
            into.resize(into.len() + self.body.bytes() - 8, 0);
            return;
        };
        into.extend(peer_epoch.to_be_bytes());
        into.push(paths.len().min(MAX_PATHS) as u8);
        for path in paths.iter().take(MAX_PATHS) {
            let overdue = u8::from(path.is_overdue) * OVERDUE;
            into.extend([path.path.0, path.wanted_state as u8 | overdue, path.rank]);
            for word in [path.highest, path.arrival_us, path.held_us, path.packets, path.bytes] {
                into.extend(word.to_be_bytes());
            }
            into.push(path.missing.len().min(MAX_MISSING_RANGES) as u8);
            for (first, length) in path.missing.iter().take(MAX_MISSING_RANGES) {
                into.extend(first.to_be_bytes());
                into.extend(length.to_be_bytes());
            }
        }
    }

    /// Reads a message; `None` if it is malformed or of another version.
    pub fn read(bytes: &[u8]) -> Option<Message> {
        let mut from = Reader(bytes);
        let [version, kind, mode, flags] = from.take()?;
        let epoch = from.u32()?;
        let body = match (version, kind) {
            (VERSION, PROBE) if bytes.len() > PROBE_BYTES => Body::MtuProbe(u16::try_from(bytes.len()).ok()?),
            (VERSION, PROBE) => Body::Probe,
            (VERSION, TRAIN) => Body::PacketTrain,
            (VERSION, REPORT) => Body::Report { peer_epoch: from.u32()?, paths: from.paths()? },
            _ => return None,
        };
        let mode = Mode::ALL.into_iter().find(|known| *known as u8 == mode)?;
        Some(Message {
            epoch,
            mode,
            retransmits: flags & RETRANSMITS != 0,
            is_initiator: flags & IS_INITIATOR != 0,
            reads_feedback: flags & READS_FEEDBACK != 0,
            body,
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn paths(&mut self) -> Option<Vec<PathReport>> {
        let [count] = self.take()?;
        (0..usize::from(count))
            .map(|_| self.path())
            .collect::<Option<Vec<_>>>()
            .filter(|paths| paths.len() <= MAX_PATHS)
    }

    fn path(&mut self) -> Option<PathReport> {
        let [path, wanted_state, rank] = self.take()?;
        let is_overdue = wanted_state & OVERDUE != 0;
        let wanted_state = [PathState::Closed, PathState::Backup, PathState::Active]
            .into_iter()
            .find(|known| *known as u8 == wanted_state & !OVERDUE)?;
        let (highest, arrival_us, held_us) = (self.u32()?, self.u32()?, self.u32()?);
        let (packets, bytes) = (self.u32()?, self.u32()?);
        let [ranges] = self.take()?;
        let range = |_| Some((self.u32()?, self.take().map(u16::from_be_bytes)?));
        let missing = (0..usize::from(ranges)).map(range).collect::<Option<Vec<_>>>()?;
        let good = path < MAX_PATHS as u8 && missing.len() <= MAX_MISSING_RANGES;
        good.then_some(PathReport {
            path: PathId(path),
            wanted_state,
            rank,
            is_overdue,
            highest,
            arrival_us,
            held_us,
            packets,
            bytes,
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path_reports() -> impl Strategy<Value = PathReport> {
        let wanted_state = prop::sample::select(alloc::vec![PathState::Closed, PathState::Backup, PathState::Active]);
        let missing = prop::collection::vec(any::<(u32, u16)>(), 0..=MAX_MISSING_RANGES);
        (0u8..16, wanted_state, any::<(u8, bool)>(), any::<[u32; 5]>(), missing).prop_map(
            |(path, wanted_state, (rank, is_overdue), [highest, arrival_us, held_us, packets, bytes], missing)| {
                PathReport {
                    path: PathId(path),
                    wanted_state,
                    rank,
                    is_overdue,
                    highest,
                    arrival_us,
                    held_us,
                    packets,
                    bytes,
                    missing,
                }
            },
        )
    }

    fn messages() -> impl Strategy<Value = Message> {
        let report = (any::<u32>(), prop::collection::vec(path_reports(), 0..=4));
        let body = prop_oneof![
            Just(Body::Probe),
            Just(Body::PacketTrain),
            (PROBE_BYTES as u16 + 1..9300).prop_map(Body::MtuProbe),
            report.prop_map(|(peer_epoch, paths)| Body::Report { peer_epoch, paths })
        ];
        (any::<u32>(), prop::sample::select(Mode::ALL.to_vec()), any::<[bool; 3]>(), body).prop_map(
            |(epoch, mode, [retransmits, is_initiator, reads_feedback], body)| Message {
                epoch,
                mode,
                retransmits,
                is_initiator,
                reads_feedback,
                body,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in messages()) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            prop_assert_eq!(message.body.bytes(), bytes.len());
            prop_assert_eq!(Message::read(&bytes), Some(message));
        }

        #[test]
        fn a_truncated_message_is_rejected(message in messages(), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            let whole = if matches!(message.body, Body::Report { .. }) { bytes.len() } else { 8 };
            prop_assert_eq!(Message::read(&bytes[..cut.index(whole)]), None);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::read(&bytes);
        }
    }
}
