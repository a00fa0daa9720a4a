//! Shared decoder functions: fields of maps, one or a list, names, numbers, durations, templates.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, IdError};
use serde_json::{Map, Value};

use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::language_schema::MapSchema;
use crate::yaml::duration;
use crate::yaml::tree::{Content, Key, Node};

/// Decodes values and records diagnostics.
pub(super) struct Decoder<'f> {
    pub(super) findings: &'f mut Vec<RawDiagnostic>,
}

/// Known fields of a map.
pub(super) struct Fields<'n> {
    pub(super) path: String,
    pub(super) known: BTreeMap<&'n str, &'n Node>,
    /// Whether the value is a map; missing fields are reported only for maps.
    pub(super) is_map: bool,
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<(&'n Node, String)> {
        self.known.get(name).map(|node| (*node, join_path(&self.path, name)))
    }

    /// Returns the template in a field, if the field is present.
    pub(super) fn template(&self, name: &str) -> Option<Value> {
        self.known.get(name).map(|node| node.to_json())
    }

    /// Returns the template in a field, or null if the field is absent.
    pub(super) fn data(&self, name: &str) -> Value {
        self.template(name).unwrap_or_default()
    }
}

/// Returns the path of the field `name` of the value at `path`.
pub(super) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl Decoder<'_> {
    pub(super) fn report(&mut self, finding: RawDiagnostic) {
        self.findings.push(finding);
    }

    /// Returns the known fields of a map; reports other fields with the most similar valid name.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, path: &str, valid: &MapSchema) -> Fields<'n> {
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

    /// Same as [`Decoder::fields`], but returns `None` if the value is not a map.
    pub(super) fn map<'n>(&mut self, node: &'n Node, path: &str, valid: &MapSchema) -> Option<Fields<'n>> {
        Some(self.fields(node, path, valid)).filter(|fields| fields.is_map)
    }

    /// Reports a field that is not part of the language.
    pub(super) fn unknown(&mut self, path: &str, name: &str, valid: &[&str]) {
        let all = || format!("valid: {}", valid.join(", "));
        let suggestion = did_you_mean(name, valid.iter().copied()).unwrap_or_else(all);
        let finding = RawDiagnostic::new(join_path(path, name), format!("unknown field `{name}`"));
        self.report(finding.at_key().with_suggestion(suggestion));
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
            self.report(RawDiagnostic::new(&fields.path, format!("`{name}` is missing")));
        }
        self.optional(fields, name, read)
    }

    /// Returns the entries of a map in the order of the text.
    pub(super) fn entries<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        expected: &str,
    ) -> Option<&'n [(Key, Node)]> {
        match &node.content {
            Content::Map(entries) => Some(entries),
            Content::List(_) | Content::Scalar { .. } => self.type_error(path, expected, node),
        }
    }

    /// Decodes a map with user-defined keys.
    pub(super) fn by_name<K: Ord, T>(
        &mut self,
        node: &Node,
        path: &str,
        expected: &str,
        name: impl Fn(String) -> Result<K, IdError>,
        read: impl Fn(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<BTreeMap<K, T>> {
        let mut found = BTreeMap::new();
        for (key, node) in self.entries(node, path, expected)? {
            let path = join_path(path, &key.text);
            let name = self.parse_name(name(key.text.clone()), &path);
            if let (Some(name), Some(value)) = (name, read(self, node, &path)) {
                found.insert(name, value);
            }
        }
        Some(found)
    }

    /// Decodes one value or a list.
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
        self.parse_name(new(text), path)
    }

    pub(super) fn parse_name<T>(&mut self, id: Result<T, IdError>, path: &str) -> Option<T> {
        id.map_err(|error| self.report(RawDiagnostic::new(path, error.to_string()))).ok()
    }

    /// Returns a scalar as written: `on`, `1` and `true` are valid names.
    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        match &node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => self.type_error(path, "a text", node),
        }
    }

    /// Decodes one of a few names; `values` has the results in the same order.
    pub(super) fn enum_value<T: Copy>(
        &mut self,
        node: &Node,
        path: &str,
        names: &[&str],
        values: &[T],
    ) -> Option<T> {
        let text = self.text(node, path)?;
        let known = names.iter().zip(values).find(|(name, _)| **name == text);
        if known.is_none() {
            let all = || format!("valid: {}", names.join(", "));
            let suggestion = did_you_mean(text, names.iter().copied()).unwrap_or_else(all);
            self.report(
                RawDiagnostic::new(path, format!("invalid value `{text}`")).with_suggestion(suggestion),
            );
        }
        known.map(|(_, value)| *value)
    }

    pub(super) fn bool(&mut self, node: &Node, path: &str) -> Option<bool> {
        match node.to_json() {
            Value::Bool(flag) => Some(flag),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.type_error(path, "true or false", node)
            }
        }
    }

    pub(super) fn count(&mut self, node: &Node, path: &str) -> Option<u32> {
        match node.to_json().as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.type_error(path, "a whole number from 0", node),
        }
    }

    pub(super) fn duration(&mut self, node: &Node, path: &str) -> Option<Duration> {
        match &node.content {
            Content::Scalar { text, .. } => {
                duration::parse(text).map_err(|message| self.report(RawDiagnostic::new(path, message))).ok()
            }
            Content::List(_) | Content::Map(_) => self.type_error(path, "a duration such as 30m", node),
        }
    }

    pub(super) fn condition(&mut self, node: &Node, path: &str) -> Option<String> {
        match node.to_json() {
            Value::String(text) => Some(text),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.type_error(path, "an expression", node)
            }
        }
    }

    pub(super) fn templates(&mut self, node: &Node, path: &str) -> Option<Map<String, Value>> {
        match node.to_json() {
            Value::Object(fields) => Some(fields),
            Value::Null => Some(Map::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.type_error(path, "a map of names to templates", node)
            }
        }
    }

    pub(super) fn type_error<T>(&mut self, path: &str, expected: &str, node: &Node) -> Option<T> {
        self.report(RawDiagnostic::new(path, format!("this must be {expected}, it is {}", node.kind())));
        None
    }
}
