//! Cache of the most recent messages of a stream, for all subscriptions of a process.

use std::collections::VecDeque;

use super::{ReadBatch, StoredMessage};
use crate::checkpoint::AckPosition;
use crate::codec::MAX_MESSAGE_BYTES;
use crate::subject_matcher::SubjectMatcher;

/// Memory overhead of a message besides its own bytes: strings, counters and entry.
const OVERHEAD_BYTES: usize = 256;
/// Distance in stream sequences; a subscription further ahead of the cache does not wait for it.
const JOIN_DISTANCE: u64 = 8192;

/// Range of the stream: all messages after `from` and up to `to` that match the filters of the
/// cache, within its limits.
#[derive(Debug)]
pub(crate) struct MessageCache {
    max_messages: usize,
    max_bytes: usize,
    from: u64,
    to: AckPosition,
    messages: VecDeque<StoredMessage>,
    bytes: usize,
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    /// The cache contains the position.
    Hit(ReadBatch),
    /// The messages after the position were evicted.
    Evicted,
    /// The cache is far behind the position.
    NotRead,
}

impl MessageCache {
    /// Creates an empty cache that continues after `after`.
    pub(crate) fn new(max_messages: usize, max_bytes: usize, after: AckPosition) -> Self {
        Self {
            max_messages,
            max_bytes,
            from: after.sequence,
            to: after,
            messages: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Restarts empty.
    pub(crate) fn reset(&mut self, after: AckPosition) {
        *self = Self::new(self.max_messages, self.max_bytes, after);
    }

    pub(crate) fn end(&self) -> AckPosition {
        self.to
    }

    /// Returns the oldest message if the next message may evict it.
    pub(crate) fn next_eviction(&self) -> Option<u64> {
        // The size of the next message is unknown before it is read, so the largest one is assumed.
        let is_full = self.messages.len() >= self.max_messages
            || self.bytes + MAX_MESSAGE_BYTES > self.max_bytes;
        self.messages
            .front()
            .filter(|_| is_full)
            .map(|oldest| oldest.sequence)
    }

    /// Adds the next message and evicts the oldest ones above the limits.
    pub(crate) fn push(&mut self, stored: StoredMessage) {
        self.bytes += cost(&stored);
        self.to = AckPosition {
            sequence: stored.sequence,
            at: Some(stored.published_at),
        };
        self.messages.push_back(stored);

        // A message that is larger than the cache is evicted at once. The cache then starts after
        // it.
        while self.messages.len() > self.max_messages || self.bytes > self.max_bytes {
            let Some(oldest) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= cost(&oldest);
            self.from = oldest.sequence;
        }
    }

    /// Records that there are no more messages up to this position.
    pub(crate) fn mark_caught_up(&mut self, position: AckPosition) {
        if position.sequence > self.to.sequence {
            self.to = position;
        }
    }

    /// Returns the matching messages after a sequence; examines at most `max` messages.
    pub(crate) fn read_after(
        &self,
        sequence: u64,
        max: usize,
        interest: &SubjectMatcher,
    ) -> CacheLookup {
        if sequence < self.from {
            return CacheLookup::Evicted;
        }
        // A subscription that is only a little ahead receives an empty batch and waits for the
        // cache.
        if sequence > self.to.sequence + JOIN_DISTANCE {
            return CacheLookup::NotRead;
        }

        let start = self
            .messages
            .partition_point(|stored| stored.sequence <= sequence);
        let candidates = self.messages.range(start..).take(max);
        // If `max` cuts the range, the batch ends at the last examined message. Otherwise it covers
        // everything up to the end of the cache.
        let read_to = match self.messages.get(start + max - 1) {
            Some(last) => AckPosition {
                sequence: last.sequence,
                at: Some(last.published_at),
            },
            None => self.to,
        };

        let messages = candidates
            .filter(|stored| interest.matches(&stored.message.subject))
            .cloned()
            .collect();
        CacheLookup::Hit(ReadBatch { messages, read_to })
    }
}

fn cost(stored: &StoredMessage) -> usize {
    stored.bytes + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use orlog_model::Timestamp;

    use super::*;
    use crate::{MaxInFlight, Message, Subscription};

    fn stored(sequence: u64, bytes: usize) -> StoredMessage {
        let (id, headers) = (None, Vec::new());
        let message = Message {
            subject: "s".to_owned(),
            id,
            headers,
            payload: Bytes::from(vec![0; bytes]),
        };
        StoredMessage::new(sequence, Timestamp::from_millis(7), Arc::new(message))
    }

    fn all() -> SubjectMatcher {
        let filters = vec![">".to_owned()];
        let name = String::new();
        SubjectMatcher::for_subscription(&Subscription {
            name,
            filters,
            partition: None,
            start_after: None,
            max_in_flight: MaxInFlight::total(1),
        })
        .unwrap()
    }

    fn after(window: &MessageCache, sequence: u64, max: usize) -> Option<(Vec<u64>, u64)> {
        let CacheLookup::Hit(batch) = window.read_after(sequence, max, &all()) else {
            return None;
        };
        let found = batch
            .messages
            .iter()
            .map(|stored| stored.sequence)
            .collect();
        Some((found, batch.read_to.sequence))
    }

    #[test]
    fn cache_reports_its_range() {
        let mut window = MessageCache::new(
            100,
            32 << 20,
            AckPosition {
                sequence: 10,
                at: None,
            },
        );
        for sequence in [12, 15, 20] {
            window.push(stored(sequence, 1));
        }
        assert_eq!(after(&window, 9, 10), None);
        assert_eq!(after(&window, 10, 10), Some((vec![12, 15, 20], 20)));
        assert_eq!(after(&window, 10, 2), Some((vec![12, 15], 15)));
        assert_eq!(after(&window, 13, 10), Some((vec![15, 20], 20)));
        window.mark_caught_up(AckPosition {
            sequence: 30,
            at: None,
        });
        assert_eq!(after(&window, 20, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 40, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 30 + JOIN_DISTANCE + 1, 10), None);
    }

    #[test]
    fn cache_evicts_the_oldest() {
        let mut window = MessageCache::new(100, 32 << 20, AckPosition::default());
        for sequence in 1..=40 {
            window.push(stored(sequence, 1 << 20));
        }
        assert!(window.next_eviction().is_some() && window.bytes <= 32 << 20);
        let oldest = window.messages[0].sequence;
        assert!(after(&window, oldest - 2, 100).is_none());
        assert_eq!(
            after(&window, oldest - 1, 100).unwrap().0.len(),
            window.messages.len()
        );
    }

    #[test]
    fn cache_without_space_is_empty() {
        let mut window = MessageCache::new(usize::MAX, 0, AckPosition::default());
        window.push(stored(1, 1));
        assert_eq!(
            (after(&window, 0, 9), after(&window, 1, 9)),
            (None, Some((vec![], 1)))
        );
    }
}
