//! Comments that switch a rule off for the line after them.

use super::context::Warning;
use crate::diagnostic::Problem;

/// Objects to a comment that is meant to switch off a rule and does not.
const BAD_ALLOW: &str = "OL13";
const MARK: &str = "# orlog: allow ";

/// A comment that switches a rule off.
struct Allowed<'s> {
    /// The line of the comment, from 1.
    line: usize,
    /// The first line after the comment and those that follow it.
    target: usize,
    code: &'s str,
    reason: &'s str,
}

/// Without what comments switch off, with what is wrong with such comments.
pub(super) fn filter(warnings: Vec<Warning>, codes: &[&str], source: &str, file: &str) -> Vec<Warning> {
    let allowed = comments(source);
    let applies = |comment: &Allowed<'_>, warning: &Warning| {
        comment.target == warning.problem.line && comment.code == warning.code
    };
    let useless = allowed.iter().filter(|c| !warnings.iter().any(|w| applies(c, w)) || c.reason.is_empty());
    let bad: Vec<_> = useless.map(|comment| objection(comment, codes, file)).collect();
    let kept =
        warnings.into_iter().filter(|warning| !allowed.iter().any(|comment| applies(comment, warning)));
    kept.chain(bad).collect()
}

fn comments(source: &str) -> Vec<Allowed<'_>> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let marked = lines.iter().enumerate().filter_map(|(n, line)| Some((n, line.strip_prefix(MARK)?)));
    marked
        .map(|(n, text)| {
            let after = lines[n..].iter().position(|line| !line.starts_with('#')).unwrap_or(lines.len() - n);
            let (code, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let reason = rest.trim().strip_prefix("because").unwrap_or("").trim();
            Allowed { line: n + 1, target: n + after + 1, code, reason }
        })
        .collect()
}

fn objection(comment: &Allowed<'_>, codes: &[&str], file: &str) -> Warning {
    let (code, known) = (comment.code, codes.contains(&comment.code));
    let (message, suggestion) = if !known {
        (format!("there is no rule `{code}`"), "the codes are OL01 to OL12")
    } else if comment.reason.is_empty() {
        (format!("{code} is allowed without a reason"), "end the comment with `because …`")
    } else {
        (format!("{code} has nothing to say about the next line"), "remove the comment")
    };
    let (file, suggestion) = (file.to_owned(), Some(suggestion.to_owned()));
    let problem = Problem { file, line: comment.line, column: 1, path: String::new(), message, suggestion };
    Warning { code: BAD_ALLOW, problem }
}
