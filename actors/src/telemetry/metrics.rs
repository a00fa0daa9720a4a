//! Counters of the runtime. The names and descriptions of the metrics are defined in one table
//! outside this crate.

mod actors;
mod attempts;
mod definitions;
mod effects;
mod messages;
mod sink;
mod tenants;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use orlog_model::{Commit, DeadLetterReason, SagaName, TenantId};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use strum::VariantArray as _;

pub(crate) use actors::{ActorKind, GaugeGuard};
pub use attempts::AttemptMetrics;
pub use definitions::DefinitionTotals;
pub(crate) use effects::OutcomeMetrics;
pub use sink::MetricSink;

use actors::ActorGauges;
use definitions::{DefinitionCache, DefinitionMetrics};
use effects::EffectMetrics;
use messages::MessageMetrics;
use sink::{Labels1, Labels2, seconds};
use tenants::{TenantCache, TenantMetrics};

/// Supervisors and the actor kinds that they restart.
const RESTARTS: [(ActorKind, ActorKind); 6] = [
    (ActorKind::Root, ActorKind::Shard),
    (ActorKind::Root, ActorKind::Effects),
    (ActorKind::Shard, ActorKind::Saga),
    (ActorKind::Effects, ActorKind::Provider),
    (ActorKind::Effects, ActorKind::Publisher),
    (ActorKind::WorkerSupervisor, ActorKind::WorkerGroup),
];

