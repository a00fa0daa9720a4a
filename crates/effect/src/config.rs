//! Configuration that all kinds of upstreams share: the common keys, the contract of a kind,
//! errors.
//!
//! ```toml
//! [upstreams.payments]
//! base_url = "http://127.0.0.1:8081"
//! [upstreams.payments.effects."payments.charge"]
//! path = "/charges"
//! [gateway]
//! base_url = "http://127.0.0.1:8080"
//! ```
//!
//! Every kind of upstream has its own keys, and all kinds have those of the policy. A separate file
//! specifies `kind` unless it is HTTP. Every key except the URLs and the paths has a default; an
//! unknown key is rejected.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, InDoubtPolicy, TenantId};
use serde::{Deserialize, Serialize};

use crate::provider::Provider;
use crate::upstream::Upstream;

/// Error for an invalid upstream configuration. The text names the upstream and the location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// Creates the error of the whole upstream.
    pub(crate) fn upstream(upstream: &str, reason: impl fmt::Display) -> Self {
        Self(format!("upstream {upstream}: {reason}"))
    }

    /// Creates the error of one effect.
    pub(crate) fn effect(upstream: &str, effect: &EffectName, reason: impl fmt::Display) -> Self {
        Self(format!("upstream {upstream}, effect {effect}: {reason}"))
    }
}

/// Configuration of one kind of upstream.
pub trait UpstreamConfig: Send + Sync {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If the configuration is invalid; the text gives the location.
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error>;

    /// Returns whether other processes execute the effects, which receive commands from a queue.
    fn is_queued(&self) -> bool {
        false
    }

    /// Returns whether the effects run programs that a payload contains.
    fn runs_programs(&self) -> bool {
        false
    }
}

/// Name of an upstream, and the context in which it is built.
#[derive(Clone, Copy)]
pub struct UpstreamSite<'a> {
    /// Name of the upstream.
    pub name: &'a str,
    /// Directory to which paths of files are relative.
    pub dir: &'a Path,
    /// Creates a provider that sends commands to other processes through a queue, and again after
    /// this duration without a response. Default: the value of the node. `None` without NATS.
    pub queue: Option<&'a dyn Fn(Option<Duration>) -> Arc<dyn Provider>>,
}

impl<'a> UpstreamSite<'a> {
    /// Creates the site of an upstream in the working directory, without a queue.
    #[must_use]
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            dir: Path::new("."),
            queue: None,
        }
    }

    /// Sets the directory of files.
    #[must_use]
    pub fn in_dir(self, dir: &'a Path) -> Self {
        Self { dir, ..self }
    }
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

impl From<InDoubtConfig> for InDoubtPolicy {
    fn from(config: InDoubtConfig) -> Self {
        match config {
            InDoubtConfig::Retry => Self::Retry,
            InDoubtConfig::Fail => Self::Fail,
        }
    }
}

/// Applies the contexts that effects state themselves to their upstream.
///
/// # Errors
/// If an effect lists a context that the upstream does not permit.
pub(crate) fn narrow<'a>(
    mut upstream: Upstream,
    effects: impl Iterator<Item = (&'a EffectName, &'a Option<BTreeSet<TenantId>>)>,
) -> Result<Upstream, Error> {
    for (effect, contexts) in effects {
        let Some(contexts) = contexts else { continue };
        let unknown = contexts
            .iter()
            // The list of an effect only narrows that of the upstream. A further context is likely
            // an error.
            .find(|context| context.as_str() != "*" && !upstream.permits_any(context));
        if let Some(context) = unknown {
            let reason = format!(
                "contexts lists {context}, which the upstream does not permit; add it to contexts \
                of the upstream"
            );
            return Err(Error::effect(&upstream.name, effect, reason));
        }
        upstream = upstream.for_contexts_of(effect, contexts.clone());
    }
    Ok(upstream)
}

/// Declares the configuration of a kind of upstream: its own keys and the common keys, in one
/// table.
///
/// An absent common key has the default of the kind. Serde can flatten structs, but then it loses
/// the line numbers of errors and cannot reject unknown keys.
macro_rules! upstream_config {
    ($(#[$meta:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($own)*
            /// Kind of the upstream.
            pub kind: Option<String>,
            /// Tenants that the upstream serves. Default: all tenants.
            pub tenants: Option<std::collections::BTreeSet<orlog_model::TenantId>>,
            /// Contexts whose own definitions may request its work; `*` for all. Default: those in
            /// `tenants`.
            #[serde(default)]
            pub contexts: std::collections::BTreeSet<orlog_model::TenantId>,
            /// Maximum number of concurrent attempts.
            pub max_concurrency: Option<std::num::NonZeroU32>,
            /// Maximum number of attempts for one item. Default: limited by the deadline only.
            pub max_attempts: Option<std::num::NonZeroU32>,
            /// Timeout of one attempt.
            #[serde(default, with = "crate::duration::option")]
            pub attempt_timeout: Option<std::time::Duration>,
            /// Time limit of all attempts together.
            #[serde(default, with = "crate::duration::option")]
            pub deadline: Option<std::time::Duration>,
            /// Delays between attempts.
            pub backoff: Option<$crate::retry::Backoff>,
            /// Circuit breaker.
            pub breaker: Option<$crate::limits::breaker::BreakerOptions>,
            /// Retry budget.
            pub retry_budget: Option<$crate::retry_budget::RetryBudgetOptions>,
            /// Rate limit of attempts.
            pub rate: Option<$crate::limits::rate::RateLimit>,
            /// Limits of each tenant.
            pub per_tenant: Option<$crate::TenantLimits>,
            /// Policy for an unknown outcome.
            pub in_doubt: Option<$crate::config::InDoubtConfig>,
        }

        impl $name {
            /// Returns the policy: the configured keys over the defaults of the kind.
            #[must_use]
            pub fn policy(&self, kind: $crate::Policy) -> $crate::Policy {
                $crate::Policy {
                    max_attempts: self
                        .max_attempts
                        .map(std::num::NonZeroU32::get)
                        .or(kind.max_attempts),
                    attempt_timeout: self.attempt_timeout.unwrap_or(kind.attempt_timeout),
                    deadline: self.deadline.or(kind.deadline),
                    backoff: self.backoff.unwrap_or(kind.backoff),
                    max_concurrency: self
                        .max_concurrency
                        .map_or(kind.max_concurrency, |max| max.get() as usize),
                    breaker: self.breaker.or(kind.breaker),
                    retry_budget: self.retry_budget.or(kind.retry_budget),
                    rate: self.rate.or(kind.rate),
                    tenant_limits: self.per_tenant.clone().unwrap_or(kind.tenant_limits),
                    in_doubt: self.in_doubt.map_or(kind.in_doubt, Into::into),
                }
            }

            /// Adds the common keys and the text of this configuration to an upstream. The text
            /// contains references to secrets, not secrets.
            pub(crate) fn finish(&self, upstream: $crate::Upstream) -> $crate::Upstream {
                let origin = serde_json::to_string(self).expect("a configuration is plain data");
                upstream
                    .for_tenants(self.tenants.clone())
                    .for_contexts(self.contexts.clone())
                    .with_origin(origin)
            }
        }
    };
}

pub(crate) use upstream_config;
