//! The step machine: one stimulus on the state of a compiled saga makes one transition.
//!
//! It brings an event to the version that expressions are written for ([`version`]), reads the stimulus ([`answer`],
//! [`event`], [`handler`]), looks up what the answer means for the step ([`table`]), records that ([`settle`]), and then
//! goes on ([`run`]): forward through the steps whose predecessors are over ([`forward`], [`join`]), backward through what
//! is to be undone ([`back`]).
//!
//! | phase | what happens | becomes |
//! |---|---|---|
//! | running | a step succeeds, others wait | running |
//! | running | a step fails, and a join can do without it | running; what it lost is undone |
//! | running | a join has enough | running; what it does not need is given up or undone |
//! | running | the last step is over, and no undo is under way | completed; the `completed` fact |
//! | running | a step fails, times out, or breaks its contract; the saga times out | compensating |
//! | running, past the pivot | a step fails, times out, or breaks its contract | stuck |
//! | running | cancel; a handler says so | compensating, towards cancelled or failed |
//! | running, past the pivot | cancel; a handler says so; the saga times out | the same |
//! | running | a handler says `complete` | completed when what was lost is undone |
//! | running, compensating | an undo is confirmed | the same; the next undo |
//! | compensating | nothing is left to undo | failed, the `failed` fact once; or cancelled, no fact |
//! | running, compensating | an undo fails for good, or its time runs out | stuck |
//! | running, compensating, stuck | a given-up step succeeds late | the same; it is undone next |
//! | completed, failed, cancelled | a given-up step succeeds late | compensating, and back, without a second fact |
//! | running | nobody knows whether an effect was done, and a person is asked ([`doubt`]) | running; the step waits |
//! | any but stuck | that is asked about something given up | compensating, or running; it does not end before the answer |
//! | stuck | what failed succeeds after all; retry; skip | where it was, when nothing else is stuck |
//! | stuck | any other answer | stuck; it is recorded, nothing begins |
//! | stuck | force-complete | completed past the pivot, otherwise failed or cancelled; nothing more happens |
//! | any | anything else | the same; nothing changes |
//!
//! A command that is asked for again keeps its tag. An event that answers any of its attempts counts; of outcomes the runner
//! hands over only that of the newest attempt, because only that work is open.
//!
//! An expression that has no value fails its step, so that what was done gets undone; in an undo it makes the instance
//! stuck. Only in `vars`, `save`, the handlers and the two facts is it a [`Fault`], because there the input or the definition
//! as a whole is wrong.

mod apply_outcome;
mod compensate;
mod compiled;
mod event;
mod execution;
mod foreach;
mod forward;
mod handler;
mod human_task;
mod in_doubt;
mod join;
mod migrate;
mod operator;
mod outcome;
mod outcome_table;
mod request;
mod state;
mod step_input;
mod step_state;
mod timers;
mod values;
mod version;
mod view;
mod waits;

use orlog_model::Event;
use serde_json::Value;

use crate::contract::{Context, Fault, Reaction, Stimulus};
use crate::limits::check_payload;
use execution::Run;
use state::State;
use version::Reading;

pub(crate) use compiled::{
    Answer, Call, Case, Entry, Escalation, Fact, Foreach, Handler, Human, Job, Migrates, Moment, SAGA_TIMER,
    Saga, Step, Task, Versions, handler_tag, point, undo_tag,
};
pub use in_doubt::{DONE, NOT_DONE};
pub(crate) use migrate::{Source, migrate};
pub(crate) use version::upcast;
pub(crate) use view::show;

/// Decides one stimulus. See the table above.
pub(crate) fn apply(
    saga: &Saga,
    state: Option<&[u8]>,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Reaction, Fault> {
    if let Some(payload) = step_input::payload(stimulus) {
        check_payload(payload)
            .map_err(|large| Fault::Schema(format!("the payload is too large: {large}")))?;
    }
    let Stimulus::Event(event) = stimulus else { return known(saga, state, stimulus, context) };
    match version::read(saga, event)? {
        Reading::AsItIs => known(saga, state, stimulus, context),
        Reading::Newer(event) => known(saga, state, &Stimulus::Event(&event), context),
        Reading::Ignored => Ok(Reaction::Ignored("its version is not accepted".into())),
        Reading::TurnsBack(refused) => match state {
            Some(bytes) => Run::new(saga, context, State::decode(bytes, saga.steps.len())?).turn(refused),
            None => Err(Fault::Schema(refused.message)),
        },
    }
}

fn known(
    saga: &Saga,
    state: Option<&[u8]>,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Reaction, Fault> {
    match (state, stimulus) {
        (None, Stimulus::Event(event)) if saga.start.contains(&event.kind) => begin(saga, event, context),
        (None, _) => Ok(Reaction::Ignored("there is no instance, and this does not begin one".into())),
        (Some(_), Stimulus::Event(event)) if saga.start.contains(&event.kind) => {
            Ok(Reaction::Ignored("the instance has begun already".into()))
        }
        (Some(bytes), _) => Run::new(saga, context, State::decode(bytes, saga.steps.len())?).take(stimulus),
    }
}

fn begin(saga: &Saga, event: &Event, context: &Context<'_>) -> Result<Reaction, Fault> {
    let mut run = Run::new(saga, context, State::new(saga.steps.len()));
    run.state.vars.extend(saga.saved().map(|name| (name.clone(), Value::Null)));
    run.remember(&saga.vars, &event.data)?;
    run.begin()
}
