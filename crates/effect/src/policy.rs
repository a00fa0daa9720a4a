//! How an upstream is asked: how often, how long, how many at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::{InDoubt, TenantId, Work, WorkItem};

use crate::backoff::{Backoff, Limits};
use crate::limits::breaker;
use crate::limits::rate::Rate;
use crate::retry_budget;

/// What is agreed with one upstream, for all its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts in all for one item; `None`: as many as the deadline allows.
    pub attempts: Option<u32>,
    /// The time one attempt may take; [`Duration::MAX`]: any.
    pub attempt_timeout: Duration,
    /// The time all attempts may take together, from the transition that asked on; `None`: until the item's own deadline
    /// or for ever. The time of the transition lies in the outbox before the first attempt, so a crash does not begin
    /// the time anew.
    pub deadline: Option<Duration>,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// Attempts at once; 0 counts as 1.
    pub concurrency: usize,
    /// When to stop asking; `None`: never.
    pub breaker: Option<breaker::Options>,
    /// How many retries there may be; `None`: any number.
    pub budget: Option<retry_budget::Options>,
    /// How many attempts may begin in a time; `None`: any number.
    pub rate: Option<Rate>,
    /// What a single tenant may have of it.
    pub share: Share,
    /// What to do when nobody knows whether an attempt was done.
    pub in_doubt: InDoubt,
}

/// What a single tenant may have of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Attempts at once; `None`: as many as the upstream takes.
    pub concurrency: Option<NonZeroU32>,
    /// How many may begin in a time; `None`: as many as at the upstream.
    pub rate: Option<Rate>,
    /// How many places a tenant gets in its turn while others wait too; 1 where nothing is said.
    pub weights: BTreeMap<TenantId, NonZeroU32>,
}

impl Share {
    pub(crate) fn weight(&self, tenant: &TenantId) -> u32 {
        self.weights.get(tenant).map_or(1, |weight| weight.get())
    }
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
            budget: Some(retry_budget::Options::default()),
            rate: None,
            share: Share::default(),
            in_doubt: InDoubt::Retry,
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
            budget: None,
            ..Self::default()
        }
    }

    /// For scripts: one attempt unless the saga asks for more, an hour, and as many at once as a small machine can bear.
    #[must_use]
    pub fn script() -> Self {
        Self {
            attempts: Some(1),
            attempt_timeout: Duration::from_hours(1),
            deadline: None,
            concurrency: 4,
            breaker: None,
            budget: None,
            ..Self::default()
        }
    }

    /// For databases: as many connections as one is content with.
    #[must_use]
    pub fn sql() -> Self {
        Self { concurrency: 16, ..Self::default() }
    }

    /// For workers outside the process: an attempt takes as long as somebody claims it anew, until the item's deadline.
    #[must_use]
    pub fn worker() -> Self {
        Self {
            attempt_timeout: Duration::MAX,
            deadline: None,
            concurrency: 4096,
            breaker: None,
            budget: None,
            ..Self::default()
        }
    }

    /// For the Gateway: commands are tried until they are accepted or refused.
    #[must_use]
    pub fn gateway() -> Self {
        Self { deadline: None, ..Self::default() }
    }

    /// What to do when nobody knows whether an attempt at an item was done, and the upstream cannot be asked: what the item
    /// says comes before the policy.
    pub(crate) fn in_doubt(&self, item: &WorkItem) -> InDoubt {
        match &item.work {
            Work::Effect(effect) => effect.in_doubt.unwrap_or(self.in_doubt),
            Work::Command(_) | Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => self.in_doubt,
        }
    }

    /// How far trying an item may go: the item's own hints come before the policy.
    #[must_use]
    pub fn limits(&self, item: &WorkItem) -> Limits {
        let attempts = retry(item).map_or(self.attempts, |hint| hint.attempts);
        let own = self.deadline.map(|deadline| item.created_at.after(deadline));
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
