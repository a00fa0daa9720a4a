//! Counters of the runtime. The names and descriptions of the metrics are defined in one table outside
//! this crate.

mod actors;
mod attempts;
mod effects;
mod sink;
mod tenants;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use orlog_model::{Commit, DeadLetterReason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

pub(crate) use actors::{ActorKind, GaugeGuard};
pub use attempts::AttemptMetrics;
pub(crate) use effects::OutcomeMetrics;
pub use sink::MetricSink;
pub(crate) use tenants::TenantCache;

use actors::ActorGauges;
use effects::EffectMetrics;
use sink::{Labels1, Labels2, seconds};
use tenants::TenantMetrics;

/// All dead letter reasons.
const REASONS: [DeadLetterReason; 10] = [
    DeadLetterReason::Undecodable,
    DeadLetterReason::SchemaMismatch,
    DeadLetterReason::ProgramError,
    DeadLetterReason::DefinitionMissing,
    DeadLetterReason::SnapshotInconsistent,
    DeadLetterReason::RetriesExhausted,
    DeadLetterReason::EarlyBufferFull,
    DeadLetterReason::InstanceUnreadable,
    DeadLetterReason::StateTooLarge,
    DeadLetterReason::BusRejected,
];

/// Supervisors and the actor kinds that they restart.
const RESTARTS: [(ActorKind, ActorKind); 6] = [
    (ActorKind::Root, ActorKind::Shard),
    (ActorKind::Root, ActorKind::Effects),
    (ActorKind::Shard, ActorKind::Saga),
    (ActorKind::Effects, ActorKind::Provider),
    (ActorKind::Effects, ActorKind::Publisher),
    (ActorKind::WorkerSupervisor, ActorKind::WorkerGroup),
];

/// Counters, gauges and histograms of all shards of a process.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) ingested: Counter,
    pub(crate) inputs: Counter,
    pub(crate) ignored: Counter,
    pub(crate) transitions: Counter,
    pub(crate) commits: Counter,
    pub(crate) commit_changes: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) activations: Counter,
    pub(crate) passivations: Counter,
    pub(crate) live_instances: Gauge,
    pub(crate) quarantined_instances: Gauge,
    pub(crate) dispatched: Counter,
    pub(crate) timers_fired: Counter,
    pub(crate) timer_late_seconds: Histogram,
    pub(crate) inputs_buffered: Counter,
    pub(crate) inputs_spilled: Counter,
    pub(crate) spilled_applied: Counter,
    pub(crate) large_states: Counter,
    pub(crate) buffered_expired: Counter,
    /// By stream and anomaly.
    pub(crate) stream_anomalies: Family<[(&'static str, String); 2], Counter>,
    pub(crate) tenants: TenantMetrics,
    pub(crate) effects: EffectMetrics,
    actors: ActorGauges,
    restarts: Family<Labels2, Counter>,
    dead_letters: Family<Labels1, Counter>,
    store_full: Gauge<i64, AtomicI64>,
    /// Reason why a committer retries its group.
    commit_failure: Mutex<Option<String>>,
    /// Streams that are not read because they lost messages, over all shards.
    pub(crate) streams_lost: Gauge<i64, AtomicI64>,
    pub(crate) subscriptions_failing: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Metrics {
    /// Creates metrics with separate series for this number of tenants; all other tenants share one.
    #[must_use]
    pub fn new(tenants: usize) -> Self {
        let (restarts, dead_letters) =
            (Family::<Labels2, Counter>::default(), Family::<Labels1, Counter>::default());
        // Register all series at start: an event that has not happened yet is 0, not missing.
        for (supervisor, kind) in RESTARTS {
            drop(restarts.get_or_create(&restarted(supervisor, kind)));
        }
        for reason in REASONS {
            drop(dead_letters.get_or_create(&[("reason", reason.as_str())]));
        }
        Self {
            ingested: Counter::default(),
            inputs: Counter::default(),
            ignored: Counter::default(),
            transitions: Counter::default(),
            commits: Counter::default(),
            commit_changes: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            commit_seconds: seconds(),
            activations: Counter::default(),
            passivations: Counter::default(),
            live_instances: Gauge::default(),
            quarantined_instances: Gauge::default(),
            dispatched: Counter::default(),
            timers_fired: Counter::default(),
            timer_late_seconds: seconds(),
            inputs_buffered: Counter::default(),
            inputs_spilled: Counter::default(),
            spilled_applied: Counter::default(),
            large_states: Counter::default(),
            buffered_expired: Counter::default(),
            stream_anomalies: Family::default(),
            tenants: TenantMetrics::new(tenants),
            effects: EffectMetrics::default(),
            actors: ActorGauges::default(),
            restarts,
            dead_letters,
            store_full: Gauge::default(),
            commit_failure: Mutex::default(),
            streams_lost: Gauge::default(),
            subscriptions_failing: Gauge::default(),
        }
    }

    /// Registers all metrics.
    pub fn register(&self, sink: &mut impl MetricSink) {
        sink.register("events_ingested_total", self.ingested.clone());
        sink.register("inputs_delivered_total", self.inputs.clone());
        sink.register("inputs_ignored_total", self.ignored.clone());
        sink.register("transitions_committed_total", self.transitions.clone());
        sink.register("commits_total", self.commits.clone());
        sink.register("commit_group_size", self.commit_changes.clone());
        sink.register("commit_seconds", self.commit_seconds.clone());
        sink.register("instances_activated_total", self.activations.clone());
        sink.register("instances_passivated_total", self.passivations.clone());
        sink.register("instances_live", self.live_instances.clone());
        sink.register("instances_quarantined", self.quarantined_instances.clone());
        sink.register("work_dispatched_total", self.dispatched.clone());
        sink.register("timers_fired_total", self.timers_fired.clone());
        sink.register("timer_lateness_seconds", self.timer_late_seconds.clone());
        sink.register("early_inputs_buffered_total", self.inputs_buffered.clone());
        sink.register("inputs_spilled_total", self.inputs_spilled.clone());
        sink.register("spilled_inputs_applied_total", self.spilled_applied.clone());
        sink.register("large_state_transitions_total", self.large_states.clone());
        sink.register("early_inputs_expired_total", self.buffered_expired.clone());
        sink.register("stream_anomalies_detected_total", self.stream_anomalies.clone());
        sink.register("actors_restarted_total", self.restarts.clone());
        sink.register("dead_letters_created_total", self.dead_letters.clone());
        sink.register("store_full", self.store_full.clone());
        sink.register("streams_lost", self.streams_lost.clone());
        sink.register("subscriptions_failing", self.subscriptions_failing.clone());
        self.tenants.register(sink);
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
        self.restarts.get_or_create(&restarted(supervisor, kind)).inc();
    }

    /// Counts a dead letter.
    pub(crate) fn count_dead_letter(&self, reason: DeadLetterReason) {
        self.dead_letters.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// Counts a durable commit. `passing` caches the counters of the last tenant.
    pub(crate) fn count_commit(&self, commit: &Commit, tenant_cache: &mut TenantCache) {
        if let Some(dead_letter) = &commit.dead_letter {
            self.count_dead_letter(dead_letter.reason);
            self.tenants.counters(&dead_letter.tenant).dead_letters.inc();
        }
        if let Some(instance) = &commit.instance {
            self.transitions.inc();
            tenant_cache.counters(&self.tenants, &commit.key.tenant).count(commit.before, instance);
        }
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
        let of =
            |reason: DeadLetterReason| self.dead_letters.get_or_create(&[("reason", reason.as_str())]).get();
        REASONS.into_iter().map(of).sum()
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
        self.store_full.inner().swap(i64::from(full), Ordering::Relaxed) > 0
    }

    /// Returns why commits are retried; `None` if they succeed.
    #[must_use]
    pub fn commit_failure(&self) -> Option<String> {
        self.commit_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_commit_failure(&self, failure: Option<String>) {
        *self.commit_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

fn restarted(supervisor: ActorKind, kind: ActorKind) -> Labels2 {
    [("supervisor", supervisor.as_str()), ("kind", kind.as_str())]
}
