//! In-memory simulator: instances, their timers and pending work, driven by `orlog_engine::decide`.
//!
//! It gives the guarantees of a runner except durability. An input is applied once, inputs of an
//! instance in order, timers in the order of their due times. Inputs of a paused instance are
//! buffered. Facts are delivered to the other sagas that consume them. A child saga runs here if
//! its definition is loaded; otherwise the caller must provide its result. Time advances only on
//! request. A saga that causes inputs without end stops the simulator ([`Simulator::endless`]).

mod consequences;
mod endless;
mod instance;
mod programs;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orlog_engine::{Decision, DecisionContext, Rejection, decide};
use orlog_model::{
    Commit, DeadLetterReason, Event, Input, Instance, InstanceKey, Name, OutboxKey, SagaName,
    Status, TenantId, TimerFired, Timestamp, WorkflowAction, WorkflowCommand,
};

use consequences::{FollowUp, follow_ups};
pub use endless::EndlessSaga;
pub use instance::{RecordedAction, RequestedWork, SimulatedInstance};
pub use programs::SimulatorPrograms;
pub(crate) use timers::SimulatedTimer;
use timers::TimerQueue;

/// Node name in histories.
const NODE_NAME: &str = "simulator";
/// Maximum number of inputs that one input may cause, including inputs of other sagas. Stops sagas
/// that start each other without end.
const MAX_CONSEQUENCES: usize = 10_000;
/// Maximum number of timers that fire while time advances once. Stops sagas that arm timers without
/// end.
const MAX_TIMERS: usize = 100_000;
/// Share of each instance in it.
const MAX_TIMERS_OF_INSTANCE: usize = 1_000;

/// Reason why a second delivery is ignored.
pub(crate) const DUPLICATE: &str = "already applied";

/// Observer of every decision before it is applied.
pub trait DecisionObserver {
    /// Called when an input was decided.
    fn on_decision(&mut self, seen: &ObservedDecision<'_>);
}

/// Observer that does nothing.
impl DecisionObserver for () {
    fn on_decision(&mut self, _: &ObservedDecision<'_>) {}
}

/// Decision with its input and context.
pub struct ObservedDecision<'a> {
    /// Context of the decision.
    pub context: DecisionContext<'a>,
    /// Input.
    pub input: &'a Input,
    /// Decision about the input.
    pub decision: &'a Decision,
    /// If the input ends a run with a restart: the instance at the end of this run.
    pub run_end: Option<&'a Instance>,
}

/// Result of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum InputResult {
    /// The instance changed; contains the note of its history entry.
    Applied(String),
    /// The input is buffered until the instance is resumed or starts.
    Buffered,
    /// Nothing changed; contains the reason.
    Ignored(String),
    /// The status forbids the control request.
    Rejected(Rejection),
    /// The input was dead-lettered.
    DeadLettered(DeadLetterReason, String),
}

/// In-memory simulator.
#[derive(Clone)]
pub struct Simulator {
    programs: Arc<SimulatorPrograms>,
    tenant: TenantId,
    now: Timestamp,
    entries: BTreeMap<InstanceKey, SimulatedInstance>,
    timers: TimerQueue,
    /// Last position in the outbox.
    sequence: u64,
    /// Follow-up inputs that are not delivered yet.
    queue: VecDeque<FollowUp>,
    /// Number of applied commits.
    commits: u64,
    records_history: bool,
    forgets_ended: bool,
    history_payload_bytes: usize,
    max_timers: usize,
    endless: Option<Arc<EndlessSaga>>,
}

impl Simulator {
    /// Creates an empty simulator with this time.
    #[must_use]
    pub fn new(programs: Arc<SimulatorPrograms>, now: Timestamp) -> Self {
        Self {
            programs,
            tenant: TenantId::default_tenant(),
            now,
            entries: BTreeMap::new(),
            timers: TimerQueue::default(),
            sequence: 0,
            queue: VecDeque::new(),
            commits: 0,
            records_history: true,
            forgets_ended: false,
            history_payload_bytes: 0,
            max_timers: MAX_TIMERS,
            endless: None,
        }
    }

    /// Disables histories and records of past work, so that memory does not grow with the number of
    /// inputs. An ended instance retains only its snapshot.
    #[must_use]
    pub fn without_history(self) -> Self {
        Self {
            records_history: false,
            forgets_ended: true,
            ..self
        }
    }

