//! Lints: what a definition may say, but probably should not. Warnings, never errors.
//!
//! Each rule has a code that keeps its meaning; docs/definitions.md explains them. A comment on the line before the place
//! switches one off, with its reason: `# orlog: allow OL03 because the request expires by itself`.

mod context;
mod failure;
mod flow;
mod graph;
mod names;
mod suppress;
mod switch;
mod time;
mod vars;

use crate::compile::Compiled;
use crate::definition::Definition;
use crate::diagnostic::Finding;
use crate::yaml::locate_all;
use context::Sight;
pub use context::Warning;

/// A rule: its code and what finds the places.
type Rule = (&'static str, fn(&Sight<'_>) -> Vec<Finding>);

const RULES: [Rule; 12] = [
    ("OL01", flow::unreachable_step),
    ("OL02", failure::no_failure_path),
    ("OL03", failure::missing_undo),
    ("OL04", names::not_routable),
    ("OL05", switch::no_otherwise),
    ("OL06", switch::one_way_only),
    ("OL07", names::awaited_and_handled),
    ("OL08", time::longer_than_the_saga),
    ("OL09", vars::unused),
    ("OL10", vars::saved_side_by_side),
    ("OL11", flow::pivot_without_effect),
    ("OL12", flow::nothing_to_undo),
];

/// What the rules object to, in the order of the text. `file` is only named in the warnings.
#[must_use]
pub fn lint(compiled: &Compiled, file: &str) -> Vec<Warning> {
    warnings(compiled.definition(), compiled.source(), file)
}

fn warnings(definition: &Definition, source: &str, file: &str) -> Vec<Warning> {
    let sight = Sight::of(definition);
    let found =
        RULES.iter().flat_map(|(code, rule)| rule(&sight).into_iter().map(|finding| (*code, finding)));
    let (codes, findings): (Vec<_>, Vec<_>) = found.unzip();
    let problems = locate_all(findings, source, file);
    let found = codes.into_iter().zip(problems).map(|(code, problem)| Warning { code, problem });
    let mut warnings = suppress::filter(found.collect(), &RULES.map(|(code, _)| code), source, file);
    warnings.sort_by(|a, b| {
        (a.problem.line, a.problem.column, a.code).cmp(&(b.problem.line, b.problem.column, b.code))
    });
    warnings
}

#[cfg(test)]
mod tests;
