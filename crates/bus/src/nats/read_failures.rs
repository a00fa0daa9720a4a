//! Readers of a stream that do not advance: the decision that a message may be the cause, and the
//! state that health reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Number of ends at one position after which the next message may be their cause. One end is a
/// usual disconnect.
const SUSPICIOUS_ENDS: u32 = 2;

/// Ends of a reader at one position.
#[derive(Debug, Default)]
pub(super) struct RepeatedEnds {
    after: u64,
    count: u32,
}

impl RepeatedEnds {
    /// Records an end after the message `after`. Returns whether the next message may be the cause
    /// of repeated ends.
    pub(super) fn record(&mut self, after: u64) -> bool {
        if self.count == 0 || self.after != after {
            *self = Self { after, count: 0 };
        }
        self.count += 1;
        self.count >= SUSPICIOUS_ENDS
    }
}

/// Reasons of the readers of a connection that do not advance, by reader.
#[derive(Debug, Default)]
pub(super) struct ReadFailures(Mutex<BTreeMap<String, String>>);

impl ReadFailures {
    /// Returns the first reason.
    pub(super) fn first(&self) -> Option<String> {
        self.0.lock().values().next().cloned()
    }
}

/// Failure of one reader; dropping it clears the reason.
#[derive(Debug)]
pub(super) struct ReadFailure {
    failures: Arc<ReadFailures>,
    reader: String,
    is_set: bool,
}

impl ReadFailure {
    pub(super) fn new(failures: &Arc<ReadFailures>, reader: &str) -> Self {
        Self {
            failures: Arc::clone(failures),
            reader: reader.to_owned(),
            is_set: false,
        }
    }

    /// Sets the reason. Returns whether there was none before.
    pub(super) fn set(&mut self, reason: String) -> bool {
        self.failures.0.lock().insert(self.reader.clone(), reason);
        !std::mem::replace(&mut self.is_set, true)
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_set) {
            self.failures.0.lock().remove(&self.reader);
        }
    }
}

impl Drop for ReadFailure {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_end_at_one_position_is_suspicious() {
        let mut ends = RepeatedEnds::default();
        assert!(!ends.record(0));
        assert!(ends.record(0));
        assert!(!ends.record(4), "the reader has advanced");
        assert!(ends.record(4));
        assert!(ends.record(4));
    }

    #[test]
    fn reason_is_cleared_when_the_reader_advances_or_ends() {
        let failures = Arc::new(ReadFailures::default());
        let mut failure = ReadFailure::new(&failures, "a");
        assert!(failure.set("stuck".to_owned()));
        assert!(!failure.set("stuck".to_owned()), "it is logged once");
        assert_eq!(failures.first().as_deref(), Some("stuck"));
        failure.clear();
        assert_eq!(failures.first(), None);

        failure.set("stuck again".to_owned());
        drop(failure);
        assert_eq!(failures.first(), None);
    }
}
