//! What comes in a datagram of the tunnel: GRE, its key, control messages.

use crosslane_core::tunnel::wire::control_message::Message;
use crosslane_core::tunnel::wire::gre;
use crosslane_core::tunnel::wire::gre_key::GreKey;

/// Plays one input.
pub fn run(bytes: &[u8]) {
    if let Ok((header, payload)) = gre::read(bytes) {
        let mut again = Vec::new();
        header.write(payload, &mut again);
        assert_eq!(gre::read(&again), Ok((header, payload)));
        if let Some(key) = header.key {
            assert_eq!(GreKey::of_key(key).key(), key);
        }
    }
    if let Some(message) = Message::read(bytes) {
        let mut again = Vec::new();
        message.write(&mut again);
        assert_eq!(Message::read(&again), Some(message));
    }
}
