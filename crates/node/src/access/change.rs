//! History of a record: its last changes.

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Number of changes that a record contains.
const MAX_CHANGES: usize = 50;
/// Size of the texts of these changes, in bytes. A record must fit into a message of NATS, also
/// with full lists: if it did not, no member could be removed.
const MAX_BYTES: usize = 64 << 10;

/// Change of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Time of the change.
    pub at: Timestamp,
    /// User who made it; `None` if authentication is off.
    pub by: Option<String>,
    /// What was added, for example `readers user:ada`.
    pub added: Vec<String>,
    /// What was removed.
    pub removed: Vec<String>,
}

impl Change {
    /// Appends the change to a history, and deletes the oldest ones above the limits. The new one
    /// stays.
    pub(super) fn append_to(self, history: &mut Vec<Self>) {
        history.push(self);
        let mut bytes = 0;
        let within = history.iter().rev().take(MAX_CHANGES).take_while(|change| {
            bytes += change.bytes();
            bytes <= MAX_BYTES
        });
        let kept = within.count().max(1);
        history.drain(..history.len() - kept);
    }

    fn bytes(&self) -> usize {
        let texts = self.added.iter().chain(&self.removed).chain(&self.by);
        texts.map(String::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keeps_the_last_changes() {
        let mut history = Vec::new();
        for number in 0..60 {
            let at = Timestamp::from_millis(number);
            Change {
                at,
                by: None,
                added: Vec::new(),
                removed: Vec::new(),
            }
            .append_to(&mut history);
        }
        assert_eq!((history.len(), history[0].at.as_millis()), (50, 10));
    }

    #[test]
    fn history_of_large_changes_is_short() {
        let mut history = Vec::new();
        let change = |number, bytes: usize| {
            let added = vec!["x".repeat(bytes)];
            Change {
                at: Timestamp::from_millis(number),
                by: None,
                added,
                removed: Vec::new(),
            }
        };
        for number in 0..9 {
            change(number, MAX_BYTES / 4).append_to(&mut history);
        }
        assert_eq!((history.len(), history[0].at.as_millis()), (4, 5));
        change(9, 2 * MAX_BYTES).append_to(&mut history);
        assert_eq!((history.len(), history[0].at.as_millis()), (1, 9));
    }
}
