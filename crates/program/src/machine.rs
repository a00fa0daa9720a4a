//! Step machine: applies one program input to the state of a compiled saga and returns one
//! transition.
//!
//! It upcasts an event or a response to the version that expressions are written for ([`version`]),
//! resolves the input ([`parse_outcome`], [`match_event`], [`handler`]), looks up the update of the
//! step ([`outcome_table`]), applies it ([`apply_outcome`]), and then advances: forward through the
//! steps whose predecessors are finished ([`advance`], [`join`], [`repeat`]), backward through the
//! pending compensations ([`compensate`]).
//!
//! The functions take the [`Execution`], the state of the instance and the outputs so far, or
//! values. They form layers: requests ([`request`]), abandonment and compensation ([`compensate`]),
//! failures ([`fail`], [`failure_handler`]), results ([`apply_outcome`]), inputs.
//!
//! | phase | input | next phase |
//! |---|---|---|
//! | running | a step succeeds, others are pending | running |
//! | running | a step fails, and its handler does not fail the saga | running |
//! | running | a step fails, and a join tolerates it | running; its branch is compensated |
//! | running | a round of a loop ends, its condition holds | running; its steps start again |
//! | running | a step restarts the saga, nothing is open | running; the state of a new run |
//! | running | a join is satisfied | running; unneeded steps are abandoned or compensated |
//! | running | the last step finishes, nothing compensates | completed; the `completed` fact |
//! | running, `keep_active` | the last step finishes | running, until a handler ends it |
//! | running, compensating | the same, open children ([`handler`]) | the same, until they end |
//! | running | one of several events of a step ([`collect`]) | running; the event is kept |
//! | running | a step fails, times out, has an invalid result; the saga times out | compensating |
//! | running, past the pivot | a step fails, times out, has an invalid result | stuck |
//! | running | a reminder is due ([`remind`]) | the same; the step waits on |
//! | running | cancel; a handler cancels or fails | compensating, towards cancelled or failed |
//! | running, past the pivot | cancel; a handler cancels or fails; the saga times out | the same |
//! | running | a handler completes | completed when discarded branches are compensated |
//! | running, in a flow | a step fails | running; failed when no step is in progress or can start |
//! | running or ended, in a flow | rerun ([`rerun`]) | running; the steps start again |
//! | running, compensating | a compensation is confirmed | the same; the next compensation |
//! | compensating | no other compensation | failed, the `failed` fact once; or cancelled, no fact |
//! | running, compensating | a compensation fails permanently or times out | stuck |
//! | running, compensating, stuck | an abandoned step succeeds | the same; compensates it next |
//! | completed, failed, cancelled | the same | compensating, and back, without a second fact |
//! | running | an effect in doubt requires a decision ([`in_doubt`]) | running; the step waits |
//! | any but stuck | the same for an abandoned step | compensating or running until the decision |
//! | compensating | a child with `on_parent_end: wait` is open | the same, until it ends |
//! | stuck | the failed action succeeds; retry; skip | previous phase, unless others are stuck |
//! | compensating, stuck | a late success has a value that a compensation lacks | requests it |
//! | stuck | any other result | stuck; it is recorded, no step starts |
//! | stuck | force-complete | completed past the pivot, otherwise failed or cancelled; final |
//! | any | any other input | the same; no change |
//!
//! A retried command keeps its tag. An event that matches any of its attempts counts. Of work
//! results, the runner delivers only that of the latest attempt, because only that work is pending.
//!
//! An expression without a value fails its step, so that completed steps are compensated; in a
//! compensation it makes the instance stuck. In `vars`, `save`, the handlers and the two facts it
//! is a [`ProgramError`], because there the input or the definition as a whole is invalid.

mod advance;
mod apply_outcome;
mod collect;
mod compensate;
mod compiled;
mod complete;
mod diversion;
mod early_event;
mod edge;
mod execution;
mod fail;
mod failure_handler;
mod foreach;
mod handler;
mod in_doubt;
mod join;
mod malformed_event;
mod match_event;
mod migrate;
mod operator;
mod outcome_table;
mod output;
mod parse_outcome;
mod remind;
mod repeat;
mod request;
mod rerun;
mod restart;
mod state;
mod step_input;
mod step_state;
mod timers;
mod version;
mod view;
mod wait;

use orlog_model::{Event, Failure};

