//! Reachability of an end: all pending work gets a response and an operator resolves stuck
//! instances; no other input occurs.

use fastrand::Rng;
use orlog_model::{Instance, Status, WaitKind};
use orlog_program::{CompiledDefinition, Program};

use super::generate::{StepGenerator, time_to_deciding_timer, waits_for_time};
use super::samples::PayloadSamples;
use crate::invariants::{Invariant, StepStates, Violation, is_in_doubt, is_in_progress};
use crate::runner::{ScenarioRunner, StepError};
use crate::step::{OperatorAction, SimulationStep};

/// Maximum number of responses per step. A step with `foreach` has as many elements as there are
/// tags.
const MAX_STEPS_PER_TAG: usize = 12;
/// Number of responses without effect after which another kind of response is tried.
const MAX_IDLE_ROUNDS: usize = 12;

/// Result of a check that found no violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reachability {
    /// An end is reached, or the instance waits for an event that only the publisher can decide
    /// about.
    Reached,
    /// The check is limited, and the saga still went on.
    Undecided,
}

/// Runs a copy of the instance to its end.
pub(super) fn can_reach_end(
    program: &dyn Program,
    runner: &ScenarioRunner,
    samples: &PayloadSamples,
) -> Result<Reachability, Violation> {
    let mut runner = runner.clone();
    // The same seed each time: a state is judged in the same way in each run.
    let mut rng = Rng::with_seed(1);
    let mut idle = 0;
    let mut remaining = 60;
    let mut extended = false;

    while remaining > 0 {
        let Some(instance) = focus(&runner) else {
            return Ok(Reachability::Reached);
        };
        if instance.status.is_final() {
            return Ok(Reachability::Reached);
        }

        let step_states = StepStates::of(program, Some(instance));

        // The budget grows with the number of steps.
        if !extended {
            remaining += step_states.iter().count() * MAX_STEPS_PER_TAG;
            extended = true;
        }

        let version = instance.version;
        let step = next(program, &runner, samples, &step_states, idle, &mut rng);
        // A step that cannot be executed is equivalent to a step without effect.
        let result = runner.run_step(&step, None, &mut ());
        if matches!(result, Err(StepError::Endless(_))) {
            return Ok(Reachability::Undecided);
        }

        idle = if focus(&runner).is_some_and(|now| now.version > version) {
            0
        } else {
            idle + 1
        };

        remaining -= 1;

        // Neither responses, time, a cancellation nor an operator have an effect.
        if idle > MAX_IDLE_ROUNDS * 3 {
            return check_end(&runner).map(|()| Reachability::Reached);
        }
    }

    // The steps are used up, and some of the last ones led further: no dead end is known.
    Ok(match check_end(&runner) {
        Ok(()) => Reachability::Reached,
        Err(_) => Reachability::Undecided,
    })
}

/// Returns whether a result is awaited.
fn is_requested(state: &str) -> bool {
    matches!(state, "running" | "child_awaited")
}

fn focus(runner: &ScenarioRunner) -> Option<&Instance> {
    runner
        .instance()
        .and_then(|key| runner.simulator.instance(key))
}

/// Returns the next step: responses first; if they have no effect, time, then cancellation, then an
/// operator action.
fn next(
    program: &dyn Program,
    runner: &ScenarioRunner,
    samples: &PayloadSamples,
    step_states: &StepStates,
    idle: usize,
    rng: &mut Rng,
) -> SimulationStep {
    let Some(instance) = focus(runner) else {
        return SimulationStep::Operator(OperatorAction::Resume);
    };

    if instance.paused {
        return SimulationStep::Operator(OperatorAction::Resume);
    }

    if instance.status == Status::Stuck {
        return SimulationStep::Operator(match idle {
            0 if rng.bool() => OperatorAction::Retry,
            0..=2 => OperatorAction::Skip,
            _ => OperatorAction::ForceComplete,
        });
    }

    // Reminders do not lead on, and there can be many before the next timer that does.
    let to_next = time_to_deciding_timer(runner).map(SimulationStep::Advance);
    let definition = program.as_compiled().map(CompiledDefinition::definition);

    let pending: Vec<_> = step_states
        .iter()
        .filter(|(tag, _)| !step_states.has_elements(tag))
        .collect();
    // Compensations come first: while one is in progress, other responses do not lead on.
    let compensation = pending
        .iter()
        .find(|(_, state)| *state == "compensating")
        .map(|(tag, _)| format!("compensate:{tag}"));

    let running = pending
        .iter()
        .filter(|(tag, state)| is_requested(state) && !waits_for_time(definition, tag));

    let waits = pending.iter().any(|(tag, state)| {
        matches!(*state, "retrying" | "compensation_retrying")
            || (is_in_progress(state) && waits_for_time(definition, tag))
    });

    let generator = StepGenerator {
        program,
        samples,
        runner,
        mostly_successful: true,
    };
    let running: Vec<_> = running
        .map(|(tag, _)| (*tag).to_owned())
        .chain(generator.open_children())
        .collect();

    let in_doubt: Vec<_> = pending
        .iter()
        .filter(|(_, state)| is_in_doubt(state))
        .map(|(tag, _)| (*tag).to_owned())
        .collect();

    if let Some(tag) = rng.choice(in_doubt).filter(|_| compensation.is_none()) {
        return generator.in_doubt_decision(tag, rng);
    }

    if let Some(event) = generator
        .idle_event(instance, rng)
        .filter(|_| idle < MAX_IDLE_ROUNDS)
    {
        return event;
    }

    let response = compensation.or_else(|| rng.choice(running));
    match (response, to_next) {
        // A step that waits for time proceeds only if time advances, also while others await
        // responses.
        (_, Some(advance)) if waits && rng.bool() => advance,
        (Some(tag), _) if idle < MAX_IDLE_ROUNDS => generator.ok(tag, rng),
        (_, Some(advance)) if idle < MAX_IDLE_ROUNDS * 2 => advance,
        // Successes had no effect for several rounds; a rejection can end the work instead.
        (Some(tag), None) if idle < MAX_IDLE_ROUNDS * 2 => SimulationStep::Fail {
            tag,
            event: None,
            code: Some("rejected".to_owned()),
            message: None,
            data: serde_json::Value::Null,
        },
        _ => SimulationStep::Operator(OperatorAction::Cancel("no further progress".to_owned())),
    }
}

/// Returns the result of the check. If only an event with a condition is missing that no sample
/// satisfies, the state is not a dead end; the step is reported as not covered.
fn check_end(runner: &ScenarioRunner) -> Result<(), Violation> {
    let Some(instance) = focus(runner).filter(|instance| !instance.status.is_final()) else {
        return Ok(());
    };

    let waits_for_event = instance
        .waits
        .iter()
        .any(|wait| wait.kind == WaitKind::Event);
    if waits_for_event && instance.status == Status::Running {
        return Ok(());
    }

    let waits: Vec<_> = instance
        .waits
        .iter()
        .map(|wait| wait.name.as_str())
        .collect();
    let waits = if waits.is_empty() {
        "nothing".to_owned()
    } else {
        waits.join(", ")
    };

    let message = format!(
        "the instance is {}, waits for {waits}, and no input leads to an end",
        instance.status
    );
    Err(Violation {
        rule: Invariant::EndReachable,
        message,
    })
}
