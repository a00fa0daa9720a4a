//! How an upstream is asked: how often, how long, how many at once.

use std::time::Duration;

use orlog_model::{Timestamp, Work, WorkItem};

use crate::backoff::{Backoff, Limits};
use crate::breaker;

/// What is agreed with one upstream, for all its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts in all for one item; `None`: as many as the deadline allows.
    pub attempts: Option<u32>,
    /// The time one attempt may take; [`Duration::MAX`]: any.
    pub attempt_timeout: Duration,
    /// The time all attempts may take together, from the first offer since the process started; `None`: until the item's
    /// own deadline or for ever.
    ///
    /// It does not count from the transition: that time is an event's, and events may come late.
    pub deadline: Option<Duration>,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// Attempts at once; 0 counts as 1.
    pub concurrency: usize,
    /// When to stop asking; `None`: never.
    pub breaker: Option<breaker::Options>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: None,
            attempt_timeout: Duration::from_secs(10),
            deadline: Some(Duration::from_mins(10)),
            backoff: Backoff::default(),
            concurrency: 64,
            breaker: Some(breaker::Options::default()),
        }
    }
}

impl Policy {
    /// For functions in this process: no timer, no breaker, ten attempts.
    #[must_use]
    pub fn in_process() -> Self {
        Self {
            attempts: Some(10),
            attempt_timeout: Duration::MAX,
            deadline: None,
            backoff: Backoff { first: Duration::from_millis(10), ..Backoff::default() },
            concurrency: 1024,
            breaker: None,
        }
    }

    /// For the Gateway: commands are tried until they are accepted or refused.
    #[must_use]
    pub fn gateway() -> Self {
        Self { deadline: None, ..Self::default() }
    }

    /// How far trying an item may go that is first offered at `now`: the item's own hints come before the policy.
    pub(crate) fn limits(&self, item: &WorkItem, now: impl FnOnce() -> Timestamp) -> Limits {
        let attempts = retry(item).map_or(self.attempts, |hint| hint.attempts);
        let own = self.deadline.map(|deadline| now().after(deadline));
        let deadline = match (own, item.deadline) {
            (Some(own), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.or(theirs),
        };
        Limits { attempts, deadline }
    }

    /// The pauses for an item.
    pub(crate) fn pauses(&self, item: &WorkItem) -> Backoff {
        let first = retry(item).and_then(|hint| hint.backoff).unwrap_or(self.backoff.first);
        Backoff { first, ..self.backoff }
    }
}

fn retry(item: &WorkItem) -> Option<orlog_model::Retry> {
    match &item.work {
        Work::Effect(effect) => effect.retry,
        Work::Command(_) | Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => None,
    }
}
