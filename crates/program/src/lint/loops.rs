//! Lint of loops whose condition cannot change.

use std::collections::BTreeSet;

use super::context::LintContext;
use super::vars::UsedVariables;
use crate::diagnostic::RawDiagnostic;
use crate::steps::Action;

/// OL18: a loop whose condition reads nothing that changes while it runs: no variable that its
/// steps or an `on` handler save, no result of its jobs, and not `round`.
pub(super) fn constant_condition(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let definition = context.definition;
    let handled = definition.on.iter().flat_map(|handler| handler.save.keys());
    let handled: BTreeSet<_> = handled.map(String::as_str).collect();
    let mut findings = Vec::new();
    for (end, step) in context.steps() {
        let Action::Repeat(repeat) = &step.action else {
            continue;
        };
        let Some((keyword, condition)) = repeat.condition() else {
            continue;
        };

        let body = || {
            context
                .steps()
                .filter(|(i, _)| context.order.loops[*i] == Some(end))
                .map(|(_, step)| step)
        };

        let mut read = UsedVariables::default();
        read.search_text(condition);

        let saves = |name: &String| {
            handled.contains(name.as_str())
                || body().any(|step| step.saved_names().any(|saved| saved == name))
        };
        let reads_job = contains_name(condition, "results")
            && body().any(|s| matches!(s.action, Action::Job(_)));
        // A whole `vars` can contain any variable, so nothing is certain about the condition.
        if read.all
            || read.names.iter().any(saves)
            || reads_job
            || contains_name(condition, "round")
        {
            continue;
        }

        // The condition stays as it is: one round, or the maximum number of rounds.
        let message = format!(
            "no step of the loop `{}` saves a variable that its `{keyword}` reads",
            step.id
        );
        findings.push(
            RawDiagnostic::new(format!("steps[{end}].do.{keyword}"), message).with_suggestion(
                "save the result that decides about another round, or read `round`",
            ),
        );
    }
    findings
}

/// Returns true if the condition contains a name.
fn contains_name(condition: &str, name: &str) -> bool {
    let mut words = condition.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')));
    words.any(|word| word.split('.').next() == Some(name))
}
