//! The rules, and what is said about one that did not hold.

use std::fmt;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which rule: the same word for the same kind of mistake.
    pub rule: Rule,
    /// What happened.
    pub message: String,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Deciding twice gives the same.
    Deterministic,
    /// Only what was done is undone, and once.
    UndoneOnce,
    /// The last done is undone first, one after another.
    UndoneInReverse,
    /// What is undone was asked to be.
    UndoAsked,
    /// A success is not forgotten.
    SuccessKept,
    /// Nothing done before the point of no return is undone.
    PivotHolds,
    /// What is in doubt is not asked for again unless a person says that it was not done.
    DoubtAsked,
    /// Nothing new begins after it turned back.
    NothingNew,
    /// Nothing is left at the end.
    NothingLeft,
    /// The end is told once.
    ToldOnce,
    /// A timer is for something under way.
    TimersMatter,
    /// The state is bounded.
    Bounded,
    /// A second delivery changes nothing.
    DuplicateHarmless,
    /// A final state can be reached.
    EndReachable,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
