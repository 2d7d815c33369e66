//! The budget of copies in mode adaptive: a share of the bytes sent first, a hard limit over ten seconds.

use crate::time::Instant;

/// Length of the buckets in which bytes are counted, in ms.
const BUCKET_MS: u64 = 100;
/// Buckets of ten seconds, and the one that is being filled.
const BUCKETS: usize = 101;

/// Bytes of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    first: u64,
    copies: u64,
}

/// Counts what is sent first and what again.
#[derive(Debug)]
pub(super) struct CopyBudget {
    /// Copies allowed, as a share of the bytes sent first (0: none).
    share: f64,
    buckets: [Bucket; BUCKETS],
    /// Number of the present bucket since the start.
    present: u64,
    /// Sum of all buckets.
    sum: Bucket,
}

impl CopyBudget {
    /// Nothing sent yet.
    pub(super) fn new(share: f64) -> CopyBudget {
        CopyBudget { share, buckets: [Bucket::default(); BUCKETS], present: 0, sum: Bucket::default() }
    }

    /// Counts a packet that is sent for the first time.
    pub(super) fn on_first(&mut self, now: Instant, bytes: u32) {
        self.advance(now);
        self.buckets[self.place()].first += u64::from(bytes);
        self.sum.first += u64::from(bytes);
    }

    /// Takes the bytes of a copy; false if the copies of the last ten seconds would exceed their share.
    pub(super) fn take(&mut self, now: Instant, bytes: u32) -> bool {
        self.advance(now);
        let copies = self.sum.copies + u64::from(bytes);
        let is_left = copies as f64 <= self.sum.first as f64 * self.share;
        if is_left {
            self.buckets[self.place()].copies += u64::from(bytes);
            self.sum.copies = copies;
        }
        is_left
    }

    fn place(&self) -> usize {
        (self.present % BUCKETS as u64) as usize
    }

    /// Forgets what was sent more than ten seconds ago.
    fn advance(&mut self, now: Instant) {
        let present = now.as_nanos() / (BUCKET_MS * 1_000_000);
        if present >= self.present + BUCKETS as u64 {
            *self = CopyBudget { present, ..CopyBudget::new(self.share) };
        }
        while self.present < present {
            self.present += 1;
            let old = core::mem::take(&mut self.buckets[self.place()]);
            self.sum = Bucket { first: self.sum.first - old.first, copies: self.sum.copies - old.copies };
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_tenth_may_be_sent_twice() {
        let mut budget = CopyBudget::new(0.1);
        assert!(!budget.take(at(0), 1), "nothing was sent yet");
        (0..100).for_each(|packet| budget.on_first(at(packet * 20), 1000));
        let copies = (0..100).filter(|_| budget.take(at(2000), 1000)).count();
        assert_eq!(copies, 10);
        assert!(!budget.take(at(9_999), 1000));
        (0..10).for_each(|_| budget.on_first(at(12_100), 1000));
        assert!(budget.take(at(12_200), 1000) && !budget.take(at(12_300), 1000));
    }

    #[test]
    fn a_share_of_0_allows_no_copy() {
        let mut budget = CopyBudget::new(0.0);
        budget.on_first(at(1), 1000);
        assert!(!budget.take(at(2), 1));
    }

    proptest! {
        #[test]
        fn the_copies_before_any_copy_are_within_their_share(
            steps in prop::collection::vec((0..3000_u64, 1..1500_u32, any::<bool>()), 1..300),
        ) {
            let (mut budget, mut now) = (CopyBudget::new(0.1), 0);
            let mut sent: Vec<(u64, u32, bool)> = Vec::new();
            for (pause, bytes, is_copy) in steps {
                now += pause;
                if !is_copy {
                    budget.on_first(at(now), bytes);
                } else if !budget.take(at(now), bytes) {
                    continue;
                }
                sent.push((now, bytes, is_copy));
                // The oldest bucket is forgotten as a whole.
                let since = (now / BUCKET_MS * BUCKET_MS).saturating_sub(10_000);
                let sum = |copies: bool| -> u64 {
                    let those = sent.iter().filter(|(at, _, is_copy)| *at >= since && *is_copy == copies);
                    those.map(|(_, bytes, _)| u64::from(*bytes)).sum()
                };
                prop_assert!(!is_copy || sum(true) as f64 <= sum(false) as f64 * 0.1);
            }
        }
    }
}