    /// Disables histories. Ended instances still receive late results.
    #[must_use]
    pub(crate) fn without_records(self) -> Self {
        Self {
            records_history: false,
            ..self
        }
    }

    /// Records payloads of at most this size in the histories. Default: none.
    #[must_use]
    pub fn with_payloads(self, history_payload_bytes: usize) -> Self {
        Self {
            history_payload_bytes,
            ..self
        }
    }

    /// Limits the number of timers that fire while time advances once, beside the share of each
    /// instance.
    #[must_use]
    pub(crate) fn with_max_timers(self, max_timers: usize) -> Self {
        Self { max_timers, ..self }
    }

    /// Returns the maximum number of timers that fire while time advances once.
    pub(crate) fn timer_limit(&self) -> usize {
        let of_instances = self.entries.len().saturating_mul(MAX_TIMERS_OF_INSTANCE);
        self.max_timers.saturating_add(of_instances)
    }

    /// Returns why the simulator has stopped: not all consequences of an input are applied, and no
    /// later result is meaningful.
    #[must_use]
    pub fn endless(&self) -> Option<&EndlessSaga> {
        self.endless.as_deref()
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the tenant of the instances.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Returns the definitions.
    #[must_use]
    pub fn programs(&self) -> &SimulatorPrograms {
        &self.programs
    }

    /// Returns an instance with its timers, work and history.
    #[must_use]
    pub fn simulated_instance(&self, key: &InstanceKey) -> Option<&SimulatedInstance> {
        self.entries.get(key)
    }

    /// Returns all instances, ordered by saga and correlation id.
    pub fn simulated_instances(&self) -> impl Iterator<Item = (&InstanceKey, &SimulatedInstance)> {
        self.entries.iter()
    }

    /// Returns the snapshot of a started instance.
    #[must_use]
    pub fn instance(&self, key: &InstanceKey) -> Option<&Instance> {
        self.entries.get(key)?.instance()
    }

    /// Returns the key of an instance of this simulator.
    #[must_use]
    pub fn key(&self, saga: &SagaName, correlation: orlog_model::CorrelationId) -> InstanceKey {
        InstanceKey {
            tenant: self.tenant.clone(),
            saga: saga.clone(),
            correlation,
        }
    }

    /// Delivers an event to its instances.
    ///
    /// The first result is that of the first saga by name. An empty list means that no saga
    /// consumes the event.
    pub fn publish(
        &mut self,
        event: &Event,
        observer: &mut dyn DecisionObserver,
    ) -> Vec<Result<(InstanceKey, InputResult), (SagaName, String)>> {
        let routes = self.programs.route(event);
        let input = Input::Event(event.clone());
        let mut results = Vec::with_capacity(routes.len());
        for route in routes {
            results.push(route.map(|key| {
                let result = self.deliver(&key, &input, observer);
                (key, result)
            }));
        }
        results
    }

    /// Delivers an input to an instance, then all immediate follow-ups.
    pub fn deliver(
        &mut self,
        key: &InstanceKey,
        input: &Input,
        observer: &mut dyn DecisionObserver,
    ) -> InputResult {
        let result = self.decide(key, input, false, observer);
        // Follow-ups come after the input itself, as on a node, where they take the way over the
        // bus or the outbox.
        self.follow(observer);
        result
    }

    fn follow(&mut self, observer: &mut dyn DecisionObserver) {
        let mut left = MAX_CONSEQUENCES;
        while let Some(FollowUp {
            key,
            input,
            was_buffered,
        }) = self.queue.pop_front()
        {
            // Sagas that send facts to each other could go on for ever.
            if left == 0 {
                let endless = EndlessSaga::inputs(&key, MAX_CONSEQUENCES);
                self.endless = Some(Arc::new(endless));
                self.queue.clear();
                return;
            }
            left -= 1;
            self.decide(&key, &input, was_buffered, observer);
        }
    }

    /// Returns the due time of the next timer.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|timer| timer.due)
    }

    /// Advances the time. Timers that become due fire in order, each at its own time. Returns the
    /// number of fired timers.
    pub fn advance_to(&mut self, time: Timestamp, observer: &mut dyn DecisionObserver) -> usize {
        let mut fired = 0;
        while self.endless.is_none()
            && let Some(timer) = self.timers.take_due(time)
        {
            if fired == self.timer_limit() {
                let endless = EndlessSaga::timers(&timer.key, &timer.name, fired);
                self.endless = Some(Arc::new(endless));
                return fired;
            }
            self.fire(timer, observer);
            fired += 1;
        }

        // Never backward: `at` of a test can name a time in the past.
        self.now = self.now.max(time);
        fired
    }

