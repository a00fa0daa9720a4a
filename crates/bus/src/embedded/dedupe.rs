//! The message ids of the last while, so that a message that is published again is stored once.
//!
//! Ids are kept as 128 bits of keyed hash: an id may be long, and nobody can choose two that meet.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use orlog_model::Timestamp;

/// The ids within the window.
#[derive(Debug)]
pub(super) struct Dedupe {
    window: Duration,
    limit: usize,
    keys: [RandomState; 2],
    known: HashMap<u128, u64>,
    order: VecDeque<Known>,
}

#[derive(Debug)]
struct Known {
    key: u128,
    sequence: u64,
    at: Timestamp,
}

impl Dedupe {
    /// An empty window of a length in time and in ids.
    pub(super) fn new(window: Duration, limit: usize) -> Self {
        let keys = [RandomState::new(), RandomState::new()];
        Self { window, limit, keys, known: HashMap::new(), order: VecDeque::new() }
    }

    /// The sequence under which the id is known; if it is not, it is from now on.
    pub(super) fn remember(&mut self, id: &str, sequence: u64, at: Timestamp) -> Option<u64> {
        let [high, low] = [&self.keys[0], &self.keys[1]].map(|key| u128::from(key.hash_one(id)));
        let key = high << 64 | low;
        match self.known.entry(key) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(place) => {
                place.insert(sequence);
                self.order.push_back(Known { key, sequence, at });
                None
            }
        }
    }

    /// Takes back what was remembered with this sequence or a later one.
    pub(super) fn take_back(&mut self, from: u64) {
        while let Some(last) = self.order.pop_back_if(|known| known.sequence >= from) {
            self.known.remove(&last.key);
        }
    }

    /// Forgets what has left the window.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let begin = now.before(self.window);
        let mut excess = self.order.len().saturating_sub(self.limit);
        while let Some(first) = self.order.pop_front_if(|known| known.at < begin || excess > 0) {
            self.known.remove(&first.key);
            excess = excess.saturating_sub(1);
        }
    }

    /// The oldest message whose id is remembered.
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
    fn an_id_is_known_until_its_window_ends() {
        let mut dedupe = Dedupe::new(Duration::from_millis(10), 100);
        assert_eq!(dedupe.remember("a", 1, at(0)), None);
        dedupe.expire(at(10));
        assert_eq!((dedupe.remember("a", 2, at(10)), dedupe.oldest()), (Some(1), Some(1)));
        dedupe.expire(at(11));
        assert_eq!((dedupe.oldest(), dedupe.remember("a", 3, at(11))), (None, None));
    }

    #[test]
    fn the_oldest_ids_go_when_there_are_too_many() {
        let mut dedupe = Dedupe::new(Duration::from_secs(1), 2);
        for (id, sequence) in [("a", 1), ("b", 2), ("c", 3)] {
            dedupe.remember(id, sequence, at(0));
        }
        dedupe.expire(at(0));
        assert_eq!(dedupe.oldest(), Some(2));
        assert_eq!(dedupe.remember("a", 4, at(0)), None);
    }

    #[test]
    fn what_is_taken_back_is_unknown_again() {
        let mut dedupe = Dedupe::new(Duration::from_secs(1), 9);
        dedupe.remember("a", 1, at(0));
        dedupe.remember("b", 2, at(0));
        dedupe.take_back(2);
        assert_eq!((dedupe.remember("a", 3, at(0)), dedupe.remember("b", 3, at(0))), (Some(1), None));
    }
}
