//! Rebuild of one instance from the inputs that a stream still contains.
//!
//! Work ids depend on the causing input, to the millisecond. The rebuild uses the ids of the history if
//! both agree: the same version, the same input and the same work at the same position. Then in-flight
//! work still matches the instance, and work that is sent again keeps its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_engine::Decision;
use orlog_model::{
    Commit, DeadLetter, EventId, HistoryEntry, Input, Instance, InstanceKey, TaskUpdate, Timestamp, Work,
    WorkItem, WorkOutcome, WorkResult, WorkflowAction, WorkflowCommand,
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
    /// History of the existing instance; empty if none exists.
    pub history: &'a [HistoryEntry],
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
}

/// Time mode of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    /// Recorded time: each input is applied at its arrival time, and timers fire in between, up to the
    /// current time.
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
    /// Ids of the applied inputs.
    pub dedupe_keys: Vec<EventId>,
    /// Task events.
    pub tasks: Vec<TaskUpdate>,
    /// Pending work without a result, in order.
    pub work: Vec<WorkItem>,
    /// Inputs that could not be applied.
    pub dead_letters: Vec<DeadLetter>,
}

/// Rebuilds an instance.
#[must_use]
pub fn rebuild(request: &RebuildInput<'_>, mode: TimeMode) -> RebuiltInstance {
    let (TimeMode::Recorded(now) | TimeMode::Immediate(now)) = mode;
    let start = match mode {
        TimeMode::Recorded(now) => request.inputs.first().map_or(now, |(at, _)| *at),
        TimeMode::Immediate(now) => now,
    };
    let programs = SimulatorPrograms::new([Arc::clone(&request.program)]);
    let observer = RebuildObserver::of(request);
    let simulator = Simulator::new(Arc::new(programs), start);
    let mut run = RebuildRun { request, simulator, observer, applied: BTreeSet::new(), mode };
    for (at, input) in request.inputs {
        run.apply_results_until(*at);
        run.advance_to(*at);
        let input = run.observer.renamed(input);
        run.simulator.deliver(request.key, &input, &mut run.observer);
    }
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
            self.simulator.deliver(self.request.key, &Input::WorkResult(outcome), &mut self.observer);
        }
    }

    fn next_outcome(&self, until: Timestamp) -> Option<WorkResult> {
        let requested = self
            .simulator
            .simulated_instance(self.request.key)?
            .requested_work()
            .map(|(_, requested)| requested);
        let outcome = |requested: &crate::RequestedWork| {
            let known = self.request.results.get(&self.observer.old_id(requested.item.id))?;
            Some(WorkResult {
                work_id: requested.item.id,
                outbox_key: requested.outbox.clone(),
                outcome: known.outcome.clone(),
                attempts: known.attempts,
                at: known.at,
                // Already published when the result was applied the first time.
                facts: Vec::new(),
                trace: None,
            })
        };
        let without_result =
            requested.filter(|requested| !requested.completed && !self.applied.contains(&requested.item.id));
        let known = without_result.filter_map(outcome).filter(|outcome| outcome.at <= until);
        known.min_by_key(|outcome| outcome.at)
    }

    fn end(self) -> RebuiltInstance {
        let Self { request, simulator, observer, applied, .. } = self;
        let instance = simulator.instance(request.key).cloned();
        let open: BTreeSet<Uuid> =
            instance.iter().flat_map(|it| it.pending_work.iter().map(|open| open.id)).collect();
        let is_included = |item: &WorkItem| match item.work {
            Work::Effect(_) | Work::StartChild(_) => open.contains(&item.id) && !applied.contains(&item.id),
            Work::Command(_) | Work::Fact(_) | Work::CancelChild(_) | Work::NotifyParent(_) => true,
        };
        let RebuildObserver { ids, mut seen, .. } = observer;
        seen.work.retain(is_included);
        seen.instance = instance;
        IdRewriter { ids }.rewrite(seen)
    }
}

