//! How a receiver begins a connection: the version, the keys, and the transfer to which it belongs.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crosslane_core::time::Instant;
use crosslane_core::transfer::multipath::frame::{self, ENCRYPTED_PREFACE, GREETING_BYTES, Greeting, PREFACE};
use nix::poll::{PollFd, PollFlags};
use socket2::Socket;

use super::super::TransferError;
use super::super::connection::{self, POLL_INTERVAL};
use super::super::receiving::{PREFACE_TIMEOUT, broken};
use super::cipher::{Cipher, MAX_PART_BYTES};
use super::keys::{NOISE_1_BYTES, ReceiverKeys, respond};
use super::stream::Stream;
use crate::clock::Clock;
use crate::tunnel::security::PublicKey;

/// A connection of a sender, after its greeting.
pub struct Joined {
    pub(super) stream: Stream,
    /// The sender's path.
    pub path: u8,
}

/// A greeting, and who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// Its key; `None`: in the clear.
    pub key: Option<PublicKey>,
    /// Its transfer: connections of the same sender with the same one belong together.
    pub transfer: [u8; 16],
}

impl Joined {
    /// Rejects the sender with a reason that it shows; takes up to a second.
    pub fn reject(mut self, text: &str) {
        frame::welcome(&mut self.stream.outbox, 0);
        self.stream.outbox = connection::refusal(std::mem::take(&mut self.stream.outbox), text);
        drop(self.stream.flush());
        connection::reject(&self.stream.socket, &[]);
    }
}

