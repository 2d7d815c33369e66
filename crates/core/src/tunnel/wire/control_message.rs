//! What the ends of a tunnel tell each other, under an EtherType of its own
//! ([`Payload::Control`](super::gre::Payload)). All numbers are big-endian.
//!
//! ```text
//! probe    1 | 1 | mode | flags | epoch (4) | padding
//! train    1 | 3 | mode | flags | epoch (4) | padding
//! report   1 | 2 | mode | flags | epoch (4) | heard (4) | paths (1) | paths times:
//!            path (1) | wish (1) | rank (1) | highest (4) | arrival in us (4) | held in us (4)
//!            | packets (4) | bytes (4) | runs (1) | runs times: first (4) | length (2)
//! ```
//!
//! A probe is numbered on its path like data, so a report covers it, and so are
//! the packets of a train, by whose distance it shows how fast the path is; a
//! report is not numbered. A probe with more padding than is needed shows that
//! the path carries packets of its length.

use alloc::vec::Vec;

use crate::path::{PathId, PathState};
use crate::tunnel::Mode;

const VERSION: u8 = 1;
const PROBE: u8 = 1;
const REPORT: u8 = 2;
const TRAIN: u8 = 3;
/// Of a report: what was lost is sent again.
const REPAIRS: u8 = 1;
/// The other end is to follow this one's mode and wishes.
const LEADS: u8 = 2;

/// Paths that a report may speak of.
pub const MAX_PATHS: usize = 16;
/// Runs of missing packets told of a path at most.
pub const MAX_MISSING_RANGES: usize = 12;
/// Length of a probe on the wire, without GRE header, in bytes.
pub const PROBE_BYTES: usize = 24;
/// The same of a packet of a train: with all headers it passes any path of 576
/// bytes, the least that IPv4 promises (RFC 791).
pub const TRAIN_BYTES: usize = 480;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Changes with each start of the sender, so that a restart shows.
    pub epoch: u32,
    /// How the sender uses the paths.
    pub mode: Mode,
    /// Whether the sender sends again what was lost.
    pub retransmits: bool,
    /// Whether the other end is to follow mode and wishes.
    pub is_initiator: bool,
    /// What it says beyond.
    pub body: Body,
}

/// Kind and contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// To be reported at once.
    Probe,
    /// The same, padded to so many bytes, more than [`PROBE_BYTES`]: to learn whether
    /// the path carries it.
    MtuProbe(u16),
    /// One of several in a row.
    PacketTrain,
    /// What has arrived.
    Report {
        /// Epoch of the one it is told; 0 if none is known.
        peer_epoch: u32,
        /// By path.
        paths: Vec<PathReport>,
    },
}

/// What has arrived over a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// What the reporter wants of it.
    pub wanted_state: PathState,
    /// Its place in the reporter's preference, 0 first.
    pub rank: u8,
    /// Number of the newest packet, modulo 2³².
    pub highest: u32,
    /// When it arrived by the reporter's clock, in µs modulo 2³².
    pub arrival_us: u32,
    /// How long ago that was when the report left, in µs.
    pub held_us: u32,
    /// Packets that arrived since the epoch began, modulo 2³².
    pub packets: u32,
    /// Their bytes as sent in datagrams, modulo 2³².
    pub bytes: u32,
    /// What lately did not arrive: first number and how many.
    pub missing: Vec<(u32, u16)>,
}

impl Body {
    /// Length on the wire of what is numbered, without GRE header, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Body::PacketTrain => TRAIN_BYTES,
            Body::MtuProbe(bytes) => usize::from(*bytes).max(PROBE_BYTES),
            Body::Probe | Body::Report { .. } => PROBE_BYTES,
        }
    }
}

impl Message {
    /// Appends the message.
    pub fn write(&self, into: &mut Vec<u8>) {
        let flags = (u8::from(self.retransmits) * REPAIRS) | (u8::from(self.is_initiator) * LEADS);
        let kind = match self.body {
            Body::Probe | Body::MtuProbe(_) => PROBE,
            Body::PacketTrain => TRAIN,
            Body::Report { .. } => REPORT,
        };
        into.extend([VERSION, kind, self.mode.code(), flags]);
        into.extend(self.epoch.to_be_bytes());
        let Body::Report { peer_epoch, paths } = &self.body else {
            into.resize(into.len() + self.body.bytes() - 8, 0);
            return;
        };
        into.extend(peer_epoch.to_be_bytes());
        into.push(paths.len().min(MAX_PATHS) as u8);
        for path in paths.iter().take(MAX_PATHS) {
            into.extend([path.path.0, path.wanted_state as u8, path.rank]);
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

    /// Reads a message; `None` if it is none of this version.
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
        let mode = Mode::of_code(mode)?;
        Some(Message { epoch, mode, retransmits: flags & REPAIRS != 0, is_initiator: flags & LEADS != 0, body })
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
        let wanted_state = [PathState::Closed, PathState::Backup, PathState::Active]
            .into_iter()
            .find(|known| *known as u8 == wanted_state)?;
        let (highest, arrival_us, held_us) = (self.u32()?, self.u32()?, self.u32()?);
        let (packets, bytes) = (self.u32()?, self.u32()?);
        let [runs] = self.take()?;
        let run = |_| Some((self.u32()?, self.take().map(u16::from_be_bytes)?));
        let missing = (0..usize::from(runs)).map(run).collect::<Option<Vec<_>>>()?;
        let good = path < MAX_PATHS as u8 && missing.len() <= MAX_MISSING_RANGES;
        good.then_some(PathReport {
            path: PathId(path),
            wanted_state,
            rank,
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
        (0u8..16, wanted_state, any::<u8>(), any::<[u32; 5]>(), missing).prop_map(
            |(path, wanted_state, rank, [highest, arrival_us, held_us, packets, bytes], missing)| PathReport {
                path: PathId(path),
                wanted_state,
                rank,
                highest,
                arrival_us,
                held_us,
                packets,
                bytes,
                missing,
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
        (any::<u32>(), prop::sample::select(Mode::ALL.to_vec()), any::<[bool; 2]>(), body).prop_map(
            |(epoch, mode, [retransmits, is_initiator], body)| Message { epoch, mode, retransmits, is_initiator, body },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in messages()) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            prop_assert_eq!(Message::read(&bytes), Some(message));
        }

        #[test]
        fn a_cut_message_is_none(message in messages(), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            let whole = if matches!(message.body, Body::Report { .. }) { bytes.len() } else { 8 };
            prop_assert_eq!(Message::read(&bytes[..cut.index(whole)]), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::read(&bytes);
        }
    }
}
