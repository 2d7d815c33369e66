//! The demands of all senders as one.

use std::collections::BTreeMap;

use crosslane_core::demand::{Demand, MAX_OBJECTS, Object};

/// What each sender has open.
#[derive(Default)]
pub(super) struct DemandTable {
    /// Senders with open objects.
    senders: BTreeMap<u64, Vec<Entry>>,
    next: u64,
}

struct Entry {
    /// As its sender told it.
    object: Object,
    /// Its number among the objects of all senders, from when it is first asked
    /// for: the engine takes a number below the last for one that it knows.
    number: Option<u64>,
}

impl DemandTable {
    /// Notes all that a sender has open; true if an object came or went.
    pub(super) fn tell(&mut self, sender: u64, objects: Vec<Object>) -> bool {
        let was = self.senders.remove(&sender).unwrap_or_default();
        let number = |number: u64| was.iter().find(|entry| entry.object.number == number)?.number;
        let entries: Vec<Entry> =
            objects.into_iter().map(|object| Entry { object, number: number(object.number) }).collect();
        let unacked = |entry: &Entry| Object { acked_bytes: 0, ..entry.object };
        let changed = !was.iter().map(unacked).eq(entries.iter().map(unacked));
        if !entries.is_empty() {
            self.senders.insert(sender, entries);
        }
        changed
    }

    /// Forgets a sender; true if it had objects open.
    pub(super) fn leave(&mut self, sender: u64) -> bool {
        self.senders.remove(&sender).is_some()
    }

    /// What is open, the earliest deadline first.
    pub(super) fn demand(&mut self, unit_costs: &[f64]) -> Demand {
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
        Demand { objects: open.into_iter().map(numbered).collect(), unit_costs: unit_costs.to_vec() }
    }

    /// Whose object has a number of [`DemandTable::demand`], and under which number.
    pub(super) fn owner(&self, number: u64) -> Option<(u64, u64)> {
        let find = |entries: &Vec<Entry>| {
            entries.iter().find(|entry| entry.number == Some(number)).map(|entry| entry.object.number)
        };
        self.senders.iter().find_map(|(sender, entries)| Some((*sender, find(entries)?)))
    }

    /// A sender's part of what all together may have unacknowledged, if it has
    /// objects open.
    pub(super) fn share(&self, sender: u64, backlog: Option<u64>) -> Option<Option<u64>> {
        let parts = self.senders.len() as u64;
        self.senders.contains_key(&sender).then(|| backlog.map(|bytes| bytes / parts))
    }
}
