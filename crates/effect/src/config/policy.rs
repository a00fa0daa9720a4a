//! Policy keys of every kind of upstream: the keys of [`Policy`], and the served tenants.
//!
//! An absent key has the default of the kind of upstream.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::{InDoubtPolicy, TenantId};
use serde::{Deserialize, Serialize};

use crate::limits::{breaker, rate};
use crate::policy::{Policy, TenantLimits};
use crate::retry::Backoff;
use crate::retry_budget;

/// Declares the configuration of a kind of upstream: its own keys and the common keys, in one table.
///
/// Serde can flatten structs, but then it loses the line numbers of errors and cannot reject unknown
/// keys.
macro_rules! upstream_config {
    ($(#[$meta:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($own)*
            /// Kind of the upstream.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub kind: Option<$crate::config::UpstreamKind>,
            /// Tenants that the upstream serves. Default: all tenants.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tenants: Option<std::collections::BTreeSet<orlog_model::TenantId>>,
            /// Maximum number of concurrent attempts.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub max_concurrency: Option<std::num::NonZeroU32>,
            /// Maximum number of attempts for one item. Default: limited by the deadline only.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub max_attempts: Option<std::num::NonZeroU32>,
            /// Timeout of one attempt.
            #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
            pub attempt_timeout: Option<std::time::Duration>,
            /// Time limit of all attempts together.
            #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
            pub deadline: Option<std::time::Duration>,
            /// Delays between attempts.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub backoff: Option<$crate::config::BackoffConfig>,
            /// Circuit breaker.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub breaker: Option<$crate::config::BreakerConfig>,
            /// Retry budget.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub retry_budget: Option<$crate::config::RetryBudgetConfig>,
            /// Rate limit of attempts.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rate: Option<$crate::config::RateConfig>,
            /// Limits of each tenant.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub per_tenant: Option<$crate::config::TenantLimitsConfig>,
            /// Policy for an unknown outcome.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub in_doubt: Option<$crate::config::InDoubtConfig>,
        }

        impl $name {
            /// Returns the policy: the configured keys over the defaults of the kind.
            #[must_use]
            pub fn policy(&self, kind: $crate::Policy) -> $crate::Policy {
                $crate::config::PolicyKeys {
                    max_concurrency: self.max_concurrency,
                    max_attempts: self.max_attempts,
                    attempt_timeout: self.attempt_timeout,
                    deadline: self.deadline,
                    backoff: self.backoff,
                    breaker: self.breaker,
                    retry_budget: self.retry_budget,
                    rate: self.rate,
                    per_tenant: self.per_tenant.as_ref(),
                    in_doubt: self.in_doubt,
                }
                .apply_to(kind)
            }
        }
    };
}

pub(crate) use upstream_config;

/// Common keys of all kinds; see [`upstream_config`].
pub(crate) struct PolicyKeys<'a> {
    pub(crate) max_concurrency: Option<NonZeroU32>,
    pub(crate) max_attempts: Option<NonZeroU32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) backoff: Option<BackoffConfig>,
    pub(crate) breaker: Option<BreakerConfig>,
    pub(crate) retry_budget: Option<RetryBudgetConfig>,
    pub(crate) rate: Option<RateConfig>,
    pub(crate) per_tenant: Option<&'a TenantLimitsConfig>,
    pub(crate) in_doubt: Option<InDoubtConfig>,
}

impl PolicyKeys<'_> {
    pub(crate) fn apply_to(self, kind: Policy) -> Policy {
        Policy {
            max_attempts: self.max_attempts.map(NonZeroU32::get).or(kind.max_attempts),
            attempt_timeout: self.attempt_timeout.unwrap_or(kind.attempt_timeout),
            deadline: self.deadline.or(kind.deadline),
            backoff: self.backoff.map_or(kind.backoff, Into::into),
            max_concurrency: self.max_concurrency.map_or(kind.max_concurrency, |max| max.get() as usize),
            breaker: self.breaker.map(Into::into).or(kind.breaker),
            retry_budget: self.retry_budget.map(Into::into).or(kind.retry_budget),
            rate: self.rate.map(Into::into).or(kind.rate),
            tenant_limits: self.per_tenant.map_or(kind.tenant_limits, Into::into),
            in_doubt: self.in_doubt.map_or(kind.in_doubt, Into::into),
        }
    }
}

