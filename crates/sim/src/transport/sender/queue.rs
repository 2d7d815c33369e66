//! Data of a subflow that was not sent yet.

use std::collections::VecDeque;

use super::super::receiver::Mapping;

/// The data, in the order in which it is sent.
#[derive(Clone, Debug, Default)]
pub struct SendQueue {
    mappings: VecDeque<Mapping>,
    /// Its length, in bytes.
    pub bytes: u64,
}

impl SendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Appends data; contiguous mappings are merged.
    pub(super) fn push(&mut self, mapping: Mapping) {
        self.bytes += mapping.len;
        match self.mappings.back_mut() {
            Some(last) if last.dsn + last.len == mapping.dsn => last.len += mapping.len,
            _ => self.mappings.push_back(mapping),
        }
    }

    /// Takes the next segment, of at most `mss` bytes.
    pub(super) fn pop(&mut self, mss: u64) -> Option<Mapping> {
        let front = self.mappings.front_mut()?;
        let mapping = Mapping { dsn: front.dsn, len: front.len.min(mss) };
        front.dsn += mapping.len;
        front.len -= mapping.len;
        if front.len == 0 {
            self.mappings.pop_front();
        }
        self.bytes -= mapping.len;
        Some(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_data_is_merged_and_cut_into_segments() {
        let mut queue = SendQueue::default();
        for (dsn, len) in [(0, 50), (50, 100), (500, 30)] {
            queue.push(Mapping { dsn, len });
        }
        assert_eq!((queue.mappings.len(), queue.bytes), (2, 180));
        let segments: Vec<_> =
            std::iter::from_fn(|| queue.pop(100)).map(|mapping| (mapping.dsn, mapping.len)).collect();
        assert_eq!(segments, [(0, 100), (100, 50), (500, 30)]);
        assert!(queue.is_empty() && queue.bytes == 0);
    }
}
