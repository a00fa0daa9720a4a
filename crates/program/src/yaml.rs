//! The YAML front-end: a `*.saga.yaml` becomes the intermediate form, or a list of everything that is wrong with it.
//!
//! Every problem names file, line and column; within an expression, the column of the character. Reading is bounded: 1 MiB
//! of text, 72 levels, 50,000 values with aliases counted in full, 1000 steps.

mod decode;
pub mod document;
pub(crate) mod duration;
mod locate;
mod tree;

use saphyr_parser::ScalarStyle;

use crate::compile::{Compiled, compile, with_source};
use crate::definition::Definition;
use crate::diagnostic::{Finding, Problem};
use crate::limits::{MAX_FINDINGS, MAX_SOURCE_BYTES};
pub(crate) use duration::parse as parse_duration;
use tree::{Content, Malformed, Node, Place};

/// The most problems one report lists.
const MAX_PROBLEMS: usize = 100;
/// The longest part of a problem, in characters. What is longer quotes the text.
const MAX_QUOTED: usize = 300;

/// Compiles a definition written in YAML. `file` is only named in problems.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text: at most 100 problems, and one that counts the others.
pub fn compile_yaml(text: &str, file: &str) -> Result<Compiled, Vec<Problem>> {
    if text.len() > MAX_SOURCE_BYTES {
        let message = format!("the file is {} bytes long, the limit is {MAX_SOURCE_BYTES}", text.len());
        return Err(vec![at_place(Malformed { at: Place { line: 1, column: 1 }, message }, file)]);
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

/// The form of a text, before it is compiled.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Definition, Vec<Problem>> {
    let root = tree::parse(text).map_err(|malformed| vec![at_place(malformed, "test")])?;
    let mut findings = Vec::new();
    let definition = decode::definition(&root, &mut findings);
    if findings.is_empty() { Ok(definition) } else { Err(report(findings, &root, "test")) }
}

/// A text as JSON.
#[cfg(test)]
pub(crate) fn to_json(text: &str) -> serde_json::Value {
    tree::parse(text).expect("it is YAML").to_json()
}

/// Compiles the source of a definition, be it YAML or the canonical JSON of the builder: what [`Compiled::source`] gave
/// becomes the same program again.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(source: &str, file: &str) -> Result<Compiled, Vec<Problem>> {
    if source.len() > MAX_SOURCE_BYTES {
        return compile_yaml(source, file);
    }
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
        message: shown(message),
        suggestion: None,
    }
}

fn report(mut findings: Vec<Finding>, root: &Node, file: &str) -> Vec<Problem> {
    let at_least = if findings.len() >= MAX_FINDINGS { " at least" } else { "" };
    let unlocated = findings.len().saturating_sub(MAX_FINDINGS);
    findings.truncate(MAX_FINDINGS);
    let mut problems: Vec<_> = findings.into_iter().map(|finding| locate(finding, root, file)).collect();
    problems.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
    problems.dedup();
    let more = unlocated + problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    if let Some(last) = problems.last().filter(|_| more > 0) {
        let at = Place { line: last.line, column: last.column };
        problems
            .push(at_place(Malformed { at, message: format!("and{at_least} {more} more problems") }, file));
    }
    problems
}

/// Finds where things about a definition stand in its source, be it YAML or the builder's JSON, which has no lines.
pub(crate) fn locate_all(findings: Vec<Finding>, source: &str, file: &str) -> Vec<Problem> {
    let written = serde_json::from_str::<Definition>(source).is_err();
    match tree::parse(source).ok().filter(|_| written) {
        Some(root) => findings.into_iter().map(|finding| locate(finding, &root, file)).collect(),
        None => findings.into_iter().map(|finding| finding.without_text(file)).collect(),
    }
}

/// A text as it may be shown: short, and without signs that steer a terminal.
fn shown(text: String) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.len() <= MAX_QUOTED && !text.contains(steers) {
        return text;
    }
    let mut short = String::new();
    for c in text.chars().take(MAX_QUOTED) {
        if steers(c) { short.extend(c.escape_unicode()) } else { short.push(c) }
    }
    if text.chars().nth(MAX_QUOTED).is_some() {
        short.push('…');
    }
    short
}

fn locate(finding: Finding, root: &Node, file: &str) -> Problem {
    let spot = locate::find(root, &finding.path);
    let (place, note) = match finding.within {
        _ if finding.at_key => (spot.key, String::new()),
        Some(within) if spot.exact => within_expression(spot.node, within),
        Some(_) | None => (spot.node.at, String::new()),
    };
    Problem {
        file: file.to_owned(),
        line: place.line,
        column: place.column,
        path: shown(finding.path),
        message: shown(finding.message) + &note,
        suggestion: finding.suggestion.map(shown),
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