    /// Returns the armed timers in the order in which they were armed.
    pub(crate) fn armed_timers(&self) -> impl Iterator<Item = &SimulatedTimer> {
        self.timers.iter()
    }

    /// Fires a timer of an instance, also before others that are due earlier. The time advances to
    /// its due time. Returns whether the timer was armed.
    pub(crate) fn fire_timer(
        &mut self,
        key: &InstanceKey,
        name: &Name,
        observer: &mut dyn DecisionObserver,
    ) -> bool {
        let Some(timer) = self.timers.take_by_name(key, name) else {
            return false;
        };
        self.fire(timer, observer);
        true
    }

    fn fire(&mut self, timer: SimulatedTimer, observer: &mut dyn DecisionObserver) {
        // A proof fires timers out of order, so the due time can be in the past.
        self.now = self.now.max(timer.due);
        let input = Input::Timer(TimerFired {
            name: timer.name,
            token: timer.token,
            due: timer.due,
        });
        self.deliver(&timer.key, &input, observer);
    }

    /// Returns the decision about an input without applying it; `None` if the input is a duplicate
    /// or its saga has no definition, so that it changes nothing.
    pub(crate) fn preview(&self, key: &InstanceKey, input: &Input) -> Option<Decision> {
        let program = self.programs.of(&key.saga)?;
        let entry = self.entries.get(key);
        if entry.is_some_and(|entry| entry.is_duplicate(input)) {
            return None;
        }

        let early = entry.map(SimulatedInstance::buffered).unwrap_or_default();
        let subject = DecisionContext {
            key,
            instance: entry.and_then(SimulatedInstance::instance),
            program: program.as_ref(),
            now: self.now,
            node: NODE_NAME,
            buffered: &early,
            history_payload_bytes: self.history_payload_bytes,
        };
        Some(decide(&subject, input))
    }

    fn decide(
        &mut self,
        key: &InstanceKey,
        input: &Input,
        was_buffered: bool,
        observer: &mut dyn DecisionObserver,
    ) -> InputResult {
        let Some(program) = self.programs.of(&key.saga) else {
            return InputResult::Ignored(format!("no definition of {}", key.saga));
        };

        // A buffered input is in the record since it was buffered.
        if !was_buffered
            && self
                .entries
                .get(key)
                .is_some_and(|entry| entry.is_duplicate(input))
        {
            return InputResult::Ignored(DUPLICATE.to_owned());
        }

        // The instance is taken out instead of copied. `apply_decision` puts it back.
        let entry = self.entries.get_mut(key);
        let (before, early) = entry.map_or_else(Default::default, |entry| {
            (entry.instance.take(), entry.buffered())
        });
        let subject = DecisionContext {
            key,
            instance: before.as_deref(),
            program: program.as_ref(),
            now: self.now,
            node: NODE_NAME,
            buffered: &early,
            history_payload_bytes: self.history_payload_bytes,
        };

        let decision = decide(&subject, input);
        let run_end = self.run_end(&subject, input, &decision);
        observer.on_decision(&ObservedDecision {
            context: subject,
            input,
            decision: &decision,
            run_end: run_end.as_ref(),
        });
        self.apply_decision(key, before, input, decision)
    }

    /// Returns the instance at the end of the run that an input ends with a restart.
    fn run_end(
        &self,
        subject: &DecisionContext<'_>,
        input: &Input,
        decision: &Decision,
    ) -> Option<Instance> {
        let before = subject.instance?;
        let Decision::Commit(commit) = decision else {
            return None;
        };
        let restarts = commit.instance.as_ref()?.run_id != before.run_id;
        let waiting = self.programs.without_restart(&subject.key.saga);

        // The new run has replaced the state, so the input is decided again without a restart.
        let context = DecisionContext {
            program: waiting.filter(|_| restarts)?,
            ..*subject
        };
        let Decision::Commit(commit) = decide(&context, input) else {
            return None;
        };
        let mut ended = Arc::unwrap_or_clone(commit.instance?);
        // Its steps are final, as those of a saga that completes.
        ended.status = Status::Completed;
        Some(ended)
    }

