//! The wire format around the Noise messages: types, session indices, and
//! MAC1, which proves that a sender knows the receiver's public key.
//!
//! ```text
//! initiation  1 | Noise message 1 (107) | MAC1 (32)                    140 bytes
//! response    2 | receiver's index (3) | Noise message 2 (51) | MAC1 (32)   87 bytes
//! data        4 | receiver's index (3) | counter (4) | ciphertext | tag (16)
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
/// Header of a data message.
pub(super) const DATA_HEADER_BYTES: usize = 1 + INDEX_BYTES + 4;
/// Tag of the AEAD.
pub(super) const TAG_BYTES: usize = 16;

const MAC1_BYTES: usize = 32;
const INITIATION_BYTES: usize = 1 + NOISE_1_BYTES + MAC1_BYTES;
const RESPONSE_BYTES: usize = 1 + INDEX_BYTES + NOISE_2_BYTES + MAC1_BYTES;

/// Identifies a session to the endpoint that chose it: 24 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Index(pub(super) [u8; INDEX_BYTES]);

/// A handshake message by its type; its contents are not verified yet.
pub(super) enum Message<'a> {
    /// Noise message 1.
    Initiation(&'a [u8]),
    /// Noise message 2, and the initiator's index.
    Response(Index, &'a [u8]),
}

impl Message<'_> {
    /// Reads a handshake message with the MAC1 of `own`.
    pub(super) fn read<'a>(datagram: &'a [u8], own: &Mac1) -> Result<Message<'a>, RejectReason> {
        let (body, mac1) = datagram.split_last_chunk::<MAC1_BYTES>().ok_or(RejectReason::Malformed)?;
        let message = match (body, datagram.len()) {
            ([INITIATION, noise @ ..], INITIATION_BYTES) => Message::Initiation(noise),
            ([RESPONSE, a, b, c, noise @ ..], RESPONSE_BYTES) => Message::Response(Index([*a, *b, *c]), noise),
            _ => return Err(RejectReason::Malformed),
        };
        hmac::verify(&own.0, body, mac1).map_err(|_| RejectReason::Uninvited)?;
        Ok(message)
    }
}

/// A MAC at the end of a handshake message, with a key derived from the receiver's public key (WireGuard's mac1):
/// a sender without that public key costs the receiver one hash, and learns nothing.
pub(super) struct Mac1(hmac::Key);

impl Mac1 {
    /// The MAC1 key for messages to the owner of `receiver`.
    pub(super) fn of(receiver: &PublicKey) -> Mac1 {
        let key_input = [b"crosslane tunnel 3 seal".as_slice(), receiver.as_bytes()].concat();
        Mac1(hmac::Key::new(hmac::HMAC_SHA256, &key_input))
    }

    /// An initiation to the owner of the key.
    pub(super) fn initiation(&self, noise: &[u8; NOISE_1_BYTES]) -> Vec<u8> {
        self.with_mac1([&[INITIATION], noise.as_slice()].concat())
    }

    /// A response to the owner of the key, who chose the index `to`.
    pub(super) fn response(&self, to: Index, noise: &[u8; NOISE_2_BYTES]) -> Vec<u8> {
        self.with_mac1([&[RESPONSE], to.0.as_slice(), noise].concat())
    }

    fn with_mac1(&self, mut message: Vec<u8>) -> Vec<u8> {
        let mac1 = hmac::sign(&self.0, &message);
        message.extend(mac1.as_ref());
        message
    }
}

/// The header of a data message to the endpoint that chose the index `to`.
pub(super) fn data_header(to: Index, counter: u32) -> [u8; DATA_HEADER_BYTES] {
    let mut header = [0; DATA_HEADER_BYTES];
    header[0] = DATA;
    header[1..4].copy_from_slice(&to.0);
    header[4..].copy_from_slice(&counter.to_be_bytes());
    header
}

/// Whether a datagram is for a session rather than for [`Security::receive`](super::Security::receive); its contents
/// are not verified.
pub fn is_data(datagram: &[u8]) -> bool {
    datagram.first() == Some(&DATA)
}

/// Session, counter and ciphertext of a data message.
pub(super) fn read_data(datagram: &[u8]) -> Result<(Index, u32, &[u8]), RejectReason> {
    let (header, authenticated) = datagram.split_first_chunk::<DATA_HEADER_BYTES>().ok_or(RejectReason::Malformed)?;
    let [kind, a, b, c, counter @ ..] = *header;
    if kind != DATA || authenticated.len() < TAG_BYTES {
        return Err(RejectReason::Malformed);
    }
    Ok((Index([a, b, c]), u32::from_be_bytes(counter), authenticated))
}
