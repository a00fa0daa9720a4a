//! Step machine: applies one program input to the state of a compiled saga and returns one transition.
//!
//! It upcasts an event to the version that expressions are written for ([`version`]), resolves the
//! input ([`outcome`], [`event`], [`handler`]), looks up the update of the step ([`outcome_table`]),
//! applies it ([`apply_outcome`]), and then advances ([`execution`]): forward through the steps whose
//! predecessors are finished ([`forward`], [`join`]), backward through the pending compensations
//! ([`compensate`]).
//!
//! | phase | input | next phase |
//! |---|---|---|
//! | running | a step succeeds, others are pending | running |
//! | running | a step fails, and a join tolerates it | running; the discarded branch is compensated |
//! | running | a join is satisfied | running; unneeded steps are abandoned or compensated |
//! | running | the last step finishes, no compensation in progress | completed; the `completed` fact |
//! | running | a step fails, times out, has an invalid result; the saga times out | compensating |
//! | running, past the pivot | a step fails, times out, has an invalid result | stuck |
//! | running | cancel; a handler cancels or fails | compensating, towards cancelled or failed |
//! | running, past the pivot | cancel; a handler cancels or fails; the saga times out | the same |
//! | running | a handler completes | completed when discarded branches are compensated |
//! | running, compensating | a compensation is confirmed | the same; the next compensation |
//! | compensating | no compensation pending | failed, the `failed` fact once; or cancelled, no fact |
//! | running, compensating | a compensation fails permanently or times out | stuck |
//! | running, compensating, stuck | an abandoned step succeeds late | the same; compensates it next |
//! | completed, failed, cancelled | the same | compensating, and back, without a second fact |
//! | running | an effect in doubt requires a decision ([`in_doubt`]) | running; the step waits |
//! | any but stuck | the same for an abandoned step | compensating or running until the decision |
//! | stuck | the failed action succeeds late; retry; skip | previous phase, unless others are stuck |
//! | stuck | any other result | stuck; it is recorded, no step starts |
//! | stuck | force-complete | completed past the pivot, otherwise failed or cancelled; final |
//! | any | any other input | the same; no change |
//!
//! A retried command keeps its tag. An event that matches any of its attempts counts. Of work results,
//! the runner delivers only that of the latest attempt, because only that work is pending.
//!
//! An expression without a value fails its step, so that completed steps are compensated; in a
//! compensation it makes the instance stuck. In `vars`, `save`, the handlers and the two facts it is a
//! [`ProgramError`], because there the input or the definition as a whole is invalid.

mod advance;
mod apply_outcome;
mod compensate;
mod compiled;
mod early_event;
mod foreach;
mod handler;
mod human_task;
mod in_doubt;
mod join;
mod match_event;
mod migrate;
mod operator;
mod outcome_table;
mod parse_outcome;
mod request;
mod state;
mod step_input;
mod step_state;
mod timers;
mod transition;
mod values;
mod version;
mod view;
mod waits;

use orlog_model::Event;
use serde_json::Value;

use crate::contract::{Context, ProgramError, ProgramInput, ProgramOutput};
use crate::limits::check_payload;
use state::State;
use transition::Execution;
use version::VersionDecision;

pub(crate) use compiled::{
    CompiledAction, CompiledActionKind, CompiledCase, CompiledEscalation, CompiledFact, CompiledForeach,
    CompiledHandler, CompiledHumanTask, CompiledJob, CompiledMatcher, CompiledMigration, CompiledSaga,
    CompiledStep, CompiledTime, EventBinding, EventVersions, SAGA_TIMER, compensation_tag, handler_tag,
    parse_time,
};
pub use in_doubt::{EXECUTED, NOT_EXECUTED};
pub(crate) use migrate::{MigrationSource, migrate};
pub(crate) use version::upcast;
pub(crate) use view::view;

/// Applies one program input. See the table above.
pub(crate) fn apply(
    saga: &CompiledSaga,
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    if let Some(payload) = step_input::payload(input) {
        check_payload(payload)
            .map_err(|large| ProgramError::SchemaMismatch(format!("the payload is too large: {large}")))?;
    }
    let ProgramInput::Event(event) = input else { return known(saga, state, input, context) };
    match version::resolve(saga, event)? {
        VersionDecision::Current => known(saga, state, input, context),
        VersionDecision::Upcast(event) => known(saga, state, &ProgramInput::Event(&event), context),
        VersionDecision::Ignored => Ok(ProgramOutput::Ignored("the event version is not accepted".into())),
        VersionDecision::Compensates(failure) => match state {
            Some(bytes) => {
                Execution::new(saga, context, State::decode(bytes, saga.steps.len())?).compensate_for(failure)
            }
            None => Err(ProgramError::SchemaMismatch(failure.message)),
        },
    }
}

fn known(
    saga: &CompiledSaga,
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match (state, input) {
        (None, ProgramInput::Event(event)) if saga.start.contains(&event.kind) => {
            start_instance(saga, event, context)
        }
        (None, _) => {
            Ok(ProgramOutput::Ignored("the instance does not exist, and this is not a start event".into()))
        }
        (Some(_), ProgramInput::Event(event)) if saga.start.contains(&event.kind) => {
            Ok(ProgramOutput::Ignored("the instance has already started".into()))
        }
        (Some(bytes), _) => {
            Execution::new(saga, context, State::decode(bytes, saga.steps.len())?).apply(input)
        }
    }
}

fn start_instance(
    saga: &CompiledSaga,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let mut run = Execution::new(saga, context, State::new(saga.steps.len()));
    run.state.vars.extend(saga.saved().map(|name| (name.clone(), Value::Null)));
    run.save_vars(&saga.vars, &event.data)?;
    run.start()
}