use crate::contract::{Context, FailureCause, ProgramError, ProgramInput, ProgramOutput};
use crate::limits::check_payload;
use compensate::{compensate_next, compensate_unapplied, start_compensation};
use complete::{complete_saga, finish_compensated};
use execution::{Execution, NoTransition};
use malformed_event::record_malformed;
use rerun::NoRerun;
pub use state::canonical::canonical_state;
pub use state::stored_variables;
use state::{Flags, State};
use step_state::{Phase, StepState};
use version::VersionDecision;

pub(crate) use compiled::{
    CompiledAction, CompiledAfterFailure, CompiledFact, CompiledFailureHandler, CompiledHandler,
    CompiledMigration, CompiledReminder, CompiledSaga, CompiledStep, EventBinding, SAGA_TIMER,
    compensation_tag, handler_tag, reminder_timer,
};
pub(crate) use handler::awaits_result;
pub use in_doubt::{EXECUTED, NOT_EXECUTED};
pub(crate) use migrate::{MigrationSource, migrate};
pub use rerun::Rerun;
pub use view::{StepsView, UnitView};
pub(crate) use view::{step_state_names, steps, view};

/// Applies one program input. See the table above.
pub(crate) fn apply(
    saga: &CompiledSaga,
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    // Checked before anything reads the payload: all later copies are bounded by it, and the check
    // charges its size to the budget of the transition.
    if let Some(payload) = step_input::payload(input) {
        check_payload(payload).map_err(|large| {
            ProgramError::SchemaMismatch(format!("the payload is too large: {large}"))
        })?;
    }

    // Expressions are written for one version of an event, so nothing reads an older one.
    let ProgramInput::Event(event) = input else {
        return apply_current_version(saga, state, input, context);
    };

    match version::resolve(saga, event)? {
        VersionDecision::Current => apply_current_version(saga, state, input, context),
        VersionDecision::Upcast(event) => {
            apply_current_version(saga, state, &ProgramInput::Event(&event), context)
        }
        VersionDecision::Ignored => Ok(ProgramOutput::Ignored(
            "the event version is not accepted".into(),
        )),
        VersionDecision::Compensates(failure) => match state {
            Some(bytes) => {
                let state = State::decode(bytes, saga.steps.len())?;
                compensate_for(Execution::new(saga, context, state), failure)
            }
            // Without an instance there is nothing to compensate: the start event becomes a dead
            // letter.
            None => Err(ProgramError::SchemaMismatch(failure.message)),
        },
    }
}

fn apply_current_version(
    saga: &CompiledSaga,
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match (state, input) {
        (None, ProgramInput::Event(event)) if saga.start.contains(&event.kind) => {
            start_instance(saga, event, context)
        }
        (None, _) => Ok(ProgramOutput::Ignored(
            "the instance does not exist, and this is not a start event".into(),
        )),
        // A start type that a step or a handler also consumes must reach them, so only the others
        // are ignored here (ADR 0075).
        (Some(_), ProgramInput::Event(event)) if saga.only_starts(&event.kind) => Ok(
            ProgramOutput::Ignored("the instance has already started".into()),
        ),
        // Last, because the decision about the inputs above needs no decoded state.
        (Some(bytes), _) => {
            let mut run = Execution::new(saga, context, State::decode(bytes, saga.steps.len())?);
            match change(&mut run, input) {
                Ok(()) => finish(run),
                Err(NoTransition::Ignored(reason)) => Ok(ProgramOutput::Ignored(reason.into())),
                Err(NoTransition::Rejected(reason)) => Ok(ProgramOutput::Rejected(reason.into())),
                Err(NoTransition::Error(error)) => Err(error),
            }
        }
    }
}

fn start_instance(
    saga: &CompiledSaga,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let mut run = Execution::new(saga, context, State::new(saga.steps.len()));
    restart::init_run(&mut run, event.into())?;
    // A restart in this transition then waits for a timer: a saga without waits must not restart
    // without end.
    run.begins_run = true;

    // A duplicate of the start event must not count as a later event of its type, and the dedupe
    // window is shorter than a long wait (ADR 0075).
    if !saga.only_starts(&event.kind) {
        run.state.run.events.started_by = collect::event_key(event);
    }
    run.state.run.begin_first(context.version);

    run.add_note("started");
    finish(run)
}

