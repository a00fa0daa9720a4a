//! Lines that jobs wrote and the node has not acknowledged yet, by claim.
//!
//! The buffer of a claim is bounded: it drops its oldest lines, because a flow keeps the last ones
//! too, and states their number in their place.

use std::collections::{BTreeMap, VecDeque};

use orlog_effect::EffectObserver;
use orlog_model::{EventId, LogLine, WorkItem, json_length};
use parking_lot::Mutex;

/// Maximum number of lines of a request.
const MAX_REQUEST_LINES: usize = 1000;
/// Maximum size of the encoded lines of a request, below the limit of a node for a body. The last
/// line can exceed it.
const MAX_REQUEST_BYTES: usize = 256 * 1024;
/// Maximum number of lines of a claim. A line has at most 2000 characters, and a flow keeps as many
/// lines by default.
const MAX_BUFFERED_LINES: usize = 10_000;

/// Lines by the cause of the work item of the runner, which is the claim.
#[derive(Debug, Default)]
pub(super) struct UnsentLines(Mutex<BTreeMap<EventId, LineBuffer>>);

#[derive(Debug, Default)]
struct LineBuffer {
    lines: VecDeque<String>,
    /// Number of lines that were dropped before the first one.
    dropped: u64,
    /// Number of lines, with the dropped ones, that a request without an acknowledgement has taken.
    in_flight: u64,
}

impl LineBuffer {
    fn push(&mut self, line: String) {
        if self.lines.len() == MAX_BUFFERED_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    /// Removes the lines of the next request.
    fn take(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        self.in_flight += self.dropped;
        if self.dropped > 0 {
            taken.push(format!(
                "orlog runner: {} lines are missing here; the node did not accept them in time",
                self.dropped
            ));
            self.dropped = 0;
        }

        while taken.len() < MAX_REQUEST_LINES
            && let Some(line) = self.lines.pop_front()
        {
            bytes += json_length(&line);
            self.in_flight += 1;
            taken.push(line);
            if bytes >= MAX_REQUEST_BYTES {
                break;
            }
        }
        taken
    }
}

impl UnsentLines {
    /// Accepts lines under a claim until [`Self::close`].
    pub(super) fn open(&self, claim: &EventId) {
        self.0.lock().insert(claim.clone(), LineBuffer::default());
    }

    /// Drops the lines of a claim; returns the number of lines that the node has not acknowledged.
    pub(super) fn close(&self, claim: &EventId) -> u64 {
        let buffer = self.0.lock().remove(claim).unwrap_or_default();
        buffer.dropped + buffer.in_flight + buffer.lines.len() as u64
    }

    /// Removes the lines of the next request of a claim. The caller keeps them until the node has
    /// acknowledged them, and then calls [`Self::acknowledge`].
    pub(super) fn take(&self, claim: &EventId) -> Vec<String> {
        let mut claims = self.0.lock();
        claims
            .get_mut(claim)
            .map(LineBuffer::take)
            .unwrap_or_default()
    }

    /// Records that the node has stored the lines that were taken.
    pub(super) fn acknowledge(&self, claim: &EventId) {
        if let Some(buffer) = self.0.lock().get_mut(claim) {
            buffer.in_flight = 0;
        }
    }
}

impl EffectObserver for UnsentLines {
    fn job_logged(&self, item: &WorkItem, lines: &[LogLine]) {
        let mut claims = self.0.lock();
        // Without an open claim, the job is no longer that of this runner.
        let Some(buffer) = claims.get_mut(&item.causation) else {
            return;
        };
        for line in lines {
            buffer.push(line.text.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(lines: usize, text: &str) -> LineBuffer {
        let mut buffer = LineBuffer::default();
        for _ in 0..lines {
            buffer.push(text.to_owned());
        }
        buffer
    }

    #[test]
    fn full_buffer_drops_its_oldest_lines_and_states_their_number() {
        let mut buffer = buffer(MAX_BUFFERED_LINES, "old");
        for _ in 0..3 {
            buffer.push("new".to_owned());
        }

        let first = buffer.take();
        assert!(first[0].contains("3 lines are missing"), "{}", first[0]);
        assert_eq!((first.len(), first[1].as_str()), (1000, "old"));
        let mut last = first;
        let mut count = last.len() - 1;
        loop {
            let next = buffer.take();
            if next.is_empty() {
                break;
            }
            count += next.len();
            last = next;
        }
        assert_eq!(count, MAX_BUFFERED_LINES);
        assert_eq!(last.last().map(String::as_str), Some("new"));
    }

    #[test]
    fn lines_of_a_request_have_a_limited_size() {
        // A control character takes six bytes in JSON.
        for (character, encoded) in [("x", 1), ("\u{1b}", 6)] {
            let mut buffer = buffer(1000, &character.repeat(2000));
            let line_bytes = 2000 * encoded + 2;
            let taken_bytes = buffer.take().len() * line_bytes;
            assert!(
                (MAX_REQUEST_BYTES..MAX_REQUEST_BYTES + line_bytes).contains(&taken_bytes),
                "{character:?}: {taken_bytes}"
            );
        }
    }

    #[test]
    fn close_counts_the_lines_that_the_node_has_not_acknowledged() {
        let lines = UnsentLines::default();
        let claim = EventId::new("claim").unwrap();
        // One request takes 1000 lines, of which the first one states the dropped ones.
        let mut full = buffer(MAX_BUFFERED_LINES + 5, "line");
        full.take();
        lines.0.lock().insert(claim.clone(), full);
        assert_eq!(lines.close(&claim), MAX_BUFFERED_LINES as u64 + 5);

        let acknowledged = buffer(1500, "line");
        lines.0.lock().insert(claim.clone(), acknowledged);
        lines.take(&claim);
        lines.acknowledge(&claim);
        lines.take(&claim);
        assert_eq!(lines.close(&claim), 500);
    }

    #[test]
    fn closed_claim_leaves_no_lines_for_a_later_one() {
        let lines = UnsentLines::default();
        let claims = ["first", "second"].map(|claim| EventId::new(claim).unwrap());
        let write = |claim: &EventId, text: &str| {
            let lines = &mut *lines.0.lock();
            if let Some(buffer) = lines.get_mut(claim) {
                buffer.push(text.to_owned());
            }
        };

        lines.open(&claims[0]);
        write(&claims[0], "of the first");
        assert_eq!(lines.close(&claims[0]), 1);
        lines.open(&claims[1]);
        write(&claims[0], "late");
        write(&claims[1], "of the second");
        assert_eq!(lines.take(&claims[1]), ["of the second"]);
        assert_eq!(lines.close(&claims[0]), 0);
    }
}
