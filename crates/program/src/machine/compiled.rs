//! A saga as the machine runs it: compiled, with indices in the place of names.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, InDoubt, Name, Retry, SagaName, Timestamp};

use crate::definition::{Join, Otherwise, Then};
use crate::expression::{Bindings, EvalError, Expression, kind_of};
use crate::template::Template;
use crate::yaml::duration;

/// The timer of the whole saga; no step may bear this name.
pub(crate) const SAGA_TIMER: &str = "saga";
pub(super) const UNDO: &str = "undo:";
pub(super) const RETRY: &str = "retry:";
pub(super) const ESCALATE: &str = "escalate:";
pub(super) const ON: &str = "on:";

/// The tag of a step's undo; the step's own work is tagged with its id.
pub(crate) fn undo_tag(step: &Name) -> Name {
    Name::new(format!("{UNDO}{step}")).expect("step ids are checked to leave room for the prefix")
}

/// The tag of what a handler asks for.
pub(crate) fn handler_tag(index: usize) -> Name {
    Name::new(format!("{ON}{index}")).expect("a number is a short word")
}

/// A saga, compiled.
#[derive(Debug)]
pub(crate) struct Saga {
    pub(crate) start: Vec<EventType>,
    /// Who may want the events of a type, in the order in which they are asked.
    pub(crate) entries: BTreeMap<EventType, Vec<Entry>>,
    pub(crate) versions: BTreeMap<EventType, Versions>,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) vars: Vec<(String, Template)>,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) reference: Option<Template>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<Step>,
    /// Step indices, each after those before it.
    pub(crate) sorted: Vec<usize>,
    pub(crate) completed: Option<Fact>,
    pub(crate) failed: Option<Fact>,
    pub(crate) migrates: Vec<Migrates>,
}

/// An answer of a step, or of its undo, that is an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) step: usize,
    pub(crate) undo: bool,
    pub(crate) good: bool,
    /// Which of the task's `ok` or `fail`.
    pub(crate) place: usize,
}

/// Which versions of an event's payload are taken.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) accepts: Vec<u32>,
    pub(crate) upcast: BTreeMap<u32, Template>,
    pub(crate) otherwise: Otherwise,
}

/// What happens on events at any time.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) event: Vec<EventType>,
    pub(crate) when: Option<Expression>,
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) then: Then,
}

/// A step, compiled.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: Name,
    /// Indices of the steps that must be over first.
    pub(crate) before: Vec<usize>,
    pub(crate) join: Join,
    /// The switches that name it.
    pub(crate) named_by: Vec<usize>,
    /// Of a join that does not need all: the steps all of whose ways lead to it, each after those before it.
    pub(crate) region: Vec<usize>,
    /// The joins in whose region it lies, each after those before it.
    pub(crate) joins: Vec<usize>,
    pub(crate) when: Option<Expression>,
    pub(crate) foreach: Option<Foreach>,
    pub(crate) task: Task,
    pub(crate) save: Vec<(String, Template)>,
    pub(crate) undo: Option<Task>,
    pub(crate) pivot: bool,
}

/// A list to go through.
#[derive(Debug)]
pub(crate) struct Foreach {
    pub(crate) list: Expression,
    pub(crate) name: String,
    /// How many elements are under way at once.
    pub(crate) limit: usize,
}

/// Something to ask for, and what answers it. The tag is also the name of its timer.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: Name,
    pub(crate) call: Call,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ok: Vec<Answer>,
    pub(crate) fail: Vec<Answer>,
    pub(crate) retry: Option<Retry>,
    pub(crate) in_doubt: Option<InDoubt>,
}

/// A named answer and what it must say to count.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) event: EventType,
    pub(crate) when: Option<Expression>,
}

/// What is asked for, and of whom.
#[derive(Debug)]
pub(crate) enum Call {
    Command { aggregate_type: Name, name: Name, id: Option<Template>, data: Template },
    Effect { name: EffectName, data: Template },
    Wait(Moment),
    Event,
    Human(Box<Human>),
    Saga { saga: SagaName, correlation: Option<Template>, event: Option<EventType>, data: Template },
    Job(Box<Job>),
    Switch(Vec<Case>),
}

/// A task for a person.
#[derive(Debug)]
pub(crate) struct Human {
    pub(crate) title: Template,
    pub(crate) roles: Vec<Template>,
    pub(crate) assignee: Option<Template>,
    pub(crate) due: Option<Moment>,
    pub(crate) data: Template,
    pub(crate) escalate: Option<Escalation>,
}

