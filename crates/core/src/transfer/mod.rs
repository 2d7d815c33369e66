//! Objects over one connection, each with its deadline.
//!
//! A [sender](sender::Sender) says what to write next: pieces of the object that
//! is due earliest, no more than may be under way. A
//! [receiver](receiver::Receiver) cuts the stream into objects again. Both know
//! lengths only; whoever feeds them has the bytes, reads files and takes
//! digests. [`frame`] is what goes over the wire, `docs/transfer.md` its picture.

use serde::Deserialize;

pub mod frame;
pub mod receiver;
pub mod sender;

/// What becomes of an object past its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// What is not written yet is not sent.
    #[default]
    GiveUp,
    /// It is sent to its end.
    Continue,
}

/// Why an object ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// Its deadline is past.
    Late,
    /// It changed while it was sent.
    Changed,
    /// It cannot be read any more.
    Unreadable,
    /// The receiver does not take it.
    Refused,
}

impl Abandoned {
    /// In words, as in "given up: …".
    pub fn words(self) -> &'static str {
        match self {
            Abandoned::Late => "its deadline is past",
            Abandoned::Changed => "it changed while it was sent",
            Abandoned::Unreadable => "it cannot be read any more",
            Abandoned::Refused => "the receiver does not take it",
        }
    }
}
