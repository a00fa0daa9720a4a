//! Lints of failure handlers: unknown fields of `failure`, handlers that never apply, and handlers
//! around a pivot.

use super::context::LintContext;
use crate::definition::{AfterFailure, Step};
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::expression::{FAILURE_FIELDS, Root, first_fields};
use crate::steps::kind::Completion;
use crate::steps::{Action, TimeLimit};

/// OL24: a field that `failure` does not have.
pub(super) fn unknown_failure_field(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let mut findings = Vec::new();
    for expression in &context.texts.expressions {
        let element = expression.element.as_deref();
        // The element of a `foreach` has precedence. An expression without the name need not be
        // parsed.
        let name = Root::Failure.name();
        if element == Some(name) || !expression.source.contains(name) {
            continue;
        }

        for field in first_fields(&expression.source, element, Root::Failure) {
            if FAILURE_FIELDS.contains(&field.as_str()) {
                continue;
            }

            let message = format!(
                "`failure.{field}` does not exist; {}",
                consequence(&expression.path)
            );
            let suggestion = did_you_mean(&field, FAILURE_FIELDS).unwrap_or_else(|| {
                "`failure` has the fields `code`, `message` and `step`".to_owned()
            });
            findings
                .push(RawDiagnostic::new(&expression.path, message).with_suggestion(suggestion));
        }
    }
    findings
}

/// Returns the consequence of an expression without a value at a path.
fn consequence(path: &str) -> &'static str {
    if path.contains("].undo.") {
        "the compensation fails, and the instance becomes stuck"
    } else if path.starts_with("failed") {
        "the input that ends the instance becomes a dead letter"
    } else {
        "the handler does not apply, and the saga fails with `expression_error`"
    }
}

/// OL25: `on_failure` of a step that cannot fail.
pub(super) fn handler_without_failure(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let idle = context
        .steps()
        .filter(|(i, step)| step.on_failure.is_some() && never_fails(context, *i, step));
    idle.map(|(i, step)| {
        let message = if step.timeout.is_some() {
            format!(
                "step `{}` can only time out, so `on_failure` never applies beside `on_timeout`",
                step.id
            )
        } else {
            format!(
                "step `{}` cannot fail, so `on_failure` never applies",
                step.id
            )
        };
        RawDiagnostic::new(format!("steps[{i}].on_failure"), message)
            .with_suggestion("name the failure with `fail`, set a `timeout`, or remove the handler")
    })
    .collect()
}

/// Returns whether a step that waits has no failure to which `on_failure` applies.
fn never_fails(context: &LintContext<'_>, i: usize, step: &Step) -> bool {
    let handles_timeouts = match &step.timeout {
        None => true,
        // A computed time can have no value, which is a failure.
        Some(TimeLimit::Constant(_)) => step.on_timeout.is_some(),
        Some(TimeLimit::Computed(_)) => false,
    };
    // An expression without a value makes a step fail when it starts.
    let starts_always = step.when.is_none() && step.foreach.is_none();
    if !step.fail.is_empty() || !handles_timeouts || !starts_always {
        return false;
    }

    match &step.action {
        // Too many events make a step fail that collects them.
        Action::Event(awaited) => !awaited.collects(),
        action if action.traits().completion == Completion::User => {
            let below = format!("steps[{i}].do.");
            let mut expressions = context.texts.expressions.iter();
            let is_conditional = step.ok.iter().any(|matcher| matcher.when.is_some());
            !is_conditional && !expressions.any(|expression| expression.path.starts_with(&below))
        }
        _ => false,
    }
}

/// OL26: a pivot that is not passed although the same steps follow, and a handler past the pivot
/// that lets the saga fail.
pub(super) fn handler_around_a_pivot(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let mut findings = Vec::new();
    for (i, step) in context.steps() {
        for (field, handler) in step.failure_handlers() {
            let path = format!("steps[{i}].{field}");
            match handler.then {
                AfterFailure::Continue if step.pivot && context.has_followers(i) => {
                    let message = format!(
                        "`{field}` continues although the pivot `{}` has not completed: if a \
                         later step fails, the steps before the pivot are compensated",
                        step.id
                    );
                    findings.push(RawDiagnostic::new(path, message).with_suggestion(
                        "select other steps with `then`, or make a later step the `pivot`",
                    ));
                }
                AfterFailure::Fail if context.past_pivot(i) => {
                    let message = format!(
                        "step `{}` follows a pivot, where the saga cannot fail: with `{field}: \
                         fail`, the instance becomes stuck",
                        step.id
                    );
                    findings.push(RawDiagnostic::new(path, message).with_suggestion(
                        "write `continue` or `then`, or remove the handler if an operator decides",
                    ));
                }
                AfterFailure::Continue | AfterFailure::Fail | AfterFailure::Steps(_) => {}
            }
        }
    }
    findings
}
