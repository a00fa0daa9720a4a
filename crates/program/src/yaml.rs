//! YAML front-end: compiles a `*.saga.yaml` to the intermediate form, or returns all diagnostics.
//!
//! Every diagnostic has file, line and column; within an expression, the column of the character.
//! Limits: 1 MiB of text, 72 levels, 50,000 values with aliases expanded, 1000 steps.

pub mod document;
pub(crate) mod duration;
mod locate;
pub(crate) mod tree;

use saphyr_parser::ScalarStyle;

use crate::compile::{CompiledDefinition, compile, with_source};
use crate::definition::Definition;
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::limits::{MAX_DIAGNOSTICS, MAX_SOURCE_BYTES};
use tree::{Content, Node, Position, SyntaxError};

/// Maximum number of diagnostics in one report.
const MAX_PROBLEMS: usize = 100;
/// Maximum length of a part of a diagnostic, in characters. Longer parts quote the text.
const MAX_QUOTED: usize = 300;

/// Compiles a definition written in YAML. `file` is only used in diagnostics.
///
/// # Errors
/// All diagnostics in the order of the text: at most 100, and one that counts the others.
pub fn compile_yaml(text: &str, file: &str) -> Result<CompiledDefinition, Vec<Diagnostic>> {
    if text.len() > MAX_SOURCE_BYTES {
        let message = format!(
            "the file is {} bytes long, the limit is {MAX_SOURCE_BYTES}",
            text.len()
        );
        return Err(vec![syntax_diagnostic(
            SyntaxError {
                at: Position { line: 1, column: 1 },
                message,
            },
            file,
        )]);
    }

    let root = tree::parse(text).map_err(|malformed| vec![syntax_diagnostic(malformed, file)])?;

    let mut findings = Vec::new();
    let definition = Definition::decode_file(&root, &mut findings);

    // Unreadable parts have placeholders, so that the rest is checked in the same pass. A
    // definition with a placeholder never leaves the front-end.
    match with_source(definition, text.to_owned()) {
        Ok(compiled) if findings.is_empty() => Ok(compiled),
        Ok(_) => Err(report(findings, &root, file)),
        Err(more) => {
            findings.extend(more);
            Err(report(findings, &root, file))
        }
    }
}

/// Parses a text that is not a definition.
pub(crate) fn parse_text(text: &str, file: &str) -> Result<Node, Vec<Diagnostic>> {
    tree::parse(text).map_err(|malformed| vec![syntax_diagnostic(malformed, file)])
}

/// Adds positions in a parsed text to diagnostics, and orders and limits them.
pub(crate) fn locate_all(findings: Vec<RawDiagnostic>, root: &Node, file: &str) -> Vec<Diagnostic> {
    report(findings, root, file)
}

/// Parses a text to the intermediate form without compiling it.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Definition, Vec<Diagnostic>> {
    let root = tree::parse(text).map_err(|malformed| vec![syntax_diagnostic(malformed, "test")])?;
    let mut findings = Vec::new();
    let definition = Definition::decode_file(&root, &mut findings);
    if findings.is_empty() {
        Ok(definition)
    } else {
        Err(report(findings, &root, "test"))
    }
}

/// Parses a text to JSON.
#[cfg(test)]
pub(crate) fn to_json(text: &str) -> serde_json::Value {
    tree::parse(text).expect("the text is valid YAML").to_json()
}

/// Compiles the source of a definition, either YAML or the canonical JSON of a [`Definition`]. The
/// output of [`CompiledDefinition::source`] compiles to the same program.
///
/// # Errors
/// All diagnostics of the source.
pub fn load(source: &str, file: &str) -> Result<CompiledDefinition, Vec<Diagnostic>> {
    // The size is reported before a parser reads the text.
    if source.len() > MAX_SOURCE_BYTES {
        return compile_yaml(source, file);
    }
    // Canonical JSON is also valid YAML, but in another form.
    match serde_json::from_str::<Definition>(source) {
        Ok(definition) => compile(definition),
        Err(_) => compile_yaml(source, file),
    }
}

fn syntax_diagnostic(malformed: SyntaxError, file: &str) -> Diagnostic {
    let SyntaxError { at, message } = malformed;
    Diagnostic {
        file: file.to_owned(),
        line: at.line,
        column: at.column,
        path: String::new(),
        message: sanitize(message),
        suggestion: None,
    }
}

