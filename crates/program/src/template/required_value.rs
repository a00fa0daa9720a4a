//! Value that a compensation must not replace by null: what a step saves from its result.

use super::Template;
use crate::expression::{Bindings, EvalError, Expression, ValueSource};

/// Sources of a value whose absence makes a compensation wait for an operator.
#[derive(Debug)]
pub(crate) struct RequiredValue {
    /// Path in the definition below the step, for example `undo.data.chargeId`.
    field: String,
    /// What steps save, and the expression reads without a test.
    sources: Vec<ValueSource>,
}

impl RequiredValue {
    /// Returns an error if a null value comes from what a step was to save.
    pub(super) fn check(
        &self,
        expression: &Expression,
        bindings: &Bindings<'_>,
    ) -> Result<(), EvalError> {
        if bindings.allows_null {
            return Ok(());
        }
        let mut sources = self.sources.iter();
        let Some(source) = sources.find(|source| source.explains_null(bindings)) else {
            return Ok(());
        };

        let field = &self.field;
        let source = source.path();
        let step = bindings.step.unwrap_or_default();
        let reason = format!(
            "`{field}` of step `{step}` is null, because no result has set `{source}`; redrive the \
             result of its step, or migrate the instance to a version whose `undo` identifies the \
             change by other values or has `allow_null`, and retry; or compensate by hand, and skip"
        );
        Err(EvalError {
            lacks_value: true,
            ..expression.error(reason)
        })
    }
}

impl Template {
    /// Requires the values in a template of a compensation that `is_required` selects. `path` is
    /// its path below the step.
    pub(crate) fn require_values(
        &mut self,
        path: &str,
        is_required: &impl Fn(&ValueSource) -> bool,
    ) {
        match self {
            Template::Literal(_) => {}
            Template::Computed(expression, required) => {
                let mut sources = expression.sources();
                sources.retain(is_required);
                if !sources.is_empty() {
                    *required = Some(Box::new(RequiredValue {
                        field: path.to_owned(),
                        sources,
                    }));
                }
            }
            Template::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.require_values(&format!("{path}[{index}]"), is_required);
                }
            }
            Template::Map(fields) => {
                for (name, item) in fields {
                    item.require_values(&format!("{path}.{name}"), is_required);
                }
            }
        }
    }
}
