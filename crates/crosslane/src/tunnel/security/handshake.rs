//! The Noise handshake, by the library `snow`: pattern IK (Noise, section 7.5).
//! The initiator knows the responder's key; the responder learns the initiator's,
//! which is encrypted.

use snow::{Builder, HandshakeState, StatelessTransportState};

use super::keys::{KEY_BYTES, PrivateKey, PublicKey};
use super::message::{INDEX_BYTES, INITIATION_PAYLOAD_BYTES, Index, NOISE_1_BYTES, NOISE_2_BYTES};
use super::reject::RejectReason;

/// Pattern, key agreement, cipher and hash, also those of the channel to a controller and of a transfer.
const PATTERN: &str = "Noise_IK_25519_AESGCM_SHA256";
/// Hashed into every handshake: another version of the tunnel derives other keys.
const PROLOGUE: &[u8] = b"crosslane tunnel 3";

/// The initiator's encrypted payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    /// The initiator's index of the session.
    pub(super) index: Index,
    /// Nanoseconds since 1970, more than in any earlier initiation.
    pub(super) unix_ns: u64,
}

/// The initiator's side of a handshake with the owner of `peer`. A handshake with another prologue does not open.
///
/// # Errors
/// The library has no source of randomness.
pub fn initiator(own: &PrivateKey, peer: &PublicKey, prologue: &[u8]) -> Result<HandshakeState, snow::Error> {
    let builder = Builder::new(PATTERN.parse()?).prologue(prologue)?.local_private_key(own.as_bytes())?;
    builder.remote_public_key(peer.as_bytes())?.build_initiator()
}

/// The responder's side.
///
/// # Errors
/// As of [`initiator`].
pub fn responder(own: &PrivateKey, prologue: &[u8]) -> Result<HandshakeState, snow::Error> {
    Builder::new(PATTERN.parse()?).prologue(prologue)?.local_private_key(own.as_bytes())?.build_responder()
}

/// The initiator's key, once the responder has read its message.
pub fn peer_of(state: &HandshakeState) -> Option<PublicKey> {
    let key: [u8; KEY_BYTES] = state.get_remote_static()?.try_into().ok()?;
    Some(key.into())
}

/// Begins a handshake with the owner of `peer`.
pub(super) fn initiate(
    own: &PrivateKey,
    peer: &PublicKey,
    payload_fields: Introduction,
) -> Result<(HandshakeState, [u8; NOISE_1_BYTES]), snow::Error> {
    let mut state = initiator(own, peer, PROLOGUE)?;
    let mut payload = [0; INITIATION_PAYLOAD_BYTES];
    payload[..INDEX_BYTES].copy_from_slice(&payload_fields.index.0);
    payload[INDEX_BYTES..].copy_from_slice(&payload_fields.unix_ns.to_be_bytes());
    let mut noise = [0; NOISE_1_BYTES];
    state.write_message(&payload, &mut noise)?;
    Ok((state, noise))
}

/// Reads an initiation: the initiator's key and payload.
pub(super) fn read_initiation(
    own: &PrivateKey,
    noise: &[u8],
) -> Result<(HandshakeState, PublicKey, Introduction), RejectReason> {
    let forged = |_| RejectReason::Forged;
    let mut state = responder(own, PROLOGUE).map_err(forged)?;
    let mut payload = [0; INITIATION_PAYLOAD_BYTES];
    let bytes = state.read_message(noise, &mut payload).map_err(forged)?;
    let peer = peer_of(&state).ok_or(RejectReason::Forged)?;
    if bytes != INITIATION_PAYLOAD_BYTES {
        return Err(RejectReason::Forged);
    }
    let [a, b, c, unix_ns @ ..] = payload;
    Ok((state, peer, Introduction { index: Index([a, b, c]), unix_ns: u64::from_be_bytes(unix_ns) }))
}

/// Responds to an initiation; `index` is the responder's index of the session.
pub(super) fn respond(
    mut state: HandshakeState,
    index: Index,
) -> Result<(StatelessTransportState, [u8; NOISE_2_BYTES]), snow::Error> {
    let mut noise = [0; NOISE_2_BYTES];
    state.write_message(&index.0, &mut noise)?;
    Ok((state.into_stateless_transport_mode()?, noise))
}

/// Reads the response: the responder's index of the session. A forged response leaves the handshake open.
pub(super) fn read_response(state: &mut HandshakeState, noise: &[u8]) -> Result<Index, RejectReason> {
    let mut index = [0; INDEX_BYTES];
    match state.read_message(noise, &mut index) {
        Ok(INDEX_BYTES) => Ok(Index(index)),
        _ => Err(RejectReason::Forged),
    }
}
