//! A set of pieces.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// A set of piece indices: the end of each range by its start. Ranges do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ends: BTreeMap<u32, u32>,
    count: u32,
}

impl Ranges {
    /// All indices below this one.
    pub fn below(end: u32) -> Ranges {
        let ends = (end > 0).then_some((0, end)).into_iter().collect();
        Ranges { ends, count: end }
    }

    /// The union of ranges in ascending order; `None` if one is empty, or begins before the one before it ends.
    pub fn ascending(ranges: impl IntoIterator<Item = Range<u32>>) -> Option<Ranges> {
        let mut all = Ranges::default();
        for range in ranges {
            let (start, end) = all.ends.last_key_value().map_or((0, 0), |(start, end)| (*start, *end));
            if range.is_empty() || range.start < end {
                return None;
            }
            all.ends.insert(if range.start == end { start } else { range.start }, range.end);
            all.count += range.end - range.start;
        }
        Some(all)
    }

    /// Adds an index; false if it is there.
    pub fn insert(&mut self, index: u32) -> bool {
        let before = self.ends.range(..=index).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, end)| index < end) {
            return false;
        }
        let start = before.filter(|(_, end)| *end == index).map_or(index, |(start, _)| start);
        let end = self.ends.remove(&(index + 1)).unwrap_or(index + 1);
        self.ends.insert(start, end);
        self.count += 1;
        true
    }

    /// Removes the indices of a range.
    pub fn remove(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let copied = |(start, end): (&u32, &u32)| (*start, *end);
        let touched = self.ends.range(..range.end).rev().map(copied).take_while(|(_, end)| *end > range.start);
        for (start, end) in touched.collect::<Vec<_>>() {
            self.ends.remove(&start);
            self.count -= end.min(range.end) - start.max(range.start);
            if start < range.start {
                self.ends.insert(start, range.start);
            }
            if end > range.end {
                self.ends.insert(range.end, end);
            }
        }
    }

    /// The lowest index.
    pub fn first(&self) -> Option<u32> {
        self.ends.keys().next().copied()
    }

    /// The ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// Number of indices.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it has no index.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a set of single indices.
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..20), 0..60)) {
            let (mut ranges, mut set) = (Ranges::below(20), (0..20).collect::<BTreeSet<u32>>());
            for (is_added, start, length) in steps {
                if is_added {
                    prop_assert_eq!(ranges.insert(start), set.insert(start));
                } else {
                    ranges.remove(start..start + length);
                    set.retain(|index| !(start..start + length).contains(index));
                }
                prop_assert!(ranges.iter().flatten().eq(set.iter().copied()));
                prop_assert_eq!((ranges.count() as usize, ranges.first()), (set.len(), set.first().copied()));
                prop_assert_eq!(Ranges::ascending(ranges.iter()), Some(ranges.clone()));
            }
        }
    }

    #[test]
    fn only_ascending_ranges_are_a_set() {
        assert_eq!(Ranges::ascending([0..2, 2..5]), Some(Ranges::below(5)));
        assert_eq!(Ranges::ascending([0..2, 1..5]), None);
        assert_eq!(Ranges::ascending([2..5, 0..1]), None);
        assert_eq!(Ranges::ascending([0..2, 3..3]), None);
    }
}
