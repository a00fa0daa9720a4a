//! State of a proof: the instance under test with its checked invariants, and the moves that change it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use orlog_model::{Input, Instance, Name};
use orlog_program::canonical_state;

use crate::invariants::{InvariantChecker, Violation};
use crate::runner::ScenarioRunner;
use crate::simulator::SimulatedInstance;
use crate::step::SimulationStep;

/// Move of a proof.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// An input arrives.
    Step(SimulationStep),
    /// A timer fires.
    Timer(Name),
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
        Self { runner, checker: InvariantChecker::new() }
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

    pub(super) fn violation(&self) -> Option<&Violation> {
        self.checker.violations().first()
    }

    pub(super) fn instance(&self) -> Option<&Instance> {
        self.entry()?.instance()
    }

    /// Returns the instance under test with its work.
    pub(super) fn entry(&self) -> Option<&SimulatedInstance> {
        self.runner.instance().and_then(|key| self.runner.simulator.simulated_instance(key))
    }

    /// Returns the key of the state: equal for states that receive the same later inputs in the same way. It excludes
    /// times, versions and ids; it includes the order in which timers were armed, and their delays unless
    /// `is_absolute`. Open work counts only if it `has_result`: an event completes other work.
    pub(super) fn key(&self, is_absolute: impl Fn(&str) -> bool, has_result: impl Fn(&str) -> bool) -> u128 {
        let mut hasher = WideHasher::default();
        for (_, entry) in self.runner.simulator.simulated_instances() {
            hash_entry(entry, &mut hasher);
        }
        let mut last_commit = 0;
        for timer in self.runner.simulator.armed_timers() {
            let delay = (!is_absolute(timer.name.as_str())).then(|| timer.delay());
            (&timer.name, delay, timer.commit == last_commit).hash(&mut hasher);
            last_commit = timer.commit;
        }
        self.runner.instance().is_some().hash(&mut hasher);
        self.checker.hash_without_ids(&mut hasher, &has_result);
        hasher.wide()
    }
}

fn hash_entry(entry: &SimulatedInstance, hasher: &mut impl Hasher) {
    if let Some(instance) = entry.instance() {
        (instance.status, instance.paused).hash(hasher);
        canonical_state(&instance.state).as_ref().unwrap_or(&instance.state).hash(hasher);
        for work in &instance.pending_work {
            let requested = entry.requested_work_by_tag(work.tag.as_str());
            let last = requested.filter(|requested| requested.item.id == work.id);
            let is_open = last.map(|requested| !requested.completed);
            (&work.tag, work.survives_end, work.dead_letter.is_some(), is_open).hash(hasher);
        }
        for task in &instance.tasks {
            (&task.spec.tag, &task.spec.assignee, &task.claimed_by).hash(hasher);
        }
        format!("{:?}", instance.users).hash(hasher);
    }
    for input in entry.buffered_inputs() {
        hash_buffered(input, hasher);
    }
}

fn hash_buffered(input: &Input, hasher: &mut impl Hasher) {
    match input {
        Input::Early(early) => hash_buffered(&early.input, hasher),
        Input::Event(event) => (&event.kind, event.data.to_string(), event.schema_version).hash(hasher),
        Input::WorkResult(result) => format!("{:?}", result.outcome).hash(hasher),
        Input::Timer(timer) => timer.name.hash(hasher),
        Input::Control(control) => format!("{:?}", control.action).hash(hasher),
        Input::Workflow(command) => format!("{:?}", command.action).hash(hasher),
    }
}

/// Hasher of 128 bits: two hashes of the same data with different prefixes.
struct WideHasher(DefaultHasher, DefaultHasher);

impl Default for WideHasher {
    fn default() -> Self {
        let mut second = DefaultHasher::new();
        second.write_u8(1);
        Self(DefaultHasher::new(), second)
    }
}

impl WideHasher {
    fn wide(&self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}

impl Hasher for WideHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
