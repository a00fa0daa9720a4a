//! Upstream: a name, its scope, its provider and its policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_model::{EffectName, EventType, InDoubtPolicy, TenantId, WorkItem};

use crate::fact_types::FactTypes;
use crate::job_logs::JobLogs;
use crate::limits::breaker::BreakerState;
use crate::policy::Policy;
use crate::provider::Provider;
use crate::worker::{ClaimOptions, JobBoard, WorkerProvider};

/// Name that stands for all contexts.
const ALL: &str = "*";

/// External system with one breaker, one set of limits and one policy.
#[derive(Clone)]
pub struct Upstream {
    /// Unique name in a catalog, for example `payments`.
    pub name: String,
    /// Work that it executes.
    pub scope: UpstreamScope,
    /// Provider that calls it.
    pub provider: Arc<dyn Provider>,
    /// Policy of the calls.
    pub policy: Policy,
    /// Served tenants; `None`: all tenants.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// Contexts whose own definitions may request its work, in addition to those in `tenants`; `*`:
    /// all contexts.
    pub contexts: BTreeSet<TenantId>,
    /// Contexts of the effects that only some of these may request; `*`: all of these.
    pub effect_contexts: BTreeMap<String, BTreeSet<TenantId>>,
    /// Types of the facts that its results may contain.
    pub facts: FactTypes,
    /// Text of its configuration; upstreams with equal origin are equal. `None`: created by code.
    pub origin: Option<String>,
    /// Job board and claim options, if workers execute its effects.
    pub board: Option<(Arc<JobBoard>, ClaimOptions)>,
    /// Logs of its jobs, if they write logs.
    pub job_logs: Option<Arc<JobLogs>>,
}

/// Current status of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Name of the upstream.
    pub upstream: String,
    /// State of its breaker; `None` without one.
    pub breaker: Option<BreakerState>,
    /// Number of times that its breaker has opened since the process started.
    pub breaker_open_count: u64,
    /// Message of the last call that its breaker counted as unhealthy.
    pub last_error: Option<String>,
    /// Items with a permit: attempts in flight, and items that wait for the breaker.
    pub in_flight: usize,
    /// Items that wait for a permit.
    pub waiting: usize,
    /// Retries that its budget allows now; `None`: unlimited.
    pub remaining_retries: Option<u64>,
    /// Served tenants; `None`: all tenants.
    pub tenants: Option<Vec<String>>,
}

/// Returns whether an effect is a job: `job.<type>`.
#[must_use]
pub fn is_job(effect: &str) -> bool {
    effect
        .strip_prefix("job.")
        .is_some_and(|kind| !kind.is_empty())
}

/// Work that an upstream executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamScope {
    /// These effects.
    Effects(Vec<EffectName>),
    /// All effects that no other upstream serves.
    Fallback,
    /// Jobs of all types, if no other upstream serves the effect.
    Jobs,
    /// All commands to aggregates: it is the gateway.
    Commands,
}

impl Upstream {
    /// Creates an upstream for these effects.
    pub fn effects(
        name: impl Into<String>,
        effects: Vec<EffectName>,
        provider: Arc<dyn Provider>,
        policy: Policy,
    ) -> Self {
        Self::new(
            name.into(),
            UpstreamScope::Effects(effects),
            provider,
            policy,
        )
    }

    /// Creates an upstream for all effects that no other upstream serves.
    pub fn fallback(name: impl Into<String>, provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self::new(name.into(), UpstreamScope::Fallback, provider, policy)
    }

    /// Returns whether an attempt in doubt changes what happens to an item: the upstream is probed,
    /// or the policy prevents the next attempt. Otherwise the item is attempted again in any case.
    #[must_use]
    pub fn is_doubt_decisive(&self, item: &WorkItem) -> bool {
        let is_probed = |effect: &EffectName| self.provider.can_probe(effect);
        let effect = item.work.effect();
        self.policy.in_doubt(item) != InDoubtPolicy::Retry
            || effect.is_some_and(|effect| is_probed(&effect.name))
    }

    /// Creates an upstream for the jobs of all types that no other upstream serves.
    pub(crate) fn jobs(
        name: impl Into<String>,
        provider: Arc<dyn Provider>,
        policy: Policy,
    ) -> Self {
        Self::new(name.into(), UpstreamScope::Jobs, provider, policy)
    }