/// Reads the greeting of a sender; without keys, in the clear. A sender of another version, or with other keys, is
/// rejected with a reason that it shows.
///
/// # Errors
/// The connection broke, or the peer is not a sender of this version with a known key.
pub fn greet(
    socket: Socket,
    keys: Option<&ReceiverKeys>,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<(Sender, Joined), TransferError> {
    connection::prepare(&socket).map_err(broken)?;
    let wait = Wait { until: clock.now() + PREFACE_TIMEOUT, clock, stop };
    let preface = read_preface(&socket, &wait)?;
    if preface != PREFACE && preface != ENCRYPTED_PREFACE {
        return Err(reject_version(&socket, preface));
    }
    let mut bytes = [0; GREETING_BYTES];
    let (key, stream) = match keys {
        None if preface == PREFACE => {
            bytes[..PREFACE.len()].copy_from_slice(&preface);
            wait.exact(&socket, &mut bytes[PREFACE.len()..])?;
            (None, Stream::new(socket, None))
        }
        Some(keys) if preface == ENCRYPTED_PREFACE => {
            let (key, cipher) = agree(&socket, keys, &wait)?;
            let mut stream = Stream::new(socket, Some(cipher));
            read_greeting(&mut stream, &mut bytes, &wait)?;
            (Some(key), stream)
        }
        _ => return Err(reject_other(&socket, keys.is_some())),
    };
    let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
    let Some(Greeting { transfer, path }) = Greeting::parse(&bytes).map_err(fault)? else {
        return Err(wait.silent());
    };
    Ok((Sender { key, transfer }, Joined { stream, path }))
}

/// Reads the first bytes; a wrong one is detected at once.
fn read_preface(socket: &Socket, wait: &Wait<'_>) -> Result<[u8; PREFACE.len()], TransferError> {
    let mut preface = [0; PREFACE.len()];
    for length in 1..=preface.len() {
        wait.exact(socket, &mut preface[length - 1..length])?;
        if !frame::may_be_preface(&preface[..length]) {
            let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
            frame::check_preface(&preface[..length]).map_err(fault)?;
        }
    }
    Ok(preface)
}

/// Answers in the sender's format.
fn reject_version(socket: &Socket, preface: [u8; PREFACE.len()]) -> TransferError {
    let own = PREFACE[PREFACE.len() - 1];
    let version = frame::other_version(&preface).unwrap_or(0);
    let older = if version < own { "sender" } else { "receiver" };
    let text =
        format!("it has version {own} of the transfer, the sender version {version}; update Crosslane at the {older}");
    connection::reject(socket, &connection::refusal(frame::other_welcome(version), &text));
    let cause = frame::check_preface(&preface).err();
    cause.map_or_else(|| keys_fault(text, ""), |cause| TransferError::Stream { attempt: "receiving", cause })
}

/// One end has keys, and the other none.
fn reject_other(socket: &Socket, has_keys: bool) -> TransferError {
    let (text, cause, remedy) = match has_keys {
        true => (
            "it takes encrypted connections only; start `crosslane send` with --key and --receiver-key",
            "the sender is in the clear, and this receiver has a key",
            "start `crosslane send` with --key and --receiver-key",
        ),
        false => (
            "it was started with --encryption none; start `crosslane receive` with --key and --sender-key",
            "the sender has a key, and this receiver is in the clear",
            "start `crosslane receive` with --key and --sender-key",
        ),
    };
    reject_in_clear(socket, text);
    keys_fault(cause, remedy)
}

fn agree(socket: &Socket, keys: &ReceiverKeys, wait: &Wait<'_>) -> Result<(PublicKey, Cipher), TransferError> {
    let mut noise = [0; NOISE_1_BYTES];
    wait.exact(socket, &mut noise)?;
    let Ok((sender, answer, mut cipher)) = respond(&keys.own, &noise) else {
        let public = keys.own.public();
        reject_in_clear(
            socket,
            "--receiver-key is not its key; give what `crosslane keygen --public FILE` prints there",
        );
        let cause = "the sender has another --receiver-key, or its first message is damaged or forged";
        return Err(keys_fault(cause, format!("the key of this receiver is {public}")));
    };
    if !keys.senders.contains(&sender) {
        let text = format!("it does not know the key {sender}; add it there by --sender-key");
        let mut begin = Vec::new();
        frame::welcome(&mut begin, 0);
        let mut wire = answer;
        cipher.seal(&connection::refusal(begin, &text), &mut wire).map_err(broken)?;
        connection::reject(socket, &wire);
        let remedy = "add it by --sender-key if its owner may store files here";
        return Err(keys_fault(format!("the sender's key {sender} is not known"), remedy));
    }
    match connection::write_some(socket, &answer).map_err(broken)? == answer.len() {
        true => Ok((sender, cipher)),
        // The buffer of a new socket has room for it.
        false => Err(broken(io::ErrorKind::WriteZero.into())),
    }
}

/// The first record is the greeting.
fn read_greeting(stream: &mut Stream, into: &mut [u8; GREETING_BYTES], wait: &Wait<'_>) -> Result<(), TransferError> {
    let mut record = [0; MAX_PART_BYTES];
    loop {
        let failed = |cause: io::Error| keys_fault(cause, "the sender may try again");
        if let Some(bytes) = stream.read(&mut record).map_err(failed)? {
            let greeting = bytes.try_into().map_err(|_| {
                keys_fault("the first record is not a greeting", "check that both sides run the same version")
            })?;
            *into = greeting;
            return Ok(());
        }
        wait.readable(&stream.socket)?;
    }
}

fn reject_in_clear(socket: &Socket, text: &str) {
    let mut begin = Vec::new();
    frame::welcome(&mut begin, 0);
    connection::reject(socket, &connection::refusal(begin, text));
}

fn keys_fault(cause: impl ToString, remedy: impl Into<String>) -> TransferError {
    TransferError::Keys { cause: cause.to_string(), remedy: remedy.into() }
}

/// A limited wait for the sender.
struct Wait<'a> {
    until: Instant,
    clock: Clock,
    stop: &'a AtomicBool,
}

impl Wait<'_> {
    /// Reads until the buffer is full.
    fn exact(&self, socket: &Socket, buffer: &mut [u8]) -> Result<(), TransferError> {
        let mut length = 0;
        while length < buffer.len() {
            match connection::read_some(socket, &mut buffer[length..]).map_err(broken)?.map(<[u8]>::len) {
                Some(count) => length += count,
                None => self.readable(socket)?,
            }
        }
        Ok(())
    }

    fn readable(&self, socket: &Socket) -> Result<(), TransferError> {
        if self.stop.load(Ordering::Relaxed) || self.clock.now() >= self.until {
            return Err(self.silent());
        }
        let mut events = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        connection::wait(&mut events, POLL_INTERVAL).map(drop).map_err(broken)
    }

    fn silent(&self) -> TransferError {
        let remedy = "check what else connects to this port";
        TransferError::Silent { attempt: "receiving", limit: PREFACE_TIMEOUT, remedy }
    }
}
