//! The demands of all senders combined.

use std::collections::BTreeMap;

use crosslane_core::demand::{MAX_OBJECTS, Object};

/// The open objects of each sender.
#[derive(Default)]
pub(super) struct DemandTable {
    senders: BTreeMap<u64, Vec<Entry>>,
    next: u64,
}

struct Entry {
    /// As reported by its sender.
    object: Object,
    /// Its number among the objects of all senders, assigned when it is first
    /// used: to the engine, a number below the last is a known object.
    number: Option<u64>,
}

impl DemandTable {
    /// Replaces a sender's open objects; true if an object was added or removed.
    pub(super) fn replace(&mut self, sender: u64, objects: Vec<Object>) -> bool {
        let previous = self.senders.remove(&sender).unwrap_or_default();
        let number = |number: u64| previous.iter().find(|entry| entry.object.number == number)?.number;
        let entries: Vec<Entry> =
            objects.into_iter().map(|object| Entry { object, number: number(object.number) }).collect();
        let unacked = |entry: &Entry| Object { acked_bytes: 0, ..entry.object };
        let changed = !previous.iter().map(unacked).eq(entries.iter().map(unacked));
        if !entries.is_empty() {
            self.senders.insert(sender, entries);
        }
        changed
    }

    /// Removes a sender; true if it had open objects.
    pub(super) fn remove(&mut self, sender: u64) -> bool {
        self.senders.remove(&sender).is_some()
    }

    /// The open objects, the earliest deadline first.
    pub(super) fn demand(&mut self) -> Vec<Object> {
        let mut open: Vec<&mut Entry> = self.senders.values_mut().flatten().collect();
        open.sort_by_key(|entry| (entry.object.deadline, entry.number.unwrap_or(u64::MAX)));
        open.truncate(MAX_OBJECTS);
        let next = &mut self.next;
        let numbered = |entry: &mut Entry| {
            let number = *entry.number.get_or_insert_with(|| {
                *next += 1;
                *next - 1
            });
            Object { number, ..entry.object }
        };
        open.into_iter().map(numbered).collect()
    }

    /// The sender of an object by its number in [`DemandTable::demand`], and the sender's own number.
    pub(super) fn owner(&self, number: u64) -> Option<(u64, u64)> {
        let find = |entries: &Vec<Entry>| {
            entries.iter().find(|entry| entry.number == Some(number)).map(|entry| entry.object.number)
        };
        self.senders.iter().find_map(|(sender, entries)| Some((*sender, find(entries)?)))
    }

    /// A sender's share of the limit of unacknowledged bytes, if it has open
    /// objects.
    pub(super) fn share(&self, sender: u64, backlog: Option<u64>) -> Option<Option<u64>> {
        let parts = self.senders.len() as u64;
        self.senders.contains_key(&sender).then(|| backlog.map(|bytes| bytes / parts))
    }
}
