//! From a tree to the intermediate form. Whatever cannot be read is reported and stood in for, so that the rest is checked
//! in the same go; a definition with a stand-in never leaves the front-end.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, IdError, Name, Retry, SagaName};
use serde_json::{Map, Value};

use super::duration;
use super::tree::{Content, Node};
use crate::builder::split_command;
use crate::form::{Action, After, Answer, Correlate, Definition, FactForm, Join, Step, Undo};
use crate::problem::{Finding, did_you_mean};

const TOP: [&str; 10] =
    ["saga", "version", "correlate", "start", "vars", "reference", "timeout", "steps", "completed", "failed"];
const STEP: [&str; 10] = ["id", "after", "when", "do", "ok", "fail", "undo", "timeout", "save", "retry"];
const DO: [&str; 4] = ["command", "effect", "id", "data"];
const UNDO: [&str; 8] = ["command", "effect", "id", "data", "ok", "fail", "timeout", "retry"];
const RETRY: [&str; 2] = ["attempts", "backoff"];
const FACT: [&str; 2] = ["fact", "data"];

/// Reads a definition as far as it can be read.
pub(super) fn definition(root: &Node, findings: &mut Vec<Finding>) -> Definition {
    Decoder { findings }.definition(root)
}

struct Decoder<'f> {
    findings: &'f mut Vec<Finding>,
}

/// The fields of a map that the language knows.
struct Fields<'n> {
    path: String,
    known: BTreeMap<&'n str, &'n Node>,
}

impl<'n> Fields<'n> {
    fn get(&self, name: &str) -> Option<(&'n Node, String)> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        self.known.get(name).map(|node| (*node, path))
    }
}

