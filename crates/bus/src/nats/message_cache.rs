//! The most recent messages that the hub has read, in memory, shared by all subscriptions.

use std::collections::VecDeque;

use crate::checkpoint::Mark;
use crate::in_flight::Stored;
use crate::subject_matcher::Interest;

/// Messages held at most.
const MESSAGES: usize = 16_384;
/// Bytes held at most, unless a single message takes more.
const BYTES: usize = 32 << 20;
/// What a message costs in memory beside its own bytes.
const OVERHEAD_BYTES: usize = 256;
/// A subscription this far ahead of the window, in numbers of the stream, does not wait for it.
const NEAR: u64 = 8192;

/// A stretch of the stream: of what the hub's filters let through, everything after `from` and up to `to` is here.
#[derive(Debug, Default)]
pub(super) struct Window {
    from: u64,
    to: Mark,
    messages: VecDeque<Stored>,
    bytes: usize,
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum Look {
    /// The stretch reaches there.
    Here(Batch),
    /// What follows there is no longer in the window.
    Gone,
    /// The window is far from having come there.
    NotYet,
}

/// What was found in a stretch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: Vec<Stored>,
    /// How far was looked.
    pub(super) read_to: Mark,
}

impl Window {
    /// Begins anew, empty.
    pub(super) fn begin(&mut self, after: Mark) {
        *self = Self { from: after.sequence, to: after, ..Self::default() };
    }

    pub(super) fn to(&self) -> Mark {
        self.to
    }

    /// Whether the next message drops the oldest; which that is.
    pub(super) fn would_drop(&self) -> Option<u64> {
        let full = self.messages.len() >= MESSAGES || self.bytes >= BYTES;
        self.messages.front().filter(|_| full).map(|oldest| oldest.sequence)
    }

    pub(super) fn push(&mut self, stored: Stored) {
        while self.would_drop().is_some() {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= cost(&oldest);
            self.from = oldest.sequence;
        }
        self.bytes += cost(&stored);
        self.to = Mark { sequence: stored.sequence, at: Some(stored.published_at) };
        self.messages.push_back(stored);
    }

    /// There is nothing more up to here.
    pub(super) fn level(&mut self, mark: Mark) {
        if mark.sequence > self.to.sequence {
            self.to = mark;
        }
    }

    /// What is wanted after a sequence, looking at `max` messages at most.
    pub(super) fn after(&self, sequence: u64, max: usize, interest: &Interest) -> Look {
        if sequence < self.from {
            return Look::Gone;
        }
        if sequence > self.to.sequence + NEAR {
            return Look::NotYet;
        }
        let begin = self.messages.partition_point(|stored| stored.sequence <= sequence);
        let look = self.messages.range(begin..).take(max);
        let read_to = match self.messages.get(begin + max - 1) {
            Some(last) => Mark { sequence: last.sequence, at: Some(last.published_at) },
            None => self.to,
        };
        let messages = look.filter(|stored| interest.matches(&stored.message.subject)).cloned().collect();
        Look::Here(Batch { messages, read_to })
    }
}

fn cost(stored: &Stored) -> usize {
    stored.message.size() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use orlog_model::Timestamp;

    use super::*;
    use crate::{Message, Subscription};

    fn stored(sequence: u64, bytes: usize) -> Stored {
        let (id, headers) = (None, Vec::new());
        let message = Message { subject: "s".to_owned(), id, headers, payload: Bytes::from(vec![0; bytes]) };
        Stored { sequence, published_at: Timestamp::from_millis(7), message: Arc::new(message) }
    }

    fn all() -> Interest {
        let filters = vec![">".to_owned()];
        let name = String::new();
        Interest::of(&Subscription { name, filters, part: None, after: None, max_in_flight: 1 }).unwrap()
    }

    fn after(window: &Window, sequence: u64, max: usize) -> Option<(Vec<u64>, u64)> {
        let Look::Here(batch) = window.after(sequence, max, &all()) else { return None };
        let found = batch.messages.iter().map(|stored| stored.sequence).collect();
        Some((found, batch.read_to.sequence))
    }

    #[test]
    fn knows_how_far_it_reaches() {
        let mut window = Window::default();
        window.begin(Mark { sequence: 10, at: None });
        for sequence in [12, 15, 20] {
            window.push(stored(sequence, 1));
        }
        assert_eq!(after(&window, 9, 10), None);
        assert_eq!(after(&window, 10, 10), Some((vec![12, 15, 20], 20)));
        assert_eq!(after(&window, 10, 2), Some((vec![12, 15], 15)));
        assert_eq!(after(&window, 13, 10), Some((vec![15, 20], 20)));
        window.level(Mark { sequence: 30, at: None });
        assert_eq!(after(&window, 20, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 40, 10), Some((vec![], 30)));
        assert_eq!(after(&window, 30 + NEAR + 1, 10), None);
    }

    #[test]
    fn lets_go_of_the_oldest() {
        let mut window = Window::default();
        window.begin(Mark::default());
        for sequence in 1..=40 {
            window.push(stored(sequence, 1 << 20));
        }
        assert!(window.would_drop().is_some() && window.bytes <= BYTES + (2 << 20));
        let oldest = window.messages[0].sequence;
        assert!(after(&window, oldest - 2, 100).is_none());
        assert_eq!(after(&window, oldest - 1, 100).unwrap().0.len(), window.messages.len());
    }
}
