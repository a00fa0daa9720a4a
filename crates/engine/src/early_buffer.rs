//! What is kept for an instance that does not exist yet, and the one timer that is armed for it.

use orlog_model::{EventId, Name, Timer, Timestamp};

/// The name of the timer.
const NAME: &str = "early";
/// Its token, which no state version is.
const TOKEN: u64 = 0;

/// An input that is kept for an instance that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number in the store.
    pub number: u64,
    /// Its id: it is kept once.
    pub id: EventId,
    /// Until when.
    pub until: Timestamp,
}

/// The timer that is armed while anything is kept.
pub(crate) fn timer(early: &[Kept]) -> Option<Timer> {
    early.first().map(|oldest| row(oldest.until))
}

/// The row of that timer.
pub(crate) fn row(due: Timestamp) -> Timer {
    Timer { due, name: Name::new(NAME).expect("a short word is a name"), token: TOKEN }
}