/// Delays between attempts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffConfig {
    /// Minimum delay.
    #[serde(with = "crate::duration")]
    pub initial: Duration,
    /// Maximum delay.
    #[serde(with = "crate::duration")]
    pub max: Duration,
    /// Maximum ratio of a delay to the previous one.
    pub multiplier: NonZeroU32,
}

/// Circuit breaker: thresholds and open duration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Number of consecutive failures that opens the breaker.
    pub failure_threshold: NonZeroU32,
    /// Share of failures that also opens the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<FailureRateConfig>,
    /// Duration of the open state before a probe.
    #[serde(with = "crate::duration")]
    pub open_duration: Duration,
}

/// Share of failures among the latest results.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRateConfig {
    /// Failures in percent.
    pub percent: u8,
    /// Number of latest results that are evaluated.
    pub window: NonZeroU32,
}

/// Retry budget.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudgetConfig {
    /// Retries per hundred first attempts.
    pub percent: u32,
    /// Retries per second that are always allowed.
    pub min_per_second: u32,
    /// Maximum number of saved retries.
    pub max_saved: NonZeroU32,
}

/// Rate limit: a count per period.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Number of attempts.
    pub count: NonZeroU32,
    /// Period of the count.
    #[serde(default = "second", with = "crate::duration")]
    pub per: Duration,
    /// Maximum burst after an idle period.
    #[serde(default = "one")]
    pub burst: NonZeroU32,
}

/// Limits of each tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimitsConfig {
    /// Maximum number of concurrent attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<NonZeroU32>,
    /// Rate limit of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateConfig>,
    /// Number of permits of a tenant per round. Default: 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<TenantId, NonZeroU32>,
}

/// Policy for an unknown outcome.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InDoubtConfig {
    /// Retry under the same key.
    Retry,
    /// Fail without a retry.
    Fail,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        let Backoff { initial, max, multiplier } = Backoff::default();
        Self { initial, max, multiplier: NonZeroU32::new(multiplier).expect("the default is not zero") }
    }
}

impl From<BackoffConfig> for Backoff {
    fn from(config: BackoffConfig) -> Self {
        Self { initial: config.initial, max: config.max, multiplier: config.multiplier.get() }
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let breaker::BreakerOptions { failure_threshold, open_duration, .. } =
            breaker::BreakerOptions::default();
        Self {
            failure_threshold: NonZeroU32::new(failure_threshold).expect("the default is not zero"),
            rate: None,
            open_duration,
        }
    }
}

impl From<BreakerConfig> for breaker::BreakerOptions {
    fn from(config: BreakerConfig) -> Self {
        let rate =
            config.rate.map(|rate| breaker::FailureRate { percent: rate.percent, window: rate.window.get() });
        Self { failure_threshold: config.failure_threshold.get(), rate, open_duration: config.open_duration }
    }
}

impl Default for RetryBudgetConfig {
    fn default() -> Self {
        let retry_budget::RetryBudgetOptions { percent, min_per_second, max_saved } =
            retry_budget::RetryBudgetOptions::default();
        Self {
            percent,
            min_per_second,
            max_saved: NonZeroU32::new(max_saved).expect("the default is not zero"),
        }
    }
}

impl From<RetryBudgetConfig> for retry_budget::RetryBudgetOptions {
    fn from(config: RetryBudgetConfig) -> Self {
        Self {
            percent: config.percent,
            min_per_second: config.min_per_second,
            max_saved: config.max_saved.get(),
        }
    }
}

impl From<RateConfig> for rate::RateLimit {
    fn from(config: RateConfig) -> Self {
        Self { count: config.count, per: config.per, burst: config.burst }
    }
}

impl From<&TenantLimitsConfig> for TenantLimits {
    fn from(config: &TenantLimitsConfig) -> Self {
        Self {
            max_concurrency: config.max_concurrency,
            rate: config.rate.map(Into::into),
            weights: config.weights.clone(),
        }
    }
}

impl From<InDoubtConfig> for InDoubtPolicy {
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
