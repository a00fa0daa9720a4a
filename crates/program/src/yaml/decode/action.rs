//! Decoder of actions: the field that names the kind determines the other allowed fields.

use crate::definition::{Escalation, HumanTask};
use crate::language_schema::{ESCALATE, EXCLUDED_USERS, HUMAN};
use std::collections::BTreeMap;

use orlog_model::{EffectName, ExcludedUser, Name, SagaName};
use serde_json::Value;

use super::reader::{Decoder, Fields, join_path};
use crate::builder::split_command;
use crate::definition::{Action, JobAction, TimeSpec};
use crate::diagnostic::RawDiagnostic;
use crate::language_schema::{ACTION, ActionSchema, FieldSchema, JOB, KINDS, MapSchema, TIME_SPEC};
use crate::yaml::duration;
use crate::yaml::tree::{Content, Key, Node};

impl Decoder<'_> {
    pub(super) fn action(&mut self, node: &Node, path: &str) -> Option<Action> {
        self.action_beside(node, path, &ACTION).0
    }

    /// Decodes an action and returns all fields of its map: its own and those of `beside`.
    pub(super) fn action_beside<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        beside: &MapSchema,
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

    /// Returns the one kind that the map names.
    fn kind(&mut self, entries: &[(Key, Node)], path: &str) -> Option<ActionSchema> {
        let named = |name: &str| entries.iter().any(|(key, _)| key.text == name);
        let mut kinds = KINDS.into_iter().filter(|kind| named(kind.name()));
        let Some(kind) = kinds.next() else {
            let all: Vec<_> = KINDS.iter().map(|known| format!("`{}`", known.name())).collect();
            let finding = RawDiagnostic::new(path, "the action names no kind");
            self.report(finding.with_suggestion(format!("name one of {}", all.join(", "))));
            return None;
        };
        let own = |other: &ActionSchema| kind.fields.iter().any(|field| field.name == other.name());
        let second = kinds.find(|other| !own(other));
        let Some(second) = second else { return Some(kind) };
        let message = format!("`{}` is already present; an action has one kind", kind.name());
        self.report(RawDiagnostic::new(join_path(path, second.name()), message).at_key());
        None
    }

    /// Returns whether a field is allowed with this kind; reports it if not.
    fn fits(&mut self, name: &str, kind: Option<&ActionSchema>, beside: &MapSchema, path: &str) -> bool {
        let has = |fields: &[FieldSchema]| fields.iter().any(|field| field.name == name);
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

    /// Reports a field of another kind of action.
    fn stranger(&mut self, name: &str, kind: &ActionSchema, path: &str) {
        let (message, suggestion) = match name {
            "id" => (format!("{} has no aggregate id", kind.label), Some("put it into `data`")),
            "data" => (format!("{} has no `data`", kind.label), None),
            _ => (format!("{} has no `{name}`", kind.label), None),
        };
        let finding = RawDiagnostic::new(join_path(path, name), message).at_key();
        let takes_data = kind.fields.iter().any(|field| field.name == "data");
        self.report(finding.with_optional_suggestion(suggestion.filter(|_| takes_data).map(str::to_owned)));
    }

    fn action_of(&mut self, kind: &str, fields: &Fields<'_>) -> Option<Action> {
        let data = fields.data("data");
        let (node, path) = fields.get(kind)?;
        match kind {
            "command" => self.command(node, path, fields),
            "effect" => self.id(node, &path, EffectName::new).map(|name| Action::Effect { name, data }),
            "wait" => self.time_spec(node, &path).map(Action::Wait),
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
            other => unreachable!("{other} is an unknown kind"),
        }
    }

    fn command(&mut self, node: &Node, path: String, fields: &Fields<'_>) -> Option<Action> {
        let split = split_command(self.text(node, &path)?);
        let (aggregate_type, name) =
            split.map_err(|finding| self.report(RawDiagnostic { path, ..finding })).ok()?;
        Some(Action::Command { aggregate_type, name, id: fields.template("id"), data: fields.data("data") })
    }

    /// Decodes `30m`, `{ for: … }` or `{ until: … }`.
    pub(super) fn time_spec(&mut self, node: &Node, path: &str) -> Option<TimeSpec> {
        if !matches!(node.content, Content::Map(_)) {
            return self.duration_template(node, path).map(TimeSpec::For);
        }
        let fields = self.map(node, path, &TIME_SPEC)?;
        match (fields.get("for"), fields.get("until")) {
            (Some((node, path)), None) => self.duration_template(node, &path).map(TimeSpec::For),
            (None, Some((node, _))) => Some(TimeSpec::Until(node.to_json())),
            (_, _) => {
                let finding = RawDiagnostic::new(path, "it must have exactly one of `for` and `until`");
                self.report(finding.with_suggestion("for example { for: 30m } or { until: =vars.dueAt }"));
                None
            }
        }
    }

    /// Decodes a template for a duration; a value without an expression must be a valid duration.
    fn duration_template(&mut self, node: &Node, path: &str) -> Option<Value> {
        match &node.content {
            Content::Scalar { text, .. } if text.starts_with('=') => Some(node.to_json()),
            Content::Scalar { text, .. } => {
                let read = duration::parse(text).map(|_| Value::from(text.as_str()));
                read.map_err(|message| self.report(RawDiagnostic::new(path, message))).ok()
            }
            Content::List(_) | Content::Map(_) => self.type_error(path, "a duration such as 30m", node),
        }
    }

    fn job(&mut self, node: &Node, path: &str) -> Option<JobAction> {
        let fields = self.map(node, path, &JOB)?;
        let kind = self.required(&fields, "type", |r, node, path| r.id(node, path, Name::new));
        let script = self.required(&fields, "script", |r, node, path| r.text(node, path).map(str::to_owned));
        let env = self.optional(&fields, "env", Self::templates).unwrap_or_default();
        let prerequisites = self.optional(&fields, "prerequisites", Self::step_ids).unwrap_or_default();
        let dependencies = self.optional(&fields, "dependencies", Self::step_ids).unwrap_or_default();
        let args = fields.data("args");
        Some(JobAction { kind: kind?, script: script?, env, args, prerequisites, dependencies })
    }
}