/// Executes all possible actions after a change and returns the transition.
fn finish(mut run: Execution<'_>) -> Result<ProgramOutput, ProgramError> {
    advance_to_rest(&mut run)?;
    Ok(ProgramOutput::Applied(Box::new(output::into_transition(
        run,
    )?)))
}

/// Executes steps of a flow again.
pub(crate) fn rerun(
    saga: &CompiledSaga,
    state: &[u8],
    selection: Rerun<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let mut run = Execution::new(saga, context, State::decode(state, saga.steps.len())?);
    match rerun::reset(&mut run, selection) {
        Ok(()) => finish(run),
        Err(NoRerun::Rejected(reason)) => Ok(ProgramOutput::Rejected(reason.into())),
        Err(NoRerun::Error(error)) => Err(error),
    }
}

fn change(run: &mut Execution<'_>, input: &ProgramInput<'_>) -> Result<(), NoTransition> {
    // A late success is not compensated here: the operator decided that nothing else is executed.
    if run.state.flags.has(Flags::FORCED) {
        return Err(NoTransition::Ignored("the instance was force-completed"));
    }

    match input {
        ProgramInput::Event(event) if collect::starts_again(run, event) => {
            Err(NoTransition::Ignored("the instance has already started"))
        }
        ProgramInput::Event(event) => {
            // A handler consumes the event before a step does, of which the lint OL07 warns.
            let handled = handler::run_handlers(run, event)?;
            match match_event::match_event(run, &event.kind, (*event).into()) {
                Ok(mut step_input) => {
                    // Only a step that counts events needs their keys, so that no other event is
                    // hashed.
                    if run
                        .action_of(step_input.at, false)
                        .kind
                        .collection()
                        .is_some()
                    {
                        step_input.event_key = collect::event_key(event);
                    }
                    apply_outcome::apply_step_input(run, &step_input)
                        .or_else(|reason| reject_unless(handled, reason))
                }
                Err(reason) => {
                    let is_recorded = record_malformed(run, &event.kind, (*event).into());
                    // An event that no started step awaits can be meant for a later one (ADR 0047).
                    let is_kept = early_event::keep_early(run, event)?;
                    if !is_kept
                        && let Some(late) =
                            match_event::match_late_wait(run, &event.kind, (*event).into())
                    {
                        return apply_outcome::apply_step_input(run, &late)
                            .or_else(|reason| reject_unless(handled || is_recorded, reason));
                    }
                    reject_unless(
                        handled || is_recorded || is_kept,
                        NoTransition::Ignored(reason),
                    )
                }
            }
        }
        ProgramInput::WorkResult { tag, outcome } => {
            // The context still lists this work as pending, although its result has arrived; a
            // restart must not wait for it.
            run.settles = Some((*tag).into());
            // The children of handlers belong to no step, so the parser of step results would
            // ignore them.
            if handler::end_child(run, tag, outcome) {
                return Ok(());
            }

            let outcome = version::resolve_response(run, tag, outcome)?;
            let step_input = parse_outcome::parse_outcome(run, tag, &outcome)?;
            apply_outcome::apply_step_input(run, &step_input)
        }
        ProgramInput::Timer { name } => {
            // The engine removes a fired timer, so its step need not cancel it.
            run.fired = Some((*name).into());
            timers::on_timer(run, name)
        }
        ProgramInput::Cancel { reason } => operator::cancel(run, reason),
        ProgramInput::Retry => operator::retry(run),
        ProgramInput::Skip => operator::skip(run),
        ProgramInput::ForceComplete => operator::force_complete(run),
    }
}

/// Executes all possible actions, and applies the early events of the steps that they start.
fn advance_to_rest(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    advance_once(run)?;
    // An early event can complete a step, and the steps that follow it can await other early
    // events.
    while early_event::apply_early(run) {
        advance_once(run)?;
    }
    // After all steps have started: until then, each of them can still consume an event.
    early_event::drop_stale_early(run);
    Ok(())
}

