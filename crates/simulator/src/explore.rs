//! Random runs of a definition, checked against invariants: results, failures, timeouts,
//! duplicates, late and early events, control requests, in any order.
//!
//! Runs are seeded: the same seed produces the same runs. A violation is shrunk to the fewest steps
//! that still cause it, and reported as a test case for `orlog test`.

mod coverage;
pub(crate) mod envelopes;
mod generate;
mod reachability;
pub(crate) mod samples;
pub(crate) mod texts;

pub use samples::{set_field, usual_fields};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coverage::Coverage;
use fastrand::Rng;
use generate::StepGenerator;
use orlog_model::{InstanceKey, Timestamp};
use orlog_program::Program;
use reachability::{Reachability, can_reach_end};
use samples::PayloadSamples;
use serde_json::{Value, json};

use crate::findings::step_without_value;
use crate::invariants::{Invariant, InvariantChecker, StepStates, Violation};
use crate::runner::{ScenarioRunner, StepError, StepResult};
use crate::simulator::{
    DecisionObserver, EndlessSaga, ObservedDecision, Simulator, SimulatorPrograms,
};
use crate::step::SimulationStep;

/// Start time of every run, equal to the start time of test cases.
const START_TIME: &str = "2026-01-01T00:00:00Z";
/// Maximum number of timers that fire while time advances once.
const MAX_TIMERS: usize = 1_000;
/// Number of reachability checks for the same combination of step states.
const REACHABILITY_CHECKS: usize = 2;

/// Options of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExploreOptions {
    /// Seed; the same seed produces the same runs.
    pub seed: u64,
    /// Maximum number of runs.
    pub max_runs: usize,
    /// Maximum number of steps in a run.
    pub steps: usize,
}

/// Result of an exploration.
#[derive(Clone, Debug)]
pub struct ExploreReport {
    /// Options of the exploration.
    pub options: ExploreOptions,
    /// Number of executed steps.
    pub steps: usize,
    /// Number of distinct combinations of step states.
    pub states: usize,
    /// Number of runs by final status.
    pub statuses: BTreeMap<String, usize>,
    /// Covered parts of the definition.
    pub covered: Vec<String>,
    /// Parts of the definition that are not covered.
    pub not_covered: Vec<String>,
    /// Steps whose compensation made an instance stuck, because no result has set a value that it
    /// reads.
    pub undo_without_value: Vec<String>,
    /// Checks and runs that ended early.
    pub limits: Vec<String>,
    /// First violation and the steps that cause it.
    pub counterexample: Option<Counterexample>,
}

/// Minimal sequence of steps that violates an invariant.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// Violated invariant.
    pub violation: Violation,
    /// Number of the run that found the violation.
    pub run: usize,
    /// Steps that cause the violation.
    pub steps: Vec<SimulationStep>,
    /// Number of steps before shrinking.
    pub original_steps: usize,
}

/// Observer that checks invariants and records coverage.
struct ExploreObserver<'p> {
    checker: InvariantChecker,
    coverage: &'p mut Coverage,
}

impl DecisionObserver for ExploreObserver<'_> {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        self.checker.on_decision(seen);
        self.coverage.on_decision(seen);
    }
}

/// Explores a program that was compiled from a definition. Other programs have no steps to explore.
#[must_use]
pub fn explore(program: &Arc<dyn Program>, options: ExploreOptions) -> ExploreReport {
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));
    let definition = program
        .as_compiled()
        .map(orlog_program::CompiledDefinition::definition);
    let samples = definition.map(PayloadSamples::of).unwrap_or_default();
    let mut coverage = definition.map(Coverage::of).unwrap_or_default();
    let mut found = ExploreState::default();

    for run in 0..options.max_runs {
        // The seed of a run depends on its number only, so a run can be repeated alone.
        let mut rng = Rng::with_seed(options.seed.wrapping_add(run as u64));
        if let Err((violation, steps)) = explore_run(
            program,
            &programs,
            &samples,
            &mut coverage,
            &mut rng,
            options.steps,
            &mut found,
        ) {
            let before = steps.len();
            // A long run hides the cause: a violation needs only a few of its steps.
            let steps = shrink(steps, violation.rule, |steps| {
                replay(program, &programs, steps)
            });

            // The shortened steps may violate the rule with another message.
            let violation = replay(program, &programs, &steps).unwrap_or(violation);
            found.counterexample = Some(Counterexample {
                violation,
                run,
                steps,
                original_steps: before,
            });
            break;
        }
    }

    let (covered, not_covered) = coverage.split();
    ExploreReport {
        options,
        steps: found.steps,
        states: found.signatures.len(),
        limits: found.limits(options.max_runs),
        statuses: found.statuses,
        covered,
        not_covered,
        undo_without_value: found.without_value.into_iter().collect(),
        counterexample: found.counterexample,
    }
}

