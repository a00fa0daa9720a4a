//! Message ids of the deduplication window, so that a repeated publish is stored once.
//!
//! Ids are stored as 128-bit keyed hashes: an id may be long, and the key prevents deliberate
//! collisions.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use orlog_model::Timestamp;

/// Message ids within the window.
#[derive(Debug)]
pub(super) struct Dedupe {
    window: Duration,
    limit: usize,
    keys: [RandomState; 2],
    known: HashMap<u128, u64>,
    order: VecDeque<SeenId>,
}

#[derive(Debug)]
struct SeenId {
    key: u128,
    sequence: u64,
    at: Timestamp,
}

impl Dedupe {
    /// Creates an empty window with a limit in time and in ids.
    pub(super) fn new(window: Duration, limit: usize) -> Self {
        let keys = [RandomState::new(), RandomState::new()];
        Self {
            window,
            limit,
            keys,
            known: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Returns the sequence of a known id; otherwise stores the id.
    pub(super) fn insert(&mut self, id: &str, sequence: u64, at: Timestamp) -> Option<u64> {
        let [high, low] = [&self.keys[0], &self.keys[1]].map(|key| u128::from(key.hash_one(id)));
        let key = high << 64 | low;

        match self.known.entry(key) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(entry) => {
                entry.insert(sequence);
                self.order.push_back(SeenId { key, sequence, at });
                None
            }
        }
    }

    /// Removes the ids with this sequence or a later one.
    pub(super) fn roll_back(&mut self, from: u64) {
        // Sequences grow along the list, so the ids of a failed group are at its end.
        while let Some(last) = self.order.pop_back_if(|known| known.sequence >= from) {
            self.known.remove(&last.key);
        }
    }

    /// Deletes the ids that have left the window.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let window_start = now.saturating_sub(self.window);
        // The limit has precedence over the window: the memory of the ids must stay bounded.
        let mut excess = self.order.len().saturating_sub(self.limit);
        while let Some(first) = self
            .order
            .pop_front_if(|known| known.at < window_start || excess > 0)
        {
            self.known.remove(&first.key);
            excess = excess.saturating_sub(1);
        }
    }

    /// Returns the sequence of the oldest stored id.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.front().map(|known| known.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn id_is_remembered_for_the_window() {
        let mut dedupe = Dedupe::new(Duration::from_millis(10), 100);
        assert_eq!(dedupe.insert("a", 1, at(0)), None);
        dedupe.expire(at(10));
        assert_eq!(
            (dedupe.insert("a", 2, at(10)), dedupe.oldest()),
            (Some(1), Some(1))
        );
        dedupe.expire(at(11));
        assert_eq!(
            (dedupe.oldest(), dedupe.insert("a", 3, at(11))),
            (None, None)
        );
    }

    #[test]
    fn oldest_ids_are_evicted_at_the_limit() {
        let mut dedupe = Dedupe::new(Duration::from_secs(1), 2);
        for (id, sequence) in [("a", 1), ("b", 2), ("c", 3)] {
            dedupe.insert(id, sequence, at(0));
        }
        dedupe.expire(at(0));
        assert_eq!(dedupe.oldest(), Some(2));
        assert_eq!(dedupe.insert("a", 4, at(0)), None);
    }

    #[test]
    fn rolled_back_id_is_removed() {
        let mut dedupe = Dedupe::new(Duration::from_secs(1), 9);
        dedupe.insert("a", 1, at(0));
        dedupe.insert("b", 2, at(0));
        dedupe.roll_back(2);
        assert_eq!(
            (dedupe.insert("a", 3, at(0)), dedupe.insert("b", 3, at(0))),
            (Some(1), None)
        );
    }
}
