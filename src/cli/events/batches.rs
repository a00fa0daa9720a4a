//! Splits a sequence of events into requests with a maximum number of events and bytes, in order.

use std::iter::Peekable;

use serde_json::Value;

use crate::cli::exit::CommandError;

/// Maximum bytes of events per request; half of the default limit of a node.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Event and its position in the file.
pub(crate) struct EventLine {
    /// Line number, from 1.
    pub(crate) number: u64,
    /// Length in the file, in bytes.
    pub(crate) bytes: usize,
    /// The event.
    pub(crate) event: Value,
}

/// Events of one request.
pub(crate) struct Batch {
    /// Events as a JSON array.
    pub(crate) events: Value,
    /// Line number of each event.
    pub(crate) lines: Vec<u64>,
    /// Length in the file, in bytes.
    pub(crate) bytes: usize,
}

/// Iterator of requests from a sequence of events. Ends after the first unreadable line.
pub(crate) struct Batches<I: Iterator> {
    lines: Peekable<I>,
    max_events: usize,
}

impl<I: Iterator<Item = Result<EventLine, CommandError>>> Batches<I> {
    pub(crate) fn new(lines: I, max_events: usize) -> Self {
        Self {
            lines: lines.peekable(),
            max_events,
        }
    }
}

impl<I: Iterator<Item = Result<EventLine, CommandError>>> Iterator for Batches<I> {
    type Item = Result<Batch, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut events = Vec::new();
        let mut lines = Vec::new();
        let mut bytes = 0;
        // The first event always fits: one that is too large is sent alone, and the node names its
        // limit.
        let fits = |count: usize, bytes: usize, next: &Result<EventLine, CommandError>| match next {
            Ok(line) => {
                count == 0 || (count < self.max_events && bytes + line.bytes <= MAX_BATCH_BYTES)
            }
            // Events before an unreadable line are sent first.
            Err(_) => count == 0,
        };

        while let Some(next) = self.lines.next_if(|next| fits(events.len(), bytes, next)) {
            match next {
                Ok(line) => {
                    bytes += line.bytes;
                    lines.push(line.number);
                    events.push(line.event);
                }
                Err(failure) => return Some(Err(failure)),
            }
        }

        (!events.is_empty()).then_some(Ok(Batch {
            events: Value::Array(events),
            lines,
            bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it stands for what a reader yields"
    )]
    fn line(number: u64, bytes: usize) -> Result<EventLine, CommandError> {
        Ok(EventLine {
            number,
            bytes,
            event: Value::from(number),
        })
    }

    #[test]
    fn batches_keep_order_and_limits() {
        let lines = vec![
            line(1, 10),
            line(2, 10),
            line(3, 10),
            line(4, MAX_BATCH_BYTES),
            line(5, 1),
        ];
        let batches = Batches::new(lines.into_iter(), 2).map(|batch| batch.unwrap().lines);
        assert_eq!(
            batches.collect::<Vec<_>>(),
            [vec![1, 2], vec![3], vec![4], vec![5]]
        );
    }

    #[test]
    fn lines_before_an_invalid_one_are_sent() {
        let lines = vec![
            line(1, 10),
            Err(CommandError::failed("line 2")),
            line(3, 10),
        ];
        let mut batches = Batches::new(lines.into_iter(), 9);
        assert_eq!(batches.next().unwrap().unwrap().lines, [1]);
        assert!(batches.next().unwrap().is_err());
    }
}
