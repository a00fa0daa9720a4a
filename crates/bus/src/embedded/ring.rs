//! In-memory cache of the most recent messages, shared by all consumers.

use std::collections::VecDeque;

use crate::in_flight::StoredMessage;

/// Memory overhead of a message besides its own bytes: strings, counters and ring entry.
const OVERHEAD_BYTES: usize = 256;

/// Ring of the latest messages within a byte limit.
#[derive(Debug)]
pub(super) struct Ring {
    messages: VecDeque<StoredMessage>,
    bytes: usize,
    limit: usize,
}

impl Ring {
    /// Creates an empty ring with this limit in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { messages: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds the next message and evicts the oldest ones above the limit.
    pub(super) fn push(&mut self, stored: StoredMessage) {
        self.bytes += cost(&stored);
        self.messages.push_back(stored);
        while self.bytes > self.limit {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= cost(&oldest);
        }
    }

    /// Returns up to `max` messages after a sequence; `None` if the ring does not reach back far enough.
    pub(super) fn after(&self, sequence: u64, max: usize) -> Option<Vec<StoredMessage>> {
        let first = self.messages.front()?.sequence;
        if sequence + 1 < first {
            return None;
        }
        let start = self.messages.partition_point(|stored| stored.sequence <= sequence);
        Some(self.messages.range(start..).take(max).cloned().collect())
    }
}

fn cost(stored: &StoredMessage) -> usize {
    stored.message.size() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Message;
    use bytes::Bytes;
    use orlog_model::Timestamp;

    fn stored(sequence: u64) -> StoredMessage {
        let message = Message {
            subject: "s".to_owned(),
            id: None,
            headers: Vec::new(),
            payload: Bytes::from_static(&[0; 99]),
        };
        StoredMessage { sequence, published_at: Timestamp::default(), message: Arc::new(message) }
    }

    #[test]
    fn evicts_the_oldest_and_reports_its_start() {
        let mut ring = Ring::new(3 * (100 + OVERHEAD_BYTES));
        assert!(ring.after(0, 9).is_none());
        (1..=5).for_each(|sequence| ring.push(stored(sequence)));
        let sequences = |after, max| {
            ring.after(after, max).map(|all| all.iter().map(|stored| stored.sequence).collect::<Vec<_>>())
        };
        assert_eq!(sequences(1, 9), None);
        assert_eq!(sequences(2, 9), Some(vec![3, 4, 5]));
        assert_eq!(sequences(3, 1), Some(vec![4]));
        assert_eq!(sequences(5, 9), Some(vec![]));
    }
}
