//! Policy of an upstream: retries, timeouts, concurrency.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::{InDoubtPolicy, RetryPolicy, TenantId, Timestamp, WorkItem};
use serde::{Deserialize, Serialize};

use crate::limits::breaker;
use crate::limits::rate::RateLimit;
use crate::retry::Backoff;
use crate::retry_budget;

/// Policy of one upstream, for all its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Maximum number of attempts for one item; `None`: limited by the deadline only.
    pub max_attempts: Option<u32>,
    /// Timeout of one attempt; [`Duration::MAX`]: unlimited.
    pub attempt_timeout: Duration,
    /// Time limit of all attempts together, from the transition that requested the effect. `None`:
    /// the deadline of the item, or unlimited. The time of the transition is stored in the outbox
    /// before the first attempt, so a crash does not reset the limit.
    pub deadline: Option<Duration>,
    /// Delays between attempts.
    pub backoff: Backoff,
    /// Maximum number of concurrent attempts; 0 counts as 1.
    pub max_concurrency: usize,
    /// Circuit breaker; `None`: no breaker.
    pub breaker: Option<breaker::BreakerOptions>,
    /// Retry budget; `None`: unlimited.
    pub retry_budget: Option<retry_budget::RetryBudgetOptions>,
    /// Rate limit of attempts; `None`: unlimited.
    pub rate: Option<RateLimit>,
    /// Limits of each tenant.
    pub tenant_limits: TenantLimits,
    /// Policy for an unknown outcome.
    pub in_doubt: InDoubtPolicy,
}

/// Limits of each tenant at an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Maximum number of concurrent attempts; `None`: the limit of the upstream.
    pub max_concurrency: Option<NonZeroU32>,
    /// Rate limit of attempts; `None`: the limit of the upstream.
    pub rate: Option<RateLimit>,
    /// Number of permits of a tenant per round while other tenants wait. Default: 1.
    pub weights: BTreeMap<TenantId, NonZeroU32>,
}

impl TenantLimits {
    /// Returns the weight of a tenant.
    #[must_use]
    pub fn weight(&self, tenant: &TenantId) -> u32 {
        self.weights.get(tenant).map_or(1, |weight| weight.get())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: None,
            attempt_timeout: Duration::from_secs(10),
            deadline: Some(Duration::from_mins(10)),
            backoff: Backoff::default(),
            max_concurrency: 64,
            breaker: Some(breaker::BreakerOptions::default()),
            retry_budget: Some(retry_budget::RetryBudgetOptions::default()),
            rate: None,
            tenant_limits: TenantLimits::default(),
            in_doubt: InDoubtPolicy::Retry,
        }
    }
}

impl Policy {
    /// Returns the policy of in-process functions: no timeout, no breaker, ten attempts.
    #[must_use]
    pub fn in_process() -> Self {
        Self {
            max_attempts: Some(10),
            attempt_timeout: Duration::MAX,
            deadline: None,
            backoff: Backoff {
                initial: Duration::from_millis(10),
                ..Backoff::default()
            },
            max_concurrency: 1024,
            breaker: None,
            retry_budget: None,
            ..Self::default()
        }
    }

    /// Returns the policy of scripts: one attempt by default, a timeout of one hour, and a
    /// concurrency for small machines.
    #[must_use]
    pub fn script() -> Self {
        Self {
            max_attempts: Some(1),
            attempt_timeout: Duration::from_hours(1),
            deadline: None,
            max_concurrency: 4,
            breaker: None,
            retry_budget: None,
            ..Self::default()
        }
    }

    /// Returns the policy of databases: a small number of connections.
    #[must_use]
    pub fn sql() -> Self {
        Self {
            max_concurrency: 16,
            ..Self::default()
        }
    }

    /// Returns the policy of external workers: an attempt lasts while workers renew claims, until
    /// the deadline of the item.
    #[must_use]
    pub fn worker() -> Self {
        Self {
            attempt_timeout: Duration::MAX,
            deadline: None,
            max_concurrency: 4096,
            breaker: None,
            retry_budget: None,
            ..Self::default()
        }
    }

    /// Returns the policy of the gateway: commands are retried until they are accepted or rejected.
    #[must_use]
    pub fn gateway() -> Self {
        Self {
            deadline: None,
            ..Self::default()
        }
    }

    /// Returns the policy for an unknown outcome of an item if the upstream cannot be probed. The
    /// item has precedence over the policy.
    pub(crate) fn in_doubt(&self, item: &WorkItem) -> InDoubtPolicy {
        item.work
            .effect()
            .and_then(|effect| effect.in_doubt)
            .unwrap_or(self.in_doubt)
    }

    /// Returns the maximum number of attempts for an item: hints of the item have precedence over
    /// the policy.
    pub(crate) fn max_attempts(&self, item: &WorkItem) -> Option<u32> {
        // A retry policy without a number means unlimited attempts, also above the limit of the
        // upstream.
        retry(item).map_or(self.max_attempts, |hint| hint.max_attempts)
    }

    /// Returns the deadline of an item; `None`: it has none.
    #[must_use]
    pub fn deadline(&self, item: &WorkItem) -> Option<Timestamp> {
        let own = self
            .deadline
            .map(|deadline| item.created_at.saturating_add(deadline));

        // The timeout of a step can shorten the deadline of its upstream, but not extend it.
        match (own, item.deadline) {
            (Some(own), Some(of_item)) => Some(own.min(of_item)),
            (own, of_item) => own.or(of_item),
        }
    }

    pub(crate) fn backoff_for(&self, item: &WorkItem) -> Backoff {
        let first = retry(item)
            .and_then(|hint| hint.initial_backoff)
            .unwrap_or(self.backoff.initial);

        Backoff {
            initial: first,
            ..self.backoff
        }
    }
}

fn retry(item: &WorkItem) -> Option<RetryPolicy> {
    item.work.effect()?.retry
}
