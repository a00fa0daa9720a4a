//! Decoder of YAML: reads the fields of maps and records every diagnostic.

use std::collections::BTreeMap;

use orlog_model::IdError;
use serde_json::Value;

use super::schema::{MapSchema, ValueSchema};
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::yaml::tree::{Content, Key, Node};

/// Type of a value of the language.
pub(crate) trait Codec {
    /// Decoded form.
    type Value;
    const SCHEMA: ValueSchema;

    /// Decodes a value; reports an invalid one and returns `None`.
    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self::Value>;

    /// Returns the stand-in for an unreadable required field of the map at `path`, so that the rest
    /// is checked in the same pass.
    fn placeholder(path: &str) -> Option<Self::Value> {
        let _ = path;
        None
    }
}

/// Decodes values and records diagnostics.
pub(crate) struct Decoder<'f> {
    pub(crate) findings: &'f mut Vec<RawDiagnostic>,
}

/// Known fields of a map.
pub(crate) struct Fields<'n> {
    pub(crate) path: String,
    pub(crate) known: BTreeMap<&'n str, &'n Node>,
    /// Whether the value is a map; missing fields are reported only for maps.
    pub(crate) is_map: bool,
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, name: &str) -> Option<(&'n Node, String)> {
        self.known
            .get(name)
            .map(|node| (*node, join_path(&self.path, name)))
    }

    /// Returns the template in a field, if the field is present.
    pub(crate) fn template(&self, name: &str) -> Option<Value> {
        self.known.get(name).map(|node| node.to_json())
    }
}

/// Returns the path of the field `name` of the value at `path`.
pub(crate) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Decoder<'_> {
    pub(crate) fn report(&mut self, finding: RawDiagnostic) {
        self.findings.push(finding);
    }

    pub(crate) fn type_error<T>(&mut self, path: &str, expected: &str, node: &Node) -> Option<T> {
        self.report(RawDiagnostic::new(
            path,
            format!("this must be {expected}, it is {}", node.kind()),
        ));
        None
    }

    /// Reports a field that is not part of the language.
    pub(crate) fn unknown(&mut self, path: &str, name: &str, valid: &[&str]) {
        let suggestion = did_you_mean(name, valid.iter().copied())
            .unwrap_or_else(|| format!("valid: {}", valid.join(", ")));
        let finding = RawDiagnostic::new(join_path(path, name), format!("unknown field `{name}`"));
        self.report(finding.at_key().with_suggestion(suggestion));
    }

    /// Returns the known fields of a map; reports other fields with the most similar valid name.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        valid: &MapSchema,
    ) -> Fields<'n> {
        let is_map = matches!(node.content, Content::Map(_));
        let mut fields = Fields {
            path: path.to_owned(),
            known: BTreeMap::new(),
            is_map,
        };

        for (key, node) in self.entries(node, path, "a map").unwrap_or_default() {
            if valid.fields.iter().any(|field| field.name == key.text) {
                fields.known.insert(&key.text, node);
            } else {
                // Several actions can have a field of the same name.
                let mut names = Vec::new();
                for field in valid.fields {
                    if !names.contains(&field.name) {
                        names.push(field.name);
                    }
                }
                self.unknown(path, &key.text, &names);
            }
        }

        fields
    }

    /// Same as [`Decoder::fields`], but returns `None` if the value is not a map.
    pub(crate) fn map<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        valid: &MapSchema,
    ) -> Option<Fields<'n>> {
        Some(self.fields(node, path, valid)).filter(|fields| fields.is_map)
    }

    pub(crate) fn optional<C: Codec>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
    ) -> Option<C::Value> {
        let (node, path) = fields.get(name)?;
        C::decode(self, node, &path)
    }

    pub(crate) fn required<C: Codec>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
    ) -> Option<C::Value> {
        // A value that is no map is already reported as a whole.
        if fields.is_map && fields.get(name).is_none() {
            self.report(RawDiagnostic::new(
                &fields.path,
                format!("`{name}` is missing"),
            ));
        }

        self.optional::<C>(fields, name)
            .or_else(|| C::placeholder(&fields.path))
    }

    /// Returns the entries of a map in the order of the text.
    pub(crate) fn entries<'n>(
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
    pub(crate) fn by_name<K: Ord, C: Codec>(
        &mut self,
        node: &Node,
        path: &str,
        expected: &str,
        parse: impl Fn(String) -> Result<K, IdError>,
    ) -> Option<BTreeMap<K, C::Value>> {
        let mut found = BTreeMap::new();
        for (key, node) in self.entries(node, path, expected)? {
            let path = join_path(path, &key.text);
            let name = self.parse_id(parse(key.text.clone()), &path);
            // Both are decoded, so that an invalid name does not hide the errors of its value.
            if let (Some(name), Some(value)) = (name, C::decode(self, node, &path)) {
                found.insert(name, value);
            }
        }
        Some(found)
    }

    /// Decodes the items of a list.
    pub(crate) fn each<C: Codec>(&mut self, items: &[Node], path: &str) -> Vec<C::Value> {
        let items = items.iter().enumerate();
        items
            .filter_map(|(i, item)| C::decode(self, item, &format!("{path}[{i}]")))
            .collect()
    }

    pub(crate) fn parse_id<T>(&mut self, id: Result<T, IdError>, path: &str) -> Option<T> {
        id.map_err(|error| self.report(RawDiagnostic::new(path, error.to_string())))
            .ok()
    }

    /// Returns a scalar as written.
    pub(crate) fn text<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        match &node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => self.type_error(path, "a text", node),
        }
    }
}
