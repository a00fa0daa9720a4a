//! Buffered inputs of a missing instance, and the timer that expires them.

use orlog_model::{DedupeKey, Name, Timer, Timestamp};

/// Name of the timer.
const NAME: &str = "early";
/// Token of the timer. No state version has this value.
const TOKEN: u64 = 0;

/// Input that is buffered for a missing instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferedInputRef {
    /// Number of the input in the store.
    pub number: u64,
    /// Dedupe key of the input. An input is buffered once.
    pub key: DedupeKey,
    /// Expiry time.
    pub expires_at: Timestamp,
}

/// Returns the timer that is armed while inputs are buffered.
pub(crate) fn expiry_timer(early: &[BufferedInputRef]) -> Option<Timer> {
    early.first().map(|oldest| expiry_timer_at(oldest.expires_at))
}

/// Returns the row of that timer.
pub(crate) fn expiry_timer_at(due: Timestamp) -> Timer {
    Timer { due, name: Name::new(NAME).expect("the timer name is a valid name"), token: TOKEN }
}
