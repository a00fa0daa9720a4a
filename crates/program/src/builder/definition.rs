//! The builder of what concerns the whole saga.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, SagaName};
use serde_json::{Map, Value};

use super::handlers::{Migrate, On};
use super::names::keep;
use crate::compile::{Compiled, compile};
use crate::definition::{Correlate, Definition, EventForm, FactForm, Otherwise};
use crate::diagnostic::{Finding, Problem};

/// Builds a [`Definition`]. What `ok`, `fail`, `undo` and the like say is about the step named last. Mistakes are
/// collected and reported by [`Builder::build`].
#[derive(Debug)]
pub struct Builder {
    file: String,
    definition: Option<Definition>,
    findings: Vec<Finding>,
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

    /// How long events that come before the instance are kept for it; zero: not at all.
    #[must_use]
    pub fn early(self, time: Duration) -> Self {
        self.change(|definition, _| definition.early = Some(time))
    }

    /// The versions of an event's payload that are taken; the highest is the one that expressions are written for.
    #[must_use]
    pub fn accepts(self, event: &str, versions: &[u32]) -> Self {
        self.versions(event, |form| form.accepts = versions.to_vec())
    }

    /// A template over an older version of an event that gives the newest.
    #[must_use]
    pub fn upcast(self, event: &str, from: u32, template: Value) -> Self {
        self.versions(event, |form| drop(form.upcast.insert(from, template)))
    }

    /// What becomes of other versions of an event.
    #[must_use]
    pub fn otherwise(self, event: &str, otherwise: Otherwise) -> Self {
        self.versions(event, |form| form.otherwise = otherwise)
    }

    fn versions(self, event: &str, change: impl FnOnce(&mut EventForm)) -> Self {
        self.change(|definition, findings| {
            let Some(event) = keep(EventType::new(event), "events", findings) else { return };
            let none = || EventForm {
                accepts: Vec::new(),
                upcast: BTreeMap::new(),
                otherwise: Otherwise::default(),
            };
            change(definition.events.entry(event).or_insert_with(none));
        })
    }

    /// A template of the environment of all jobs.
    #[must_use]
    pub fn env(self, name: &str, template: Value) -> Self {
        self.change(|definition, _| drop(definition.env.insert(name.to_owned(), template)))
    }

    /// What happens on an event at any time while it goes forward.
    #[must_use]
    pub fn on(self, on: On) -> Self {
        self.change(|definition, findings| {
            let path = format!("on[{}]", definition.on.len());
            let On { mut handler, actions, findings: found } = on;
            findings.extend(found.into_iter().map(|f| Finding { path: format!("{path}.{}", f.path), ..f }));
            let actions = actions.into_iter().enumerate();
            handler.actions = actions
                .filter_map(|(n, action)| action.placed(&format!("{path}.do[{n}]"), findings).0)
                .collect();
            definition.on.push(handler);
        })
    }

    /// How instances of older versions become instances of this one.
    #[must_use]
    pub fn migrates(self, migrate: Migrate) -> Self {
        self.change(|definition, findings| {
            let path = format!("migrates[{}]", definition.migrates.len());
            let Migrate { form, findings: found } = migrate;
            findings.extend(found.into_iter().map(|f| Finding { path: format!("{path}.{}", f.path), ..f }));
            definition.migrates.push(form);
        })
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

    /// The form, before it is compiled.
    ///
    /// # Errors
    /// What is wrong with the names that were given.
    pub fn form(self) -> Result<Definition, Vec<Problem>> {
        match self.definition {
            Some(definition) if self.findings.is_empty() => Ok(definition),
            Some(_) | None => Err(self.findings.into_iter().map(|f| f.without_text(&self.file)).collect()),
        }
    }

    /// Compiles it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(self) -> Result<Compiled, Vec<Problem>> {
        self.form().and_then(compile)
    }

    pub(super) fn change(mut self, change: impl FnOnce(&mut Definition, &mut Vec<Finding>)) -> Self {
        if let Some(definition) = &mut self.definition {
            change(definition, &mut self.findings);
        }
        self
    }
}
