//! The builder: a saga written in Rust, which gives the same intermediate form as the YAML.
//!
//! ```
//! use orlog_program::{Definition, Do, Program};
//! use serde_json::json;
//!
//! let saga = Definition::builder("order")
//!     .version(1)
//!     .start("OrderPlaced")
//!     .correlate("orderId")
//!     .var("orderId", json!("=event.orderId"))
//!     .step("reserve", Do::command("inventory.ReserveStock").data(json!({ "order": "=vars.orderId" })))
//!     .ok("StockReserved")
//!     .fail("StockRejected")
//!     .undo(Do::command("inventory.ReleaseStock").data(json!({ "order": "=vars.orderId" })))
//!     .step("charge", Do::effect("payments.charge").data(json!({ "order": "=vars.orderId" })))
//!     .timeout(std::time::Duration::from_secs(1800))
//!     .completed("OrderCompleted", json!({ "order": "=vars.orderId" }))
//!     .build()
//!     .expect("the saga is well formed");
//! assert_eq!(saga.manifest().triggers.len(), 3);
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, IdError, Name, Retry, SagaName};
use serde_json::{Map, Value};

use crate::compile::{Compiled, compile};
use crate::form::{Action, After, Answer, Correlate, Definition, FactForm, Join, Step, Undo};
use crate::problem::{Finding, Problem};

/// Builds a [`Definition`]. What `ok`, `fail`, `undo` and the like say is about the step named last. Mistakes are
/// collected and reported by [`Builder::build`].
#[derive(Debug)]
pub struct Builder {
    file: String,
    definition: Option<Definition>,
    findings: Vec<Finding>,
}

/// What a step or its undo asks for.
#[derive(Clone, Debug)]
pub struct Do {
    kind: Kind,
    name: String,
    id: Option<Value>,
    data: Value,
    ok: Option<String>,
    fail: Vec<String>,
    timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Command,
    Effect,
}

impl Do {
    /// A command, as `aggregate.Command`.
    #[must_use]
    pub fn command(name: &str) -> Self {
        Self::new(Kind::Command, name)
    }

    /// An effect.
    #[must_use]
    pub fn effect(name: &str) -> Self {
        Self::new(Kind::Effect, name)
    }

    fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            id: None,
            data: Value::Null,
            ok: None,
            fail: Vec::new(),
            timeout: None,
        }
    }

    /// The template of the payload.
    #[must_use]
    pub fn data(mut self, template: Value) -> Self {
        self.data = template;
        self
    }

    /// The template of the aggregate's id; without it the correlation id.
    #[must_use]
    pub fn id(mut self, template: Value) -> Self {
        self.id = Some(template);
        self
    }

    /// For the undo by a command: the event that confirms it.
    #[must_use]
    pub fn confirmed_by(mut self, event: &str) -> Self {
        self.ok = Some(event.to_owned());
        self
    }

    /// For the undo by a command: an event that means it failed.
    #[must_use]
    pub fn refused_by(mut self, event: &str) -> Self {
        self.fail.push(event.to_owned());
        self
    }

    /// For an undo: the time allowed for its confirmation.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Definition {
    /// Begins a definition with version 1.
    #[must_use]
    pub fn builder(saga: &str) -> Builder {
        let mut findings = Vec::new();
        let name = keep(SagaName::new(saga), "saga", &mut findings);
        let definition = name.map(|saga| Definition {
            saga,
            version: 1,
            start: Vec::new(),
            correlate: Correlate::Envelope,
            early: None,
            events: BTreeMap::new(),
            env: Map::new(),
            on: Vec::new(),
            migrates: Vec::new(),
            vars: Map::new(),
            reference: None,
            timeout: None,
            steps: Vec::new(),
            completed: None,
            failed: None,
        });
        Builder { file: format!("saga {saga}"), definition, findings }
    }
}