fn report(mut findings: Vec<RawDiagnostic>, root: &Node, file: &str) -> Vec<Diagnostic> {
    let at_least = if findings.len() >= MAX_DIAGNOSTICS {
        " at least"
    } else {
        ""
    };

    let unlocated = findings.len().saturating_sub(MAX_DIAGNOSTICS);

    // Each position costs a search in the text: a hostile file causes thousands of diagnostics.
    findings.truncate(MAX_DIAGNOSTICS);

    let mut problems: Vec<_> = findings
        .into_iter()
        .map(|finding| locate(finding, root, file))
        .collect();
    problems.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
    // Two checks can report the same problem.
    problems.dedup();

    let more = unlocated + problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    if let Some(last) = problems.last().filter(|_| more > 0) {
        let at = Position {
            line: last.line,
            column: last.column,
        };
        problems.push(syntax_diagnostic(
            SyntaxError {
                at,
                message: format!("and{at_least} {more} more problems"),
            },
            file,
        ));
    }

    problems
}

/// Adds positions to diagnostics of a definition.
pub(crate) fn locate_diagnostics(
    findings: Vec<RawDiagnostic>,
    source: &str,
    file: &str,
) -> Vec<Diagnostic> {
    // The positions in canonical JSON tell its reader nothing.
    let is_yaml = serde_json::from_str::<Definition>(source).is_err();
    match tree::parse(source).ok().filter(|_| is_yaml) {
        Some(root) => findings
            .into_iter()
            .map(|finding| locate(finding, &root, file))
            .collect(),
        None => findings
            .into_iter()
            .map(|finding| finding.without_text(file))
            .collect(),
    }
}

impl CompiledDefinition {
    /// Returns a diagnostic of the value at a path such as `steps[1].do`, with its position in the
    /// text.
    #[must_use]
    pub fn diagnostic(
        &self,
        file: &str,
        path: &str,
        message: String,
        suggestion: String,
    ) -> Diagnostic {
        let finding = RawDiagnostic::new(path, message).with_suggestion(suggestion);
        let mut located = locate_diagnostics(vec![finding], self.source(), file);
        located.pop().expect("each finding has a diagnostic")
    }
}

/// Returns a text that is safe to display: shortened, without terminal control characters.
fn sanitize(text: String) -> String {
    let is_unsafe = |c: char| {
        let is_direction_mark = matches!(
            c,
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        c.is_control() || is_direction_mark
    };
    if text.len() <= MAX_QUOTED && !text.contains(is_unsafe) {
        return text;
    }

    let mut short = String::new();
    for c in text.chars().take(MAX_QUOTED) {
        if is_unsafe(c) {
            // Shown and not removed: a reader must see what the text contains.
            short.extend(c.escape_unicode());
        } else {
            short.push(c);
        }
    }

    if text.chars().nth(MAX_QUOTED).is_some() {
        short.push('…');
    }
    short
}

fn locate(finding: RawDiagnostic, root: &Node, file: &str) -> Diagnostic {
    let spot = locate::locate(root, &finding.path);
    let (position, note) = match finding.within {
        _ if finding.at_key => (spot.key, String::new()),
        Some((line, column)) if spot.exact => within_expression(spot.node, line, column),
        Some(_) | None => (spot.node.at, String::new()),
    };

    Diagnostic {
        file: file.to_owned(),
        line: position.line,
        column: position.column,
        path: sanitize(finding.path),
        message: sanitize(finding.message) + &note,
        suggestion: finding.suggestion.map(sanitize),
    }
}

/// Returns the position of a character of an expression. If the text is folded, also describes the
/// position within the expression.
fn within_expression(node: &Node, line: usize, column: usize) -> (Position, String) {
    let Content::Scalar {
        text,
        style,
        one_line,
    } = &node.content
    else {
        return (node.at, String::new());
    };

    let quote = usize::from(matches!(
        style,
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted
    ));
    let sign = usize::from(text.starts_with('='));

    // Only in an unfolded line does each column of the expression have its place in the text.
    if *one_line && line == 1 {
        let column = node.at.column + quote + sign + column.saturating_sub(1);
        return (
            Position {
                line: node.at.line,
                column,
            },
            String::new(),
        );
    }

    (
        node.at,
        format!(" (line {line}, character {column} of the expression)"),
    )
}

#[cfg(test)]
mod tests;
