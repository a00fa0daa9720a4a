//! Lint of unknown fields of `failure`.

use super::context::LintContext;
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::expression::{FAILURE_FIELDS, Root, first_fields};

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
