//! Loops: begin of the next round. The steps of the past round that can be compensated are kept
//! with the values of the variables that the loop saves, so that each round is compensated with its
//! own values.

use serde_json::{Map, Value};

use super::compiled::reminder_timer;
use super::complete::complete_step;
use super::execution::Execution;
use super::state::{PastRound, StepEntry, StepIndex};
use super::step_state::StepState;
use crate::limits::{MAX_LOOP_VALUES_BYTES, check_payload_within};
use crate::steps::kind::StartError;
use crate::steps::{CompiledActionKind, CompiledRepeat, OnMaxRounds};

/// Ends a round: begins the next one, or completes the step that ends the loop.
pub(super) fn end_loop_round(
    run: &mut Execution<'_>,
    end: usize,
    repeat: &CompiledRepeat,
) -> Result<(), StartError> {
    let at = StepIndex::step(end);
    let next = run.state.run.loop_round(end) + 1;

    if !repeat.continues(&run.bindings(at))? {
        run.add_step_note(at, &format!("ended after {}", rounds(next)));
    } else if next < repeat.max {
        begin_round(run, end, next)?;

        // The step stays pending, so that joins and phases need no rule for loops (ADR 0064).
        run.add_step_note(at, &format!("round {next}"));
        return Ok(());
    } else if repeat.on_max == OnMaxRounds::Fail {
        let message = format!(
            "{}: another round is due after {}",
            run.step(at).id,
            rounds(next)
        );
        return Err(StartError {
            code: "too_many_rounds".to_owned(),
            message,
        });
    } else {
        run.add_step_note(at, &format!("continues after {}", rounds(next)));
    }

    run.state.steps[end] = StepEntry::of(StepState::Completed);
    complete_step(run, end);
    Ok(())
}

fn rounds(count: usize) -> String {
    if count == 1 {
        "1 round".to_owned()
    } else {
        format!("{count} rounds")
    }
}

fn begin_round(run: &mut Execution<'_>, end: usize, next: usize) -> Result<(), StartError> {
    let body: Vec<_> = run.steps_of_loop(end).collect();
    let kept: Vec<_> = body
        .iter()
        .map(|step| (*step, run.state.steps[*step]))
        .filter(|(step, entry)| is_kept(entry.state, run.saga.steps[*step].compensation.is_some()))
        .collect();

    // Later rounds overwrite the variables; the compensation of this one needs its own.
    let past = (!kept.is_empty()).then(|| past_round(run, end, next - 1, &kept));
    // Checked before the state changes, so that a loop that is too large fails in its current
    // round.
    check_values(run, end, past.as_ref())?;

    let is_kept = |step: usize| kept.iter().any(|(of, _)| *of == step);

    // The tags of the next round are other ones, so the key rounds of this one are not needed.
    forget_requests(run, &body, is_kept);

    run.state.forget_failures(&body);
    for step in body {
        run.state.steps[step] = StepEntry::default();
    }

    // Completed steps keep their order, now as steps of the past round.
    let saga = run.saga;
    let current = |at: &StepIndex| at.element.is_none() && saga.steps[at.step].in_loop == Some(end);
    run.state.done.retain(|at| !current(at) || is_kept(at.step));
    // A discarded branch can be compensating beside the loop, so its index moves to the past round
    // as well.
    for at in run
        .state
        .done
        .iter_mut()
        .chain(&mut run.state.compensating_step)
        .filter(|at| current(at))
    {
        at.element = Some(next - 1);
    }

    run.state.run.begin_loop_round(end, next, past);
    Ok(())
}

/// Returns whether a step of a past round must be kept: it is or may be compensated, or an operator
/// decides about it.
fn is_kept(step_state: StepState, has_compensation: bool) -> bool {
    match step_state {
        StepState::Compensating
        | StepState::CompensationRetrying
        | StepState::CompensationFailed
        | StepState::InDoubtAbandoned
        | StepState::ChildAwaited => true,
        // These are compensated, or can still succeed late. Without a compensation, neither has an
        // effect.
        StepState::Completed
        | StepState::CompensationPending
        | StepState::Abandoned
        | StepState::Failed => has_compensation,
        StepState::Pending
        | StepState::Running
        | StepState::Retrying
        | StepState::Blocked
        | StepState::InDoubt
        | StepState::Skipped
        | StepState::Bypassed
        | StepState::Compensated => false,
    }
}

fn past_round(
    run: &Execution<'_>,
    end: usize,
    round: usize,
    kept: &[(usize, StepEntry)],
) -> PastRound {
    let mut past = PastRound::new(round, kept);
    for (step, _) in kept {
        past.own_vars.extend(run.state.own_vars(*step));
    }
    for step in run.steps_of_loop(end).map(|step| &run.saga.steps[step]) {
        // Also the variables of steps that are not kept: the `undo` of another step can read them.
        for (name, _) in step.all_saved() {
            copy(name, &run.state.vars, &mut past.vars);
        }
        if let (CompiledActionKind::Job(_), Some(results)) =
            (&step.action.kind, run.state.results())
        {
            copy(step.id.as_str(), results, &mut past.results);
        }
    }
    past
}

fn copy(name: &str, from: &Map<String, Value>, to: &mut Map<String, Value>) {
    if let Some(value) = from.get(name) {
        to.insert(name.to_owned(), value.clone());
    }
}

/// Checks the size of the values of all past rounds. They are a part of the state.
fn check_values(
    run: &Execution<'_>,
    end: usize,
    past: Option<&PastRound>,
) -> Result<(), StartError> {
    let mut left = MAX_LOOP_VALUES_BYTES;
    for past in run.state.run.past_rounds(end).iter().chain(past) {
        for value in past.values() {
            if check_payload_within(value, &mut left).is_err() {
                let id = &run.saga.steps[end].id;
                return Err(StartError {
                    code: "loop_too_large".to_owned(),
                    message: format!(
                        "{id}: the variables that its rounds save for their compensation exceed \
                         {MAX_LOOP_VALUES_BYTES} bytes"
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Deletes the key rounds of requests that will not be repeated.
fn forget_requests(run: &mut Execution<'_>, body: &[usize], is_kept: impl Fn(usize) -> bool) {
    if run
        .state
        .extra
        .as_ref()
        .is_none_or(|extra| extra.rounds.is_empty())
    {
        return;
    }

    for step in body.iter().copied().filter(|step| !is_kept(*step)) {
        let tag = run.tag_of(StepIndex::step(step), false);
        let reminders = reminder_timer(&tag);
        run.state
            .extra_mut()
            .rounds
            .retain(|(of, _)| *of != tag && *of != reminders);
    }
}