impl Decoder<'_> {
    pub(super) fn human(&mut self, node: &Node, path: &str) -> Option<HumanTask> {
        let fields = self.map(node, path, &HUMAN)?;
        let title = self.required(&fields, "title", |_, node, _| Some(node.to_json()));
        let roles = self.optional(&fields, "roles", Self::roles).unwrap_or_default();
        let not_by = self.optional(&fields, "not_by", Self::not_by).unwrap_or_default();
        let due = self.optional(&fields, "due", Self::time_spec);
        let escalate = self.optional(&fields, "escalate", Self::escalation);
        let (assignee, data) = (fields.template("assignee"), fields.data("data"));
        Some(HumanTask { title: title?, roles, not_by, assignee, due, data, escalate })
    }

    fn escalation(&mut self, node: &Node, path: &str) -> Option<Escalation> {
        let fields = self.map(node, path, &ESCALATE)?;
        Some(Escalation {
            after: self.optional(&fields, "after", Self::duration),
            roles: self.optional(&fields, "roles", Self::roles).unwrap_or_default(),
            assignee: fields.template("assignee"),
        })
    }

    fn not_by(&mut self, node: &Node, path: &str) -> Option<Vec<ExcludedUser>> {
        self.list(node, path, |r, node, path| r.enum_value(node, path, &EXCLUDED_USERS, &ExcludedUser::ALL))
    }

    fn roles(&mut self, node: &Node, path: &str) -> Option<Vec<Value>> {
        self.list(node, path, |r, node, path| r.text(node, path).map(Value::from))
    }
}
