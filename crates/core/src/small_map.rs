//! A map of few entries, in no more memory than these take: a `BTreeMap` has room for eleven from the first one on, and
//! a thousand connections have several such maps each.

use alloc::vec::Vec;

/// Entries in the order of their keys. Every operation takes time proportional to their number.
#[derive(Clone, Debug)]
pub(crate) struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> SmallMap<K, V> {
        SmallMap(Vec::new())
    }
}

impl<K: Copy + Ord, V> SmallMap<K, V> {
    pub fn get(&self, key: K) -> Option<&V> {
        self.iter().find(|(of, _)| *of == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.0.iter_mut().find(|(of, _)| *of == key).map(|(_, value)| value)
    }

    /// The value of a key; without one, it is inserted.
    pub fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let place = self.0.partition_point(|(of, _)| *of < key);
        if self.0.get(place).is_none_or(|(of, _)| *of != key) {
            self.0.reserve_exact(1);
            self.0.insert(place, (key, value));
        }
        &mut self.0[place].1
    }

    /// Inserts a value, or replaces that of the key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.get_mut(key) {
            Some(former) => *former = value,
            None => {
                self.get_or_insert(key, value);
            }
        }
    }

    pub fn remove(&mut self, key: K) {
        self.retain(|of, _| of != key);
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(K, &V) -> bool) {
        self.0.retain(|(key, value)| is_kept(*key, value));
        if self.0.is_empty() {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_map(steps in prop::collection::vec((0u8..4, 0u8..6, any::<u16>()), 0..60)) {
            let (mut small, mut map) = (SmallMap::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => {
                        small.insert(key, value);
                        map.insert(key, value);
                    }
                    1 => prop_assert_eq!(small.get_or_insert(key, value), map.entry(key).or_insert(value)),
                    2 => {
                        small.remove(key);
                        map.remove(&key);
                    }
                    _ => {
                        small.retain(|of, _| of != key && of != 5);
                        map.retain(|of, _| *of != key && *of != 5);
                    }
                }
                prop_assert_eq!(small.get(key), map.get(&key));
                prop_assert_eq!(small.get_mut(key), map.get_mut(&key));
                let (entries, expected): (Vec<_>, Vec<_>) = (small.iter().collect(), map.iter().collect());
                prop_assert_eq!(entries, expected.into_iter().map(|(key, value)| (*key, value)).collect::<Vec<_>>());
                prop_assert_eq!(small.len(), map.len());
            }
        }
    }

    #[test]
    fn it_takes_no_more_memory_than_its_entries_and_none_without() {
        let mut map = SmallMap::default();
        (0..3).for_each(|key| map.insert(key, [0; 100]));
        assert_eq!(map.0.capacity(), 3);
        (0..3).for_each(|key| map.remove(key));
        assert_eq!(map.0.capacity(), 0);
    }
}
