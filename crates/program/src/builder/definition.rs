//! Builder of the settings of the whole saga.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, Name, SagaName};
use serde_json::{Map, Value};

use super::handlers::{EventHandler, MigrationBuilder};
use super::names::parse_name;
use crate::compile::{CompiledDefinition, compile};
use crate::definition::{CorrelationSpec, Definition, FactSpec};
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::steps::TimeLimit;
use crate::versions::{UnsupportedVersionPolicy, VersionSpec};

/// Builder of a [`Definition`]. Calls such as `ok`, `fail` and `undo` apply to the last step.
/// Errors are collected and reported by [`DefinitionBuilder::build`].
#[derive(Debug)]
pub struct DefinitionBuilder {
    file: String,
    definition: Option<Definition>,
    findings: Vec<RawDiagnostic>,
}

impl Definition {
    /// Starts a definition with version 1.
    #[must_use]
    pub fn builder(saga: &str) -> DefinitionBuilder {
        let mut findings = Vec::new();
        let name = parse_name(SagaName::for_path(saga), "saga", &mut findings);
        let definition = name.map(|saga| Definition {
            saga,
            version: 1,
            start: Vec::new(),
            correlate: CorrelationSpec::Envelope,
            early_event_ttl: None,
            events: BTreeMap::new(),
            env: Map::new(),
            on: Vec::new(),
            publish: None,
            keep_active: false,
            migrations: Vec::new(),
            vars: Map::new(),
            reference: None,
            index: Vec::new(),
            timeout: None,
            steps: Vec::new(),
            completed: None,
            failed: None,
        });

        DefinitionBuilder {
            file: format!("saga {saga}"),
            definition,
            findings,
        }
    }
}