/// To whom a task goes when nobody has done it.
#[derive(Debug)]
pub(crate) struct Escalation {
    pub(crate) after: Option<Duration>,
    pub(crate) roles: Vec<Template>,
    pub(crate) assignee: Option<Template>,
}

/// A script that a worker runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) effect: EffectName,
    pub(crate) kind: Name,
    pub(crate) script: String,
    pub(crate) env: Vec<(String, Template)>,
    pub(crate) args: Template,
    /// Ids of the jobs whose results it is given.
    pub(crate) dependencies: Vec<Name>,
}

/// One way of a switch.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) when: Option<Expression>,
    pub(crate) then: Vec<usize>,
}

/// A point in time.
#[derive(Debug)]
pub(crate) enum Moment {
    After(Duration),
    At(Timestamp),
    For(Template),
    Until(Template),
}

/// A fact about the whole saga.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) kind: EventType,
    pub(crate) data: Template,
}

/// How instances of older versions become instances of this one.
#[derive(Debug)]
pub(crate) struct Migrates {
    pub(crate) from: Vec<u32>,
    pub(crate) steps: BTreeMap<Name, Option<Name>>,
    pub(crate) vars: Vec<(String, Template)>,
}

impl Task {
    /// What is asked for is answered by an event.
    pub(super) fn awaits_event(&self) -> bool {
        match self.call {
            Call::Command { .. } => !self.ok.is_empty(),
            Call::Event => true,
            Call::Effect { .. }
            | Call::Wait(_)
            | Call::Human(_)
            | Call::Saga { .. }
            | Call::Job(_)
            | Call::Switch(_) => false,
        }
    }

    /// How often the machine itself asks. Providers see to their attempts themselves.
    pub(super) fn attempts(&self) -> u32 {
        match (&self.call, self.retry) {
            (Call::Command { .. }, Some(retry)) => retry.attempts.unwrap_or(u32::MAX),
            (_, _) => 1,
        }
    }

    /// A person is asked when nobody knows whether it was done.
    pub(super) fn asks_in_doubt(&self) -> bool {
        self.in_doubt == Some(InDoubt::Ask)
    }

    /// Its answer has a name of its own that nobody else tells.
    pub(super) fn tells(&self) -> bool {
        matches!(self.call, Call::Effect { .. } | Call::Job(_) | Call::Human(_))
    }
}

impl Moment {
    /// When it is.
    pub(super) fn due(&self, now: Timestamp, bindings: &Bindings<'_>) -> Result<Timestamp, EvalError> {
        match self {
            Moment::After(duration) => Ok(now.after(*duration)),
            Moment::At(at) => Ok(*at),
            Moment::For(template) => {
                let value = template.evaluate(bindings)?;
                let text =
                    value.as_str().ok_or_else(|| no_moment("a duration is a text such as 30m", &value))?;
                duration::parse(text).map(|duration| now.after(duration)).map_err(wrong_moment)
            }
            Moment::Until(template) => point(&template.evaluate(bindings)?).map_err(wrong_moment),
        }
    }
}

/// A time as RFC 3339 text or in whole milliseconds since 1970.
pub(crate) fn point(value: &serde_json::Value) -> Result<Timestamp, String> {
    match (value.as_str(), value.as_i64()) {
        (Some(text), _) => Timestamp::parse(text).map_err(|error| error.to_string()),
        (None, Some(millis)) => Ok(Timestamp::from_millis(millis)),
        (None, None) => {
            Err(format!("a time is RFC 3339 text or whole milliseconds, this is {}", kind_of(value)))
        }
    }
}

fn no_moment(rule: &str, value: &serde_json::Value) -> EvalError {
    wrong_moment(format!("{rule}, this is {}", kind_of(value)))
}

fn wrong_moment(reason: String) -> EvalError {
    EvalError { expression: "wait".to_owned(), reason }
}

impl Saga {
    /// The names under `vars` that answers set.
    pub(super) fn saved(&self) -> impl Iterator<Item = &String> {
        let steps = self.steps.iter().flat_map(|step| &step.save);
        steps.chain(self.handlers.iter().flat_map(|handler| &handler.save)).map(|(name, _)| name)
    }

    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.id.as_str() == id)
    }
}
