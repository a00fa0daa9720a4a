//! What every part of the decoder reads with: fields of maps, one or a list, names, numbers, durations, templates.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, IdError};
use serde_json::{Map, Value};

use crate::diagnostic::{Finding, did_you_mean};
use crate::language_schema::Form;
use crate::yaml::duration;
use crate::yaml::tree::{Content, Key, Node};

/// Reads, and notes what it cannot read.
pub(super) struct Reader<'f> {
    pub(super) findings: &'f mut Vec<Finding>,
}

/// The fields of a map that the language knows.
pub(super) struct Fields<'n> {
    pub(super) path: String,
    pub(super) known: BTreeMap<&'n str, &'n Node>,
    /// It is a map at all; what is none lacks no field.
    pub(super) is_map: bool,
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<(&'n Node, String)> {
        self.known.get(name).map(|node| (*node, under(&self.path, name)))
    }

    /// A template, where it is there.
    pub(super) fn template(&self, name: &str) -> Option<Value> {
        self.known.get(name).map(|node| node.to_json())
    }

    /// A template, null where it is not there.
    pub(super) fn data(&self, name: &str) -> Value {
        self.template(name).unwrap_or_default()
    }
}

/// The path of a field of what stands at `path`.
pub(super) fn under(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl Reader<'_> {
    pub(super) fn note(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// The known fields of a map; others are reported with the nearest valid name.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, path: &str, valid: &Form) -> Fields<'n> {
        let is_map = matches!(node.content, Content::Map(_));
        let mut fields = Fields { path: path.to_owned(), known: BTreeMap::new(), is_map };
        for (key, node) in self.entries(node, path, "a map").unwrap_or_default() {
            if valid.fields.iter().any(|field| field.name == key.text) {
                fields.known.insert(&key.text, node);
            } else {
                let names: Vec<_> = valid.fields.iter().map(|field| field.name).collect();
                self.unknown(path, &key.text, &names);
            }
        }
        fields
    }

    /// As [`Reader::fields`]; `None` for what is no map.
    pub(super) fn form<'n>(&mut self, node: &'n Node, path: &str, valid: &Form) -> Option<Fields<'n>> {
        Some(self.fields(node, path, valid)).filter(|fields| fields.is_map)
    }

    /// A field that is not part of the language.
    pub(super) fn unknown(&mut self, path: &str, name: &str, valid: &[&str]) {
        let all = || format!("valid are {}", valid.join(", "));
        let suggestion = did_you_mean(name, valid.iter().copied()).unwrap_or_else(all);
        let finding = Finding::new(under(path, name), format!("there is no field `{name}`"));
        self.note(finding.at_key().suggest(suggestion));
    }

    pub(super) fn optional<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        read: impl FnOnce(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<T> {
        let (node, path) = fields.get(name)?;
        read(self, node, &path)
    }

    pub(super) fn required<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        read: impl FnOnce(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<T> {
        if fields.is_map && fields.get(name).is_none() {
            self.note(Finding::new(&fields.path, format!("`{name}` is missing")));
        }
        self.optional(fields, name, read)
    }

    /// The entries of a map, in the order of the text.
    pub(super) fn entries<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        wanted: &str,
    ) -> Option<&'n [(Key, Node)]> {
        match &node.content {
            Content::Map(entries) => Some(entries),
            Content::List(_) | Content::Scalar { .. } => self.wrong(path, wanted, node),
        }
    }

    /// A map whose keys are names of the author's.
    pub(super) fn by_name<K: Ord, T>(
        &mut self,
        node: &Node,
        path: &str,
        wanted: &str,
        name: impl Fn(String) -> Result<K, IdError>,
        read: impl Fn(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<BTreeMap<K, T>> {
        let mut found = BTreeMap::new();
        for (key, node) in self.entries(node, path, wanted)? {
            let path = under(path, &key.text);
            let name = self.keep(name(key.text.clone()), &path);
            if let (Some(name), Some(value)) = (name, read(self, node, &path)) {
                found.insert(name, value);
            }
        }
        Some(found)
    }

    /// One, or a list of them.
    pub(super) fn list<T>(
        &mut self,
        node: &Node,
        path: &str,
        read: impl Fn(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        match &node.content {
            Content::List(items) => Some(self.each(items, path, read)),
            Content::Map(_) | Content::Scalar { .. } => read(self, node, path).map(|one| vec![one]),
        }
    }

    pub(super) fn each<T>(
        &mut self,
        items: &[Node],
        path: &str,
        read: impl Fn(&mut Self, &Node, &str) -> Option<T>,
    ) -> Vec<T> {
        let items = items.iter().enumerate();
        items.filter_map(|(i, item)| read(self, item, &format!("{path}[{i}]"))).collect()
    }

    pub(super) fn event_types(&mut self, node: &Node, path: &str) -> Option<Vec<EventType>> {
        self.list(node, path, Self::event_type)
    }

    pub(super) fn event_type(&mut self, node: &Node, path: &str) -> Option<EventType> {
        self.id(node, path, EventType::new)
    }

    pub(super) fn id<T>(
        &mut self,
        node: &Node,
        path: &str,
        new: impl Fn(String) -> Result<T, IdError>,
    ) -> Option<T> {
        let text = self.text(node, path)?.to_owned();
        self.keep(new(text), path)
    }

    pub(super) fn keep<T>(&mut self, id: Result<T, IdError>, path: &str) -> Option<T> {
        id.map_err(|error| self.note(Finding::new(path, error.to_string()))).ok()
    }

    /// A scalar as it is written: `on`, `1` and `true` are names too.
    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        match &node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => self.wrong(path, "a text", node),
        }
    }

    /// One of a few words; `values` stand for them in the same order.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        path: &str,
        words: &[&str],
        values: &[T],
    ) -> Option<T> {
        let text = self.text(node, path)?;
        let known = words.iter().zip(values).find(|(word, _)| **word == text);
        if known.is_none() {
            let all = || format!("valid are {}", words.join(", "));
            let suggestion = did_you_mean(text, words.iter().copied()).unwrap_or_else(all);
            self.note(
                Finding::new(path, format!("`{text}` is none of the words for this")).suggest(suggestion),
            );
        }
        known.map(|(_, value)| *value)
    }

    pub(super) fn flag(&mut self, node: &Node, path: &str) -> Option<bool> {
        match node.to_json() {
            Value::Bool(flag) => Some(flag),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, "true or false", node)
            }
        }
    }

    pub(super) fn count(&mut self, node: &Node, path: &str) -> Option<u32> {
        match node.to_json().as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.wrong(path, "a whole number from 0", node),
        }
    }

    pub(super) fn duration(&mut self, node: &Node, path: &str) -> Option<Duration> {
        match &node.content {
            Content::Scalar { text, .. } => {
                duration::parse(text).map_err(|message| self.note(Finding::new(path, message))).ok()
            }
            Content::List(_) | Content::Map(_) => self.wrong(path, "a duration such as 30m", node),
        }
    }

    pub(super) fn condition(&mut self, node: &Node, path: &str) -> Option<String> {
        match node.to_json() {
            Value::String(text) => Some(text),
            Value::Bool(holds) => Some(holds.to_string()),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, "an expression", node)
            }
        }
    }

    pub(super) fn templates(&mut self, node: &Node, path: &str) -> Option<Map<String, Value>> {
        match node.to_json() {
            Value::Object(fields) => Some(fields),
            Value::Null => Some(Map::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong(path, "a map of names to templates", node)
            }
        }
    }

    pub(super) fn wrong<T>(&mut self, path: &str, wanted: &str, node: &Node) -> Option<T> {
        self.note(Finding::new(path, format!("this must be {wanted}, it is {}", node.kind())));
        None
    }
}
