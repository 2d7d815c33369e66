//! The keys of a transfer, and the handshake of each of its connections: Noise IK, with the keys and the library of the
//! tunnel (decision 88). The encrypted stream is that of a connection in the clear.
//!
//! ```text
//! sender ── preface (8) | Noise message 1 (96) ──▶ receiver
//!        ◀── preface (8) | Noise message 2 (48) ──
//! both   ── length (2) | encrypted part of the stream ──
//! ```
//!
//! A sender is authenticated once its first record is opened, which is its greeting: an initiation can be replayed.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use crosslane_core::transfer::multipath::frame::{self, ENCRYPTED_PREFACE, PREFACE, Replies, Reply};
use snow::HandshakeState;
use socket2::Socket;

use super::super::{TransferError, connection, printable};
use super::cipher::Cipher;
use crate::tunnel::security::{PrivateKey, PublicKey, initiator, peer_of, responder};

/// Hashed into every handshake: those of the tunnel and of the controller are not accepted here. A version of the
/// transfer has its own.
const PROLOGUE: &[u8] = b"crosslane transfer 4";
/// Length of the sender's message, in bytes: ephemeral key, encrypted static key, tag of the empty payload.
pub(super) const NOISE_1_BYTES: usize = 32 + 48 + 16;
/// Length of the receiver's message, in bytes: ephemeral key, tag of the empty payload.
const NOISE_2_BYTES: usize = 32 + 16;
const RESPONSE_BYTES: usize = PREFACE.len() + NOISE_2_BYTES;
/// Longest refusal in the clear, in bytes.
const MAX_REFUSAL_BYTES: usize = 512;

pub(super) const AGREEING: &str = "agreeing on keys";

/// The keys of a sender.
#[derive(Clone, Debug)]
pub struct SenderKeys {
    /// Its private key.
    pub own: PrivateKey,
    /// The receiver's public key.
    pub receiver: PublicKey,
}

/// The keys of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverKeys {
    /// Its private key.
    pub own: PrivateKey,
    /// The public keys of the senders that it serves.
    pub senders: BTreeSet<PublicKey>,
}

/// The sender's handshake, until the receiver's message has arrived.
pub(super) struct Handshake {
    noise: HandshakeState,
    received: Vec<u8>,
}

impl Handshake {
    /// Begins one, with the bytes to be written.
    pub(super) fn begin(keys: &SenderKeys) -> io::Result<(Handshake, Vec<u8>)> {
        let mut wire = ENCRYPTED_PREFACE.to_vec();
        wire.resize(PREFACE.len() + NOISE_1_BYTES, 0);
        let mut begin = || {
            let mut noise = initiator(&keys.own, &keys.receiver, PROLOGUE)?;
            noise.write_message(&[], &mut wire[PREFACE.len()..])?;
            Ok(noise)
        };
        let noise = begin().map_err(|cause: snow::Error| io::Error::other(cause.to_string()))?;
        Ok((Handshake { noise, received: Vec::new() }, wire))
    }

    /// Reads the receiver's message; true once it is complete.
    ///
    /// # Errors
    /// The connection broke, or the receiver refuses it, or it is of another version. `attempt` is what fails.
    pub(super) fn read(&mut self, socket: &Socket, attempt: &str) -> Result<bool, TransferError> {
        const REMEDY: &str = "check that `crosslane receive` of this version listens there, with --key";
        let mut buffer = [0; MAX_REFUSAL_BYTES];
        while self.received.len() < RESPONSE_BYTES || self.is_refusal() {
            let limit = if self.is_refusal() { MAX_REFUSAL_BYTES } else { RESPONSE_BYTES };
            let room = &mut buffer[..limit.saturating_sub(self.received.len())];
            let read = connection::read_some(socket, room).map_err(connection::connection_error(attempt, REMEDY))?;
            let Some(bytes) = read else { return Ok(false) };
            self.received.extend_from_slice(bytes);
            self.check()?;
        }
        Ok(true)
    }

    /// # Errors
    /// The message is not from the owner of the receiver's key.
    pub(super) fn finish(mut self, attempt: &str) -> Result<Cipher, TransferError> {
        let noise = &self.received[PREFACE.len()..];
        let opened = self.noise.read_message(noise, &mut []).and_then(|_| self.noise.into_transport_mode());
        opened.map(Cipher::new).map_err(|_| TransferError::Connection {
            attempt: attempt.into(),
            cause: io::Error::new(ErrorKind::InvalidData, "the answer is not from the owner of the receiver's key"),
            remedy: "check --receiver-key, and what else may answer there",
        })
    }

    fn is_refusal(&self) -> bool {
        self.received.starts_with(&PREFACE)
    }

    fn check(&self) -> Result<(), TransferError> {
        let known = self.received.len().min(PREFACE.len());
        if self.received[..known] == ENCRYPTED_PREFACE[..known] {
            return Ok(());
        }
        let fault = |cause| TransferError::Stream { attempt: AGREEING, cause };
        frame::check_preface(&self.received).map_err(fault)?;
        let (mut replies, mut bytes) = (Replies::default(), self.received.as_slice());
        while let Some(reply) = replies.take(&mut bytes).map_err(fault)? {
            if let Reply::Receipt(receipt) = reply {
                return Err(TransferError::RejectedInClear { text: printable(&receipt.text) });
            }
        }
        Ok(())
    }
}

/// Answers a sender's message: the sender's key, the bytes to be written, and the cipher of what follows.
///
/// # Errors
/// The message is for another key, or forged.
pub(super) fn respond(
    own: &PrivateKey,
    noise_1: &[u8; NOISE_1_BYTES],
) -> Result<(PublicKey, Vec<u8>, Cipher), snow::Error> {
    let mut noise = responder(own, PROLOGUE)?;
    noise.read_message(noise_1, &mut [])?;
    let sender = peer_of(&noise).ok_or(snow::Error::Decrypt)?;
    let mut wire = ENCRYPTED_PREFACE.to_vec();
    wire.resize(RESPONSE_BYTES, 0);
    noise.write_message(&[], &mut wire[PREFACE.len()..])?;
    Ok((sender, wire, Cipher::new(noise.into_transport_mode()?)))
}
