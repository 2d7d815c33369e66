//! The encrypted channel between a controller, and units and vehicles: Noise over TCP, with the
//! keys and the library of the tunnel (decision 53).
//!
//! ```text
//! unit, vehicle ── length (2) | Noise message 1 (96) ──▶ controller
//!               ◀── length (2) | Noise message 2 (48) ──
//! both          ── length (2) | encrypted: 0, or 1 if the message continues | part ──
//! ```
//!
//! The initiator knows the controller's key. The controller learns that of the initiator, who is
//! authenticated once its first message is opened. Order and replay are checked by the counter of
//! Noise (section 5.1), which no frame carries: a frame that is lost, repeated or exchanged does
//! not open.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::roadside::messages;
use snow::{HandshakeState, StatelessTransportState};

use crate::tunnel::security::{PrivateKey, PublicKey, initiator, peer_of, responder};

/// Each side sends at least one message in this time.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// A peer silent for this time is gone.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Length of the first frame, in bytes: ephemeral key, encrypted static key, tag of the empty payload.
pub const INITIATION_BYTES: usize = LENGTH_BYTES + 32 + 48 + TAG_BYTES;
/// Length of the controller's first frame, in bytes: ephemeral key, tag of the empty payload.
pub const RESPONSE_BYTES: usize = LENGTH_BYTES + 32 + TAG_BYTES;
/// Bytes to read from a socket at once.
pub const READ_BYTES: usize = 65_536;

/// Hashed into every handshake: the tunnel's messages are not accepted here, nor these there.
const PROLOGUE: &[u8] = b"crosslane controller";
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// Longest Noise message, in bytes (Noise, section 3).
const MAX_NOISE_BYTES: usize = 65_535;
/// Bytes of a frame that are no part of a message: the mark of continuation, and the tag.
const MARKED_BYTES: usize = 1 + TAG_BYTES;
/// Longest part of a message in one frame, in bytes.
const MAX_PART_BYTES: usize = MAX_NOISE_BYTES - MARKED_BYTES;

/// Why a channel ends.
#[derive(Debug, thiserror::Error)]
pub enum ChannelFault {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The peer has sent nothing for [`SILENCE`].
    #[error("nothing arrived from it for 3 s")]
    Silent,
    /// The handshake failed.
    #[error("the handshake failed: its key is another one, or something on the way changes or forges messages")]
    Handshake,
    /// A frame is longer than any message, or empty.
    #[error("it sent a frame of a wrong length")]
    Length,
    /// A frame does not open.
    #[error("a frame is forged, damaged or repeated")]
    Forged,
    /// An opened message is none.
    #[error("it sent a message that cannot be read: {0}")]
    Message(#[from] messages::Fault),
}

/// Encrypts messages of one direction.
pub struct Sealer {
    noise: Arc<StatelessTransportState>,
    nonce: u64,
}

impl Sealer {
    /// Appends the frames of a message.
    ///
    /// # Errors
    /// The counter is exhausted, after 2⁶⁴ − 1 frames.
    pub fn seal(&mut self, message: &[u8], into: &mut Vec<u8>) -> Result<(), ChannelFault> {
        let mut rest = message;
        loop {
            let (part, after) = rest.split_at(rest.len().min(MAX_PART_BYTES));
            let mut plain = Vec::with_capacity(1 + part.len());
            plain.push(u8::from(!after.is_empty()));
            plain.extend(part);
            let begin = into.len();
            let length = part.len() + MARKED_BYTES;
            into.extend((length as u16).to_be_bytes());
            into.resize(begin + LENGTH_BYTES + length, 0);
            let to = &mut into[begin + LENGTH_BYTES..];
            self.noise.write_message(self.nonce, &plain, to).map_err(|_| ChannelFault::Forged)?;
            self.nonce += 1;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }
}

/// Decrypts messages of the other direction.
pub struct Opener {
    noise: Arc<StatelessTransportState>,
    nonce: u64,
    max_bytes: usize,
    /// Received bytes; those before `read` are opened.
    inbox: Vec<u8>,
    read: usize,
    /// Parts of the message that continues.
    message: Vec<u8>,
    is_whole: bool,
    plain: Vec<u8>,
}

impl Opener {
    fn new(noise: Arc<StatelessTransportState>, max_bytes: usize) -> Opener {
        let (inbox, message, plain) = (Vec::new(), Vec::new(), vec![0; max_bytes.min(MAX_PART_BYTES) + MARKED_BYTES]);
        Opener { noise, nonce: 0, max_bytes, inbox, read: 0, message, is_whole: false, plain }
    }

