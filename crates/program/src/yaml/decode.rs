//! Decoder from a tree to the intermediate form. An unreadable part is reported and replaced by a
//! placeholder, so that the rest is checked in the same pass. A definition with a placeholder never
//! leaves the front-end.

mod action;
mod events;
mod reader;
mod step;

use orlog_model::{Name, SagaName};
use serde_json::Value;

use super::tree::{Content, Node};
use crate::definition::{Definition, FactSpec, MigrationSpec};
use crate::diagnostic::RawDiagnostic;
use crate::language_schema::{FACT, MIGRATION, TOP};
use reader::Decoder;

/// Decodes a definition and reports every part that cannot be decoded.
pub(super) fn definition(root: &Node, findings: &mut Vec<RawDiagnostic>) -> Definition {
    Decoder { findings }.definition(root)
}

impl Decoder<'_> {
    fn definition(&mut self, root: &Node) -> Definition {
        let fields = self.fields(root, "", &TOP);
        let saga = self.required(&fields, "saga", |r, node, path| r.id(node, path, SagaName::for_path));
        Definition {
            saga: saga.unwrap_or_else(|| SagaName::new("unread").expect("the placeholder is a valid name")),
            version: self.required(&fields, "version", Self::count).unwrap_or(1),
            start: self.optional(&fields, "start", Self::event_types).unwrap_or_default(),
            correlate: self.optional(&fields, "correlate", Self::correlate).unwrap_or_default(),
            early_event_ttl: self.optional(&fields, "early_event_ttl", Self::duration),
            events: self.optional(&fields, "events", Self::event_versions).unwrap_or_default(),
            env: self.optional(&fields, "env", Self::templates).unwrap_or_default(),
            vars: self.optional(&fields, "vars", Self::templates).unwrap_or_default(),
            reference: fields.template("reference"),
            timeout: self.optional(&fields, "timeout", Self::duration),
            on: self
                .optional(&fields, "on", |r, node, path| r.list(node, path, Self::handler))
                .unwrap_or_default(),
            steps: self.optional(&fields, "steps", Self::steps).unwrap_or_default(),
            completed: self.optional(&fields, "completed", Self::fact),
            failed: self.optional(&fields, "failed", Self::fact),
            migrations: self
                .optional(&fields, "migrations", |r, node, path| r.list(node, path, Self::migration))
                .unwrap_or_default(),
        }
    }

    fn fact(&mut self, node: &Node, path: &str) -> Option<FactSpec> {
        if matches!(node.content, Content::Scalar { .. }) {
            return Some(FactSpec { fact: self.event_type(node, path)?, data: Value::Null });
        }
        let fields = self.map(node, path, &FACT)?;
        let fact = self.required(&fields, "fact", Self::event_type)?;
        Some(FactSpec { fact, data: fields.data("data") })
    }

    fn migration(&mut self, node: &Node, path: &str) -> Option<MigrationSpec> {
        let fields = self.map(node, path, &MIGRATION)?;
        Some(MigrationSpec {
            from: self
                .required(&fields, "from", |r, node, path| r.list(node, path, Self::count))
                .unwrap_or_default(),
            steps: self
                .optional(&fields, "steps", |r, node, path| {
                    r.by_name(node, path, "a map of old steps to new ones", Name::new, Self::new_step)
                })
                .unwrap_or_default(),
            vars: self.optional(&fields, "vars", Self::templates).unwrap_or_default(),
        })
    }

    /// Decodes the name of a step, or null for a removed step.
    #[expect(clippy::option_option, reason = "outer: decoded or not; inner: a step or null")]
    fn new_step(&mut self, node: &Node, path: &str) -> Option<Option<Name>> {
        if node.is_null() { Some(None) } else { self.id(node, path, Name::new).map(Some) }
    }
}

#[cfg(test)]
mod tests;