/// Observer of the decisions.
struct RebuildObserver<'a> {
    key: &'a InstanceKey,
    old: &'a [HistoryEntry],
    /// Map from ids of the rebuilt instance to ids in the history.
    ids: BTreeMap<Uuid, Uuid>,
    seen: RebuiltInstance,
}

impl<'a> RebuildObserver<'a> {
    fn of(request: &RebuildInput<'a>) -> Self {
        Self {
            key: request.key,
            old: request.history,
            ids: BTreeMap::new(),
            seen: RebuiltInstance::default(),
        }
    }

    fn old_id(&self, id: Uuid) -> Uuid {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    /// Returns the input with the new work id. The end of a child saga contains the old one.
    fn renamed(&self, input: &Input) -> Input {
        let mut input = input.clone();
        if let Input::Workflow(WorkflowCommand { action: WorkflowAction::ChildEnded(ended), .. }) = &mut input
            && let Some((new, _)) = self.ids.iter().find(|(_, old)| **old == ended.work_id)
        {
            ended.work_id = *new;
        }
        input
    }

    fn note(&mut self, commit: &Commit) {
        if let Some(record) = &commit.history {
            if let Some(old) = self.old.iter().find(|old| old.version == record.version)
                && self.is_same_cause(record, old)
            {
                let pairs = record.work.iter().zip(&old.work).filter(|((new, _), (old, _))| new == old);
                self.ids.extend(pairs.map(|((_, new), (_, old))| (*new, *old)));
            }
            self.seen.history.push(record.clone());
        }
        self.seen.dedupe_keys.extend(commit.dedupe_key.clone());
        self.seen.tasks.extend(commit.tasks.iter().cloned());
        self.seen.work.extend(commit.work.iter().cloned());
        self.seen.dead_letters.extend(commit.dead_letter.as_deref().cloned());
    }

    /// Returns whether two history entries have the same cause. Results are identified by their work,
    /// timers by their firing time.
    fn is_same_cause(&self, new: &HistoryEntry, old: &HistoryEntry) -> bool {
        let names = IdRewriter { ids: self.ids.clone() };
        let is_timer = |record: &HistoryEntry| record.input_id.as_str().starts_with(TIMER);
        names.input(&new.input_id) == old.input_id
            || is_timer(new) && is_timer(old) && new.input_label == old.input_label
    }
}

impl DecisionObserver for RebuildObserver<'_> {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        if let (true, Decision::Commit(commit)) = (seen.context.key == self.key, seen.decision) {
            self.note(commit);
        }
    }
}

const OUTCOME: &str = "outcome:";
const TIMER: &str = "timer:";

/// Rewriter from new ids to old ids.
struct IdRewriter {
    ids: BTreeMap<Uuid, Uuid>,
}

impl IdRewriter {
    fn rewrite(&self, mut rebuilt: RebuiltInstance) -> RebuiltInstance {
        if let Some(instance) = &mut rebuilt.instance {
            instance.pending_work.iter_mut().for_each(|open| open.id = self.id(open.id));
            instance.last_input = self.input(&instance.last_input);
        }
        for record in &mut rebuilt.history {
            record.input_id = self.input(&record.input_id);
            record.work.iter_mut().for_each(|(_, id)| *id = self.id(*id));
        }
        for item in &mut rebuilt.work {
            item.id = self.id(item.id);
            item.causation = self.input(&item.causation);
        }
        rebuilt
    }

    fn id(&self, id: Uuid) -> Uuid {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    fn input(&self, id: &EventId) -> EventId {
        let work = id.as_str().strip_prefix(OUTCOME).and_then(|work| work.parse().ok());
        let renamed = work.map(|work: Uuid| format!("{OUTCOME}{}", self.id(work)));
        renamed.and_then(|text| EventId::new(text).ok()).unwrap_or_else(|| id.clone())
    }
}
