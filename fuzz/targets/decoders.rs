//! Decoders of the tunnel's datagrams: GRE, also compressed, its key, control messages, feedback.

use crosslane_core::path::PathId;
use crosslane_core::tunnel::wire::control_message::Message;
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::wire::path_feedback::PathFeedback;
use crosslane_core::tunnel::wire::{compressed_gre, gre};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Ok((header, payload)) = gre::read(bytes) {
        let mut encoded = Vec::new();
        header.write(payload, &mut encoded);
        assert_eq!(gre::read(&encoded), Ok((header, payload)));
        if let Some(key) = header.key {
            assert_eq!(GreKey::of_key(key).key(), key);
        }
    }
    if let Some((header, payload)) = compressed_gre::read(PathId(5), bytes) {
        let mut encoded = Vec::new();
        assert_eq!(compressed_gre::write(&header, &mut encoded), Some(()));
        encoded.extend(payload);
        assert_eq!(encoded, bytes);
    }
    if let Some((feedback, packet)) = PathFeedback::read(bytes) {
        let mut encoded = Vec::new();
        feedback.write(&mut encoded);
        encoded.extend(packet);
        assert_eq!(encoded, bytes);
    }
    if let Some(message) = Message::read(bytes) {
        let mut encoded = Vec::new();
        message.write(&mut encoded);
        assert_eq!(Message::read(&encoded), Some(message));
    }
}
