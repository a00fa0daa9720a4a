//! What every kind of upstream can be told: the keys of [`Policy`], and for whom it works.
//!
//! A key that is absent means what the kind of upstream holds for right.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::{InDoubt, TenantId};
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::limits::{breaker, rate};
use crate::policy::{Policy, Share};
use crate::retry_budget;

/// Declares the configuration of a kind of upstream: its own keys and those that all kinds have, side by side in one table.
///
/// Serde can flatten one struct into another, but then it forgets the lines that errors stand in and cannot refuse unknown
/// keys.
macro_rules! upstream_config {
    ($(#[$meta:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($own)*
            /// Which kind of upstream it is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub kind: Option<$crate::config::Kind>,
            /// For whom it works; for all tenants where absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tenants: Option<std::collections::BTreeSet<orlog_model::TenantId>>,
            /// Attempts at once.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub concurrency: Option<std::num::NonZeroU32>,
            /// Attempts in all for one item; as many as the deadline allows where absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub attempts: Option<std::num::NonZeroU32>,
            /// The time one attempt may take.
            #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
            pub attempt_timeout: Option<std::time::Duration>,
            /// The time all attempts may take together.
            #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
            pub deadline: Option<std::time::Duration>,
            /// The pauses between attempts.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub backoff: Option<$crate::config::BackoffConfig>,
            /// When to stop asking.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub breaker: Option<$crate::config::BreakerConfig>,
            /// How many retries there may be.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub retry_budget: Option<$crate::config::BudgetConfig>,
            /// How many attempts may begin in a time.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rate: Option<$crate::config::RateConfig>,
            /// What a single tenant may have of it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub per_tenant: Option<$crate::config::ShareConfig>,
            /// What to do when nobody knows whether an attempt was done.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_doubt: Option<$crate::config::InDoubtConfig>,
        }

        impl $name {
            /// What is agreed: what is said here, over what holds for its kind.
            #[must_use]
            pub fn policy(&self, kind: $crate::Policy) -> $crate::Policy {
                $crate::config::Terms {
                    concurrency: self.concurrency,
                    attempts: self.attempts,
                    attempt_timeout: self.attempt_timeout,
                    deadline: self.deadline,
                    backoff: self.backoff,
                    breaker: self.breaker,
                    retry_budget: self.retry_budget,
                    rate: self.rate,
                    per_tenant: self.per_tenant.as_ref(),
                    in_doubt: self.in_doubt,
                }
                .over(kind)
            }
        }
    };
}

pub(crate) use upstream_config;

/// The keys that all kinds have; see [`upstream_config`].
pub(crate) struct Terms<'a> {
    pub(crate) concurrency: Option<NonZeroU32>,
    pub(crate) attempts: Option<NonZeroU32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) backoff: Option<BackoffConfig>,
    pub(crate) breaker: Option<BreakerConfig>,
    pub(crate) retry_budget: Option<BudgetConfig>,
    pub(crate) rate: Option<RateConfig>,
    pub(crate) per_tenant: Option<&'a ShareConfig>,
    pub(crate) in_doubt: Option<InDoubtConfig>,
}

impl Terms<'_> {
    pub(crate) fn over(self, kind: Policy) -> Policy {
        Policy {
            attempts: self.attempts.map(NonZeroU32::get).or(kind.attempts),
            attempt_timeout: self.attempt_timeout.unwrap_or(kind.attempt_timeout),
            deadline: self.deadline.or(kind.deadline),
            backoff: self.backoff.map_or(kind.backoff, Into::into),
            concurrency: self.concurrency.map_or(kind.concurrency, |most| most.get() as usize),
            breaker: self.breaker.map(Into::into).or(kind.breaker),
            budget: self.retry_budget.map(Into::into).or(kind.budget),
            rate: self.rate.map(Into::into).or(kind.rate),
            share: self.per_tenant.map_or(kind.share, Into::into),
            in_doubt: self.in_doubt.map_or(kind.in_doubt, Into::into),
        }
    }
}

/// The pauses between attempts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffConfig {
    /// The shortest.
    #[serde(with = "crate::duration")]
    pub first: Duration,
    /// The longest.
    #[serde(with = "crate::duration")]
    pub max: Duration,
    /// A pause is at most this many times the one before it.
    pub multiplier: NonZeroU32,
}

/// When to stop asking, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Opens after this many failures in a row.
    pub failures: NonZeroU32,
    /// Opens also at this share of failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<FailureRateConfig>,
    /// How long it refuses before it tries one.
    #[serde(with = "crate::duration")]
    pub open_for: Duration,
}

/// A share of the latest answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRateConfig {
    /// Failures in a hundred.
    pub percent: u8,
    /// How many of the latest answers are looked at.
    pub window: NonZeroU32,
}

/// How many retries there may be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Retries for a hundred first attempts.
    pub percent: u32,
    /// Retries that are always allowed, in a second.
    pub per_second: u32,
    /// The most that can be saved up.
    pub saved: NonZeroU32,
}

/// So many in such a time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// How many.
    pub count: NonZeroU32,
    /// In which time.
    #[serde(default = "second", with = "crate::duration")]
    pub per: Duration,
    /// How many may begin at once after a rest.
    #[serde(default = "one")]
    pub burst: NonZeroU32,
}

/// What a single tenant may have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShareConfig {
    /// Attempts at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroU32>,
    /// How many may begin in a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateConfig>,
    /// How many places a tenant gets in its turn; 1 where nothing is said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<TenantId, NonZeroU32>,
}

/// What to do when nobody knows whether an attempt was done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InDoubtConfig {
    /// Try again under the same key.
    Retry,
    /// Do not.
    Fail,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        let Backoff { first, max, multiplier } = Backoff::default();
        Self { first, max, multiplier: NonZeroU32::new(multiplier).expect("the default is not zero") }
    }
}

impl From<BackoffConfig> for Backoff {
    fn from(config: BackoffConfig) -> Self {
        Self { first: config.first, max: config.max, multiplier: config.multiplier.get() }
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let breaker::Options { failures, open_for, .. } = breaker::Options::default();
        Self { failures: NonZeroU32::new(failures).expect("the default is not zero"), rate: None, open_for }
    }
}

impl From<BreakerConfig> for breaker::Options {
    fn from(config: BreakerConfig) -> Self {
        let rate = config.rate.map(|rate| breaker::Rate { percent: rate.percent, window: rate.window.get() });
        Self { failures: config.failures.get(), rate, open_for: config.open_for }
    }
}

impl Default for BudgetConfig {
    fn default() -> Self {
        let retry_budget::Options { percent, per_second, saved } = retry_budget::Options::default();
        Self { percent, per_second, saved: NonZeroU32::new(saved).expect("the default is not zero") }
    }
}

impl From<BudgetConfig> for retry_budget::Options {
    fn from(config: BudgetConfig) -> Self {
        Self { percent: config.percent, per_second: config.per_second, saved: config.saved.get() }
    }
}

impl From<RateConfig> for rate::Rate {
    fn from(config: RateConfig) -> Self {
        Self { count: config.count, per: config.per, burst: config.burst }
    }
}

impl From<&ShareConfig> for Share {
    fn from(config: &ShareConfig) -> Self {
        Self {
            concurrency: config.concurrency,
            rate: config.rate.map(Into::into),
            weights: config.weights.clone(),
        }
    }
}

impl From<InDoubtConfig> for InDoubt {
    fn from(config: InDoubtConfig) -> Self {
        match config {
            InDoubtConfig::Retry => Self::Retry,
            InDoubtConfig::Fail => Self::Fail,
        }
    }
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}
