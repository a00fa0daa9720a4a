//! Rebuild of one instance from the inputs that a stream still contains.
//!
//! Work ids do not depend on time, so work in flight still matches the rebuilt instance, and work
//! that is sent again keeps its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_engine::Decision;
use orlog_model::{
    AttemptLog, Commit, DeadLetter, DedupeKey, EventId, HistoryEntry, Input, Instance, InstanceKey,
    TaskUpdate, Timestamp, Work, WorkItem, WorkOutcome, WorkResult,
};
use orlog_program::Program;
use uuid::Uuid;

use crate::simulator::{DecisionObserver, ObservedDecision, Simulator, SimulatorPrograms};

/// Input of a rebuild.
pub struct RebuildInput<'a> {
    /// Program of the rebuilt instance.
    pub program: Arc<dyn Program>,
    /// Key of the instance.
    pub key: &'a InstanceKey,
    /// Inputs and their arrival times, in order.
    pub inputs: &'a [(Timestamp, Input)],
    /// Recorded work results by original work id.
    pub results: &'a BTreeMap<Uuid, RecordedResult>,
    /// Maximum size of each payload in the history, in bytes; 0: none.
    pub history_payload_bytes: usize,
}

/// Recorded work result.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedResult {
    /// Time of the result.
    pub at: Timestamp,
    /// Outcome.
    pub outcome: WorkOutcome,
    /// Number of attempts.
    pub attempts: u32,
    /// How the attempts ended, if the first one did not succeed.
    pub attempt_log: Option<Box<AttemptLog>>,
}

/// Time mode of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    /// Recorded time: each input is applied at its arrival time, and timers fire in between, up to
    /// the current time.
    Recorded(Timestamp),
    /// All inputs are applied at this time, as after an outage; no timer fires.
    Immediate(Timestamp),
}

/// Rebuilt instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RebuiltInstance {
    /// Snapshot; `None` if no input started the instance.
    pub instance: Option<Instance>,
    /// History.
    pub history: Vec<HistoryEntry>,
    /// Dedupe keys of the applied inputs.
    pub dedupe_keys: Vec<DedupeKey>,
    /// Task events.
    pub tasks: Vec<TaskUpdate>,
    /// Pending work without a result, in order.
    pub work: Vec<WorkItem>,
    /// Inputs that could not be applied.
    pub dead_letters: Vec<DeadLetter>,
    /// Ids of the requests that were rejected, with the reason.
    pub rejected: Vec<(EventId, String)>,
}

/// Rebuilds an instance.
#[must_use]
pub fn rebuild(request: &RebuildInput<'_>, mode: TimeMode) -> RebuiltInstance {
    let (TimeMode::Recorded(now) | TimeMode::Immediate(now)) = mode;

    // With recorded times, the run begins at its first input.
    let start = match mode {
        TimeMode::Recorded(now) => request.inputs.first().map_or(now, |(at, _)| *at),
        TimeMode::Immediate(now) => now,
    };

    let programs = SimulatorPrograms::new([Arc::clone(&request.program)]);
    let observer = RebuildObserver {
        key: request.key,
        seen: RebuiltInstance::default(),
    };
    let simulator =
        Simulator::new(Arc::new(programs), start).with_payloads(request.history_payload_bytes);

    let mut run = RebuildRun {
        request,
        simulator,
        observer,
        applied: BTreeSet::new(),
        mode,
    };

    for (at, input) in request.inputs {
        // The results that were known at this time come first, because the input met their
        // transitions.
        run.apply_results_until(*at);
        // Timers that were due before the input fire before it, as they did in the live instance.
        run.advance_to(*at);
        run.simulator.deliver(request.key, input, &mut run.observer);
    }

    // The timers that fire last can request work whose results are recorded.
    run.apply_results_until(now);
    run.advance_to(now);
    run.apply_results_until(now);

    run.end()
}

struct RebuildRun<'a> {
    request: &'a RebuildInput<'a>,
    simulator: Simulator,
    observer: RebuildObserver<'a>,
    /// Work whose result was applied.
    applied: BTreeSet<Uuid>,
    mode: TimeMode,
}

impl RebuildRun<'_> {
    fn advance_to(&mut self, until: Timestamp) {
        if matches!(self.mode, TimeMode::Recorded(_)) {
            self.simulator.advance_to(until, &mut self.observer);
        }
    }

    /// Applies the results that were known by this time, in the order of their times.
    fn apply_results_until(&mut self, until: Timestamp) {
        while let Some(outcome) = self.next_outcome(until) {
            self.advance_to(outcome.at);
            self.applied.insert(outcome.work_id);
            self.simulator.deliver(
                self.request.key,
                &Input::WorkResult(outcome),
                &mut self.observer,
            );
        }
    }

    fn next_outcome(&self, until: Timestamp) -> Option<WorkResult> {
        let requested = self
            .simulator
            .simulated_instance(self.request.key)?
            .requested_work()
            .map(|(_, requested)| requested);

        let outcome = |requested: &crate::RequestedWork| {
            let known = self.request.results.get(&requested.item.id)?;
            Some(WorkResult {
                work_id: requested.item.id,
                outbox_key: requested.outbox.clone(),
                outcome: known.outcome.clone(),
                requested_at: requested.item.created_at,
                attempts: known.attempts,
                at: known.at,
                // Already published when the result was applied the first time.
                facts: Vec::new(),
                publishes: false,
                trace: None,
                attempt_log: known.attempt_log.clone(),
            })
        };

        requested
            // A result that the instance ignores leaves its work open, so applied results are
            // recorded apart.
            .filter(|requested| !requested.completed && !self.applied.contains(&requested.item.id))
            .filter_map(outcome)
            .filter(|outcome| outcome.at <= until)
            .min_by_key(|outcome| outcome.at)
    }

    fn end(self) -> RebuiltInstance {
        let Self {
            request,
            simulator,
            observer,
            applied,
            ..
        } = self;
        let instance = simulator.instance(request.key).cloned();
        let open: BTreeSet<Uuid> = instance
            .iter()
            .flat_map(|it| it.pending_work.iter().map(|open| open.id))
            .collect();

        let RebuildObserver { mut seen, .. } = observer;
        seen.work.retain(|item| match item.work {
            // Work whose result is known must not be executed again.
            Work::Effect(_) | Work::StartChild(_) => {
                open.contains(&item.id) && !applied.contains(&item.id)
            }
            Work::Command(_)
            | Work::Fact(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => true,
        });
        seen.instance = instance;
        seen
    }
}

/// Observer of the decisions.
struct RebuildObserver<'a> {
    key: &'a InstanceKey,
    seen: RebuiltInstance,
}

impl RebuildObserver<'_> {
    fn note(&mut self, commit: &Commit) {
        self.seen.history.extend(commit.history.clone());
        self.seen.dedupe_keys.extend(commit.dedupe_key);
        self.seen.tasks.extend(commit.tasks.iter().cloned());
        self.seen.work.extend(commit.work.iter().cloned());
        self.seen
            .dead_letters
            .extend(commit.dead_letter.as_deref().cloned());
    }
}

impl DecisionObserver for RebuildObserver<'_> {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        // Facts and child sagas can create other instances of the saga, which are rebuilt on their
        // own.
        if seen.context.key != self.key {
            return;
        }
        match seen.decision {
            Decision::Commit(commit) => self.note(commit),
            Decision::Reject(reason) => self
                .seen
                .rejected
                .push((seen.input.id(), reason.to_string())),
            Decision::Ignore { .. } => {}
        }
    }
}
