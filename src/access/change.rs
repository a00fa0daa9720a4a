//! History of a record: its last changes.

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Number of changes that a record contains.
const MAX_CHANGES: usize = 50;

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
    /// Appends the change to a history, which forgets the oldest ones.
    pub(super) fn append_to(self, history: &mut Vec<Self>) {
        history.push(self);
        history.drain(..history.len().saturating_sub(MAX_CHANGES));
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
            Change { at, by: None, added: Vec::new(), removed: Vec::new() }.append_to(&mut history);
        }
        assert_eq!((history.len(), history[0].at.as_millis()), (50, 10));
    }
}
