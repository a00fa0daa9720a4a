//! Builders of event handlers and migrations.

use orlog_model::Name;
use serde_json::{Map, Value};

use super::action::StepAction;
use super::names::{events, parse_name};
use crate::definition::{AfterHandler, HandlerSpec, MigrationSpec};
use crate::diagnostic::RawDiagnostic;

/// Event handler, active while a saga runs forward.
#[derive(Clone, Debug)]
pub struct EventHandler {
    pub(super) handler: HandlerSpec,
    pub(super) actions: Vec<StepAction>,
    pub(super) findings: Vec<RawDiagnostic>,
}

impl EventHandler {
    /// Creates a handler of an event.
    #[must_use]
    pub fn event(event: &str) -> Self {
        Self::any_event(&[event])
    }

    /// Creates a handler of any of these events.
    #[must_use]
    pub fn any_event(names: &[&str]) -> Self {
        let mut findings = Vec::new();
        let event = events(names, "event", &mut findings);
        let handler = HandlerSpec {
            event,
            when: None,
            save: Map::new(),
            actions: Vec::new(),
            then: AfterHandler::Continue,
        };
        Self {
            handler,
            actions: Vec::new(),
            findings,
        }
    }

    /// Sets the condition over `event`, `envelope` and `vars`.
    #[must_use]
    pub fn when(mut self, condition: &str) -> Self {
        self.handler.when = Some(condition.to_owned());
        self
    }

    /// Adds a variable: a template over the event, whose value the instance stores.
    #[must_use]
    pub fn save(mut self, name: &str, template: Value) -> Self {
        self.handler.save.insert(name.to_owned(), template);
        self
    }

    /// Adds a command or an effect; its result is not awaited.
    #[must_use]
    pub fn action(mut self, action: StepAction) -> Self {
        self.actions.push(action);
        self
    }

    /// Sets how the saga continues.
    #[must_use]
    pub fn then(mut self, then: AfterHandler) -> Self {
        self.handler.then = then;
        self
    }
}

/// Migration of instances of older versions to the newest.
#[derive(Clone, Debug)]
pub struct MigrationBuilder {
    pub(super) form: MigrationSpec,
    pub(super) findings: Vec<RawDiagnostic>,
}

impl MigrationBuilder {
    /// Creates a migration from these versions.
    #[must_use]
    pub fn from(versions: &[u32]) -> Self {
        let form = MigrationSpec {
            from: versions.to_vec(),
            ..MigrationSpec::default()
        };
        Self {
            form,
            findings: Vec::new(),
        }
    }

    /// Maps an old step to a new step.
    #[must_use]
    pub fn step(mut self, old: &str, new: &str) -> Self {
        let new = parse_name(Name::new(new), "steps", &mut self.findings);
        let old = parse_name(Name::new(old), "steps", &mut self.findings);
        self.form.steps.extend(old.zip(new.map(Some)));
        self
    }

    /// Drops an old step.
    #[must_use]
    pub fn drop_step(mut self, old: &str) -> Self {
        self.form
            .steps
            .extend(parse_name(Name::new(old), "steps", &mut self.findings).map(|old| (old, None)));
        self
    }

    /// Adds a variable: a template over the old `vars`.
    #[must_use]
    pub fn var(mut self, name: &str, template: Value) -> Self {
        self.form.vars.insert(name.to_owned(), template);
        self
    }
}
