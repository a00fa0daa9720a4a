//! YAML tree with the position of every value. Depth and size are limited before the tree is
//! decoded.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use crate::limits::MAX_JSON_DEPTH;

/// Position in the text: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl From<Marker> for Position {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
        }
    }
}

/// Value and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) content: Content,
    /// Number of nodes in the value.
    size: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Scalar {
        text: String,
        style: ScalarStyle,
        one_line: bool,
    },
    List(Vec<Node>),
    /// Entries in the order of the text; keys are unique.
    Map(Vec<(Key, Node)>),
}

/// Key of a map.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: Position,
    pub(crate) text: String,
}

/// Error of a text that is not a valid tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: Position,
    pub(crate) message: String,
}

/// Maximum number of nodes, including those that aliases repeat.
const MAX_NODES: usize = 50_000;
/// Maximum depth: the deepest template and the fields of the language around it.
const MAX_DEPTH: usize = MAX_JSON_DEPTH + 8;

/// Parses one document.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut builder = TreeBuilder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| SyntaxError {
            at: (*error.marker()).into(),
            message: format!("invalid YAML: {}", error.info()),
        })?;
        builder.take(event, span)?;
    }

    builder.root.ok_or_else(|| SyntaxError {
        at: Position { line: 1, column: 1 },
        message: "the file is empty".to_owned(),
    })
}

/// Collections under construction, outermost first.
#[derive(Default)]
struct TreeBuilder {
    open: Vec<OpenCollection>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

struct OpenCollection {
    at: Position,
    anchor: usize,
    kind: CollectionKind,
}

enum CollectionKind {
    List(Vec<Node>),
    Map {
        entries: Vec<(Key, Node)>,
        key: Option<Key>,
        seen: BTreeMap<String, Position>,
    },
}

impl TreeBuilder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let at = Position::from(span.start);
        match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                Err(malformed(at, "tags are not part of the language"))
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    // The alias is expanded here, so its nodes count again.
                    let node = node.clone();
                    let cost = node.size;
                    self.push(node, cost, 0)
                }
                None => Err(malformed(at, "this alias is inside its own anchor")),
            },
            Event::Scalar(text, style, anchor, None) => {
                let one_line = span.start.line() == span.end.line();
                let content = Content::Scalar {
                    text: text.into_owned(),
                    style,
                    one_line,
                };
                self.push(
                    Node {
                        at,
                        content,
                        size: 1,
                    },
                    1,
                    anchor,
                )
            }
            Event::SequenceStart(anchor, None) => {
                self.open(at, anchor, CollectionKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, None) => self.open(
                at,
                anchor,
                CollectionKind::Map {
                    entries: Vec::new(),
                    key: None,
                    seen: BTreeMap::new(),
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
        }
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        kind: CollectionKind,
    ) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(malformed(
                at,
                &format!("this nests deeper than {MAX_DEPTH} levels"),
            ));
        }

        self.open.push(OpenCollection { at, anchor, kind });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        let Some(OpenCollection { at, anchor, kind }) = self.open.pop() else {
            return Ok(());
        };
        let (content, size) = match kind {
            CollectionKind::List(items) => {
                let size = items.iter().map(|item| item.size).sum::<usize>();
                (Content::List(items), size)
            }
            CollectionKind::Map { entries, .. } => {
                let size = entries.iter().map(|(_, item)| item.size).sum::<usize>();
                (Content::Map(entries), size)
            }
        };

        self.push(
            Node {
                at,
                content,
                size: size + 1,
            },
            1,
            anchor,
        )
    }

    /// Adds a node to its parent. `cost` is the number of nodes created for it; an anchor stores a
    /// full copy.
    fn push(&mut self, node: Node, cost: usize, anchor: usize) -> Result<(), SyntaxError> {
        let at = node.at;

        // An alias repeats a whole value, so its nodes count each time: a small text cannot become
        // a large tree.
        self.nodes += if anchor > 0 { cost + node.size } else { cost };
        if self.nodes > MAX_NODES {
            let message =
                format!("the file contains more than {MAX_NODES} values with aliases expanded");
            return Err(SyntaxError { at, message });
        }

        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }

        match self.open.last_mut().map(|open| &mut open.kind) {
            None if self.root.is_some() => {
                return Err(malformed(
                    at,
                    "a file contains one document, this is a second one",
                ));
            }
            None => self.root = Some(node),
            Some(CollectionKind::List(items)) => items.push(node),
            Some(CollectionKind::Map { entries, key, seen }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(to_key(node, seen)?),
            },
        }
        Ok(())
    }
}

fn to_key(node: Node, seen: &mut BTreeMap<String, Position>) -> Result<Key, SyntaxError> {
    let Content::Scalar { text, .. } = node.content else {
        return Err(malformed(
            node.at,
            "a key must be a text, not a list or a map",
        ));
    };

    // Of two equal keys, one would be ignored.
    match seen.insert(text.clone(), node.at) {
        Some(first) => Err(malformed(
            node.at,
            &format!("duplicate key `{text}`, first in line {}", first.line),
        )),
        None => Ok(Key { at: node.at, text }),
    }
}

fn malformed(at: Position, message: &str) -> SyntaxError {
    SyntaxError {
        at,
        message: message.to_owned(),
    }
}

impl Node {
    /// Converts to JSON, by the core schema of YAML 1.2.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar {
                text,
                style: ScalarStyle::Plain,
                ..
            } => plain_scalar(text),
            Content::Scalar { text, .. } => Value::from(text.as_str()),
            Content::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Content::Map(entries) => {
                let fields = entries
                    .iter()
                    .map(|(key, node)| (key.text.clone(), node.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns whether the value is null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { .. }) && self.to_json().is_null()
    }

    /// Returns the name of the type for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
            Content::Scalar { .. } => match self.to_json() {
                Value::Number(number) if number.is_f64() => "a number with decimals",
                value => crate::expression::kind_of(&value),
            },
        }
    }
}

/// Converts a plain scalar.
fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }

    // Rust parses `inf` and `nan` as numbers; in YAML they are texts.
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::from(text);
    }

    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if let Ok(integer) = unsigned.parse::<i64>() {
        return Value::from(integer);
    }
    if let Ok(integer) = unsigned.parse::<u64>() {
        return Value::from(integer);
    }

    // Infinities and numbers too large for JSON stay texts.
    let double = unsigned.parse::<f64>().ok().and_then(Number::from_f64);
    double.map_or_else(|| Value::from(text), Value::Number)
}