    fn apply_decision(
        &mut self,
        key: &InstanceKey,
        before: Option<Arc<Instance>>,
        input: &Input,
        decision: Decision,
    ) -> InputResult {
        // A decision without a transition can still delete rows: its cleanup is a commit as well.
        let (commit, result) = match decision {
            Decision::Commit(commit) => {
                let result = result_of(&commit);
                (Some(commit), result)
            }
            Decision::Ignore { reason, cleanup } => {
                (cleanup, InputResult::Ignored(reason.into_owned()))
            }
            Decision::Reject(rejection) => (None, InputResult::Rejected(rejection)),
        };

        match commit {
            Some(commit) => self.apply(key, before, input, *commit),
            None => {
                // The instance was taken out for the decision, and a rejection must not lose it.
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.instance = before;
                }
            }
        }
        result
    }

    /// Applies a commit to the tables and schedules its follow-ups.
    fn apply(
        &mut self,
        key: &InstanceKey,
        before: Option<Arc<Instance>>,
        input: &Input,
        mut commit: Commit,
    ) {
        // Before the timers are armed: a commit can replace one.
        for timer in commit.disarm.drain(..) {
            self.timers.disarm(key, timer);
        }

        self.commits += 1;
        for timer in commit.arm.drain(..) {
            self.timers.arm(key, timer, self.now, self.commits);
        }

        // The instance returns before the commit is applied, because a commit can leave it
        // unchanged.
        let entry = self.entries.entry(key.clone()).or_default();
        let previous = PreviousStatus::of(before.as_deref());
        entry.instance = before;
        let work = std::mem::take(&mut commit.work);
        entry.apply(input, commit, self.records_history);

        for item in work {
            // The position is part of the outbox key, by which the commit of a result finds its
            // work.
            self.sequence += 1;
            self.queue
                .extend(follow_ups(&item, entry.instance(), &self.programs));
            let outbox = OutboxKey {
                destination: item.destination(),
                sequence: self.sequence,
            };
            entry.record_work(
                RequestedWork {
                    item,
                    outbox,
                    completed: false,
                },
                self.records_history,
            );
        }

        self.schedule_follow_ups(key, input, &previous);
    }

    /// Schedules the follow-ups of the difference to the previous status.
    fn schedule_follow_ups(&mut self, key: &InstanceKey, input: &Input, previous: &PreviousStatus) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        // The end of a child is a command and no work result, so its commit settles no outbox row.
        if let Input::Workflow(WorkflowCommand {
            action: WorkflowAction::ChildEnded(ended),
            ..
        }) = input
        {
            entry.complete(ended.work_id);
        }

        let Some(instance) = &entry.instance else {
            return;
        };

        let ended = instance.status.is_final() && !previous.ended;

        // In front of the other follow-ups: the instance applies its buffered inputs before later
        // ones.
        if !instance.paused && (previous.paused || !previous.existed) {
            // They have fired during the pause, and fire again after the buffered inputs.
            let now = self.now;
            let mut overdue: Vec<_> = instance
                .timers
                .iter()
                .filter(|timer| previous.paused && timer.signal.is_none() && timer.due <= now)
                .collect();
            overdue.sort_by_key(|timer| timer.due);
            for timer in overdue.into_iter().rev() {
                let fired = TimerFired {
                    name: timer.name.clone(),
                    token: timer.token,
                    due: timer.due,
                };
                self.queue.push_front(FollowUp {
                    key: key.clone(),
                    input: Input::Timer(fired),
                    was_buffered: false,
                });
            }

            let buffered = std::mem::take(&mut entry.buffered);
            for input in buffered.into_values().rev() {
                self.queue.push_front(FollowUp {
                    key: key.clone(),
                    input,
                    was_buffered: true,
                });
            }
        }

        // Last, because buffered inputs of the instance are still taken above.
        if ended && self.forgets_ended {
            entry.clear();
        }
    }
}

/// State of an instance before a commit, as far as a follow-up depends on the difference.
struct PreviousStatus {
    existed: bool,
    paused: bool,
    ended: bool,
}

impl PreviousStatus {
    fn of(before: Option<&Instance>) -> Self {
        Self {
            existed: before.is_some(),
            paused: before.is_some_and(|instance| instance.paused),
            ended: before.is_some_and(|instance| instance.status.is_final()),
        }
    }
}

fn result_of(commit: &Commit) -> InputResult {
    match (&commit.dead_letter, &commit.history) {
        (Some(dead_letter), _) => {
            InputResult::DeadLettered(dead_letter.reason, dead_letter.message.clone())
        }
        (None, Some(record)) => InputResult::Applied(record.note.clone()),
        (None, None) => InputResult::Buffered,
    }
}

#[cfg(test)]
mod tests;
