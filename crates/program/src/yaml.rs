//! The YAML front-end: a `*.saga.yaml` becomes the intermediate form, or a list of everything that is wrong with it.
//!
//! Every problem names file, line and column; within an expression, the column of the character. Reading is bounded: 1 MiB
//! of text, 72 levels, 50,000 values with aliases counted in full, 1000 steps.

mod decode;
mod duration;
mod tree;

use std::collections::BTreeMap;

use saphyr_parser::ScalarStyle;

use crate::compile::{Compiled, compile, with_source};
use crate::form::Definition;
use crate::limits::MAX_SOURCE_BYTES;
use crate::problem::{Finding, Problem};
use tree::{Content, Malformed, Node, Place};

/// The most problems one report lists.
const MAX_PROBLEMS: usize = 100;

/// Compiles a definition written in YAML. `file` is only named in problems.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text, at most 100 problems.
pub fn compile_yaml(text: &str, file: &str) -> Result<Compiled, Vec<Problem>> {
    if text.len() > MAX_SOURCE_BYTES {
        let message = format!("the file is {} bytes long, the limit is {MAX_SOURCE_BYTES}", text.len());
        return Err(vec![Finding::new("", message).without_text(file)]);
    }
    let root = tree::parse(text).map_err(|malformed| vec![at_place(malformed, file)])?;
    let mut findings = Vec::new();
    let definition = decode::definition(&root, &mut findings);
    match with_source(definition, text.to_owned()) {
        Ok(compiled) if findings.is_empty() => Ok(compiled),
        Ok(_) => Err(report(findings, &root, file)),
        Err(more) => {
            findings.extend(more);
            Err(report(findings, &root, file))
        }
    }
}

/// Compiles the source of a definition, be it YAML or the canonical JSON of the builder: what [`Compiled::source`] gave
/// becomes the same program again.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(source: &str, file: &str) -> Result<Compiled, Vec<Problem>> {
    match serde_json::from_str::<Definition>(source) {
        Ok(definition) => compile(definition),
        Err(_) => compile_yaml(source, file),
    }
}

fn at_place(malformed: Malformed, file: &str) -> Problem {
    let Malformed { at, message } = malformed;
    Problem {
        file: file.to_owned(),
        line: at.line,
        column: at.column,
        path: String::new(),
        message,
        suggestion: None,
    }
}

fn report(findings: Vec<Finding>, root: &Node, file: &str) -> Vec<Problem> {
    let mut spots = BTreeMap::new();
    collect(root, root.at, String::new(), &mut spots);
    let mut problems: Vec<_> = findings.into_iter().map(|finding| locate(finding, &spots, file)).collect();
    problems.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
    problems.dedup();
    problems.truncate(MAX_PROBLEMS);
    problems
}

/// Where the things under a path stand.
struct Spot<'n> {
    key: Place,
    node: &'n Node,
}

fn collect<'n>(node: &'n Node, key: Place, path: String, spots: &mut BTreeMap<String, Spot<'n>>) {
    match &node.content {
        Content::Scalar { .. } => {}
        Content::List(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(item, item.at, format!("{path}[{i}]"), spots);
            }
        }
        Content::Map(entries) => {
            for (key, item) in entries {
                let path = if path.is_empty() { key.text.clone() } else { format!("{path}.{}", key.text) };
                collect(item, key.at, path, spots);
            }
        }
    }
    spots.insert(path, Spot { key, node });
}

fn locate(finding: Finding, spots: &BTreeMap<String, Spot<'_>>, file: &str) -> Problem {
    let mut path = finding.path.as_str();
    let spot = loop {
        match (spots.get(path), path.rfind(['.', '['])) {
            (Some(spot), _) => break Some(spot),
            (None, Some(end)) => path = &path[..end],
            (None, None) => break spots.get(""),
        }
    };
    let exact = path == finding.path;
    let (place, note) = match (spot, finding.within) {
        (None, _) => (Place { line: 1, column: 1 }, String::new()),
        (Some(spot), _) if finding.at_key => (spot.key, String::new()),
        (Some(spot), Some(within)) if exact => within_expression(spot.node, within),
        (Some(spot), _) => (spot.node.at, String::new()),
    };
    Problem {
        file: file.to_owned(),
        line: place.line,
        column: place.column,
        path: finding.path,
        message: finding.message + &note,
        suggestion: finding.suggestion,
    }
}

/// The place of a character of an expression. Where the text is folded, its place is told beside that of the whole.
fn within_expression(node: &Node, (line, column): (usize, usize)) -> (Place, String) {
    let Content::Scalar { text, style, one_line } = &node.content else { return (node.at, String::new()) };
    let quote = usize::from(matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted));
    let sign = usize::from(text.starts_with('='));
    if *one_line && line == 1 {
        let column = node.at.column + quote + sign + column.saturating_sub(1);
        return (Place { line: node.at.line, column }, String::new());
    }
    (node.at, format!(" (line {line}, character {column} of the expression)"))
}
