//! The handshakes of an endpoint: when one is initiated.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crosslane_core::time::Instant;

use super::lock;
use crate::tunnel::security::{PrivateKey, PublicKey, Security};

/// Time between two initiations of a handshake.
pub(super) const INITIATE_PERIOD: Duration = Duration::from_millis(250);

/// Keys of an endpoint, for both threads.
pub(super) struct KeyExchange {
    security: Mutex<Security>,
    initiated: Mutex<Option<Instant>>,
}

impl KeyExchange {
    pub(super) fn new(private: PrivateKey, peers: Vec<PublicKey>) -> KeyExchange {
        KeyExchange { security: Mutex::new(Security::new(private, peers)), initiated: Mutex::new(None) }
    }

    pub(super) fn security(&self) -> MutexGuard<'_, Security> {
        lock(&self.security)
    }

    /// An initiation to the first peer, if one is due: no earlier than a period after the last, when
    /// new keys are needed or the peer is silent.
    pub(super) fn initiation(&self, now: Instant, unix_ns: u64, is_silent: bool) -> Option<Vec<u8>> {
        let mut initiated = lock(&self.initiated);
        if initiated.is_some_and(|last| now.since(last) < INITIATE_PERIOD) {
            return None;
        }
        let mut security = self.security();
        if !security.wants_rekey(now, 0) && !is_silent {
            return None;
        }
        *initiated = Some(now);
        security.initiate(now, unix_ns, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiations_without_an_answer_are_250_ms_apart() {
        let peer = PrivateKey::generate().unwrap().public();
        let keys = KeyExchange::new(PrivateKey::generate().unwrap(), vec![peer]);
        let initiates = |ms: u64| keys.initiation(Instant::from_millis(ms), 1 << 60, false).is_some();
        assert!(initiates(1000) && !initiates(1249) && initiates(1250) && !initiates(1300));
    }
}
