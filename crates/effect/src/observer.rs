//! The ear of the metrics: told what attempts came to and what breakers do.

use std::time::Duration;

use orlog_model::{TraceParent, WorkItem};

use crate::limits::breaker::State;

/// Hears what happens. Called in the middle of things: it must be quick and never block.
pub trait Observer: Send + Sync + 'static {
    /// An attempt begins. The span it shall have, under the item's own; `None` where nobody follows it or the item has none.
    fn attempting(&self, _item: &WorkItem) -> Option<TraceParent> {
        None
    }

    /// An attempt has ended.
    fn attempted(&self, _attempted: &Attempted<'_>) {}

    /// The breaker of an upstream has changed its state.
    fn breaker_changed(&self, _upstream: &str, _state: State) {}
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Attempted<'a> {
    /// Whom it asked.
    pub upstream: &'a str,
    /// For what; its trace is the span of this attempt, where it has one.
    pub item: &'a WorkItem,
    /// The span above, where this attempt has one of its own.
    pub parent: Option<&'a TraceParent>,
    /// The span in which whoever was asked did it, where they say so.
    pub answered: Option<&'a TraceParent>,
    /// Which attempt, from 1.
    pub number: u32,
    /// The code of what went wrong.
    pub code: Option<&'a str>,
    /// What it came to.
    pub ending: Ending,
    /// How long it took.
    pub took: Duration,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// It was done.
    Done,
    /// It was refused for good.
    Refused,
    /// The upstream asked for patience.
    Busy,
    /// The upstream was down.
    Down,
    /// The answer was lost.
    Lost,
    /// There was no answer in time.
    TimedOut,
}

impl Ending {
    /// The word people and metrics see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Done => "done",
            Ending::Refused => "refused",
            Ending::Busy => "busy",
            Ending::Down => "down",
            Ending::Lost => "lost",
            Ending::TimedOut => "timed_out",
        }
    }
}
