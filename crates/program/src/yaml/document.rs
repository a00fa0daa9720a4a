//! Document model of YAML files whose values have positions, for files that accompany definitions.
//!
//! The limits of definitions apply, and diagnostics have the same form: file, line, column, path,
//! suggestion.

use std::time::Duration;

use serde_json::Value;

use super::duration;
use super::tree::{self, Content, Node, Position};
use crate::diagnostic::Diagnostic;
pub use crate::diagnostic::did_you_mean;
use crate::limits::MAX_SOURCE_BYTES;

/// Parsed YAML file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    root: Node,
}

/// Value of a [`Document`].
#[derive(Clone, Debug)]
pub struct Item<'d> {
    file: &'d str,
    node: &'d Node,
    at: Position,
    path: String,
}

/// Field of a map: its name, and its value whose diagnostics have the position of the name.
#[derive(Clone, Debug)]
pub struct Entry<'d> {
    /// Name of the field.
    pub name: &'d str,
    /// Value of the field.
    pub item: Item<'d>,
    key: Position,
}

impl Document {
    /// Parses the text of a file. `file` is only used in diagnostics.
    ///
    /// # Errors
    /// The text is not YAML, or exceeds the size or depth limit of definitions.
    pub fn read(text: &str, file: &str) -> Result<Self, Diagnostic> {
        let diagnostic = |at: Position, message: String| Diagnostic {
            file: file.to_owned(),
            line: at.line,
            column: at.column,
            path: String::new(),
            message,
            suggestion: None,
        };

        // Before the parser, whose tree is much larger than the text.
        if text.len() > MAX_SOURCE_BYTES {
            let message = format!(
                "the file is {} bytes long, the limit is {MAX_SOURCE_BYTES}",
                text.len()
            );
            return Err(diagnostic(Position { line: 1, column: 1 }, message));
        }

        let root =
            tree::parse(text).map_err(|malformed| diagnostic(malformed.at, malformed.message))?;
        Ok(Self {
            file: file.to_owned(),
            root,
        })
    }

    /// Returns the root value.
    #[must_use]
    pub fn root(&self) -> Item<'_> {
        Item {
            file: &self.file,
            node: &self.root,
            at: self.root.at,
            path: String::new(),
        }
    }
}

impl<'d> Item<'d> {
    /// Returns the value as JSON, by the core schema of YAML 1.2.
    #[must_use]
    pub fn json(&self) -> Value {
        self.node.to_json()
    }

    /// Returns a scalar as written; `None` for lists and maps.
    #[must_use]
    pub fn text(&self) -> Option<&'d str> {
        match &self.node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Parses a duration such as `30m`.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn duration(&self) -> Result<Duration, Diagnostic> {
        let text = self
            .text()
            .ok_or_else(|| self.type_error("a duration such as 30m"))?;
        duration::parse(text).map_err(|message| self.diagnostic(message))
    }

    /// Returns the items of a list; `None` if the value is not a list.
    #[must_use]
    pub fn list(&self) -> Option<Vec<Item<'d>>> {
        let Content::List(items) = &self.node.content else {
            return None;
        };

        let mut list = Vec::with_capacity(items.len());
        for (i, node) in items.iter().enumerate() {
            list.push(Item {
                file: self.file,
                node,
                at: node.at,
                path: self.under(i),
            });
        }
        Some(list)
    }

    /// Returns the fields of a map in the order of the text; `None` if the value is not a map.
    #[must_use]
    pub fn map(&self) -> Option<Vec<Entry<'d>>> {
        let Content::Map(entries) = &self.node.content else {
            return None;
        };

        let mut fields = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            let path = if self.path.is_empty() {
                key.text.clone()
            } else {
                format!("{}.{}", self.path, key.text)
            };
            let item = Item {
                file: self.file,
                node,
                at: node.at,
                path,
            };
            fields.push(Entry {
                name: key.text.as_str(),
                item,
                key: key.at,
            });
        }
        Some(fields)
    }

    fn under(&self, index: usize) -> String {
        format!("{}[{index}]", self.path)
    }

    /// Returns the name of the type for messages: `a list`, `a text`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.node.kind()
    }

    /// Returns the line of the value, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.at.line
    }

    /// Returns a diagnostic at the position of the value.
    #[must_use]
    pub fn diagnostic(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            file: self.file.to_owned(),
            line: self.at.line,
            column: self.at.column,
            path: self.path.clone(),
            message: message.into(),
            suggestion: None,
        }
    }

    /// Returns a diagnostic for a value of the wrong type.
    #[must_use]
    pub fn type_error(&self, expected: &str) -> Diagnostic {
        self.diagnostic(format!(
            "this must be {expected}, it is {}",
            self.type_name()
        ))
    }
}

impl Entry<'_> {
    /// Returns a diagnostic for an unknown field, with the most similar valid name as suggestion.
    #[must_use]
    pub fn unknown_field(&self, valid: &[&str]) -> Diagnostic {
        let suggestion = did_you_mean(self.name, valid.iter().copied())
            .unwrap_or_else(|| format!("valid: {}", valid.join(", ")));
        // At the name and not at the value: the name is wrong.
        let at = Item {
            at: self.key,
            ..self.item.clone()
        };
        Diagnostic {
            suggestion: Some(suggestion),
            ..at.diagnostic(format!("unknown field `{}`", self.name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_location() {
        let document =
            Document::read("tests:\n  - nmae: x\n    given: [1, 2h]\n", "a.yaml").unwrap();
        let root = document.root();
        let tests = root.map().unwrap().remove(0).item.list().unwrap();
        let fields = tests[0].map().unwrap();
        let unknown = fields[0].unknown_field(&["name", "given"]).to_string();
        assert_eq!(
            unknown,
            "a.yaml:2:5: tests[0].nmae: unknown field `nmae`; did you mean `name`?"
        );
        let durations = fields[1].item.list().unwrap();
        assert_eq!(durations[1].duration().unwrap(), Duration::from_hours(2));
        assert_eq!(
            durations[0].duration().unwrap_err().to_string(),
            "a.yaml:3:13: tests[0].given[0]: `1` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M"
        );
    }

    #[test]
    fn yaml_syntax_error_has_a_location() {
        let diagnostic = Document::read("a: [1", "a.yaml").unwrap_err();
        assert!(
            diagnostic.line > 0 && diagnostic.message.starts_with("invalid YAML: "),
            "{diagnostic}"
        );
    }
}
