//! YAML as a tree that knows where everything stands, bounded in depth and size before anything is made of it.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use crate::limits::MAX_JSON_DEPTH;

/// A place in the text: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) content: Content,
    /// How many nodes it is made of.
    size: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar {
        text: String,
        style: ScalarStyle,
        one_line: bool,
    },
    List(Vec<Node>),
    /// In the order of the text; keys are unique.
    Map(Vec<(Key, Node)>),
}

/// The key of a map.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) at: Place,
    pub(super) text: String,
}

/// A text that is no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) at: Place,
    pub(super) message: String,
}

/// The most nodes, those that aliases repeat included.
const MAX_NODES: usize = 50_000;
/// Room for the fields of the language around the deepest template.
const MAX_DEPTH: usize = MAX_JSON_DEPTH + 8;

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, Malformed> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Malformed {
            at: (*error.marker()).into(),
            message: format!("this is not YAML: {}", error.info()),
        })?;
        builder.take(event, span)?;
    }
    let empty = || Malformed { at: Place { line: 1, column: 1 }, message: "the file is empty".to_owned() };
    builder.root.ok_or_else(empty)
}

/// Collections under construction, outermost first.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

struct Open {
    at: Place,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: Option<Key>, seen: BTreeMap<String, Place> },
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Malformed> {
        let at = Place::from(span.start);
        match event {
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err(malformed(at, "tags are not part of the language")),
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = node.clone();
                    let cost = node.size;
                    self.push(node, cost, 0)
                }
                None => Err(malformed(at, "this alias stands within its own anchor")),
            },
            Event::Scalar(text, style, anchor, None) => {
                let one_line = span.start.line() == span.end.line();
                let content = Content::Scalar { text: text.into_owned(), style, one_line };
                self.push(Node { at, content, size: 1 }, 1, anchor)
            }
            Event::SequenceStart(anchor, None) => self.open(at, anchor, OpenKind::List(Vec::new())),
            Event::MappingStart(anchor, None) => {
                self.open(at, anchor, OpenKind::Map { entries: Vec::new(), key: None, seen: BTreeMap::new() })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
        }
    }

    fn open(&mut self, at: Place, anchor: usize, kind: OpenKind) -> Result<(), Malformed> {
        if self.open.len() >= MAX_DEPTH {
            return Err(malformed(at, &format!("this nests deeper than {MAX_DEPTH} levels")));
        }
        self.open.push(Open { at, anchor, kind });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Malformed> {
        let Some(Open { at, anchor, kind }) = self.open.pop() else { return Ok(()) };
        let (content, size) = match kind {
            OpenKind::List(items) => {
                let size = items.iter().map(|item| item.size).sum::<usize>();
                (Content::List(items), size)
            }
            OpenKind::Map { entries, .. } => {
                let size = entries.iter().map(|(_, item)| item.size).sum::<usize>();
                (Content::Map(entries), size)
            }
        };
        self.push(Node { at, content, size: size + 1 }, 1, anchor)
    }

    /// Puts a node where it belongs. `cost` is how many nodes were made for it; an anchor keeps a copy of all of it.
    fn push(&mut self, node: Node, cost: usize, anchor: usize) -> Result<(), Malformed> {
        let at = node.at;
        self.nodes += if anchor > 0 { cost + node.size } else { cost };
        if self.nodes > MAX_NODES {
            let message = format!("the file holds more than {MAX_NODES} values, aliases counted in full");
            return Err(Malformed { at, message });
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.kind) {
            None if self.root.is_some() => {
                return Err(malformed(at, "a file holds one document, this is a second"));
            }
            None => self.root = Some(node),
            Some(OpenKind::List(items)) => items.push(node),
            Some(OpenKind::Map { entries, key, seen }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(to_key(node, seen)?),
            },
        }
        Ok(())
    }
}

fn to_key(node: Node, seen: &mut BTreeMap<String, Place>) -> Result<Key, Malformed> {
    let Content::Scalar { text, .. } = node.content else {
        return Err(malformed(node.at, "a key is a text, not a list or a map"));
    };
    match seen.insert(text.clone(), node.at) {
        Some(first) => {
            Err(malformed(node.at, &format!("`{text}` stands here twice, first in line {}", first.line)))
        }
        None => Ok(Key { at: node.at, text }),
    }
}

fn malformed(at: Place, message: &str) -> Malformed {
    Malformed { at, message: message.to_owned() }
}

impl Node {
    /// As JSON, by the core schema of YAML 1.2.
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar { text, style: ScalarStyle::Plain, .. } => plain(text),
            Content::Scalar { text, .. } => Value::from(text.as_str()),
            Content::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Content::Map(entries) => {
                let fields = entries.iter().map(|(key, node)| (key.text.clone(), node.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// Nothing stands there.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { .. }) && self.to_json().is_null()
    }

    /// What people call it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.content {
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
            Content::Scalar { .. } => crate::expression::kind_of(&self.to_json()),
        }
    }
}

/// Infinities and what is too large for JSON stay texts.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::from(text);
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let integer =
        unsigned.parse::<i64>().map(Value::from).or_else(|_| unsigned.parse::<u64>().map(Value::from));
    let double = || unsigned.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number);
    integer.ok().or_else(double).unwrap_or_else(|| Value::from(text))
}
