//! From a tree to the intermediate form. Whatever cannot be read is reported and stood in for, so that the rest is checked
//! in the same go; a definition with a stand-in never leaves the front-end.

mod action;
mod events;
mod reader;
mod step;

use orlog_model::{Name, SagaName};
use serde_json::Value;

use super::tree::{Content, Node};
use crate::definition::{Definition, FactForm, MigrationForm};
use crate::diagnostic::Finding;
use crate::language_schema::{FACT, MIGRATION, TOP};
use reader::Reader;

/// Reads a definition as far as it can be read.
pub(super) fn definition(root: &Node, findings: &mut Vec<Finding>) -> Definition {
    Reader { findings }.definition(root)
}

impl Reader<'_> {
    fn definition(&mut self, root: &Node) -> Definition {
        let fields = self.fields(root, "", &TOP);
        let saga = self.required(&fields, "saga", |r, node, path| r.id(node, path, SagaName::new));
        Definition {
            saga: saga.unwrap_or_else(|| SagaName::new("unread").expect("a short word")),
            version: self.required(&fields, "version", Self::count).unwrap_or(1),
            start: self.optional(&fields, "start", Self::event_types).unwrap_or_default(),
            correlate: self.optional(&fields, "correlate", Self::correlate).unwrap_or_default(),
            early: self.optional(&fields, "early", Self::duration),
            events: self.optional(&fields, "events", Self::event_forms).unwrap_or_default(),
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
            migrates: self
                .optional(&fields, "migrates", |r, node, path| r.list(node, path, Self::migration))
                .unwrap_or_default(),
        }
    }

    fn fact(&mut self, node: &Node, path: &str) -> Option<FactForm> {
        if matches!(node.content, Content::Scalar { .. }) {
            return Some(FactForm { fact: self.event_type(node, path)?, data: Value::Null });
        }
        let fields = self.form(node, path, &FACT)?;
        let fact = self.required(&fields, "fact", Self::event_type)?;
        Some(FactForm { fact, data: fields.data("data") })
    }

    fn migration(&mut self, node: &Node, path: &str) -> Option<MigrationForm> {
        let fields = self.form(node, path, &MIGRATION)?;
        Some(MigrationForm {
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

    /// A step, or null where there is none any more.
    #[expect(clippy::option_option, reason = "read or not read, and then a step or none")]
    fn new_step(&mut self, node: &Node, path: &str) -> Option<Option<Name>> {
        if node.is_null() { Some(None) } else { self.id(node, path, Name::new).map(Some) }
    }
}

#[cfg(test)]
mod tests;