impl Builder {
    /// The author's number for it.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        self.change(|definition, _| definition.version = version)
    }

    /// An event that begins an instance.
    #[must_use]
    pub fn start(self, event: &str) -> Self {
        self.change(|definition, findings| {
            definition.start.extend(keep(EventType::new(event), "start", findings));
        })
    }

    /// The field, a path with dots, in which every event names its instance.
    #[must_use]
    pub fn correlate(self, field: &str) -> Self {
        self.change(|definition, _| definition.correlate = Correlate::Field(field.to_owned()))
    }

    /// The field in which events of one type name their instance.
    #[must_use]
    pub fn correlate_by(self, event: &str, field: &str) -> Self {
        self.change(|definition, findings| {
            let Some(event) = keep(EventType::new(event), "correlate", findings) else { return };
            match &mut definition.correlate {
                Correlate::ByType(paths) => drop(paths.insert(event, field.to_owned())),
                Correlate::Envelope | Correlate::Field(_) => {
                    definition.correlate = Correlate::ByType([(event, field.to_owned())].into());
                }
            }
        })
    }

    /// A template over the start event, whose value the instance remembers.
    #[must_use]
    pub fn var(self, name: &str, template: Value) -> Self {
        self.change(|definition, _| drop(definition.vars.insert(name.to_owned(), template)))
    }

    /// A template for what the business calls the instance.
    #[must_use]
    pub fn reference(self, template: Value) -> Self {
        self.change(|definition, _| definition.reference = Some(template))
    }

    /// The whole time an instance may go forward.
    #[must_use]
    pub fn saga_timeout(self, timeout: Duration) -> Self {
        self.change(|definition, _| definition.timeout = Some(timeout))
    }

    /// The next step.
    #[must_use]
    pub fn step(self, id: &str, action: Do) -> Self {
        self.change(|definition, findings| {
            let path = format!("steps[{}]", definition.steps.len());
            let id = keep(Name::new(id), &format!("{path}.id"), findings);
            let timeout = action.timeout;
            let action = to_action(action, &format!("{path}.do"), findings);
            if let (Some(id), Some(action)) = (id, action) {
                definition.steps.push(Step { timeout, ..new_step(id, action) });
            }
        })
    }

    /// The steps that must be over first; without this, the step before. An empty list begins at once.
    #[must_use]
    pub fn after(self, ids: &[&str]) -> Self {
        self.on_step("after", |step, path, findings| {
            let ids = ids.iter().filter_map(|id| keep(Name::new(*id), path, findings));
            step.after = Some(After { steps: ids.collect(), join: Join::All });
        })
    }

    /// The step is skipped when this expression is false.
    #[must_use]
    pub fn when(self, condition: &str) -> Self {
        self.on_step("when", |step, _, _| step.when = Some(condition.to_owned()))
    }

    /// The event of success.
    #[must_use]
    pub fn ok(self, event: &str) -> Self {
        self.on_step("ok", |step, path, findings| {
            step.ok.extend(keep(EventType::new(event), path, findings).map(Answer::from));
        })
    }

    /// An event of failure.
    #[must_use]
    pub fn fail(self, event: &str) -> Self {
        self.on_step("fail", |step, path, findings| {
            step.fail.extend(keep(EventType::new(event), path, findings).map(Answer::from));
        })
    }

    /// What undoes the step.
    #[must_use]
    pub fn undo(self, action: Do) -> Self {
        self.on_step("undo", |step, path, findings| {
            let mut answers = |events: &[String]| -> Vec<Answer> {
                let kept = events.iter().filter_map(|e| keep(EventType::new(e.as_str()), path, findings));
                kept.map(Answer::from).collect()
            };
            let (ok, fail) = (answers(action.ok.as_slice()), answers(&action.fail));
            let timeout = action.timeout;
            let action = to_action(action, path, findings);
            step.undo = action.map(|action| Undo { action, ok, fail, timeout, retry: None });
        })
    }

    /// The time allowed for the step's answer.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.on_step("timeout", |step, _, _| step.timeout = Some(timeout))
    }

    /// A template over the step's answer, whose value the instance remembers.
    #[must_use]
    pub fn save(self, name: &str, template: Value) -> Self {
        self.on_step("save", |step, _, _| drop(step.save.insert(name.to_owned(), template)))
    }

    /// Hints for attempts.
    #[must_use]
    pub fn retry(self, retry: Retry) -> Self {
        self.on_step("retry", |step, _, _| step.retry = Some(retry))
    }

    /// The fact that every step is done.
    #[must_use]
    pub fn completed(self, fact: &str, data: Value) -> Self {
        self.change(|definition, findings| {
            let fact = keep(EventType::new(fact), "completed.fact", findings);
            definition.completed = fact.map(|fact| FactForm { fact, data });
        })
    }

    /// The fact that a step failed and everything done was undone.
    #[must_use]
    pub fn failed(self, fact: &str, data: Value) -> Self {
        self.change(|definition, findings| {
            let fact = keep(EventType::new(fact), "failed.fact", findings);
            definition.failed = fact.map(|fact| FactForm { fact, data });
        })
    }

    /// Compiles it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(self) -> Result<Compiled, Vec<Problem>> {
        match self.definition {
            Some(definition) if self.findings.is_empty() => compile(definition),
            Some(_) | None => Err(self.findings.into_iter().map(|f| f.without_text(&self.file)).collect()),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Definition, &mut Vec<Finding>)) -> Self {
        if let Some(definition) = &mut self.definition {
            change(definition, &mut self.findings);
        }
        self
    }

    fn on_step(self, field: &str, change: impl FnOnce(&mut Step, &str, &mut Vec<Finding>)) -> Self {
        self.change(|definition, findings| {
            let index = definition.steps.len().saturating_sub(1);
            let path = format!("steps[{index}].{field}");
            match definition.steps.last_mut() {
                Some(step) => change(step, &path, findings),
                None => findings.push(Finding::new(path, format!("`{field}` comes before the first step"))),
            }
        })
    }
}

