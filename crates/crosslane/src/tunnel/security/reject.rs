//! Reasons of rejection.

/// Why a datagram is dropped silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RejectReason {
    /// Its type or its length is invalid.
    #[error("it is no message of the tunnel")]
    Malformed,
    /// Its sender does not know this endpoint's public key, or it was damaged.
    #[error("its sender does not know the public key of this endpoint")]
    Uninvited,
    /// Its sender's key is not a peer's.
    #[error("its sender is no peer")]
    Stranger,
    /// It was not created with the right keys.
    #[error("it is forged or damaged")]
    Forged,
    /// It was received before, or is too old to decide.
    #[error("it was received before, or is too old to decide")]
    Replayed,
    /// Too many handshakes, in total or of this peer.
    #[error("there are too many handshakes")]
    Flood,
    /// It responds to no pending handshake.
    #[error("it responds to no pending handshake")]
    Unasked,
    /// It belongs to another session, or to none that is valid.
    #[error("it belongs to no valid session")]
    NoSession,
    /// Its path is not from 0 to 15.
    #[error("its path is not below 16")]
    NoSuchPath,
    /// The session has carried as many messages as its keys may protect.
    #[error("the session's keys are exhausted")]
    Exhausted,
    /// It is longer than a datagram can be.
    #[error("it is too long for a datagram")]
    TooLong,
}
