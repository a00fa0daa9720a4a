//! Cuts a sequence of events into requests: so many events, so many bytes, in their order.

use std::iter::Peekable;

use serde_json::Value;

use crate::cli::exit::Failure;

/// Bytes of events in one request, at most; half of what a node takes by default.
const MOST_BYTES: usize = 4 << 20;

/// An event and where it stands.
pub(in crate::cli) struct Line {
    /// The number of its line, from 1.
    pub(in crate::cli) number: u64,
    /// Its length in the file.
    pub(in crate::cli) bytes: usize,
    /// The event.
    pub(in crate::cli) event: Value,
}

/// The events of one request.
pub(super) struct Batch {
    /// The events, an array.
    pub(super) events: Value,
    /// The number of each one's line.
    pub(super) lines: Vec<u64>,
    /// Their length in the file.
    pub(super) bytes: usize,
}

/// The requests that a sequence of events makes. Ends after the first line that cannot be read.
pub(super) struct Batches<I: Iterator> {
    lines: Peekable<I>,
    most: usize,
}

impl<I: Iterator<Item = Result<Line, Failure>>> Batches<I> {
    pub(super) fn new(lines: I, most: usize) -> Self {
        Self { lines: lines.peekable(), most }
    }
}

impl<I: Iterator<Item = Result<Line, Failure>>> Iterator for Batches<I> {
    type Item = Result<Batch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut events, mut lines, mut bytes) = (Vec::new(), Vec::new(), 0);
        let fits = |count: usize, bytes: usize, next: &Result<Line, Failure>| match next {
            Ok(line) => count == 0 || (count < self.most && bytes + line.bytes <= MOST_BYTES),
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
        (!events.is_empty()).then_some(Ok(Batch { events: Value::Array(events), lines, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "it stands for what a reader yields")]
    fn line(number: u64, bytes: usize) -> Result<Line, Failure> {
        Ok(Line { number, bytes, event: Value::from(number) })
    }

    #[test]
    fn keeps_the_order_and_both_bounds() {
        let lines = vec![line(1, 10), line(2, 10), line(3, 10), line(4, MOST_BYTES), line(5, 1)];
        let batches = Batches::new(lines.into_iter(), 2).map(|batch| batch.unwrap().lines);
        assert_eq!(batches.collect::<Vec<_>>(), [vec![1, 2], vec![3], vec![4], vec![5]]);
    }

    #[test]
    fn what_comes_before_a_wrong_line_is_sent() {
        let lines = vec![line(1, 10), Err(Failure::failed("line 2")), line(3, 10)];
        let mut batches = Batches::new(lines.into_iter(), 9);
        assert_eq!(batches.next().unwrap().unwrap().lines, [1]);
        assert!(batches.next().unwrap().is_err());
    }
}
