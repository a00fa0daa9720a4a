//! The most recent messages, in memory, shared by all consumers.

use std::collections::VecDeque;

use crate::in_flight::Stored;

/// What a message costs in memory beside its own bytes: its strings, its counters, its place here.
const OVERHEAD_BYTES: usize = 256;

/// The end of the stream, as far as it fits.
#[derive(Debug)]
pub(super) struct Ring {
    messages: VecDeque<Stored>,
    bytes: usize,
    limit: usize,
}

impl Ring {
    /// An empty ring for this many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { messages: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds the next message and lets go of the oldest where there is no room.
    pub(super) fn push(&mut self, stored: Stored) {
        self.bytes += cost(&stored);
        self.messages.push_back(stored);
        while self.bytes > self.limit {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= cost(&oldest);
        }
    }

    /// Up to `max` messages after a sequence; `None` where the ring does not reach back so far.
    pub(super) fn after(&self, sequence: u64, max: usize) -> Option<Vec<Stored>> {
        let first = self.messages.front()?.sequence;
        if sequence + 1 < first {
            return None;
        }
        let begin = self.messages.partition_point(|stored| stored.sequence <= sequence);
        Some(self.messages.range(begin..).take(max).cloned().collect())
    }
}

fn cost(stored: &Stored) -> usize {
    stored.message.size() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Message;
    use bytes::Bytes;
    use orlog_model::Timestamp;

    fn stored(sequence: u64) -> Stored {
        let message = Message {
            subject: "s".to_owned(),
            id: None,
            headers: Vec::new(),
            payload: Bytes::from_static(&[0; 99]),
        };
        Stored { sequence, published_at: Timestamp::default(), message: Arc::new(message) }
    }

    #[test]
    fn lets_go_of_the_oldest_and_says_where_it_begins() {
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
