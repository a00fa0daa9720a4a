//! A saga as the machine runs it: compiled, with indices in the place of names.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, Name, Retry};

use crate::expression::Expression;
use crate::template::Template;

/// The timer of the whole saga; no step may bear this name.
pub(crate) const SAGA_TIMER: &str = "saga";
pub(super) const UNDO: &str = "undo:";

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
    pub(super) fn awaits_event(&self) -> bool {
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
