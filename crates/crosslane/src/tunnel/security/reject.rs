//! Why something is not taken.

/// Why a datagram is dropped, in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RejectReason {
    /// Its type or its length is none of ours.
    #[error("it is no message of the tunnel")]
    Malformed,
    /// Its sender does not know this end's public key, or it was damaged.
    #[error("its sender does not know the public key of this end")]
    Uninvited,
    /// Its sender's key is not that of a peer.
    #[error("its sender is no peer")]
    Stranger,
    /// It is not what an owner of the right keys made.
    #[error("it is forged or damaged")]
    Forged,
    /// It was heard before, or is too old to tell.
    #[error("it was heard before, or is too old to tell")]
    Replayed,
    /// There were too many handshakes, of all or of this peer.
    #[error("there are more handshakes than are answered")]
    Flood,
    /// It answers nothing that is open.
    #[error("it answers no open handshake")]
    Unasked,
    /// It names another session than the one asked, or none that is alive.
    #[error("it is of no living session")]
    NoSession,
    /// Its path has no number from 0 to 15.
    #[error("its path has no number below 16")]
    NoSuchPath,
    /// The session has carried as much as its keys may protect.
    #[error("the session's keys are used up")]
    Exhausted,
    /// It is longer than a datagram can be.
    #[error("it is too long for a datagram")]
    TooLong,
}