/// Defines [`Metrics`] with its registered metrics and its other fields.
macro_rules! metrics {
    (
        { $($(#[$doc:meta])* $field:ident: $type:ty = $value:expr => $name:literal,)* }
        { $($(#[$other_doc:meta])* $other:ident: $other_type:ty,)* }
    ) => {
        /// Counters, gauges and histograms of all shards of a process.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[$doc])* pub(crate) $field: $type,)*
            $($(#[$other_doc])* pub(crate) $other: $other_type,)*
            pub(crate) tenants: TenantMetrics,
        }

        impl Metrics {
            fn with(tenants: TenantMetrics) -> Self {
                Self { $($field: $value,)* $($other: <$other_type>::default(),)* tenants }
            }

            fn register_fields(&self, sink: &mut impl MetricSink) {
                $(sink.register($name, self.$field.clone());)*
            }
        }
    };
}

metrics! {
    {
        ingested: Counter = Counter::default() => "events_ingested_total",
        unmatched: Counter = Counter::default() => "events_unmatched_total",
        events_rejected: Counter = Counter::default() => "events_rejected_total",
        inputs: Counter = Counter::default() => "inputs_delivered_total",
        ignored: Counter = Counter::default() => "inputs_ignored_total",
        existing_starts: Counter = Counter::default() => "start_events_ignored_total",
        transitions: Counter = Counter::default() => "transitions_committed_total",
        commits: Counter = Counter::default() => "commits_total",
        commit_changes: Histogram =
            Histogram::new(exponential_buckets(1.0, 2.0, 12)) => "commit_group_size",
        commit_seconds: Histogram = seconds() => "commit_seconds",
        activations: Counter = Counter::default() => "instances_activated_total",
        passivations: Counter = Counter::default() => "instances_passivated_total",
        live_instances: Gauge = Gauge::default() => "instances_live",
        quarantined_instances: Gauge = Gauge::default() => "instances_quarantined",
        dispatched: Counter = Counter::default() => "work_dispatched_total",
        timers_fired: Counter = Counter::default() => "timers_fired_total",
        timer_late_seconds: Histogram = seconds() => "timer_lateness_seconds",
        inputs_buffered: Counter = Counter::default() => "early_inputs_buffered_total",
        inputs_spilled: Counter = Counter::default() => "inputs_spilled_total",
        spilled_applied: Counter = Counter::default() => "spilled_inputs_applied_total",
        large_states: Counter = Counter::default() => "large_state_transitions_total",
        decisions_offloaded: Counter = Counter::default() => "decisions_offloaded_total",
        decisions_queued: Gauge = Gauge::default() => "decisions_queued",
        buffered_expired: Counter = Counter::default() => "early_inputs_expired_total",
        /// By stream and anomaly.
        stream_anomalies: Family<[(&'static str, String); 2], Counter> =
            Family::default() => "stream_anomalies_detected_total",
        store_full: Gauge = Gauge::default() => "store_full",
        /// Streams that are not read because they lost messages, over all shards.
        streams_lost: Gauge = Gauge::default() => "streams_lost",
        subscriptions_failing: Gauge = Gauge::default() => "subscriptions_failing",
    }
    {
        definitions: DefinitionMetrics,
        messages: MessageMetrics,
        effects: EffectMetrics,
        actors: ActorGauges,
        restarts: Family<Labels2, Counter>,
        dead_letters: Family<Labels1, Counter>,
        /// Reason why a committer retries its group.
        commit_failure: Mutex<Option<String>>,
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Metrics {
    /// Creates metrics with separate series for this number of tenants; all other tenants share
    /// one.
    #[must_use]
    pub fn new(tenants: usize) -> Self {
        let metrics = Self::with(TenantMetrics::new(tenants));

        // Register all series at start: an event that has not happened yet is 0, not missing.
        for (supervisor, kind) in RESTARTS {
            drop(metrics.restarts.get_or_create(&restarted(supervisor, kind)));
        }
        for reason in DeadLetterReason::VARIANTS {
            drop(
                metrics
                    .dead_letters
                    .get_or_create(&[("reason", reason.as_str())]),
            );
        }

        metrics
    }

    /// Registers all metrics.
    pub fn register(&self, sink: &mut impl MetricSink) {
        self.register_fields(sink);
        sink.register("actors_restarted_total", self.restarts.clone());
        sink.register("dead_letters_created_total", self.dead_letters.clone());
        self.tenants.register(sink);
        self.messages.register(sink);
        self.effects.register(sink);
        self.actors.register(sink);
    }

    /// Records that an actor started; it counts as live until the returned guard is dropped.
    pub(crate) fn actor_started(&self, kind: ActorKind) -> GaugeGuard {
        self.actors.start(kind)
    }

    /// Returns the mailbox depth of an actor kind.
    pub(crate) fn mailbox_depth(&self, kind: ActorKind) -> &Gauge {
        self.actors.depth(kind)
    }

    /// Records queued messages of an actor until the returned guard is dropped.
    pub(crate) fn messages_enqueued(&self, kind: ActorKind, messages: usize) -> GaugeGuard {
        GaugeGuard::add(self.actors.depth(kind), messages)
    }

    /// Counts the restart of a child.
    pub(crate) fn count_restart(&self, supervisor: ActorKind, kind: ActorKind) {
        self.restarts
            .get_or_create(&restarted(supervisor, kind))
            .inc();
    }

    /// Counts a dead letter.
    pub(crate) fn count_dead_letter(&self, reason: DeadLetterReason) {
        self.dead_letters
            .get_or_create(&[("reason", reason.as_str())])
            .inc();
    }

    /// Counts a durable commit.
    pub(crate) fn count_commit(&self, commit: &Commit, cache: &mut CommitCounters) {
        if let Some(dead_letter) = &commit.dead_letter {
            self.count_dead_letter(dead_letter.reason);
            self.tenants
                .counters(&dead_letter.tenant)
                .dead_letters
                .inc();
        }

        if let Some(instance) = &commit.instance {
            self.transitions.inc();
            let tenant = cache.tenant.counters(&self.tenants, &commit.key.tenant);
            tenant.count(commit.before.as_deref(), instance);
            cache.definitions.count(&self.definitions, commit, instance);
            self.messages.count(commit, instance);
        }
    }

    /// Counts an input that an instance of the same saga sent.
    pub(crate) fn count_own_input(&self, saga: &SagaName) {
        self.definitions.own_inputs(saga).inc();
    }

    /// Creates the counters of a version, so that they exist before its first instance.
    pub fn add_definition(&self, saga: &SagaName, version: u32) {
        drop(self.definitions.version(saga, version));
        drop(self.definitions.own_inputs(saga));
    }

    /// Removes the counters of a version whose definition is not stored any more.
    pub fn remove_definition(&self, saga: &SagaName, version: u32) {
        self.definitions.remove(saga, version);
    }

    /// Returns the instances by saga and version.
    #[must_use]
    pub fn definition_totals(&self) -> BTreeMap<(SagaName, u32), DefinitionTotals> {
        self.definitions.totals()
    }

    /// Returns the number of inputs that each saga sent to itself.
    #[must_use]
    pub fn own_inputs(&self) -> BTreeMap<SagaName, u64> {
        self.definitions.own_input_totals()
    }

    /// Returns the durable transitions by tenant; `other` are those of the shared series.
    #[must_use]
    pub fn tenant_transitions(&self) -> BTreeMap<String, u64> {
        self.tenants.transition_totals()
    }

    /// Returns the label of the series of a tenant.
    #[must_use]
    pub fn tenant_series(&self, tenant: &TenantId) -> String {
        self.tenants.series(tenant)
    }

    /// Returns the dead letters by reason.
    #[must_use]
    pub fn dead_letters_by_reason(&self) -> BTreeMap<&'static str, u64> {
        let mut letters = BTreeMap::new();
        for reason in DeadLetterReason::VARIANTS {
            let reason = reason.as_str();
            let counter = self.dead_letters.get_or_create(&[("reason", reason)]);
            letters.insert(reason, counter.get());
        }
        letters
    }

    /// Returns the number of messages read from the bus.
    #[must_use]
    pub fn ingested(&self) -> u64 {
        self.ingested.get()
    }

    /// Returns the number of fired timers.
    #[must_use]
    pub fn timers_fired(&self) -> u64 {
        self.timers_fired.get()
    }

    /// Returns the number of spilled inputs.
    #[must_use]
    pub fn inputs_spilled(&self) -> u64 {
        self.inputs_spilled.get()
    }

    /// Returns the number of dead letters added.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.dead_letters_by_reason().into_values().sum()
    }

    /// Returns the number of durable transitions.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.transitions.get()
    }

    /// Returns the number of group commits.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.get()
    }

    /// Returns the number of instances whose data could not be read.
    #[must_use]
    pub fn quarantined_instances(&self) -> i64 {
        self.quarantined_instances.get()
    }

    /// Returns the number of subscriptions to streams that fail and are retried.
    #[must_use]
    pub fn failing_subscriptions(&self) -> i64 {
        self.subscriptions_failing.get()
    }

    /// Returns the number of instances with an actor.
    #[must_use]
    pub fn live_instances(&self) -> i64 {
        self.live_instances.get()
    }

    /// Returns true if a store is full.
    #[must_use]
    pub fn is_store_full(&self) -> bool {
        self.store_full.get() > 0
    }

    /// Sets the store-full gauge and returns its previous value.
    pub(crate) fn set_store_full(&self, full: bool) -> bool {
        self.store_full
            .inner()
            .swap(i64::from(full), Ordering::Relaxed)
            > 0
    }

    /// Returns why commits are retried; `None` if they succeed.
    #[must_use]
    pub fn commit_failure(&self) -> Option<String> {
        self.commit_failure.lock().clone()
    }

    pub(crate) fn set_commit_failure(&self, failure: Option<String>) {
        *self.commit_failure.lock() = failure;
    }
}

/// Counters that a committer found for the previous commits.
#[derive(Debug, Default)]
pub(crate) struct CommitCounters {
    tenant: TenantCache,
    definitions: DefinitionCache,
}

fn restarted(supervisor: ActorKind, kind: ActorKind) -> Labels2 {
    [("supervisor", supervisor.as_str()), ("kind", kind.as_str())]
}
