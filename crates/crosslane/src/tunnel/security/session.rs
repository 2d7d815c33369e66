//! A session: the keys that two endpoints have agreed on, encryption and decryption.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::tunnel::anti_replay::Replay;
use crosslane_core::tunnel::wire::overhead::SECURITY_BYTES;
use snow::StatelessTransportState;

use super::message::{self, DATA_HEADER_BYTES, Index, TAG_BYTES};
use super::reject::RejectReason;

/// Paths of a session; the path is in the upper 4 bits of the counter.
pub const PATHS: usize = 16;
/// Bytes that a data message adds to its payload.
pub const DATA_OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;
const _: () = assert!(DATA_OVERHEAD_BYTES == SECURITY_BYTES as usize);

/// The initiator requests new keys when the session is this old (WireGuard, section 6.1): compromise of a
/// vehicle's session keys exposes only these minutes.
pub const REKEY_AFTER: Duration = Duration::from_secs(120);
/// A session this old neither encrypts nor decrypts. In the minute between the two a handshake can succeed despite
/// gaps in coverage.
pub const REJECT_AFTER: Duration = Duration::from_secs(180);
/// The initiator requests new keys after sending this many messages, over all paths. Below 6 Gbit/s the age
/// is reached first.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 26;
/// AES-GCM protects 2^28 messages of up to 2 KiB with one key so that an attacker's advantage in distinguishing them
/// from random is at most 2^-57 (RFC 9001, appendix B.1); no further one is encrypted.
pub const REFUSE_AFTER_MESSAGES: u64 = 1 << 28;

const PATH_SHIFT: u32 = 28;
const _: () = assert!(REFUSE_AFTER_MESSAGES <= 1 << PATH_SHIFT);
/// Longest payload of a UDP datagram over IPv4, in bytes.
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// A pair of keys, for both directions. Encryption and decryption need no lock of the caller, from any number of
/// threads.
pub struct Session {
    noise: StatelessTransportState,
    pub(super) own: Index,
    remote: Index,
    born: Instant,
    is_initiator: bool,
    is_confirmed: AtomicBool,
    sealed: AtomicU64,
    counters: [AtomicU32; PATHS],
    /// Replay windows, 1 KiB for each path that has been used.
    replay_windows: [OnceLock<Box<Mutex<Replay>>>; PATHS],
}

/// Origin of an opened message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Path, as the sender numbers them (0 to 15).
    pub path: u8,
    /// Sequence number of the message among those of its path in this session, from 0.
    pub counter: u64,
}

impl Session {
    pub(super) fn new(
        noise: StatelessTransportState,
        (own, remote): (Index, Index),
        born: Instant,
        is_initiator: bool,
    ) -> Session {
        Session {
            noise,
            own,
            remote,
            born,
            is_initiator,
            // The response has proved to the initiator that the responder has the keys.
            is_confirmed: AtomicBool::new(is_initiator),
            sealed: AtomicU64::new(0),
            counters: Default::default(),
            replay_windows: Default::default(),
        }
    }

    /// Appends a whole data message with the payload `plain`, which may be empty, for `path`. Every message gets a
    /// counter that was never used with these keys.
    ///
    /// # Errors
    /// There is no such path, the message is too long for a datagram, or the keys are exhausted. Nothing is appended.
    pub fn seal(&self, path: u8, plain: &[u8], into: &mut Vec<u8>) -> Result<(), RejectReason> {
        let counters = self.counters.get(usize::from(path)).ok_or(RejectReason::NoSuchPath)?;
        if plain.len() > MAX_DATAGRAM_BYTES - DATA_OVERHEAD_BYTES {
            return Err(RejectReason::TooLong);
        }
        // The number of concurrent callers is far below the difference between the limit and the shift.
        if self.sealed.fetch_add(1, Ordering::Relaxed) >= REFUSE_AFTER_MESSAGES {
            return Err(RejectReason::Exhausted);
        }
        let counter = u32::from(path) << PATH_SHIFT | counters.fetch_add(1, Ordering::Relaxed);
        let begin = into.len();
        into.extend_from_slice(&message::data_header(self.remote, counter));
        let body = into.len();
        into.resize(body + plain.len() + TAG_BYTES, 0);
        self.noise.write_message(counter.into(), plain, &mut into[body..]).map(drop).map_err(|_| {
            into.truncate(begin);
            RejectReason::TooLong
        })
    }

