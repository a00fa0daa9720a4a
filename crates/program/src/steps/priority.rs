//! Priority of the work of a step: a constant, or an expression that is evaluated with each
//! request.

use orlog_model::Priority;
use serde_json::Value;

use super::values::eval_error;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::expression::{Bindings, EvalError, Expression, kind_of};
use crate::language::{Codec, Decoder, ValueSchema};
use crate::yaml::tree::Node;

const NAMES: [&str; 3] = ["high", "normal", "low"];

/// A priority, or an expression for one.
pub(crate) struct PriorityTemplate;

impl Codec for PriorityTemplate {
    type Value = String;
    const SCHEMA: ValueSchema =
        ValueSchema::AnyOf(&[ValueSchema::Enum(&NAMES), ValueSchema::Expression]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<String> {
        decoder.text(node, path).map(str::to_owned)
    }
}

/// Compiled priority of the work of an action.
#[derive(Debug)]
pub(crate) enum CompiledPriority {
    Constant(Priority),
    Computed(Expression),
}

impl Default for CompiledPriority {
    fn default() -> Self {
        CompiledPriority::Constant(Priority::Normal)
    }
}

impl CompiledPriority {
    /// Compiles the field `priority` of a step or of its compensation.
    pub(crate) fn compile(
        compiler: &mut ExpressionCompiler<'_>,
        site: Site<'_>,
        template: Option<&String>,
    ) -> Self {
        let Some(template) = template else {
            return Self::default();
        };
        let path = format!("{}.priority", site.path);

        if template.starts_with('=') {
            return match compiler.condition(site.at(&path), Some(template)) {
                // The compiler has reported the error, so the default never reaches a program.
                Some(expression) => CompiledPriority::Computed(expression),
                None => Self::default(),
            };
        }

        match template.parse() {
            Ok(priority) => CompiledPriority::Constant(priority),
            Err(error) => {
                let suggestion = did_you_mean(template, NAMES).unwrap_or_else(|| {
                    "write high, normal or low, or an expression that starts with `=`".to_owned()
                });
                let finding = RawDiagnostic::new(path, format!("{error}"));
                compiler.report(finding.with_suggestion(suggestion));
                Self::default()
            }
        }
    }

    /// Returns the priority of a request.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> Result<Priority, EvalError> {
        let expression = match self {
            CompiledPriority::Constant(priority) => return Ok(*priority),
            CompiledPriority::Computed(expression) => expression,
        };

        match expression.evaluate(bindings)? {
            Value::String(name) => name
                .parse()
                .map_err(|error| eval_error("priority", format!("{error}"))),
            other => {
                let reason = format!(
                    "a priority must be high, normal or low, but is {}",
                    kind_of(&other)
                );
                Err(eval_error("priority", reason))
            }
        }
    }
}