    /// Takes received bytes. [`next`](Opener::next) must be called until nothing is left before more are taken.
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.drain(..std::mem::take(&mut self.read));
        self.inbox.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived.
    ///
    /// # Errors
    /// A frame is malformed or forged; the channel must then be closed.
    #[expect(clippy::should_implement_trait, reason = "the message is borrowed from this, which no iterator can do")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, ChannelFault> {
        if std::mem::take(&mut self.is_whole) {
            self.message.clear();
        }
        while !self.is_whole {
            let Some((length, rest)) = self.inbox[self.read..].split_first_chunk::<LENGTH_BYTES>() else {
                return Ok(None);
            };
            let length = usize::from(u16::from_be_bytes(*length));
            if !(MARKED_BYTES..=self.plain.len()).contains(&length) {
                return Err(ChannelFault::Length);
            }
            let Some(frame) = rest.get(..length) else { return Ok(None) };
            let opened = self.noise.read_message(self.nonce, frame, &mut self.plain);
            let opened = opened.map_err(|_| ChannelFault::Forged)?;
            self.nonce += 1;
            self.read += LENGTH_BYTES + length;
            let Some((mark, part)) = self.plain[..opened].split_first() else { return Err(ChannelFault::Length) };
            if self.message.len() + part.len() > self.max_bytes || *mark > 1 {
                return Err(ChannelFault::Length);
            }
            self.message.extend_from_slice(part);
            self.is_whole = *mark == 0;
        }
        Ok(Some(&self.message))
    }
}

/// The initiator's handshake, until the response arrives.
pub struct Initiation(HandshakeState);

/// Begins a handshake with the owner of `controller`: the first frame to send.
///
/// # Errors
/// The library has no source of randomness.
pub fn initiate(own: &PrivateKey, controller: &PublicKey) -> Result<(Initiation, Vec<u8>), ChannelFault> {
    let begin = || {
        let mut state = initiator(own, controller, PROLOGUE)?;
        let frame = handshake_frame(&mut state, INITIATION_BYTES)?;
        Ok((Initiation(state), frame))
    };
    begin().map_err(|_: snow::Error| ChannelFault::Handshake)
}

impl Initiation {
    /// Ends the handshake with the controller's first frame. The opener accepts messages up to `max_bytes`.
    ///
    /// # Errors
    /// The frame is not the owner's of the key.
    pub fn finish(mut self, frame: &[u8; RESPONSE_BYTES], max_bytes: usize) -> Result<(Sealer, Opener), ChannelFault> {
        read_frame(&mut self.0, frame)?;
        transport(self.0, max_bytes)
    }
}

/// Answers an initiation: the initiator's key and the frame to send. The opener accepts messages up to
/// `max_bytes`. Whether the initiator is the owner of the key is known when its first message is opened.
///
/// # Errors
/// The sender does not know this key, or the frame is forged.
pub fn respond(
    own: &PrivateKey,
    frame: &[u8; INITIATION_BYTES],
    max_bytes: usize,
) -> Result<(PublicKey, Vec<u8>, Sealer, Opener), ChannelFault> {
    let mut state = responder(own, PROLOGUE).map_err(|_| ChannelFault::Handshake)?;
    read_frame(&mut state, frame)?;
    let peer = peer_of(&state).ok_or(ChannelFault::Handshake)?;
    let answer = handshake_frame(&mut state, RESPONSE_BYTES).map_err(|_| ChannelFault::Handshake)?;
    let (sealer, opener) = transport(state, max_bytes)?;
    Ok((peer, answer, sealer, opener))
}

fn handshake_frame(state: &mut HandshakeState, bytes: usize) -> Result<Vec<u8>, snow::Error> {
    let mut frame = vec![0; bytes];
    frame[..LENGTH_BYTES].copy_from_slice(&((bytes - LENGTH_BYTES) as u16).to_be_bytes());
    state.write_message(&[], &mut frame[LENGTH_BYTES..])?;
    Ok(frame)
}

fn read_frame(state: &mut HandshakeState, frame: &[u8]) -> Result<(), ChannelFault> {
    let (length, noise) = frame.split_at(LENGTH_BYTES);
    if length != (noise.len() as u16).to_be_bytes() {
        return Err(ChannelFault::Handshake);
    }
    state.read_message(noise, &mut []).map(drop).map_err(|_| ChannelFault::Handshake)
}

fn transport(state: HandshakeState, max_bytes: usize) -> Result<(Sealer, Opener), ChannelFault> {
    let noise = state.into_stateless_transport_mode().map_err(|_| ChannelFault::Handshake)?;
    let noise = Arc::new(noise);
    Ok((Sealer { noise: noise.clone(), nonce: 0 }, Opener::new(noise, max_bytes)))
}

#[cfg(test)]
mod tests;
