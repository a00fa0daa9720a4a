//! What the running system counts. Names follow `orlog_<noun>_<verb>_total`, `_seconds`, `_depth`.

use std::sync::atomic::{AtomicI64, Ordering};

use orlog_model::Verdict;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Labels of effect metrics: bounded by the configuration.
pub(crate) type ByUpstream = [(&'static str, String); 2];

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
    pub(crate) restarts: Counter,
    pub(crate) revivals: Counter,
    pub(crate) offered: Counter,
    pub(crate) effects: Family<ByUpstream, Counter>,
    pub(crate) effect_attempts: Counter,
    pub(crate) effect_seconds: Histogram,
    pub(crate) timers_fired: Counter,
    pub(crate) timer_late_seconds: Histogram,
    pub(crate) dead_letters: Counter,
    pub(crate) early_kept: Counter,
    pub(crate) early_expired: Counter,
    /// By stream and what was found.
    pub(crate) stream_breaks: Family<[(&'static str, String); 2], Counter>,
    store_full: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_1, 2.5, 14));
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
            restarts: Counter::default(),
            revivals: Counter::default(),
            offered: Counter::default(),
            effects: Family::default(),
            effect_attempts: Counter::default(),
            effect_seconds: seconds(),
            timers_fired: Counter::default(),
            timer_late_seconds: seconds(),
            dead_letters: Counter::default(),
            early_kept: Counter::default(),
            early_expired: Counter::default(),
            stream_breaks: Family::default(),
            store_full: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Makes all of them visible in a registry that adds the prefix `orlog`.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("events_ingested", "Messages taken from the bus", self.ingested.clone());
        r.register("inputs_dispatched", "Inputs brought to instances", self.inputs.clone());
        r.register("inputs_ignored", "Inputs that changed nothing", self.ignored.clone());
        r.register("transitions_committed", "Transitions made durable", self.transitions.clone());
        r.register("commits", "Groups committed", self.commits.clone());
        r.register("commit_changes", "Changes in a group", self.commit_changes.clone());
        r.register_with_unit("commit", "Time to commit a group", Unit::Seconds, self.commit_seconds.clone());
        r.register("instances_activated", "Instances brought to life", self.activations.clone());
        r.register("instances_passivated", "Instances put to rest", self.passivations.clone());
        r.register("instances_live", "Instances with an actor", self.live_instances.clone());
        r.register("shards_restarted", "Restarts of a shard", self.restarts.clone());
        r.register("sagas_revived", "Saga actors started anew after a death", self.revivals.clone());
        r.register("work_offered", "Work items offered by the relay", self.offered.clone());
        r.register("effects_performed", "Work items done, by upstream and verdict", self.effects.clone());
        r.register("effect_attempts", "Attempts at work items", self.effect_attempts.clone());
        r.register_with_unit(
            "effect",
            "Time from offer to verdict",
            Unit::Seconds,
            self.effect_seconds.clone(),
        );
        r.register("timers_fired", "Timers fired", self.timers_fired.clone());
        r.register_with_unit(
            "timer_late",
            "How late timers fired",
            Unit::Seconds,
            self.timer_late_seconds.clone(),
        );
        r.register("dead_letters_kept", "Inputs and messages set aside", self.dead_letters.clone());
        r.register(
            "early_inputs_kept",
            "Inputs kept that came before their instance",
            self.early_kept.clone(),
        );
        let dropped = "Inputs dropped because their instance did not begin in time";
        r.register("early_inputs_dropped", dropped, self.early_expired.clone());
        let breaks = "Streams that were not what they were at the checkpoint, by stream and what was found";
        r.register("stream_breaks_found", breaks, self.stream_breaks.clone());
        r.register("store_full", "1 while there is no room", self.store_full.clone());
    }

    /// A work item of an upstream ended like this.
    pub(crate) fn count_verdict(&self, upstream: &str, verdict: &Verdict) {
        let verdict = match verdict {
            Verdict::Accepted => "accepted",
            Verdict::Succeeded { .. } => "succeeded",
            Verdict::Failed { .. } => "failed",
            Verdict::TimedOut { .. } => "timed_out",
        };
        let labels = [("upstream", upstream.to_owned()), ("verdict", verdict.to_owned())];
        self.effects.get_or_create(&labels).inc();
    }

    /// Messages taken from the bus so far.
    #[must_use]
    pub fn ingested(&self) -> u64 {
        self.ingested.get()
    }

    /// Attempts at work items so far.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.effect_attempts.get()
    }

    /// Timers fired so far.
    #[must_use]
    pub fn timers_fired(&self) -> u64 {
        self.timers_fired.get()
    }

    /// Inputs and messages set aside so far.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.dead_letters.get()
    }

    /// Transitions made durable so far.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.transitions.get()
    }

    /// Groups committed so far.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.get()
    }

    /// Instances with an actor now.
    #[must_use]
    pub fn live_instances(&self) -> i64 {
        self.live_instances.get()
    }

    /// There is no room in a store.
    #[must_use]
    pub fn is_store_full(&self) -> bool {
        self.store_full.get() > 0
    }

    /// Returns what it was before.
    pub(crate) fn set_store_full(&self, full: bool) -> bool {
        self.store_full.inner().swap(i64::from(full), Ordering::Relaxed) > 0
    }
}