impl DefinitionBuilder {
    /// Sets the version.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        self.change(|definition, _| definition.version = version)
    }

    /// Adds a start event.
    #[must_use]
    pub fn start(self, event: &str) -> Self {
        self.change(|definition, findings| {
            definition
                .start
                .extend(parse_name(EventType::new(event), "start", findings));
        })
    }

    /// Sets the correlation field of all events, a path with dots.
    #[must_use]
    pub fn correlate(self, field: &str) -> Self {
        self.change(|definition, _| definition.correlate = CorrelationSpec::Field(field.to_owned()))
    }

    /// Sets the correlation field of one event type.
    #[must_use]
    pub fn correlate_by(self, event: &str, field: &str) -> Self {
        self.change(|definition, findings| {
            let Some(event) = parse_name(EventType::new(event), "correlate", findings) else {
                return;
            };
            match &mut definition.correlate {
                CorrelationSpec::ByType(paths) => drop(paths.insert(event, field.to_owned())),
                CorrelationSpec::Envelope | CorrelationSpec::Field(_) => {
                    definition.correlate =
                        CorrelationSpec::ByType([(event, field.to_owned())].into());
                }
            }
        })
    }

    /// Adds a variable: a template over the start event, whose value the instance stores.
    #[must_use]
    pub fn var(self, name: &str, template: Value) -> Self {
        self.change(|definition, _| drop(definition.vars.insert(name.to_owned(), template)))
    }

    /// Adds a variable to the indexes of the saga.
    #[must_use]
    pub fn index(self, name: &str) -> Self {
        self.change(|definition, findings| {
            definition
                .index
                .extend(parse_name(Name::new(name), "index", findings));
        })
    }

    /// Sets the template of the business reference of the instance.
    #[must_use]
    pub fn reference(self, template: Value) -> Self {
        self.change(|definition, _| definition.reference = Some(template))
    }

    /// Sets the maximum time that an instance may run forward: a duration, or an expression over
    /// `vars`.
    #[must_use]
    pub fn saga_timeout(self, timeout: impl Into<TimeLimit>) -> Self {
        self.change(|definition, _| definition.timeout = Some(timeout.into()))
    }

    /// Keeps an instance active when its steps have finished, until an event handler ends it.
    #[must_use]
    pub fn keep_active(self) -> Self {
        self.change(|definition, _| definition.keep_active = true)
    }

    /// Sets the time to live of early events; zero: early events are not buffered.
    #[must_use]
    pub fn early_event_ttl(self, time: Duration) -> Self {
        self.change(|definition, _| definition.early_event_ttl = Some(time))
    }

    /// Sets the accepted payload versions of an event; expressions are written for the highest.
    #[must_use]
    pub fn accepts(self, event: &str, versions: &[u32]) -> Self {
        self.versions(event, |form| form.accepts = versions.to_vec())
    }

    /// Adds an upcast: a template over an older version of an event that produces the newest.
    #[must_use]
    pub fn upcast(self, event: &str, from: u32, template: Value) -> Self {
        self.versions(event, |form| drop(form.upcast.insert(from, template)))
    }

    /// Sets the policy for unsupported versions of an event.
    #[must_use]
    pub fn on_unsupported_version(self, event: &str, policy: UnsupportedVersionPolicy) -> Self {
        self.versions(event, |form| form.on_unsupported = policy)
    }

    fn versions(self, event: &str, change: impl FnOnce(&mut VersionSpec)) -> Self {
        self.change(|definition, findings| {
            let Some(event) = parse_name(EventType::new(event), "events", findings) else {
                return;
            };

            let versions = definition.events.entry(event);
            change(versions.or_insert_with(|| VersionSpec {
                accepts: Vec::new(),
                upcast: BTreeMap::new(),
                on_unsupported: UnsupportedVersionPolicy::default(),
            }));
        })
    }

    /// Adds a template to the environment of all jobs.
    #[must_use]
    pub fn env(self, name: &str, template: Value) -> Self {
        self.change(|definition, _| drop(definition.env.insert(name.to_owned(), template)))
    }

    /// Adds an event handler, active while the saga runs forward.
    #[must_use]
    pub fn on(self, on: EventHandler) -> Self {
        self.change(|definition, findings| {
            let path = format!("on[{}]", definition.on.len());
            let EventHandler {
                mut handler,
                actions,
                findings: found,
            } = on;
            findings.extend(found.into_iter().map(|f| RawDiagnostic {
                path: format!("{path}.{}", f.path),
                ..f
            }));

            let actions = actions.into_iter().enumerate();
            handler.actions = actions
                .filter_map(|(n, action)| action.placed(&format!("{path}.do[{n}]"), findings).0)
                .collect();
            definition.on.push(handler);
        })
    }

    /// Adds a migration of instances of older versions to this one.
    #[must_use]
    pub fn migration(self, migration: MigrationBuilder) -> Self {
        self.change(|definition, findings| {
            let path = format!("migrations[{}]", definition.migrations.len());
            let MigrationBuilder {
                form,
                findings: found,
            } = migration;

            findings.extend(found.into_iter().map(|f| RawDiagnostic {
                path: format!("{path}.{}", f.path),
                ..f
            }));
            definition.migrations.push(form);
        })
    }

    /// Sets the fact that is published when all steps are finished.
    #[must_use]
    pub fn completed(self, fact: &str, data: Value) -> Self {
        self.change(|definition, findings| {
            let fact = parse_name(EventType::new(fact), "completed.fact", findings);
            definition.completed = fact.map(|fact| FactSpec { fact, data });
        })
    }

    /// Sets the fact that is published when a step has failed and all completed steps are
    /// compensated.
    #[must_use]
    pub fn failed(self, fact: &str, data: Value) -> Self {
        self.change(|definition, findings| {
            let fact = parse_name(EventType::new(fact), "failed.fact", findings);
            definition.failed = fact.map(|fact| FactSpec { fact, data });
        })
    }

    /// Returns the definition before it is compiled.
    ///
    /// # Errors
    /// Diagnostics of invalid names.
    pub fn definition(self) -> Result<Definition, Vec<Diagnostic>> {
        match self.definition {
            Some(definition) if self.findings.is_empty() => Ok(definition),
            Some(_) | None => Err(self
                .findings
                .into_iter()
                .map(|f| f.without_text(&self.file))
                .collect()),
        }
    }

    /// Compiles the definition.
    ///
    /// # Errors
    /// All diagnostics of the definition.
    pub fn build(self) -> Result<CompiledDefinition, Vec<Diagnostic>> {
        self.definition().and_then(compile)
    }

    pub(super) fn change(
        mut self,
        change: impl FnOnce(&mut Definition, &mut Vec<RawDiagnostic>),
    ) -> Self {
        if let Some(definition) = &mut self.definition {
            change(definition, &mut self.findings);
        }
        self
    }
}
