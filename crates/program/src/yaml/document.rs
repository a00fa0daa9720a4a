//! Any YAML file as a document whose every value knows its place, for files that stand beside definitions.
//!
//! The same bounds hold as for definitions, and problems read the same: file, line, column, path, suggestion.

use std::time::Duration;

use serde_json::Value;

use super::duration;
use super::tree::{self, Content, Node, Place};
use crate::diagnostic::{Problem, did_you_mean};
use crate::limits::MAX_SOURCE_BYTES;

/// A YAML file that was read.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    root: Node,
}

/// A value of a [`Document`].
#[derive(Clone, Debug)]
pub struct Item<'d> {
    file: &'d str,
    node: &'d Node,
    at: Place,
    path: String,
}

/// A field of a map: its name, and its value whose problems are told at the name's place.
#[derive(Clone, Debug)]
pub struct Entry<'d> {
    /// The name.
    pub name: &'d str,
    /// The value.
    pub item: Item<'d>,
    key: Place,
}

impl Document {
    /// Reads a file's text. `file` is only named in problems.
    ///
    /// # Errors
    /// The text is no YAML, or larger or deeper than definitions may be.
    pub fn read(text: &str, file: &str) -> Result<Self, Problem> {
        let wrong = |at: Place, message: String| Problem {
            file: file.to_owned(),
            line: at.line,
            column: at.column,
            path: String::new(),
            message,
            suggestion: None,
        };
        if text.len() > MAX_SOURCE_BYTES {
            let message = format!("the file is {} bytes long, the limit is {MAX_SOURCE_BYTES}", text.len());
            return Err(wrong(Place { line: 1, column: 1 }, message));
        }
        let root = tree::parse(text).map_err(|malformed| wrong(malformed.at, malformed.message))?;
        Ok(Self { file: file.to_owned(), root })
    }

    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Item<'_> {
        Item { file: &self.file, node: &self.root, at: self.root.at, path: String::new() }
    }
}

impl<'d> Item<'d> {
    /// As JSON, by the core schema of YAML 1.2.
    #[must_use]
    pub fn json(&self) -> Value {
        self.node.to_json()
    }

    /// A scalar as it is written; `None` for lists and maps.
    #[must_use]
    pub fn text(&self) -> Option<&'d str> {
        match &self.node.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// A duration such as `30m`.
    ///
    /// # Errors
    /// It is none.
    pub fn duration(&self) -> Result<Duration, Problem> {
        let text = self.text().ok_or_else(|| self.must_be("a duration such as 30m"))?;
        duration::parse(text).map_err(|message| self.problem(message))
    }

    /// The members of a list; `None` where it is none.
    #[must_use]
    pub fn list(&self) -> Option<Vec<Item<'d>>> {
        let Content::List(items) = &self.node.content else { return None };
        let item =
            |(i, node): (usize, &'d Node)| Item { file: self.file, node, at: node.at, path: self.under(i) };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The fields of a map in the order of the text; `None` where it is none.
    #[must_use]
    pub fn map(&self) -> Option<Vec<Entry<'d>>> {
        let Content::Map(entries) = &self.node.content else { return None };
        let entry = |(key, node): &'d (tree::Key, Node)| {
            let path =
                if self.path.is_empty() { key.text.clone() } else { format!("{}.{}", self.path, key.text) };
            let item = Item { file: self.file, node, at: node.at, path };
            Entry { name: key.text.as_str(), item, key: key.at }
        };
        Some(entries.iter().map(entry).collect())
    }

    fn under(&self, index: usize) -> String {
        format!("{}[{index}]", self.path)
    }

    /// What people call it: `a list`, `a text`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.node.kind()
    }

    /// The line it stands in, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.at.line
    }

    /// Something is wrong with it.
    #[must_use]
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: self.at.line,
            column: self.at.column,
            path: self.path.clone(),
            message: message.into(),
            suggestion: None,
        }
    }

    /// It is not what is wanted here.
    #[must_use]
    pub fn must_be(&self, wanted: &str) -> Problem {
        self.problem(format!("this must be {wanted}, it is {}", self.kind()))
    }
}

impl Entry<'_> {
    /// There is no such field; the nearest of the valid ones is suggested.
    #[must_use]
    pub fn unknown(&self, valid: &[&str]) -> Problem {
        let suggestion = did_you_mean(self.name, valid.iter().copied())
            .unwrap_or_else(|| format!("valid are {}", valid.join(", ")));
        let at = Item { at: self.key, ..self.item.clone() };
        Problem { suggestion: Some(suggestion), ..at.problem(format!("there is no field `{}`", self.name)) }
    }
}

/// The name among `known` that `found` probably stands for, as a question.
#[must_use]
pub fn suggestion(found: &str, known: &[&str]) -> Option<String> {
    did_you_mean(found, known.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place() {
        let document = Document::read("tests:\n  - nmae: x\n    given: [1, 2h]\n", "a.yaml").unwrap();
        let root = document.root();
        let tests = root.map().unwrap().remove(0).item.list().unwrap();
        let fields = tests[0].map().unwrap();
        let unknown = fields[0].unknown(&["name", "given"]).to_string();
        assert_eq!(unknown, "a.yaml:2:5: tests[0].nmae: there is no field `nmae`; did you mean `name`?");
        let given = fields[1].item.list().unwrap();
        assert_eq!(given[1].duration().unwrap(), Duration::from_hours(2));
        assert_eq!(
            given[0].duration().unwrap_err().to_string(),
            "a.yaml:3:13: tests[0].given[0]: `1` is no duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 as in PT30M"
        );
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_place() {
        let wrong = Document::read("a: [1", "a.yaml").unwrap_err();
        assert!(wrong.line > 0 && wrong.message.starts_with("this is not YAML"), "{wrong}");
    }
}
