//! Initiations that were opened before: replays of them cost a look-up, and no
//! public-key work.

use std::collections::{BTreeMap, VecDeque};

use crosslane_core::time::Instant;

/// Maximum number of initiations stored for each peer, the newest: those of 17 hours, 30 KB.
pub(super) const MAX_KNOWN: usize = 512;
/// The ephemeral key, unique to each initiation (Noise, section 7.1).
const EPHEMERAL_BYTES: usize = 32;

type Ephemeral = [u8; EPHEMERAL_BYTES];

/// Initiations by ephemeral key. Only initiations of peers are stored, so unknown senders cannot fill the table, nor
/// can a peer use the share of another.
#[derive(Default)]
pub(super) struct Known {
    /// Until when each is rejected; none: forever.
    until: BTreeMap<Ephemeral, Option<Instant>>,
    /// By peer, the oldest first.
    order: BTreeMap<usize, VecDeque<Ephemeral>>,
}

impl Known {
    /// Whether an initiation is rejected without being opened. `noise` is Noise message 1.
    pub(super) fn rejects(&self, now: Instant, noise: &[u8]) -> bool {
        let known = noise.first_chunk().and_then(|ephemeral| self.until.get(ephemeral));
        known.is_some_and(|until| until.is_none_or(|until| now < until))
    }

    /// Stores an opened initiation of a peer: it is rejected until then, or forever.
    pub(super) fn remember(&mut self, peer: usize, noise: &[u8], until: Option<Instant>) {
        let Some(ephemeral) = noise.first_chunk() else { return };
        if self.until.insert(*ephemeral, until).is_some() {
            return;
        }
        let order = self.order.entry(peer).or_default();
        order.push_back(*ephemeral);
        if order.len() > MAX_KNOWN
            && let Some(oldest) = order.pop_front()
        {
            self.until.remove(&oldest);
        }
    }

    /// Number of stored initiations.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.until.len(), self.order.values().map(VecDeque::len).sum::<usize>());
        self.until.len()
    }
}