/// State of an exploration.
#[derive(Default)]
struct ExploreState {
    steps: usize,
    signatures: BTreeMap<String, usize>,
    statuses: BTreeMap<String, usize>,
    without_value: BTreeSet<String>,
    counterexample: Option<Counterexample>,
    /// Number of runs that ended early, because their saga continues without end.
    endless_runs: usize,
    /// Reason why the first of them ended.
    endless: Option<EndlessSaga>,
    /// Number of states of which it is unknown whether they lead to an end.
    undecided: usize,
}

impl ExploreState {
    /// Returns a sentence for each limit that was reached.
    fn limits(&self, runs: usize) -> Vec<String> {
        let mut limits = Vec::new();
        if let Some(endless) = &self.endless {
            let ended = self.endless_runs;
            limits.push(format!(
                "{ended} of {runs} executions ended early: {endless}"
            ));
        }
        if self.undecided > 0 {
            limits.push(format!(
                "it is unknown whether {} states lead to an end: the saga went on, and the check of \
                 each state is limited",
                self.undecided
            ));
        }
        limits
    }
}

/// Returns a runner at the start time of runs.
pub(crate) fn scenario_runner(
    program: &Arc<dyn Program>,
    programs: &Arc<SimulatorPrograms>,
) -> ScenarioRunner {
    let start_time = Timestamp::parse(START_TIME).expect("the start time is a valid constant");
    ScenarioRunner::new(
        Simulator::new(Arc::clone(programs), start_time),
        program.definition_ref().saga.clone(),
    )
}

/// Executes one run.
fn explore_run(
    program: &Arc<dyn Program>,
    programs: &Arc<SimulatorPrograms>,
    samples: &PayloadSamples,
    coverage: &mut Coverage,
    rng: &mut Rng,
    max_steps: usize,
    found: &mut ExploreState,
) -> Result<(), (Violation, Vec<SimulationStep>)> {
    let mut runner = scenario_runner(program, programs);
    runner.simulator = runner.simulator.with_max_timers(MAX_TIMERS);
    let mut observer = ExploreObserver {
        checker: InvariantChecker::new(),
        coverage,
    };

    let mut steps = Vec::new();

    // Frequent faults would end each run early. Half of the runs reach later steps.
    let mostly_successful = rng.bool();

    for _ in 0..max_steps {
        let step = StepGenerator {
            program: program.as_ref(),
            samples,
            runner: &runner,
            mostly_successful,
        }
        .next_step(rng);

        // A step that cannot be executed changes nothing.
        let violation = match run_checked(&mut runner, &step, &mut observer) {
            Ok(violation) => violation,
            Err(StepError::Endless(endless)) => {
                found.endless_runs += 1;
                found.endless.get_or_insert(endless);
                break;
            }
            Err(_) => continue,
        };

        found.steps += 1;
        steps.push(step);
        let instance = runner.instance();
        let instance = instance.and_then(|key| runner.simulator.instance(key));
        found.without_value.extend(step_without_value(instance));

        if let Some(violation) =
            violation.or_else(|| observer.checker.violations().first().cloned())
        {
            return Err((violation, steps));
        }

        let step_states = step_states(program.as_ref(), &runner);

        // A dead end depends on the state of the steps, so a few checks for each state suffice.
        let times = found.signatures.entry(step_states.signature()).or_default();
        *times += 1;
        if *times <= REACHABILITY_CHECKS {
            match can_reach_end(program.as_ref(), &runner, samples) {
                Ok(Reachability::Reached) => {}
                Ok(Reachability::Undecided) => found.undecided += 1,
                Err(violation) => return Err((violation, steps)),
            }
        }
    }

    let status = runner
        .instance()
        .and_then(|key| runner.simulator.instance(key))
        .map_or("not started", |instance| instance.status.as_str());
    *found.statuses.entry(status.to_owned()).or_default() += 1;
    Ok(())
}

fn step_states(program: &dyn Program, runner: &ScenarioRunner) -> StepStates {
    StepStates::of(
        program,
        runner
            .instance()
            .and_then(|key| runner.simulator.instance(key)),
    )
}