impl Decoder<'_> {
    fn definition(&mut self, root: &Node) -> Definition {
        let fields = self.fields(root, "", &TOP);
        let saga = self.required(&fields, "saga", |d, node, path| d.id(node, path, SagaName::new));
        Definition {
            saga: saga.unwrap_or_else(|| SagaName::new("unread").expect("a short word")),
            version: self.required(&fields, "version", Self::version).unwrap_or(1),
            start: self.optional(&fields, "start", Self::event_types).unwrap_or_default(),
            correlate: self.optional(&fields, "correlate", Self::correlate).unwrap_or_default(),
            early: None,
            events: BTreeMap::new(),
            env: Map::new(),
            on: Vec::new(),
            migrates: Vec::new(),
            vars: self.optional(&fields, "vars", Self::templates).unwrap_or_default(),
            reference: fields.get("reference").map(|(node, _)| node.to_json()),
            timeout: self.optional(&fields, "timeout", Self::duration),
            steps: self.optional(&fields, "steps", Self::steps).unwrap_or_default(),
            completed: self.optional(&fields, "completed", Self::fact),
            failed: self.optional(&fields, "failed", Self::fact),
        }
    }

    fn steps(&mut self, node: &Node, path: &str) -> Option<Vec<Step>> {
        let Content::List(items) = &node.content else {
            return self.wrong(path, "a list of steps", node);
        };
        Some(items.iter().enumerate().map(|(i, item)| self.step(item, i)).collect())
    }

    fn step(&mut self, node: &Node, index: usize) -> Step {
        let fields = self.fields(node, &format!("steps[{index}]"), &STEP);
        let id = self.required(&fields, "id", |d, node, path| d.id(node, path, Name::new));
        let stand_in = || Name::new(format!("step-{index}-unread")).expect("a short word");
        Step {
            id: id.unwrap_or_else(stand_in),
            after: self.optional(&fields, "after", |d, node, path| {
                d.list(node, path, |d, n, p| d.id(n, p, Name::new))
                    .map(|steps| After { steps, join: Join::All })
            }),
            foreach: None,
            pivot: false,
            when: self.optional(&fields, "when", Self::condition),
            action: self.required(&fields, "do", Self::action).unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::answers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::answers).unwrap_or_default(),
            undo: self.optional(&fields, "undo", |d, node, path| Some(d.undo(node, path))),
            timeout: self.optional(&fields, "timeout", Self::duration),
            save: self.optional(&fields, "save", Self::templates).unwrap_or_default(),
            retry: self.optional(&fields, "retry", |d, node, path| Some(d.retry(node, path))),
        }
    }

    fn action(&mut self, node: &Node, path: &str) -> Option<Action> {
        let fields = self.fields(node, path, &DO);
        self.action_of(&fields)
    }

    fn undo(&mut self, node: &Node, path: &str) -> Undo {
        let fields = self.fields(node, path, &UNDO);
        Undo {
            action: self.action_of(&fields).unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::answers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::answers).unwrap_or_default(),
            timeout: self.optional(&fields, "timeout", Self::duration),
            retry: self.optional(&fields, "retry", |d, node, path| Some(d.retry(node, path))),
        }
    }

    fn action_of(&mut self, fields: &Fields<'_>) -> Option<Action> {
        let data = fields.get("data").map_or(Value::Null, |(node, _)| node.to_json());
        let id = fields.get("id");
        match (fields.get("command"), fields.get("effect")) {
            (Some((node, path)), None) => {
                let text = self.text(node, &path)?;
                let split = split_command(text);
                let (aggregate_type, name) =
                    split.map_err(|f| self.findings.push(Finding { path, ..f })).ok()?;
                Some(Action::Command { aggregate_type, name, id: id.map(|(node, _)| node.to_json()), data })
            }
            (None, Some((node, path))) => {
                if let Some((_, path)) = id {
                    let finding = Finding::new(path, "an effect has no aggregate id").at_key();
                    self.findings.push(finding.suggest("put it into `data`"));
                }
                self.id(node, &path, EffectName::new).map(|name| Action::Effect { name, data })
            }
            (Some(_), Some((_, path))) => {
                self.findings
                    .push(Finding::new(path, "there is a `command` already; one of the two").at_key());
                None
            }
            (None, None) => {
                let finding = Finding::new(&fields.path, "it says nothing to do");
                self.findings.push(finding.suggest("name a `command` or an `effect`"));
                None
            }
        }
    }

    fn fact(&mut self, node: &Node, path: &str) -> Option<FactForm> {
        if matches!(node.content, Content::Scalar { .. }) {
            return Some(FactForm { fact: self.event_type(node, path)?, data: Value::Null });
        }
        let fields = self.fields(node, path, &FACT);
        let fact = self.required(&fields, "fact", Self::event_type)?;
        Some(FactForm { fact, data: fields.get("data").map_or(Value::Null, |(node, _)| node.to_json()) })
    }

    fn retry(&mut self, node: &Node, path: &str) -> Retry {
        let fields = self.fields(node, path, &RETRY);
        Retry {
            attempts: self.optional(&fields, "attempts", Self::count),
            backoff: self.optional(&fields, "backoff", Self::duration),
        }
    }

    fn correlate(&mut self, node: &Node, path: &str) -> Option<Correlate> {
        let Content::Map(entries) = &node.content else {
            return self.text(node, path).map(|field| Correlate::Field(field.to_owned()));
        };
        let mut paths = BTreeMap::new();
        for (key, node) in entries {
            let path = format!("{path}.{}", key.text);
            let kind = self.keep(EventType::new(key.text.as_str()), &path);
            if let (Some(kind), Some(field)) = (kind, self.text(node, &path)) {
                paths.insert(kind, field.to_owned());
            }
        }
        Some(Correlate::ByType(paths))
    }

    fn templates(&mut self, node: &Node, path: &str) -> Option<Map<String, Value>> {
        match node.to_json() {
            Value::Object(fields) => Some(fields),
            Value::Null => Some(Map::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong(path, "a map of names to templates", node)
            }
        }
    }

    fn condition(&mut self, node: &Node, path: &str) -> Option<String> {
        match node.to_json() {
            Value::String(text) => Some(text),
            Value::Bool(holds) => Some(holds.to_string()),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, "an expression", node)
            }
        }
    }

    fn duration(&mut self, node: &Node, path: &str) -> Option<Duration> {
        let Content::Scalar { text, .. } = &node.content else {
            return self.wrong(path, "a duration such as 30m", node);
        };
        let parsed = duration::parse(text);
        parsed.map_err(|message| self.findings.push(Finding::new(path, message))).ok()
    }

    fn version(&mut self, node: &Node, path: &str) -> Option<u32> {
        self.count(node, path)
    }

    fn count(&mut self, node: &Node, path: &str) -> Option<u32> {
        match node.to_json().as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.wrong(path, "a whole number from 0", node),
        }
    }

    fn event_types(&mut self, node: &Node, path: &str) -> Option<Vec<EventType>> {
        self.list(node, path, Self::event_type)
    }

    fn answers(&mut self, node: &Node, path: &str) -> Option<Vec<Answer>> {
        self.event_types(node, path).map(|kinds| kinds.into_iter().map(Answer::from).collect())
    }

    fn event_type(&mut self, node: &Node, path: &str) -> Option<EventType> {
        self.id(node, path, EventType::new)
    }

    /// One, or a list of them.
    fn list<T>(
        &mut self,
        node: &Node,
        path: &str,
        read: impl Fn(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Content::List(items) = &node.content else { return read(self, node, path).map(|one| vec![one]) };
        Some(
            items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| read(self, item, &format!("{path}[{i}]")))
                .collect(),
        )
    }

    fn id<T>(&mut self, node: &Node, path: &str, new: impl Fn(String) -> Result<T, IdError>) -> Option<T> {
        let text = self.text(node, path)?.to_owned();
        self.keep(new(text), path)
    }

    fn keep<T>(&mut self, id: Result<T, IdError>, path: &str) -> Option<T> {
        id.map_err(|error| self.findings.push(Finding::new(path, error.to_string()))).ok()
    }

    /// A scalar as it is written: `on`, `1` and `true` are names too.
    fn text<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        match &node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => self.wrong(path, "a text", node),
        }
    }

    fn wrong<T>(&mut self, path: &str, wanted: &str, node: &Node) -> Option<T> {
        self.findings.push(Finding::new(path, format!("this must be {wanted}, it is {}", node.kind())));
        None
    }

    /// The known fields of a map; others are reported with the nearest valid name.
    fn fields<'n>(&mut self, node: &'n Node, path: &str, names: &[&str]) -> Fields<'n> {
        let mut fields = Fields { path: path.to_owned(), known: BTreeMap::new() };
        let Content::Map(entries) = &node.content else {
            self.findings.push(Finding::new(path, format!("this must be a map, it is {}", node.kind())));
            return fields;
        };
        for (key, node) in entries {
            if names.contains(&key.text.as_str()) {
                fields.known.insert(&key.text, node);
                continue;
            }
            let at = if path.is_empty() { key.text.clone() } else { format!("{path}.{}", key.text) };
            let valid = || format!("valid are {}", names.join(", "));
            let suggestion = did_you_mean(&key.text, names.iter().copied()).unwrap_or_else(valid);
            self.findings.push(
                Finding::new(at, format!("there is no field `{}`", key.text)).at_key().suggest(suggestion),
            );
        }
        fields
    }

    fn optional<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        read: impl FnOnce(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<T> {
        let (node, path) = fields.get(name)?;
        read(self, node, &path)
    }

    fn required<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        read: impl FnOnce(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<T> {
        if fields.get(name).is_none() {
            self.findings.push(Finding::new(&fields.path, format!("`{name}` is missing")));
        }
        self.optional(fields, name, read)
    }
}

/// Stands in for what could not be read.
fn unread_action() -> Action {
    Action::Effect { name: EffectName::new("unread").expect("a short word"), data: Value::Null }
}
