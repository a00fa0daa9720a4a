//! In-memory cache of the most recent messages of the shared reader, for all subscriptions.

use std::collections::VecDeque;

use crate::checkpoint::AckPosition;
use crate::in_flight::StoredMessage;
use crate::subject_matcher::SubjectMatcher;

/// Maximum number of messages.
const MESSAGES: usize = 16_384;
/// Maximum number of bytes, unless a single message is larger.
const BYTES: usize = 32 << 20;
/// Memory overhead of a message besides its own bytes.
const OVERHEAD_BYTES: usize = 256;
/// Distance in stream sequences; a subscription further ahead of the cache does not wait for it.
const JOIN_DISTANCE: u64 = 8192;

/// Range of the stream: all messages after `from` and up to `end` that match the filters of the shared
/// reader.
#[derive(Debug, Default)]
pub(super) struct MessageCache {
    from: u64,
    to: AckPosition,
    messages: VecDeque<StoredMessage>,
    bytes: usize,
}

/// Result of a lookup.
#[derive(Debug)]
pub(super) enum CacheLookup {
    /// The cache contains the position.
    Hit(CachedBatch),
    /// The messages after the position were evicted.
    Evicted,
    /// The cache is far behind the position.
    NotRead,
}

/// Matching messages of a lookup.
#[derive(Debug)]
pub(super) struct CachedBatch {
    pub(super) messages: Vec<StoredMessage>,
    /// Position up to which messages were examined.
    pub(super) read_to: AckPosition,
}

impl MessageCache {
    /// Restarts empty.
    pub(super) fn reset(&mut self, after: AckPosition) {
        *self = Self { from: after.sequence, to: after, ..Self::default() };
    }

    pub(super) fn end(&self) -> AckPosition {
        self.to
    }

    /// Returns the oldest message if the next message evicts it.
    pub(super) fn next_eviction(&self) -> Option<u64> {
        let full = self.messages.len() >= MESSAGES || self.bytes >= BYTES;
        self.messages.front().filter(|_| full).map(|oldest| oldest.sequence)
    }

    pub(super) fn push(&mut self, stored: StoredMessage) {
        while self.next_eviction().is_some() {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= cost(&oldest);
            self.from = oldest.sequence;
        }
        self.bytes += cost(&stored);
        self.to = AckPosition { sequence: stored.sequence, at: Some(stored.published_at) };
        self.messages.push_back(stored);
    }

    /// Records that there are no more messages up to this position.
    pub(super) fn mark_caught_up(&mut self, position: AckPosition) {
        if position.sequence > self.to.sequence {
            self.to = position;
        }
    }

    /// Returns the matching messages after a sequence; examines at most `max` messages.
    pub(super) fn read_after(&self, sequence: u64, max: usize, interest: &SubjectMatcher) -> CacheLookup {
        if sequence < self.from {
            return CacheLookup::Evicted;
        }
        if sequence > self.to.sequence + JOIN_DISTANCE {
            return CacheLookup::NotRead;
        }
        let start = self.messages.partition_point(|stored| stored.sequence <= sequence);
        let candidates = self.messages.range(start..).take(max);
        let read_to = match self.messages.get(start + max - 1) {
            Some(last) => AckPosition { sequence: last.sequence, at: Some(last.published_at) },
            None => self.to,
        };
        let messages =
            candidates.filter(|stored| interest.matches(&stored.message.subject)).cloned().collect();
        CacheLookup::Hit(CachedBatch { messages, read_to })
    }
}

fn cost(stored: &StoredMessage) -> usize {
    stored.message.size() + OVERHEAD_BYTES
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
        let message = Message { subject: "s".to_owned(), id, headers, payload: Bytes::from(vec![0; bytes]) };
        StoredMessage { sequence, published_at: Timestamp::from_millis(7), message: Arc::new(message) }
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
        let CacheLookup::Hit(batch) = window.read_after(sequence, max, &all()) else { return None };
        let found = batch.messages.iter().map(|stored| stored.sequence).collect();
        Some((found, batch.read_to.sequence))
    }

    #[test]
    fn cache_reports_its_range() {
        let mut window = MessageCache::default();
        window.reset(AckPosition { sequence: 10, at: None });
        for sequence in [12, 15, 20] {
            window.push(stored(sequence, 1));
        }
        assert_eq!(after(&window, 9, 10), None);
        assert_eq!(after(&window, 10, 10), Some((vec![12, 15, 20], 20)));
        assert_eq!(after(&window, 10, 2), Some((vec![12, 15], 15)));
        assert_eq!(after(&window, 13, 10), Some((vec![15, 20], 20)));
        window.mark_caught_up(AckPosition { sequence: 30, at: None });
        assert_eq!(after(&window, 20, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 40, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 30 + JOIN_DISTANCE + 1, 10), None);
    }

    #[test]
    fn cache_evicts_the_oldest() {
        let mut window = MessageCache::default();
        window.reset(AckPosition::default());
        for sequence in 1..=40 {
            window.push(stored(sequence, 1 << 20));
        }
        assert!(window.next_eviction().is_some() && window.bytes <= BYTES + (2 << 20));
        let oldest = window.messages[0].sequence;
        assert!(after(&window, oldest - 2, 100).is_none());
        assert_eq!(after(&window, oldest - 1, 100).unwrap().0.len(), window.messages.len());
    }
}