/// Executes a step and checks that a second delivery changes nothing.
fn run_checked(
    runner: &mut ScenarioRunner,
    step: &SimulationStep,
    observer: &mut dyn DecisionObserver,
) -> Result<Option<Violation>, StepError> {
    // Only a duplicate must not change anything; the checker examines the other steps.
    if *step != SimulationStep::Duplicate {
        return runner.run_step(step, None, observer).map(|_| None);
    }

    let before = snapshot(runner);
    let second_result: StepResult = runner.run_step(step, None, observer)?;

    if snapshot(runner) == before {
        return Ok(None);
    }

    let message = format!("a duplicate of the last input was not ignored: {second_result:?}");
    Ok(Some(Violation {
        rule: Invariant::DuplicateHarmless,
        message,
    }))
}

fn snapshot(runner: &ScenarioRunner) -> Option<orlog_model::Instance> {
    let key: Option<&InstanceKey> = runner.instance();
    key.and_then(|key| runner.simulator.instance(key)).cloned()
}

/// Replays steps and skips those that cannot be executed. Returns the first violation.
pub(crate) fn replay(
    program: &Arc<dyn Program>,
    programs: &Arc<SimulatorPrograms>,
    steps: &[SimulationStep],
) -> Option<Violation> {
    let mut runner = scenario_runner(program, programs);
    let mut checker = InvariantChecker::new();

    for step in steps {
        let violation = run_checked(&mut runner, step, &mut checker).ok().flatten();
        if let Some(violation) = violation.or_else(|| checker.violations().first().cloned()) {
            return Some(violation);
        }
    }

    let samples = program
        .as_compiled()
        .map(|compiled| PayloadSamples::of(compiled.definition()))
        .unwrap_or_default();
    // A dead end is no violation of a single decision, so it is checked at the end of the steps.
    can_reach_end(program.as_ref(), &runner, &samples).err()
}

/// Checks that the instance of a runner can reach an end from its current state.
///
/// # Errors
/// A violation with the waits of the instance, if no input leads to an end.
pub fn end_is_reachable(runner: &ScenarioRunner) -> Result<(), Violation> {
    let Some(program) = runner.simulator.programs().of(runner.saga()) else {
        return Ok(());
    };

    let samples = program
        .as_compiled()
        .map(|compiled| PayloadSamples::of(compiled.definition()))
        .unwrap_or_default();
    can_reach_end(program.as_ref(), runner, &samples).map(drop)
}

impl Counterexample {
    /// Formats the counterexample as a test file. `definition` is the path of the definition
    /// relative to the test, `finder` the command that found it.
    #[must_use]
    pub fn test_case(&self, definition: &str, finder: &str) -> String {
        let steps: Vec<_> = self
            .steps
            .iter()
            .map(|step| format!("      - {step}\n"))
            .collect();
        let steps = steps.concat();
        let comment = self.violation.message.replace('\n', " ");

        format!(
            "# {comment}\nsaga: {}\ntests:\n  - name: found by {finder}\n    given:\n{steps}    \
            expect: {{ invariants: true }}\n",
            Value::from(definition),
        )
    }

    /// Returns the counterexample as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "invariant": self.violation.rule.to_string(),
            "message": self.violation.message,
            "run": self.run,
            "steps": self.steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "steps_before_shrinking": self.original_steps,
        })
    }
}

impl ExploreReport {
    /// Returns the report as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let counterexample = self.counterexample.as_ref().map(Counterexample::to_json);
        json!({
            "seed": self.options.seed,
            "runs": self.options.max_runs,
            "steps": self.steps,
            "states": self.states,
            "statuses": self.statuses,
            "covered": self.covered,
            "not_covered": self.not_covered,
            "undo_without_value": self.undo_without_value,
            "limits": self.limits,
            "counterexample": counterexample,
        })
    }
}

#[cfg(test)]
mod tests;

/// Removes large ranges first, then single steps, until no step can be removed.
pub(super) fn shrink(
    mut steps: Vec<SimulationStep>,
    rule: Invariant,
    replay: impl Fn(&[SimulationStep]) -> Option<Violation>,
) -> Vec<SimulationStep> {
    let still_violates =
        |steps: &[SimulationStep]| replay(steps).is_some_and(|violation| violation.rule == rule);
    // A violation that the replay does not show cannot be shortened.
    if !still_violates(&steps) {
        return steps;
    }

    let mut size = steps.len().div_ceil(2).max(1);
    loop {
        let mut dropped = false;
        let mut at = 0;
        while at < steps.len() {
            let end = (at + size).min(steps.len());
            let rest: Vec<_> = steps[..at].iter().chain(&steps[end..]).cloned().collect();
            if still_violates(&rest) {
                steps = rest;
                dropped = true;
            } else {
                at = end;
            }
        }

        // After a success, the same size is tried again: another range can be removable now.
        match (dropped, size) {
            (false, 1) => return steps,
            (false, _) => size = size.div_ceil(2),
            (true, _) => {}
        }
    }
}
