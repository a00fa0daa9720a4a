//! The step machine: one stimulus on the state of a compiled saga makes one transition.
//!
//! It reads the stimulus ([`answer`]), looks up what the answer means for the step ([`table`]), and carries that out
//! ([`run`]): forward through the steps whose predecessors are over, or backward through what is to be undone.
//!
//! | phase | what happens | becomes |
//! |---|---|---|
//! | running | a step succeeds, others wait | running |
//! | running | the last step succeeds or is skipped | completed; the `completed` fact |
//! | running | a step fails, times out, or breaks its contract; the saga times out | compensating |
//! | running | cancel | compensating, towards cancelled |
//! | compensating | an undo is confirmed, more is to be undone | compensating |
//! | compensating | nothing is left to undo | failed, the `failed` fact once; or cancelled, no fact |
//! | compensating | an undo fails, or its time runs out | stuck |
//! | compensating, stuck | a given-up step succeeds late | the same; it is undone next |
//! | failed, cancelled | a given-up step succeeds late | compensating, and back, without a second fact |
//! | stuck | the undo is confirmed after all | compensating |
//! | stuck | retry | compensating; the undo is asked for again |
//! | any | anything else | the same; nothing changes |
//!
//! An expression that has no value fails its step, so that what was done gets undone; in an undo it makes the instance
//! stuck. Only in `vars`, `save` and the two facts is it a [`Fault`], because there the input or the definition as a whole is
//! wrong.

mod answer;
mod run;
mod saga;
mod show;
mod state;
mod table;
mod work;

use orlog_model::Event;
use serde_json::Value;

use crate::limits::check_payload;
use crate::program::{Context, Fault, Reaction, Stimulus};
use run::Run;
use state::State;

pub(crate) use saga::{Call, Fact, Role, SAGA_TIMER, Saga, Step, Task, undo_tag};
pub(crate) use show::show;

/// Decides one stimulus. See the table above.
pub(crate) fn apply(
    saga: &Saga,
    state: Option<&[u8]>,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Reaction, Fault> {
    if let Some(payload) = answer::payload(stimulus) {
        check_payload(payload)
            .map_err(|large| Fault::Schema(format!("the payload is too large: {large}")))?;
    }
    match (state, stimulus) {
        (None, Stimulus::Event(event)) if saga.start.contains(&event.kind) => begin(saga, event, context),
        (None, _) => Ok(Reaction::Ignored("there is no instance, and this does not begin one")),
        (Some(_), Stimulus::Event(event)) if saga.start.contains(&event.kind) => {
            Ok(Reaction::Ignored("the instance has begun already"))
        }
        (Some(bytes), _) => Run::new(saga, context, State::decode(bytes, saga.steps.len())?).take(stimulus),
    }
}

fn begin(saga: &Saga, event: &Event, context: &Context<'_>) -> Result<Reaction, Fault> {
    let mut run = Run::new(saga, context, State::new(saga.steps.len()));
    let saved = saga.steps.iter().flat_map(|step| &step.save);
    run.state.vars.extend(saved.map(|(name, _)| (name.clone(), Value::Null)));
    run.remember(&saga.vars, &event.data)?;
    run.begin()
}