fn new_step(id: Name, action: Action) -> Step {
    Step {
        id,
        after: None,
        when: None,
        foreach: None,
        pivot: false,
        action,
        ok: Vec::new(),
        fail: Vec::new(),
        undo: None,
        timeout: None,
        save: Map::new(),
        retry: None,
    }
}

fn to_action(action: Do, path: &str, findings: &mut Vec<Finding>) -> Option<Action> {
    match action.kind {
        Kind::Effect => {
            let name = keep(EffectName::new(action.name), path, findings)?;
            Some(Action::Effect { name, data: action.data })
        }
        Kind::Command => match split_command(&action.name) {
            Ok((aggregate_type, name)) => {
                Some(Action::Command { aggregate_type, name, id: action.id, data: action.data })
            }
            Err(finding) => {
                findings.push(Finding { path: path.to_owned(), ..finding });
                None
            }
        },
    }
}

/// `inventory.ReserveStock` as aggregate type and command.
pub(crate) fn split_command(text: &str) -> Result<(Name, Name), Finding> {
    let parts = text.rsplit_once('.').filter(|(aggregate, name)| !aggregate.is_empty() && !name.is_empty());
    let Some((aggregate, name)) = parts else {
        let message = format!("`{text}` is no command");
        return Err(Finding::new("", message)
            .suggest("write the aggregate and the command, as in inventory.ReserveStock"));
    };
    let checked = Name::new(aggregate).and_then(|aggregate| Ok((aggregate, Name::new(name)?)));
    checked.map_err(|error| Finding::new("", error.to_string()))
}

fn keep<T>(id: Result<T, IdError>, path: &str, findings: &mut Vec<Finding>) -> Option<T> {
    id.map_err(|error| findings.push(Finding::new(path, error.to_string()))).ok()
}
