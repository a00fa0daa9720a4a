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
mod state;
mod table;
mod work;

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, Event, EventType, Name, Retry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expression::Expression;
use crate::limits::check_payload;
use crate::program::{Context, Fault, Reaction, Stimulus};
use crate::template::Template;
use run::Run;
use state::State;

/// The timer of the whole saga; no step may bear this name.
pub(crate) const SAGA_TIMER: &str = "saga";
const UNDO: &str = "undo:";

/// The tag of a step's undo; the step's own work is tagged with its id.
pub(crate) fn undo_tag(step: &Name) -> Name {
    Name::new(format!("{UNDO}{step}")).expect("step ids are checked to leave room for the prefix")
}

/// A saga, compiled.
#[derive(Debug)]
pub(crate) struct Saga {
    pub(crate) start: Vec<EventType>,
    pub(crate) roles: BTreeMap<EventType, Vec<Role>>,
    pub(crate) vars: Vec<(String, Template)>,
    pub(crate) reference: Option<Template>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<Step>,
    /// Step indices, each after those before it.
    pub(crate) sorted: Vec<usize>,
    pub(crate) completed: Option<Fact>,
    pub(crate) failed: Option<Fact>,
}

/// A step, compiled.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: Name,
    /// Indices of the steps that must be over first.
    pub(crate) before: Vec<usize>,
    pub(crate) when: Option<Expression>,
    pub(crate) task: Task,
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) undo: Option<Task>,
}

/// Something to ask for, and what answers it. The tag is also the name of its timer.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: Name,
    pub(crate) call: Call,
    pub(crate) data: Template,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ok: Option<EventType>,
    pub(crate) fail: Vec<EventType>,
}

/// Whom it is asked of.
#[derive(Debug)]
pub(crate) enum Call {
    Command { aggregate_type: Name, name: Name, id: Option<Template> },
    Effect { name: EffectName, retry: Option<Retry> },
}

impl Task {
    /// A command whose answer is an event.
    fn awaits_event(&self) -> bool {
        matches!(self.call, Call::Command { .. }) && self.ok.is_some()
    }
}

/// A fact about the whole saga.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) kind: EventType,
    pub(crate) data: Template,
}

/// What an event can mean for the step of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ok(usize),
    Fail(usize),
    Undone(usize),
    NotUndone(usize),
}

/// Why the saga does not go forward; `failure` in expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) code: String,
    pub(crate) message: String,
    /// The step's id; empty where the saga as a whole is meant.
    pub(crate) step: String,
}

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
