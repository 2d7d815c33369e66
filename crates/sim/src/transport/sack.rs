//! Selective acknowledgements (RFC 2018), and duplicates that they name (RFC 2883).

/// A block: the half-open range of stream offsets `(begin, end)`.
pub type Block = (u64, u64);

/// Most blocks of a segment: what the timestamps option leaves (RFC 2018 §3).
const MOST: usize = 3;
/// Blocks that a receiver remembers (Linux `TCP_NUM_SACKS`).
const REMEMBERED: usize = 4;

/// The blocks of a segment: a duplicate first, then those that arrived last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sack {
    blocks: [Block; MOST],
    count: usize,
}

impl Sack {
    /// The first of these blocks, at most `room` and three.
    pub(super) fn new(blocks: impl IntoIterator<Item = Block>, room: usize) -> Sack {
        let mut sack = Sack::default();
        for block in blocks.into_iter().take(room.min(MOST)) {
            sack.blocks[sack.count] = block;
            sack.count += 1;
        }
        sack
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks[..self.count]
    }

    /// Sorts the blocks by their sequence numbers.
    pub(super) fn sort(&mut self) {
        self.blocks[..self.count].sort_unstable();
    }

    /// The segment that arrived twice, if the first block names one: it is below the acknowledgement, or within the
    /// second block (RFC 2883 §4).
    pub(super) fn duplicate(&self, ack: u64) -> Option<Block> {
        let (first, second) = (*self.blocks().first()?, self.blocks().get(1));
        let within = second.is_some_and(|second| second.0 <= first.0 && first.1 <= second.1);
        (first.0 < ack || within).then_some(first)
    }
}

/// What a receiver reports (Linux `tcp_sack_new_ofo_skb`).
#[derive(Clone, Debug, Default)]
pub(super) struct SackList {
    /// Newest first.
    blocks: Vec<Block>,
    duplicate: Option<Block>,
}

impl SackList {
    /// Notes an out-of-order segment.
    pub(super) fn add(&mut self, segment: Block) {
        let mut merged = segment;
        self.blocks.retain(|&(begin, end)| {
            let apart = end < merged.0 || merged.1 < begin;
            if !apart {
                merged = (merged.0.min(begin), merged.1.max(end));
            }
            apart
        });
        self.blocks.insert(0, merged);
        self.blocks.truncate(REMEMBERED);
    }

    /// Notes a segment that had arrived before.
    pub(super) fn add_duplicate(&mut self, segment: Block) {
        self.duplicate = Some(segment);
    }

    /// Forgets what is in order.
    pub(super) fn advance(&mut self, next: u64) {
        self.blocks.retain(|block| block.0 > next);
    }

    /// The blocks of the next segment; a duplicate is reported once.
    pub(super) fn take(&mut self, room: usize) -> Sack {
        Sack::new(self.duplicate.take().into_iter().chain(self.blocks.iter().copied()), room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_blocks_come_first_and_adjacent_ones_are_merged() {
        let mut list = SackList::default();
        for segment in [(100, 200), (300, 400), (500, 600), (700, 800), (200, 300)] {
            list.add(segment);
        }
        assert_eq!(list.take(3).blocks(), [(100, 400), (700, 800), (500, 600)]);
        list.advance(400);
        assert_eq!(list.take(1).blocks(), [(700, 800)]);
    }

    #[test]
    fn a_duplicate_is_reported_once_and_before_the_blocks() {
        let mut list = SackList::default();
        list.add((300, 400));
        list.add_duplicate((100, 200));
        let sack = list.take(3);
        assert_eq!((sack.blocks(), sack.duplicate(250)), (&[(100, 200), (300, 400)][..], Some((100, 200))));
        let sack = list.take(3);
        assert_eq!((sack.blocks(), sack.duplicate(250)), (&[(300, 400)][..], None));
        list.add_duplicate((300, 400));
        assert_eq!(list.take(3).duplicate(250), Some((300, 400)), "within the second block");
    }
}
