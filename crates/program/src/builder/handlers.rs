//! What happens on events at any time, and how older instances become newer ones.

use orlog_model::Name;
use serde_json::{Map, Value};

use super::action::Do;
use super::names::{events, keep};
use crate::definition::{Handler, MigrationForm, Then};
use crate::diagnostic::Finding;

/// What happens on events at any time while a saga goes forward.
#[derive(Clone, Debug)]
pub struct On {
    pub(super) handler: Handler,
    pub(super) actions: Vec<Do>,
    pub(super) findings: Vec<Finding>,
}

impl On {
    /// On an event.
    #[must_use]
    pub fn event(event: &str) -> Self {
        Self::any_event(&[event])
    }

    /// On any of these events.
    #[must_use]
    pub fn any_event(names: &[&str]) -> Self {
        let mut findings = Vec::new();
        let event = events(names, "event", &mut findings);
        let handler =
            Handler { event, when: None, save: Map::new(), actions: Vec::new(), then: Then::Continue };
        Self { handler, actions: Vec::new(), findings }
    }

    /// Only if this holds over `event` and `vars`.
    #[must_use]
    pub fn when(mut self, condition: &str) -> Self {
        self.handler.when = Some(condition.to_owned());
        self
    }

    /// A template over the event, whose value the instance remembers.
    #[must_use]
    pub fn save(mut self, name: &str, template: Value) -> Self {
        self.handler.save.insert(name.to_owned(), template);
        self
    }

    /// A command or an effect to ask for; nobody waits for its answer.
    #[must_use]
    pub fn ask(mut self, action: Do) -> Self {
        self.actions.push(action);
        self
    }

    /// How the saga goes on.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.handler.then = then;
        self
    }
}

/// How instances of older versions become instances of the newest.
#[derive(Clone, Debug)]
pub struct Migrate {
    pub(super) form: MigrationForm,
    pub(super) findings: Vec<Finding>,
}

impl Migrate {
    /// From these versions.
    #[must_use]
    pub fn from(versions: &[u32]) -> Self {
        let form = MigrationForm { from: versions.to_vec(), ..MigrationForm::default() };
        Self { form, findings: Vec::new() }
    }

    /// An old step goes by a new name.
    #[must_use]
    pub fn step(mut self, old: &str, new: &str) -> Self {
        let new = keep(Name::new(new), "steps", &mut self.findings);
        let old = keep(Name::new(old), "steps", &mut self.findings);
        self.form.steps.extend(old.zip(new.map(Some)));
        self
    }

    /// An old step is no more.
    #[must_use]
    pub fn without(mut self, old: &str) -> Self {
        self.form.steps.extend(keep(Name::new(old), "steps", &mut self.findings).map(|old| (old, None)));
        self
    }

    /// A template over the old `vars`.
    #[must_use]
    pub fn var(mut self, name: &str, template: Value) -> Self {
        self.form.vars.insert(name.to_owned(), template);
        self
    }
}
