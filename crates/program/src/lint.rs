//! Lints: warnings about definitions that are valid but questionable. Never errors.
//!
//! Each rule has a stable code; docs/definitions.md explains them. A comment on the line before the
//! location suppresses a rule, with a reason: `# orlog: allow OL03 because the request expires by
//! itself`.

mod context;
mod failure;
mod flow;
mod names;
mod suppress;
mod vars;

use crate::compile::CompiledDefinition;
use crate::definition::Definition;
use crate::diagnostic::RawDiagnostic;
use crate::yaml::locate_diagnostics;
use context::LintContext;
pub use context::LintWarning;

/// A rule: its code and the function that finds violations.
type LintRule = (&'static str, fn(&LintContext<'_>) -> Vec<RawDiagnostic>);

const RULES: [LintRule; 12] = [
    ("OL01", flow::unreachable_step),
    ("OL02", failure::no_failure_path),
    ("OL03", failure::missing_compensation),
    ("OL04", names::not_routable),
    ("OL05", flow::missing_default_case),
    ("OL06", flow::follows_one_branch_only),
    ("OL07", names::awaited_and_handled),
    ("OL08", failure::outlasts_saga_timeout),
    ("OL09", vars::unused_variable),
    ("OL10", vars::concurrent_save),
    ("OL11", flow::pivot_without_effect),
    ("OL12", flow::needless_compensation),
];

/// Returns the warnings of all rules in the order of the text. `file` appears only in the warnings.
#[must_use]
pub fn lint(compiled: &CompiledDefinition, file: &str) -> Vec<LintWarning> {
    warnings(compiled.definition(), compiled.source(), file)
}

fn warnings(definition: &Definition, source: &str, file: &str) -> Vec<LintWarning> {
    let Some(context) = LintContext::of(definition) else { return Vec::new() };
    let found =
        RULES.iter().flat_map(|(code, rule)| rule(&context).into_iter().map(|finding| (*code, finding)));
    let (codes, findings): (Vec<_>, Vec<_>) = found.unzip();
    let problems = locate_diagnostics(findings, source, file);
    let found =
        codes.into_iter().zip(problems).map(|(code, problem)| LintWarning { code, diagnostic: problem });
    let mut warnings = suppress::filter(found.collect(), &RULES.map(|(code, _)| code), source, file);
    warnings.sort_by_key(|warning| (warning.diagnostic.line, warning.diagnostic.column, warning.code));
    warnings
}

#[cfg(test)]
mod tests;