    /// Decrypts a data message into `plain`, whose contents it replaces. An opened message is from the peer and was not
    /// opened before, so its source address may be used as the peer's on this path.
    ///
    /// # Errors
    /// Why the message must be dropped; `plain` is then empty.
    pub fn open(&self, datagram: &[u8], plain: &mut Vec<u8>) -> Result<Opened, RejectReason> {
        let opened = self.open_new(datagram, plain);
        if opened.is_err() {
            plain.clear();
        }
        opened
    }

    fn open_new(&self, datagram: &[u8], plain: &mut Vec<u8>) -> Result<Opened, RejectReason> {
        let (to, sent, sealed) = message::read_data(datagram)?;
        if to != self.own {
            return Err(RejectReason::NoSession);
        }
        let (path, counter) = ((sent >> PATH_SHIFT) as u8, u64::from(sent & ((1 << PATH_SHIFT) - 1)));
        let window = self.replay_windows.get(usize::from(path)).ok_or(RejectReason::NoSuchPath)?;
        // Checked twice: before, so that a flood of replays costs no decryption; after, since another thread may
        // have opened the same message meanwhile.
        if window.get().is_some_and(|window| !is_new(window, |replay| replay.check(counter))) {
            return Err(RejectReason::Replayed);
        }
        // With room for the tag too, the library needs no separate buffer.
        plain.resize(sealed.len(), 0);
        let bytes = self.noise.read_message(sent.into(), sealed, plain).map_err(|_| RejectReason::Forged)?;
        plain.truncate(bytes);
        if !is_new(window.get_or_init(Default::default), |replay| replay.accept(counter)) {
            return Err(RejectReason::Replayed);
        }
        self.is_confirmed.store(true, Ordering::Relaxed);
        Ok(Opened { path, counter })
    }

    /// Whether the peer is known to have the keys too: data may be sent.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    /// Whether it has expired.
    pub fn is_over(&self, now: Instant) -> bool {
        now.since(self.born) >= REJECT_AFTER
    }

    /// Whether this endpoint must request new keys.
    pub fn wants_rekey(&self, now: Instant) -> bool {
        let is_due = now.since(self.born) >= REKEY_AFTER || self.sealed.load(Ordering::Relaxed) >= REKEY_AFTER_MESSAGES;
        self.is_initiator && is_due
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("own", &self.own).field("born", &self.born).finish_non_exhaustive()
    }
}

fn is_new(window: &Mutex<Replay>, query: impl FnOnce(&mut Replay) -> bool) -> bool {
    query(&mut window.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::security::{HandshakeEvent, PrivateKey, Security};

    #[test]
    fn exhausted_keys_encrypt_nothing() {
        let [a, b] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let (public_a, public_b) = (a.public(), b.public());
        let (mut a, mut b) = (Security::new(a, vec![public_b]), Security::new(b, vec![public_a]));
        let initiation = a.initiate(Instant::ZERO, 1, 0).unwrap();
        let HandshakeEvent::Reply { datagram, .. } = b.receive(Instant::ZERO, &initiation) else { panic!("no reply") };
        let HandshakeEvent::Established { session, .. } = a.receive(Instant::ZERO, &datagram) else {
            panic!("no session")
        };
        session.sealed.store(REKEY_AFTER_MESSAGES - 1, Ordering::Relaxed);
        assert!(!a.wants_rekey(Instant::ZERO, 0));
        let mut into = Vec::new();
        session.seal(0, b"", &mut into).unwrap();
        assert!(a.wants_rekey(Instant::ZERO, 0));
        session.sealed.store(REFUSE_AFTER_MESSAGES - 1, Ordering::Relaxed);
        session.seal(0, b"", &mut into).unwrap();
        assert_eq!(session.seal(0, b"", &mut into), Err(RejectReason::Exhausted));
        assert_eq!(into.len(), 2 * DATA_OVERHEAD_BYTES);
    }
}