    /// Creates the gateway, named `gateway`.
    pub fn gateway(provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self::new(
            "gateway".to_owned(),
            UpstreamScope::Commands,
            provider,
            policy,
        )
    }

    /// Restricts it to these tenants.
    #[must_use]
    pub fn for_tenants(mut self, tenants: Option<BTreeSet<TenantId>>) -> Self {
        self.tenants = tenants;
        self
    }

    /// Permits the own definitions of these contexts to request its work; `*`: of all contexts.
    #[must_use]
    pub fn for_contexts(mut self, contexts: BTreeSet<TenantId>) -> Self {
        self.contexts = contexts;
        self
    }

    /// Permits only these contexts, of those that it permits, to request an effect; `*`: all of
    /// them.
    #[must_use]
    pub fn for_contexts_of(mut self, effect: &EffectName, contexts: BTreeSet<TenantId>) -> Self {
        self.effect_contexts.insert(effect.to_string(), contexts);
        self
    }

    /// Returns whether the own definitions of a context may request work with this name. Jobs are
    /// executed by the workers of their tenant, so that every context may request them.
    #[must_use]
    pub fn permits(&self, context: &TenantId, name: &str) -> bool {
        self.permits_any(context)
            && self
                .effect_contexts
                .get(name)
                .is_none_or(|contexts| has(contexts, context))
    }

    /// Returns whether the own definitions of a context may request any of its work.
    pub(crate) fn permits_any(&self, context: &TenantId) -> bool {
        self.scope == UpstreamScope::Jobs
            || self
                .tenants
                .as_ref()
                .is_some_and(|tenants| tenants.contains(context))
            || has(&self.contexts, context)
    }

    /// Permits its results to contain only facts of these types.
    #[must_use]
    pub fn with_facts(mut self, facts: BTreeSet<EventType>) -> Self {
        self.facts = FactTypes::Declared(facts);
        self
    }

    /// Sets its origin.
    #[must_use]
    pub fn with_origin(mut self, origin: String) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Returns whether it serves all of these effects, and there is at least one.
    #[must_use]
    pub fn serves_all(&self, effects: &[EffectName]) -> bool {
        match &self.scope {
            UpstreamScope::Effects(all) => {
                !effects.is_empty() && effects.iter().all(|effect| all.contains(effect))
            }
            UpstreamScope::Fallback => !effects.is_empty(),
            UpstreamScope::Jobs => {
                !effects.is_empty() && effects.iter().all(|effect| is_job(effect.as_str()))
            }
            UpstreamScope::Commands => false,
        }
    }

    /// Inherits the job board of the upstream that it replaces: workers continue their jobs.
    pub(crate) fn inherit_job_board(mut self, other: &Self) -> Self {
        if let (Some((own, terms)), Some((board, _))) = (&mut self.board, &other.board) {
            own.clone_from(board);
            self.job_logs.clone_from(&other.job_logs);
            // The new provider posts on the old board, with the settings of the new configuration.
            self.provider = Arc::new(WorkerProvider::new(
                Arc::clone(board),
                terms.probes,
                self.policy.in_doubt,
            ));
        }
        self
    }

    /// Returns whether both have the same configuration, so that a reload does not affect work in
    /// flight.
    pub(crate) fn has_same_config(&self, other: &Self) -> bool {
        // Providers cannot be compared. The text of the configuration contains all that they were
        // built from.
        let provider = Arc::ptr_eq(&self.provider, &other.provider)
            || (self.origin.is_some() && self.origin == other.origin);

        provider
            && self.name == other.name
            && self.scope == other.scope
            && self.policy == other.policy
            && self.tenants == other.tenants
            && self.contexts == other.contexts
            && self.effect_contexts == other.effect_contexts
            && self.facts == other.facts
    }

    fn new(
        name: String,
        serves: UpstreamScope,
        provider: Arc<dyn Provider>,
        policy: Policy,
    ) -> Self {
        Self {
            name,
            scope: serves,
            provider,
            policy,
            tenants: None,
            contexts: BTreeSet::new(),
            effect_contexts: BTreeMap::new(),
            facts: FactTypes::Any,
            origin: None,
            board: None,
            job_logs: None,
        }
    }
}

fn has(contexts: &BTreeSet<TenantId>, context: &TenantId) -> bool {
    contexts
        .iter()
        .any(|listed| listed == context || listed.as_str() == ALL)
}
