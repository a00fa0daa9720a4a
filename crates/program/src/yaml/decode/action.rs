//! Actions: the field that names the kind decides which others may stand beside it.

use crate::definition::{Escalation, Human};
use crate::language_schema::{ESCALATE, HUMAN};
use std::collections::BTreeMap;

use orlog_model::{EffectName, Name, SagaName};
use serde_json::Value;

use super::reader::{Fields, Reader, under};
use crate::builder::split_command;
use crate::definition::{Action, Job, Moment};
use crate::diagnostic::Finding;
use crate::language_schema::{ACTION, Field, Form, JOB, KINDS, Kind, MOMENT};
use crate::yaml::duration;
use crate::yaml::tree::{Content, Key, Node};

impl Reader<'_> {
    pub(super) fn action(&mut self, node: &Node, path: &str) -> Option<Action> {
        self.action_beside(node, path, &ACTION).0
    }

    /// An action, and all fields of its map: its own and those of `beside`.
    pub(super) fn action_beside<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        beside: &Form,
    ) -> (Option<Action>, Fields<'n>) {
        let mut fields = Fields { path: path.to_owned(), known: BTreeMap::new(), is_map: false };
        let Some(entries) = self.entries(node, path, "a map such as { effect: … }") else {
            return (None, fields);
        };
        fields.is_map = true;
        let kind = self.kind(entries, path);
        for (key, node) in entries {
            if self.fits(&key.text, kind.as_ref(), beside, path) {
                fields.known.insert(&key.text, node);
            }
        }
        (kind.and_then(|kind| self.action_of(kind.name(), &fields)), fields)
    }

    /// The one kind that the map names.
    fn kind(&mut self, entries: &[(Key, Node)], path: &str) -> Option<Kind> {
        let named = |name: &str| entries.iter().any(|(key, _)| key.text == name);
        let mut kinds = KINDS.into_iter().filter(|kind| named(kind.name()));
        let Some(kind) = kinds.next() else {
            let all: Vec<_> = KINDS.iter().map(|known| format!("`{}`", known.name())).collect();
            let finding = Finding::new(path, "it says nothing to do");
            self.note(finding.suggest(format!("name one of {}", all.join(", "))));
            return None;
        };
        let own = |other: &Kind| kind.fields.iter().any(|field| field.name == other.name());
        let second = kinds.find(|other| !own(other));
        let Some(second) = second else { return Some(kind) };
        let message = format!("`{}` is there already; one of the two", kind.name());
        self.note(Finding::new(under(path, second.name()), message).at_key());
        None
    }

    /// Whether a field may stand beside what names the kind; if not, that is reported.
    fn fits(&mut self, name: &str, kind: Option<&Kind>, beside: &Form, path: &str) -> bool {
        let has = |fields: &[Field]| fields.iter().any(|field| field.name == name);
        let of_a_kind = KINDS.iter().any(|kind| has(kind.fields));
        let Some(kind) = kind else {
            if !of_a_kind && !has(beside.fields) {
                let fields = KINDS.iter().flat_map(|kind| kind.fields).chain(beside.fields);
                let names: Vec<_> = fields.map(|field| field.name).collect();
                self.unknown(path, name, &names);
            }
            return false;
        };
        if has(kind.fields) || has(beside.fields) {
            return true;
        }
        if of_a_kind {
            self.stranger(name, kind, path);
        } else {
            let names: Vec<_> = kind.fields.iter().chain(beside.fields).map(|field| field.name).collect();
            self.unknown(path, name, &names);
        }
        false
    }

    /// A field of another kind of action.
    fn stranger(&mut self, name: &str, kind: &Kind, path: &str) {
        let (message, suggestion) = match name {
            "id" => (format!("{} has no aggregate id", kind.called), Some("put it into `data`")),
            "data" => (format!("{} has no `data`", kind.called), None),
            _ => (format!("{} has no `{name}`", kind.called), None),
        };
        let finding = Finding::new(under(path, name), message).at_key();
        let takes_data = kind.fields.iter().any(|field| field.name == "data");
        self.note(finding.maybe_suggest(suggestion.filter(|_| takes_data).map(str::to_owned)));
    }

    fn action_of(&mut self, kind: &str, fields: &Fields<'_>) -> Option<Action> {
        let data = fields.data("data");
        let (node, path) = fields.get(kind)?;
        match kind {
            "command" => self.command(node, path, fields),
            "effect" => self.id(node, &path, EffectName::new).map(|name| Action::Effect { name, data }),
            "wait" => self.moment(node, &path).map(Action::Wait),
            "human" => self.human(node, &path).map(Action::Human),
            "saga" => {
                let event = self.optional(fields, "event", Self::event_type);
                let saga = self.id(node, &path, SagaName::new)?;
                Some(Action::Saga { saga, correlation: fields.template("correlation"), event, data })
            }
            "event" => {
                let when = self.optional(fields, "when", Self::condition);
                self.event_types(node, &path).map(|events| Action::Event { events, when })
            }
            "job" => self.job(node, &path).map(Action::Job),
            "switch" => self.cases(node, &path).map(Action::Switch),
            other => unreachable!("{other} is none of the kinds"),
        }
    }

    fn command(&mut self, node: &Node, path: String, fields: &Fields<'_>) -> Option<Action> {
        let split = split_command(self.text(node, &path)?);
        let (aggregate_type, name) = split.map_err(|finding| self.note(Finding { path, ..finding })).ok()?;
        Some(Action::Command { aggregate_type, name, id: fields.template("id"), data: fields.data("data") })
    }

    /// `30m`, `{ for: … }` or `{ until: … }`.
    pub(super) fn moment(&mut self, node: &Node, path: &str) -> Option<Moment> {
        if !matches!(node.content, Content::Map(_)) {
            return self.span(node, path).map(Moment::For);
        }
        let fields = self.form(node, path, &MOMENT)?;
        match (fields.get("for"), fields.get("until")) {
            (Some((node, path)), None) => self.span(node, &path).map(Moment::For),
            (None, Some((node, _))) => Some(Moment::Until(node.to_json())),
            (_, _) => {
                let finding = Finding::new(path, "it must say one thing: `for` or `until`");
                self.note(finding.suggest("for example { for: 30m } or { until: =vars.dueAt }"));
                None
            }
        }
    }

    /// A template for a duration; what is no expression is one already.
    fn span(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.content {
            Content::Scalar { text, .. } if text.starts_with('=') => Some(node.to_json()),
            Content::Scalar { text, .. } => {
                let read = duration::parse(text).map(|_| Value::from(text.as_str()));
                read.map_err(|message| self.note(Finding::new(path, message))).ok()
            }
            Content::List(_) | Content::Map(_) => self.wrong(path, "a duration such as 30m", node),
        }
    }

    fn job(&mut self, node: &Node, path: &str) -> Option<Job> {
        let fields = self.form(node, path, &JOB)?;
        let kind = self.required(&fields, "type", |r, node, path| r.id(node, path, Name::new));
        let script = self.required(&fields, "script", |r, node, path| r.text(node, path).map(str::to_owned));
        let env = self.optional(&fields, "env", Self::templates).unwrap_or_default();
        let prerequisites = self.optional(&fields, "prerequisites", Self::step_ids).unwrap_or_default();
        let dependencies = self.optional(&fields, "dependencies", Self::step_ids).unwrap_or_default();
        let args = fields.data("args");
        Some(Job { kind: kind?, script: script?, env, args, prerequisites, dependencies })
    }
}

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
