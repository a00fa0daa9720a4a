//! What the running system counts. What each figure is called and means stands in one table, which is not here: whoever
//! shows the figures knows it.

mod actors;
mod attempts;
mod effects;
mod sink;
mod tenants;

use std::sync::atomic::{AtomicI64, Ordering};

use orlog_model::{Commit, DeadLetterReason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

pub(crate) use actors::{ActorKind, Alive, Waiting};
pub use attempts::AttemptCounts;
pub(crate) use effects::Verdicts;
pub use sink::Sheet;
pub(crate) use tenants::Passing;

use actors::Census;
use effects::Effects;
use sink::{By1, By2, seconds};
use tenants::Tenants;

/// Every reason for which dead letters are kept.
const REASONS: [DeadLetterReason; 7] = [
    DeadLetterReason::Undecodable,
    DeadLetterReason::SchemaMismatch,
    DeadLetterReason::ProgramError,
    DeadLetterReason::DefinitionMissing,
    DeadLetterReason::SnapshotInconsistent,
    DeadLetterReason::RetriesExhausted,
    DeadLetterReason::TooManyEarly,
];

/// Whose children are started anew, and which.
const RESTARTS: [(ActorKind, ActorKind); 6] = [
    (ActorKind::Root, ActorKind::Shard),
    (ActorKind::Root, ActorKind::Effects),
    (ActorKind::Shard, ActorKind::Saga),
    (ActorKind::Effects, ActorKind::Provider),
    (ActorKind::Effects, ActorKind::Publisher),
    (ActorKind::Foreman, ActorKind::Crew),
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
    pub(crate) offered: Counter,
    pub(crate) timers_fired: Counter,
    pub(crate) timer_late_seconds: Histogram,
    pub(crate) early_kept: Counter,
    pub(crate) early_expired: Counter,
    /// By stream and what was found.
    pub(crate) stream_breaks: Family<[(&'static str, String); 2], Counter>,
    pub(crate) tenants: Tenants,
    pub(crate) effects: Effects,
    census: Census,
    restarts: Family<By2, Counter>,
    dead_letters: Family<By1, Counter>,
    store_full: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Metrics {
    /// With series for so many tenants; all others share one.
    #[must_use]
    pub fn new(tenants: usize) -> Self {
        let (restarts, dead_letters) = (Family::<By2, Counter>::default(), Family::<By1, Counter>::default());
        // All of them from the start: what has not happened yet is 0, not unknown.
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
            offered: Counter::default(),
            timers_fired: Counter::default(),
            timer_late_seconds: seconds(),
            early_kept: Counter::default(),
            early_expired: Counter::default(),
            stream_breaks: Family::default(),
            tenants: Tenants::new(tenants),
            effects: Effects::default(),
            census: Census::default(),
            restarts,
            dead_letters,
            store_full: Gauge::default(),
        }
    }

    /// Shows all of them.
    pub fn show(&self, sheet: &mut impl Sheet) {
        sheet.put("events_ingested_total", self.ingested.clone());
        sheet.put("inputs_dispatched_total", self.inputs.clone());
        sheet.put("inputs_ignored_total", self.ignored.clone());
        sheet.put("transitions_committed_total", self.transitions.clone());
        sheet.put("commits_total", self.commits.clone());
        sheet.put("commit_changes", self.commit_changes.clone());
        sheet.put("commit_seconds", self.commit_seconds.clone());
        sheet.put("instances_activated_total", self.activations.clone());
        sheet.put("instances_passivated_total", self.passivations.clone());
        sheet.put("instances_live", self.live_instances.clone());
        sheet.put("work_offered_total", self.offered.clone());
        sheet.put("timers_fired_total", self.timers_fired.clone());
        sheet.put("timer_late_seconds", self.timer_late_seconds.clone());
        sheet.put("early_inputs_kept_total", self.early_kept.clone());
        sheet.put("early_inputs_dropped_total", self.early_expired.clone());
        sheet.put("stream_breaks_found_total", self.stream_breaks.clone());
        sheet.put("actors_restarted_total", self.restarts.clone());
        sheet.put("dead_letters_kept_total", self.dead_letters.clone());
        sheet.put("store_full", self.store_full.clone());
        self.tenants.show(sheet);
        self.effects.show(sheet);
        self.census.show(sheet);
    }

    /// An actor begins to live; it does until what this answers is dropped.
    pub(crate) fn begin(&self, kind: ActorKind) -> Alive {
        self.census.begin(kind)
    }

    /// So many messages wait for an actor until what this answers is dropped.
    pub(crate) fn wait(&self, kind: ActorKind, messages: usize) -> Waiting {
        self.census.wait(kind, messages)
    }

    /// Notes how many messages wait, where that is looked up.
    pub(crate) fn look(&self, kind: ActorKind, messages: u64) {
        self.census.look(kind, messages);
    }

    /// A child was started anew.
    pub(crate) fn count_restart(&self, supervisor: ActorKind, kind: ActorKind) {
        self.restarts.get_or_create(&restarted(supervisor, kind)).inc();
    }

    /// Something was set aside.
    pub(crate) fn count_letter(&self, reason: DeadLetterReason) {
        self.dead_letters.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// A commit is durable. `passing` spares whoever counts many of them the way to a tenant's counters.
    pub(crate) fn count_commit(&self, commit: &Commit, passing: &mut Passing) {
        if let Some(letter) = &commit.dead_letter {
            self.count_letter(letter.reason);
            self.tenants.of(&letter.tenant).dead_letters.inc();
        }
        if let Some(instance) = &commit.instance {
            self.transitions.inc();
            passing.counters(&self.tenants, &commit.key.tenant).count(commit.before, instance);
        }
    }

    /// Messages taken from the bus so far.
    #[must_use]
    pub fn ingested(&self) -> u64 {
        self.ingested.get()
    }

    /// Timers fired so far.
    #[must_use]
    pub fn timers_fired(&self) -> u64 {
        self.timers_fired.get()
    }

    /// Inputs and messages set aside so far.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        let of =
            |reason: DeadLetterReason| self.dead_letters.get_or_create(&[("reason", reason.as_str())]).get();
        REASONS.into_iter().map(of).sum()
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

fn restarted(supervisor: ActorKind, kind: ActorKind) -> By2 {
    [("supervisor", supervisor.as_str()), ("kind", kind.as_str())]
}