/// Executes all possible actions, forward or backward, and determines the resulting phase.
fn advance_once(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    // While the instance is stuck, no step starts.
    if run.state.flags.has(Flags::FORCED) || enter_stuck_if_blocked(run) {
        return Ok(());
    }

    // The engine deletes the timers of a stuck instance; it continues with this transition.
    if run.state.phase == Phase::Stuck {
        timers::rearm_timers(run);
    }

    // A completed saga starts no step any more; it only compensates late successes.
    let compensation_started = run.state.flags.has(Flags::COMPENSATION_STARTED);
    if !compensation_started && !run.state.flags.has(Flags::COMPLETED) {
        advance::advance(run);
    }

    // A step can fail while it starts, for example by an expression without a value.
    if enter_stuck_if_blocked(run) {
        return Ok(());
    }

    // Before the selection: a lost result adds its step as the last completed one.
    compensate_unapplied(run);
    compensate_next(run);
    // The request of the compensation can fail as well, and such a failure is not retried.
    if enter_stuck_if_blocked(run) {
        return Ok(());
    }

    find_phase(run)
}

/// Returns true if an operator decision is required; then sets the phase to stuck.
fn enter_stuck_if_blocked(run: &mut Execution<'_>) -> bool {
    // A failed compensation blocks in every phase. A step is blocked only past the pivot, so that
    // other instances are not searched.
    let is_compensation = run
        .state
        .compensating_step
        .is_some_and(|at| run.state.entry(at).state == StepState::CompensationFailed);
    let stuck = is_compensation || (run.state.flags.has(Flags::PIVOTED) && run.blocked().is_some());

    if stuck {
        run.state.phase = Phase::Stuck;
    }
    stuck
}

fn find_phase(run: &mut Execution<'_>) -> Result<(), ProgramError> {
    let flags = run.state.flags;
    let compensating = run.state.compensating_step.is_some() || in_doubt::has_late_wait(run);
    let has_children = !run.state.run.events.children.is_empty();

    if flags.has(Flags::COMPENSATION_STARTED) {
        // After the start of compensation, only children whose end is awaited are left in the
        // state.
        if compensating || has_children {
            run.state.phase = Phase::Compensating;
            return Ok(());
        }
        return finish_compensated(run);
    }

    // A late success is compensated beside the phase that the saga has reached.
    if compensating {
        let ended = flags.has(Flags::COMPLETED);
        run.state.phase = if ended {
            Phase::Compensating
        } else {
            Phase::Running
        };
        return Ok(());
    }

    // A flow has no compensations: it ends when nothing is in progress and nothing else can start
    // (ADR 0080).
    if run.saga.isolates_failures && is_blocked_by_failures(run) {
        return finish_compensated(run);
    }

    // A saga with `keep_active` stays open after its last step, for the events of its handlers.
    let is_active = has_children || (run.saga.keep_active && !flags.has(Flags::ENDED));
    let mut steps = run.state.steps.iter();
    if !is_active && steps.all(|entry| entry.state.is_finished()) {
        return complete_saga(run);
    }

    run.state.phase = Phase::Running;
    Ok(())
}

/// Returns whether every step of a flow is finished or follows a failed one.
fn is_blocked_by_failures(run: &Execution<'_>) -> bool {
    let states = || run.state.steps.iter().map(|entry| entry.state);
    states().any(StepState::has_failed)
        && states().all(|state| state == StepState::Pending || state.is_finished())
}

/// Starts compensation because of an unsupported input.
fn compensate_for(mut run: Execution<'_>, failure: Failure) -> Result<ProgramOutput, ProgramError> {
    if run.state.phase != Phase::Running {
        return Ok(ProgramOutput::Ignored(
            "the saga no longer runs forward".into(),
        ));
    }

    // Past the pivot, completed steps are final: the event becomes a dead letter instead.
    if run.state.flags.has(Flags::PIVOTED) {
        return Err(ProgramError::SchemaMismatch(failure.message));
    }

    run.add_note(&failure.code);
    let Failure { code, message } = failure;
    start_compensation(
        &mut run,
        FailureCause {
            code,
            message,
            step: String::new(),
        },
    );
    finish(run)
}

/// Returns `Ok` if a handler consumed the event, because then there is a transition even if no step
/// awaits the event.
fn reject_unless(handled: bool, reason: NoTransition) -> Result<(), NoTransition> {
    match reason {
        NoTransition::Ignored(_) | NoTransition::Rejected(_) if handled => Ok(()),
        // An error drops the transition with the changes of the handler: a redrive applies the
        // event as a whole.
        NoTransition::Ignored(_) | NoTransition::Rejected(_) | NoTransition::Error(_) => {
            Err(reason)
        }
    }
}
