//! Attempts of a work item: how each of them ended, bounded in number and size.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Outcome of an attempt.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AttemptOutcome {
    /// The work was executed.
    Succeeded,
    /// A permanent error.
    Rejected,
    /// The upstream throttled the call.
    Throttled,
    /// The upstream was unavailable.
    Unavailable,
    /// The response was lost.
    ResponseLost,
    /// There was no response in time.
    TimedOut,
}

impl AttemptOutcome {
    /// Returns the label for users and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Number of the attempt, from 1 for the first since the process started.
    pub number: u32,
    /// Start time.
    pub at: Timestamp,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Failure code; empty for a success.
    pub code: String,
    /// Beginning of the failure message; empty for a success.
    pub message: String,
    /// Beginning of the response that the upstream sent with the failure.
    pub response: Option<String>,
}

impl AttemptRecord {
    /// Maximum size of the message, and of the response, in bytes.
    pub const MAX_TEXT_BYTES: usize = 512;

    fn bounded(mut self) -> Self {
        for text in [&mut self.code, &mut self.message]
            .into_iter()
            .chain(&mut self.response)
        {
            text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
        }
        self
    }
}

/// Attempts of a work item that did not succeed at once: the first one and the last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLog {
    /// Stored attempts, oldest first.
    pub records: Vec<AttemptRecord>,
    /// Number of omitted attempts after the first one.
    pub omitted: u32,
}

impl AttemptLog {
    /// Maximum number of stored attempts: the first and the last nine.
    pub const MAX_RECORDS: usize = 10;

    /// Adds the latest attempt.
    pub fn push(&mut self, record: AttemptRecord) {
        if self.records.len() >= Self::MAX_RECORDS {
            // The first attempt is kept, because it has the original failure; the oldest of the
            // others goes.
            self.records.remove(1);
            self.omitted = self.omitted.saturating_add(1);
        }

        self.records.push(record);
    }

    /// Adds the attempts that followed in another process, with bounded texts.
    pub fn extend(&mut self, later: Self) {
        self.omitted = self.omitted.saturating_add(later.omitted);
        for record in later.records {
            // Texts of another process are not bounded yet.
            self.push(record.bounded());
        }
    }
}

/// Returns the beginning of a text: at most `limit` bytes, cut between characters.
#[must_use]
pub fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32) -> AttemptRecord {
        AttemptRecord {
            number,
            at: Timestamp::from_millis(i64::from(number)),
            duration_ms: 1,
            outcome: AttemptOutcome::Unavailable,
            code: "http_503".to_owned(),
            message: "no rooms".to_owned(),
            response: None,
        }
    }

    #[test]
    fn first_and_last_attempts_are_kept_and_the_others_are_counted() {
        let mut log = AttemptLog::default();
        (1..=10).for_each(|number| log.push(record(number)));
        assert_eq!((log.records.len(), log.omitted), (10, 0));
        let mut later = AttemptLog::default();
        (11..=14).for_each(|number| later.push(record(number)));
        log.extend(later);
        let numbers: Vec<_> = log.records.iter().map(|record| record.number).collect();
        assert_eq!(
            (numbers, log.omitted),
            (vec![1, 6, 7, 8, 9, 10, 11, 12, 13, 14], 4)
        );
    }

    #[test]
    fn beginning_is_cut_between_characters() {
        assert_eq!(beginning("aß", 2), "a");
        assert_eq!(beginning("aß", 9), "aß");
    }
}
