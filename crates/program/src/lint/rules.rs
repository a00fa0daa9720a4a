//! Registry of the lint rules, and their execution.

use super::context::{LintContext, LintWarning};
use super::{failure, flow, handlers, loops, names, suppress, texts, values, vars};
use crate::definition::Definition;
use crate::diagnostic::RawDiagnostic;
use crate::yaml::locate_diagnostics;

/// A rule: its code and the function that finds violations.
type LintRule = (&'static str, fn(&LintContext<'_>) -> Vec<RawDiagnostic>);

/// Codes of the lints of a group.
pub(super) const UNKNOWN_CHILD: &str = "OL15";
pub(super) const SIMILAR_EVENT: &str = "OL16";
pub(super) const UNKNOWN_FIELD: &str = "OL17";
pub(super) const UNTESTED_FIELD: &str = "OL21";

const RULES: [LintRule; 20] = [
    ("OL01", flow::unreachable_step),
    ("OL02", failure::no_failure_path),
    (failure::MISSING_COMPENSATION, failure::missing_compensation),
    ("OL04", names::not_routable),
    ("OL05", flow::missing_default_case),
    ("OL06", flow::follows_one_branch_only),
    ("OL07", names::awaited_and_handled),
    ("OL08", failure::outlasts_saga_timeout),
    ("OL09", vars::unused_variable),
    ("OL10", vars::concurrent_save),
    ("OL11", flow::pivot_without_effect),
    ("OL12", flow::needless_compensation),
    ("OL14", texts::missing_equals),
    ("OL18", loops::constant_condition),
    ("OL19", names::same_child_for_each_event),
    ("OL20", flow::joins_a_wait),
    ("OL24", handlers::unknown_failure_field),
    ("OL25", handlers::handler_without_failure),
    ("OL26", handlers::handler_around_a_pivot),
    ("OL27", failure::no_time_to_remind),
];

/// Returns the warnings of all rules, and those that the group found, in the order of the text.
/// `file` appears only in the warnings.
pub(super) fn warnings(
    definition: &Definition,
    source: &str,
    file: &str,
    of_group: Vec<(&'static str, RawDiagnostic)>,
) -> Vec<LintWarning> {
    let Some(context) = LintContext::of(definition) else {
        return Vec::new();
    };

    let found = RULES
        .iter()
        .flat_map(|(code, rule)| rule(&context).into_iter().map(|finding| (*code, finding)))
        // These share one analysis.
        .chain(values::null_values(&context));
    let (codes, findings): (Vec<_>, Vec<_>) = found.chain(of_group).unzip();
    let problems = locate_diagnostics(findings, source, file);
    let found = codes
        .into_iter()
        .zip(problems)
        .map(|(code, problem)| LintWarning {
            code,
            diagnostic: problem,
        });

    let mut warnings = suppress::filter(found.collect(), &codes_of_all(), source, file);
    warnings.sort_by_key(|warning| {
        (
            warning.diagnostic.line,
            warning.diagnostic.column,
            warning.code,
        )
    });
    warnings
}

fn codes_of_all() -> Vec<&'static str> {
    RULES
        .iter()
        .map(|(code, _)| *code)
        .chain([
            values::UNDO_READS_NULL,
            values::STEP_READS_FAILED,
            values::UNDO_LACKS_VALUE,
        ])
        .chain([UNKNOWN_CHILD, SIMILAR_EVENT, UNKNOWN_FIELD, UNTESTED_FIELD])
        .collect()
}
