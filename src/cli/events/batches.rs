//! Splits a sequence of events into requests with a maximum number of events and bytes, in order.

use orlog_model::json_length;
use std::iter::Peekable;

use serde_json::Value;

use crate::cli::exit::CommandError;

/// Maximum bytes of encoded events per request; half of the default limit of a node.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Size that a signature adds to an event, with the tenant and the time that it covers.
const SIGNATURE_BYTES: usize = 512;

/// Event and its position in the file.
pub(crate) struct EventLine {
    /// Line number, from 1.
    pub(crate) number: u64,
    /// Length in the file, in bytes.
    pub(crate) bytes: usize,
    /// Length in a request, in bytes. An event of a CSV row is longer than the row.
    encoded: usize,
    /// The event.
    pub(crate) event: Value,
}

impl EventLine {
    /// Creates an event; `bytes` is its length in the file.
    pub(crate) fn new(number: u64, bytes: usize, event: Value) -> Self {
        Self {
            number,
            bytes,
            encoded: json_length(&event) + SIGNATURE_BYTES,
            event,
        }
    }
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
        let mut encoded = 0;
        // The first event always fits: one that is too large is sent alone, and the node names its
        // limit.
        let fits = |count: usize, size: usize, next: &Result<EventLine, CommandError>| match next {
            Ok(line) => {
                count == 0 || (count < self.max_events && size + line.encoded <= MAX_BATCH_BYTES)
            }
            // Events before an unreadable line are sent first.
            Err(_) => count == 0,
        };

        while let Some(next) = self.lines.next_if(|next| fits(events.len(), encoded, next)) {
            match next {
                Ok(line) => {
                    bytes += line.bytes;
                    encoded += line.encoded;
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
    fn line(number: u64, encoded: usize) -> Result<EventLine, CommandError> {
        Ok(EventLine {
            encoded,
            ..EventLine::new(number, 1, Value::from(number))
        })
    }

    /// An event of a CSV row also has the names of its columns.
    #[test]
    fn size_of_an_event_is_that_of_its_encoding() {
        let event = serde_json::json!({ "type": "Paid", "data": { "amount": 1 } });
        let encoded = event.to_string().len();
        let line = EventLine::new(1, 2, event);
        assert_eq!((line.bytes, line.encoded), (2, encoded + SIGNATURE_BYTES));
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
