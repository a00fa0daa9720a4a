//! Comments that suppress a rule for the next line or for the whole file.

use super::context::LintWarning;
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::yaml::locate_diagnostics;

/// Code of the warning about an invalid or unused suppression comment.
const BAD_SUPPRESSION: &str = "OL13";
const PREFIX: &str = "# orlog: allow";
/// Continuation of the prefix of a comment for the whole file.
const WHOLE_FILE: &str = "-file";

/// Comment that suppresses a rule.
struct Suppression<'s> {
    /// Line of the comment, from 1.
    line: usize,
    /// First line after the comment and its continuation lines; `None`: all lines of the file.
    target: Option<usize>,
    code: &'s str,
    reason: &'s str,
}

impl Suppression<'_> {
    fn applies(&self, line: usize, code: &str) -> bool {
        self.target.is_none_or(|target| target == line) && self.code == code
    }
}

/// Removes suppressed warnings and adds warnings about invalid suppression comments.
pub(super) fn filter(
    warnings: Vec<LintWarning>,
    codes: &[&str],
    source: &str,
    file: &str,
) -> Vec<LintWarning> {
    let allowed = comments(source);
    let applies = |comment: &Suppression<'_>, warning: &LintWarning| {
        comment.applies(warning.diagnostic.line, warning.code)
    };

    // A comment without a reason still suppresses its warning, and is reported itself.
    let useless = allowed
        .iter()
        .filter(|c| !warnings.iter().any(|w| applies(c, w)) || c.reason.is_empty());
    let invalid: Vec<_> = useless
        .map(|comment| objection(comment, codes, file))
        .collect();

    let retained = warnings
        .into_iter()
        .filter(|warning| !allowed.iter().any(|comment| applies(comment, warning)));
    retained.chain(invalid).collect()
}

/// Returns whether a comment suppresses a rule for the value at a path.
pub(super) fn allows(source: &str, code: &str, path: &str) -> bool {
    let located = locate_diagnostics(vec![RawDiagnostic::new(path, String::new())], source, "");
    let line = located.first().map_or(0, |diagnostic| diagnostic.line);
    comments(source)
        .iter()
        .any(|comment| comment.applies(line, code))
}

fn comments(source: &str) -> Vec<Suppression<'_>> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let marked = lines
        .iter()
        .enumerate()
        .filter_map(|(n, line)| Some((n, line.strip_prefix(PREFIX)?)));
    marked
        .filter_map(|(n, text)| {
            let (is_of_file, text) = match text.strip_prefix(WHOLE_FILE) {
                Some(rest) => (true, rest),
                None => (false, text),
            };

            // Another word follows the prefix, for example `allowed`.
            let text = text.strip_prefix(char::is_whitespace)?.trim_start();
            // A reason can continue on further comment lines; the target is the first line after
            // them.
            let after = lines[n..]
                .iter()
                .position(|line| !line.starts_with('#'))
                .unwrap_or(lines.len() - n);

            let (code, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let reason = rest.trim().strip_prefix("because").unwrap_or("").trim();
            let target = (!is_of_file).then_some(n + after + 1);
            Some(Suppression {
                line: n + 1,
                target,
                code,
                reason,
            })
        })
        .collect()
}

fn objection(comment: &Suppression<'_>, codes: &[&str], file: &str) -> LintWarning {
    let code = comment.code;
    let known = codes.contains(&code);

    let (message, suggestion) = if !known {
        (
            format!("there is no rule `{code}`"),
            "docs/definitions.md lists the codes",
        )
    } else if comment.reason.is_empty() {
        (
            format!("suppression of {code} has no reason"),
            "end the comment with `because …`",
        )
    } else {
        let place = if comment.target.is_some() {
            "on the next line"
        } else {
            "in this file"
        };
        (
            format!("suppression of {code} has no effect {place}"),
            "remove the comment",
        )
    };

    LintWarning {
        code: BAD_SUPPRESSION,
        diagnostic: Diagnostic {
            file: file.to_owned(),
            line: comment.line,
            column: 1,
            path: String::new(),
            message,
            suggestion: Some(suggestion.to_owned()),
        },
    }
}
