//! Tasks for people.

use serde_json::Value;

use super::reader::Reader;
use crate::definition::{Escalation, Human};
use crate::language_schema::{ESCALATE, HUMAN};
use crate::yaml::tree::Node;

impl Reader<'_> {
    pub(super) fn human(&mut self, node: &Node, path: &str) -> Option<Human> {
        let fields = self.form(node, path, &HUMAN)?;
        let title = self.required(&fields, "title", |_, node, _| Some(node.to_json()));
        let roles = self.optional(&fields, "roles", Self::roles).unwrap_or_default();
        let due = self.optional(&fields, "due", Self::moment);
        let escalate = self.optional(&fields, "escalate", Self::escalation);
        let (assignee, data) = (fields.template("assignee"), fields.data("data"));
        Some(Human { title: title?, roles, assignee, due, data, escalate })
    }

    fn escalation(&mut self, node: &Node, path: &str) -> Option<Escalation> {
        let fields = self.form(node, path, &ESCALATE)?;
        Some(Escalation {
            after: self.optional(&fields, "after", Self::duration),
            roles: self.optional(&fields, "roles", Self::roles).unwrap_or_default(),
            assignee: fields.template("assignee"),
        })
    }

    fn roles(&mut self, node: &Node, path: &str) -> Option<Vec<Value>> {
        self.list(node, path, |r, node, path| r.text(node, path).map(Value::from))
    }
}
