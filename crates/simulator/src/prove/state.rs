//! State of a proof: the instance under test with its checked invariants, and the moves that change
//! it.

use std::fmt;

use orlog_engine::Decision;
use orlog_model::{Input, Instance, Name};
use orlog_program::canonical_state;

use super::liveness::LiveVariables;
use crate::invariants::{InvariantChecker, StepStates, Violation};
use crate::responses::is_reminder;
use crate::runner::ScenarioRunner;
use crate::simulator::SimulatedInstance;
use crate::state_key::{KeyHasher, StateKey};
use crate::step::SimulationStep;

/// Move of a proof.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// An input arrives.
    Step(SimulationStep),
    /// A timer fires.
    Timer(Name),
}

impl Move {
    /// Returns the tag of the work that the move concerns: the one that a result reports or a timer
    /// limits or retries.
    pub(super) fn tag(&self) -> Option<&str> {
        match self {
            Move::Timer(name) => {
                let name = name.as_str();
                Some(name.strip_prefix("retry:").unwrap_or(name))
            }
            Move::Step(
                SimulationStep::Ok { tag, .. }
                | SimulationStep::Fail { tag, .. }
                | SimulationStep::Timeout { tag }
                | SimulationStep::InDoubt { tag },
            ) => Some(tag),
            Move::Step(_) => None,
        }
    }
}

/// Unique text, by which equal moves are stored once.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Move::Step(step) => step.fmt(f),
            Move::Timer(name) => write!(f, "timer {name}"),
        }
    }
}

/// State of a proof.
#[derive(Clone)]
pub(super) struct ProofState {
    pub(super) runner: ScenarioRunner,
    pub(super) checker: InvariantChecker,
}

impl ProofState {
    pub(super) fn new(runner: ScenarioRunner) -> Self {
        Self {
            runner,
            checker: InvariantChecker::new(),
        }
    }

    /// Returns the state after moves that are possible.
    pub(super) fn after(&self, moves: &[Move]) -> Self {
        let mut state = self.clone();
        for proof_move in moves {
            state.apply(proof_move);
        }
        state
    }

    /// Makes a move. Returns `false` if it is not possible in this state.
    pub(super) fn apply(&mut self, proof_move: &Move) -> bool {
        match proof_move {
            Move::Step(step) => self.runner.run_step(step, None, &mut self.checker).is_ok(),
            Move::Timer(name) => self.runner.fire_timer(name, &mut self.checker),
        }
    }

    /// Returns whether a second result changes nothing and violates no invariant. Most do so, and a
    /// copy of the state for each of them would take more time than all moves.
    pub(super) fn ignores(&self, second: &Move) -> bool {
        let Move::Step(step) = second else {
            return false;
        };
        let Some(key) = self.runner.instance() else {
            return false;
        };
        // A result that nothing has requested is not possible.
        let Ok(input) = self.runner.preview(step) else {
            return true;
        };

        match self.runner.simulator.preview(key, &input) {
            None => true,
            // A success that arrives for the first time must not be ignored.
            Some(Decision::Ignore { .. }) => input
                .completed_work_id()
                .is_some_and(|work_id| !self.checker.awaits_result(key, work_id)),
            Some(Decision::Commit(_) | Decision::Reject(_)) => false,
        }
    }

    pub(super) fn violation(&self) -> Option<&Violation> {
        self.checker.violations().first()
    }

    pub(super) fn instance(&self) -> Option<&Instance> {
        self.entry()?.instance()
    }

    /// Returns the instance under test with its work.
    pub(super) fn entry(&self) -> Option<&SimulatedInstance> {
        self.runner
            .instance()
            .and_then(|key| self.runner.simulator.simulated_instance(key))
    }

    /// Returns the key of the state. Its core is equal for states that receive the same later
    /// inputs in the same way. It excludes times, versions and ids; it includes the order in which
    /// timers were armed, and their delays unless `is_absolute`. Open work counts only if it
    /// `has_result`: an event completes other work.
    pub(super) fn key(
        &self,
        is_absolute: impl Fn(&str) -> bool,
        has_result: impl Fn(&str) -> bool,
        live: &LiveVariables,
        mut key: KeyHasher,
    ) -> StateKey {
        for (instance, entry) in self.runner.simulator.simulated_instances() {
            hash_entry(entry, self.checker.step_states(instance), live, &mut key);
        }

        // Timers of one commit are armed at the same time, so whether two belong to one commit is
        // part of the key.
        let mut last_commit = 0;
        // Delays and order, not due times: a state has no time.
        for timer in self.runner.simulator.armed_timers() {
            let delay = (!is_absolute(timer.name.as_str())).then(|| timer.delay());
            key.add((&timer.name, delay, timer.commit == last_commit));
            last_commit = timer.commit;
        }

        key.add(self.runner.instance().is_some());
        self.checker.hash_without_ids(&mut key, &has_result);
        key.finish()
    }
}

fn hash_entry(
    entry: &SimulatedInstance,
    step_states: Option<&StepStates>,
    live: &LiveVariables,
    key: &mut KeyHasher,
) {
    if let Some(instance) = entry.instance() {
        key.add((instance.status, instance.paused));

        let is_full = key.is_full();
        let is_live = |name: &str, forward| is_full || live.contains(name, forward);
        let canonical = canonical_state(&instance.state, is_live);
        key.add_omitted(step_states);
        key.add(canonical.as_ref().unwrap_or(&instance.state));

        let pending = instance.pending_work.iter();
        // The result of a reminder changes nothing, whether it arrives or not.
        for work in pending.filter(|work| !is_reminder(work.tag.as_str())) {
            let requested = entry.requested_work_by_tag(work.tag.as_str());
            let last = requested.filter(|requested| requested.item.id == work.id);

            // Whether a result can still arrive differs from whether the instance waits for one.
            let is_open = last.map(|requested| !requested.completed);
            let record = (
                &work.tag,
                work.survives_end,
                work.dead_letter.is_some(),
                is_open,
            );

            let is_optional = !work.survives_end
                && step_states.is_some_and(|states| !states.awaits(work.tag.as_str()));
            if !is_optional {
                key.add(record);
                continue;
            }

            key.add_optional(record);
            // Only an abandoned step is compensated after a timeout; the canonical form of a failed
            // step is equal.
            if step_states.is_some_and(|states| states.get(work.tag.as_str()) == "abandoned") {
                key.add_optional(("abandoned", &work.tag));
            }
        }

        // The assignee and the claim decide which users may complete a task.
        for task in &instance.tasks {
            key.add((&task.spec.tag, &task.spec.assignee, &task.claimed_by));
        }
        // Users who acted before can be excluded from later tasks.
        let users = instance.users.as_ref();
        key.add(users.map(|users| (&users.started_by, &users.last_task_user)));
    }

    for input in entry.buffered_inputs() {
        hash_buffered(input, key);
    }
}

fn hash_buffered(input: &Input, key: &mut KeyHasher) {
    // Without ids and times, in which inputs with the same effect differ.
    match input {
        Input::Early(early) => hash_buffered(&early.input, key),
        Input::Event(event) => key.add((&event.kind, event.data.to_string(), event.schema_version)),
        Input::WorkResult(result) => key.add(format!("{:?}", result.outcome)),
        Input::Timer(timer) => key.add(&timer.name),
        Input::Control(control) => key.add(format!("{:?}", control.action)),
        Input::Workflow(command) => key.add(format!("{:?}", command.action)),
    }
}
