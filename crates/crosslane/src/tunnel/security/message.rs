//! What is on the wire around the Noise messages: types, session indices, and
//! the seal that shows that a sender knows whom it writes to.
//!
//! ```text
//! initiation  1 | Noise message 1 (107) | seal (32)                    140 bytes
//! response    2 | receiver's index (3) | Noise message 2 (51) | seal (32)   87 bytes
//! data        4 | receiver's index (3) | counter (8) | ciphertext | tag (16)
//! ```

use ring::hmac;

use super::keys::PublicKey;
use super::reject::RejectReason;

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const DATA: u8 = 4;

/// Ephemeral key; static key and tag; payload (index and time) and tag.
pub(super) const NOISE_1_BYTES: usize = 32 + 48 + INITIATION_PAYLOAD_BYTES + 16;
/// Ephemeral key; payload (index) and tag.
pub(super) const NOISE_2_BYTES: usize = 32 + INDEX_BYTES + 16;
/// An index and nanoseconds since 1970.
pub(super) const INITIATION_PAYLOAD_BYTES: usize = INDEX_BYTES + 8;
pub(super) const INDEX_BYTES: usize = 3;
/// Of a data message, before the ciphertext.
pub(super) const DATA_HEADER_BYTES: usize = 1 + INDEX_BYTES + 8;
/// Of the AEAD.
pub(super) const TAG_BYTES: usize = 16;

const SEAL_BYTES: usize = 32;
const INITIATION_BYTES: usize = 1 + NOISE_1_BYTES + SEAL_BYTES;
const RESPONSE_BYTES: usize = 1 + INDEX_BYTES + NOISE_2_BYTES + SEAL_BYTES;

/// Names a session to the end that chose it: 24 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Index(pub(super) [u8; INDEX_BYTES]);

/// A message, by its type; what is in it is not checked yet.
pub(super) enum Message<'a> {
    /// Noise message 1.
    Initiation(&'a [u8]),
    /// Noise message 2, and whom it answers.
    Response(Index, &'a [u8]),
}

impl Message<'_> {
    /// Reads a handshake that has the seal of `own`.
    pub(super) fn read<'a>(datagram: &'a [u8], own: &Mac1) -> Result<Message<'a>, RejectReason> {
        let (message, body_and_seal) = match (datagram.split_first(), datagram.len()) {
            (Some((&INITIATION, rest)), INITIATION_BYTES) => {
                (Message::Initiation(&rest[..NOISE_1_BYTES]), datagram.split_at(INITIATION_BYTES - SEAL_BYTES))
            }
            (Some((&RESPONSE, rest)), RESPONSE_BYTES) => {
                let (index, rest) = rest.split_first_chunk().ok_or(RejectReason::Malformed)?;
                let message = Message::Response(Index(*index), &rest[..NOISE_2_BYTES]);
                (message, datagram.split_at(RESPONSE_BYTES - SEAL_BYTES))
            }
            _ => return Err(RejectReason::Malformed),
        };
        let (body, mac1) = body_and_seal;
        hmac::verify(&own.0, body, mac1).map_err(|_| RejectReason::Uninvited)?;
        Ok(message)
    }
}

/// A keyed hash at the end of a handshake message, with a key that whoever knows the receiver's public key can make
/// (WireGuard's mac1): who does not know even that costs the receiver one hash, and learns nothing.
pub(super) struct Mac1(hmac::Key);

impl Mac1 {
    /// The seal for messages to the owner of `receiver`.
    pub(super) fn of(receiver: &PublicKey) -> Mac1 {
        let label = [b"crosslane tunnel 1 seal".as_slice(), receiver.as_bytes()].concat();
        Mac1(hmac::Key::new(hmac::HMAC_SHA256, &label))
    }

    /// An initiation to the seal's owner.
    pub(super) fn initiation(&self, noise: &[u8; NOISE_1_BYTES]) -> Vec<u8> {
        self.sealed([&[INITIATION], noise.as_slice()].concat())
    }

    /// A response to the seal's owner, who chose the index `to`.
    pub(super) fn response(&self, to: Index, noise: &[u8; NOISE_2_BYTES]) -> Vec<u8> {
        self.sealed([&[RESPONSE], to.0.as_slice(), noise].concat())
    }

    fn sealed(&self, mut message: Vec<u8>) -> Vec<u8> {
        let mac1 = hmac::sign(&self.0, &message);
        message.extend(mac1.as_ref());
        message
    }
}

/// The header of a data message to the end that chose the index `to`.
pub(super) fn data_header(to: Index, counter: u64) -> [u8; DATA_HEADER_BYTES] {
    let mut header = [0; DATA_HEADER_BYTES];
    header[0] = DATA;
    header[1..4].copy_from_slice(&to.0);
    header[4..].copy_from_slice(&counter.to_be_bytes());
    header
}

/// Whether a datagram is for a session rather than for [`Security::receive`](super::Security::receive); what is in it is
/// not checked.
pub fn is_data(datagram: &[u8]) -> bool {
    datagram.first() == Some(&DATA)
}

/// Session, counter and ciphertext of a data message.
pub(super) fn read_data(datagram: &[u8]) -> Result<(Index, u64, &[u8]), RejectReason> {
    let (header, sealed) = datagram.split_first_chunk::<DATA_HEADER_BYTES>().ok_or(RejectReason::Malformed)?;
    let [kind, a, b, c, counter @ ..] = *header;
    if kind != DATA || sealed.len() < TAG_BYTES {
        return Err(RejectReason::Malformed);
    }
    Ok((Index([a, b, c]), u64::from_be_bytes(counter), sealed))
}
