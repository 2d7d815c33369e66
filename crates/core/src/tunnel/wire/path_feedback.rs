//! Feedback on one path in its short form, before the packet that carries it
//! ([`Payload::WithFeedback`](super::gre::Payload)). All fields are big-endian.
//!
//! ```text
//! check (1) | path (1) | highest (3) | arrival in us (4) | held in 4 us (2) | bytes (4)
//! ```
//!
//! The fields are those of a report on the path ([`PathReport`]) without missing packets. `check` is the sum of
//! the bytes of both epochs, so that feedback of an endpoint that has restarted since is ignored.

use alloc::vec::Vec;

use super::control_message::{MAX_PATHS, PathReport};
use super::gre_key::NUMBER_BITS;
use crate::path::{PathId, PathState};

/// Length on the wire, in bytes.
pub const FEEDBACK_BYTES: u32 = 15;
/// Unit of the time from the arrival to the feedback, in µs.
const HELD_UNIT_US: u32 = 4;

/// Feedback on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFeedback {
    /// The sum of the bytes of both epochs, modulo 256.
    pub check: u8,
    /// The path.
    pub path: PathId,
    /// Path sequence number of the newest packet, modulo 2²⁴.
    pub highest: u32,
    /// Its arrival by the sender's clock, in µs modulo 2³².
    pub arrival_us: u32,
    /// Time from that arrival to the feedback, in units of 4 µs.
    pub held: u16,
    /// Bytes received since the epoch began, as sent in datagrams, modulo 2³².
    pub bytes: u32,
}

impl PathFeedback {
    /// The short form of a report; `None` if it has missing packets, or is later than the field can say.
    pub fn of(report: &PathReport, check: u8) -> Option<PathFeedback> {
        let &PathReport { path, arrival_us, bytes, .. } = report;
        let held = u16::try_from(report.held_us / HELD_UNIT_US).ok().filter(|_| report.missing.is_empty())?;
        let highest = report.highest & ((1 << NUMBER_BITS) - 1);
        Some(PathFeedback { check, path, highest, arrival_us, held, bytes })
    }

    /// The report.
    pub fn report(self) -> PathReport {
        PathReport {
            path: self.path,
            wanted_state: PathState::Active,
            rank: 0,
            is_overdue: false,
            highest: self.highest,
            arrival_us: self.arrival_us,
            held_us: u32::from(self.held) * HELD_UNIT_US,
            packets: 0,
            bytes: self.bytes,
            missing: Vec::new(),
        }
    }

    /// Appends the feedback.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend([self.check, self.path.0]);
        into.extend(&self.highest.to_be_bytes()[1..]);
        into.extend(self.arrival_us.to_be_bytes());
        into.extend(self.held.to_be_bytes());
        into.extend(self.bytes.to_be_bytes());
    }

    /// Reads the feedback before a packet; returns it and the packet. `None` if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<(PathFeedback, &[u8])> {
        let (&[check, path, h2, h1, h0, a3, a2, a1, a0, d1, d0, b3, b2, b1, b0], packet) =
            bytes.split_first_chunk::<{ FEEDBACK_BYTES as usize }>()?;
        let feedback = PathFeedback {
            check,
            path: PathId(path),
            highest: u32::from_be_bytes([0, h2, h1, h0]),
            arrival_us: u32::from_be_bytes([a3, a2, a1, a0]),
            held: u16::from_be_bytes([d1, d0]),
            bytes: u32::from_be_bytes([b3, b2, b1, b0]),
        };
        (usize::from(path) < MAX_PATHS && !packet.is_empty()).then_some((feedback, packet))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn feedback() -> impl Strategy<Value = PathFeedback> {
        (any::<u8>(), 0..16u8, 0..1u32 << NUMBER_BITS, any::<[u32; 2]>(), any::<u16>()).prop_map(
            |(check, path, highest, [arrival_us, bytes], held)| PathFeedback {
                check,
                path: PathId(path),
                highest,
                arrival_us,
                held,
                bytes,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(feedback in feedback(), packet in prop::collection::vec(any::<u8>(), 1..40)) {
            let mut bytes = Vec::new();
            feedback.write(&mut bytes);
            prop_assert_eq!(bytes.len(), FEEDBACK_BYTES as usize);
            bytes.extend(&packet);
            prop_assert_eq!(PathFeedback::read(&bytes), Some((feedback, &packet[..])));
            prop_assert_eq!(PathFeedback::read(&bytes[..FEEDBACK_BYTES as usize]), None, "there is no packet");
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some((feedback, _)) = PathFeedback::read(&bytes) {
                prop_assert!(feedback.path.0 < 16);
                let _ = feedback.report();
            }
        }

        #[test]
        fn the_short_form_says_what_the_report_says(feedback in feedback(), upper: u8) {
            let report = feedback.report();
            let numbered = PathReport { highest: report.highest | u32::from(upper) << NUMBER_BITS, ..report.clone() };
            prop_assert_eq!(PathFeedback::of(&numbered, 7).map(PathFeedback::report), Some(report));
        }
    }

    #[test]
    fn a_report_with_missing_packets_has_no_short_form() {
        let feedback = PathFeedback { check: 1, path: PathId(2), highest: 3, arrival_us: 4, held: 5, bytes: 6 };
        let report = feedback.report();
        assert_eq!(PathFeedback::of(&report, 1), Some(feedback));
        assert_eq!(PathFeedback::of(&PathReport { missing: vec![(1, 1)], ..report.clone() }, 1), None);
        assert_eq!(PathFeedback::of(&PathReport { held_us: 262_144, ..report }, 1), None);
    }
}
