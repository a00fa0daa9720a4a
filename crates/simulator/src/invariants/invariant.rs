//! Invariants and their violations.

use std::fmt;

/// Violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Invariant; the same value for the same kind of violation.
    pub rule: Invariant,
    /// Description of the violation.
    pub message: String,
}

/// Invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Two decisions about the same input are equal.
    Deterministic,
    /// Only completed steps are compensated, and only once.
    CompensatedOnce,
    /// Compensations run in reverse order of completion, one after another.
    CompensatedInReverse,
    /// A compensated step has a requested compensation.
    CompensationRequested,
    /// A late success is not lost.
    LateSuccessHandled,
    /// A step that may have been executed is compensated.
    UnknownOutcomeHandled,
    /// No step before a completed pivot is compensated.
    PivotNotCompensated,
    /// Work in doubt is not requested again unless an operator reports that it was not executed.
    InDoubtTaskOpened,
    /// No new work is requested after compensation starts.
    NoNewWorkWhileCompensating,
    /// A saga that did not complete leaves no change.
    AllOrNothing,
    /// An effect that may have been executed is requested again only under its idempotency key.
    IdempotencyKeyKept,
    /// A result of work that is not pending changes nothing.
    SecondResultHarmless,
    /// An event that a step waits for later is kept.
    EventKept,
    /// Nothing is open at the end.
    NothingLeftOpen,
    /// The final fact is emitted once.
    FinalFactEmittedOnce,
    /// A timer belongs to work in progress.
    NoIdleTimers,
    /// The size of the state is bounded.
    Bounded,
    /// A second delivery changes nothing.
    DuplicateHarmless,
    /// A final state is reachable.
    EndReachable,
    /// An invariant that the definition, or the test file, states: its number.
    Defined(u16),
}

impl Violation {
    /// Returns whether a definition or a test file states the invariant.
    #[must_use]
    pub fn is_defined(&self) -> bool {
        matches!(self.rule, Invariant::Defined(_))
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The message of the violation begins with its name.
            Invariant::Defined(_) => f.write_str("Defined"),
            rule => write!(f, "{rule:?}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
