//! Templates: JSON in which a text that starts with `=` is an expression; `==` escapes a plain `=`.

mod required_value;

use serde_json::{Map, Value};

use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, Expression, Scope, cost};
use crate::limits::{MAX_DIAGNOSTICS, MAX_PAYLOAD_BYTES, check_payload, check_payload_within};
pub(crate) use required_value::RequiredValue;

/// Compiled template. Parts without expressions stay plain JSON.
#[derive(Debug)]
pub(crate) enum Template {
    Literal(Value),
    Computed(Expression, Option<Box<RequiredValue>>),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
}

impl Template {
    /// Compiles the template. Adds errors to `findings`, with their location under `path`.
    pub(crate) fn compile(
        value: &Value,
        path: &str,
        scope: &Scope<'_>,
        findings: &mut Vec<RawDiagnostic>,
    ) -> Self {
        // Before the recursion: this bounds its depth and the number of expressions to compile.
        if let Err(large) = check_payload(value) {
            findings.push(RawDiagnostic::new(
                path,
                format!("the template is too large: {large}"),
            ));
            return Template::Literal(Value::Null);
        }

        compile(value, path, scope, findings)
    }

    /// Evaluates the template.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        // The limits of one expression apply to all expressions of the template together.
        cost::evaluate(bindings.step, || {
            self.fill(bindings, &mut { MAX_PAYLOAD_BYTES })
        })
    }

    /// Returns whether an expression of the template reads the attributes of the event.
    pub(crate) fn reads_envelope(&self) -> bool {
        match self {
            Template::Literal(_) => false,
            Template::Computed(expression, _) => expression.reads_envelope(),
            Template::List(items) => items.iter().any(Template::reads_envelope),
            Template::Map(fields) => fields.iter().any(|(_, item)| item.reads_envelope()),
        }
    }

    fn fill(&self, bindings: &Bindings<'_>, left: &mut usize) -> Result<Value, EvalError> {
        match self {
            // Not counted: the compiler has checked the size of the template as a whole.
            Template::Literal(value) => Ok(value.clone()),
            Template::Computed(expression, required) => {
                let value = expression.evaluate_within_budget(bindings)?;
                if let Some(required) = required.as_ref().filter(|_| value.is_null()) {
                    required.check(expression, bindings)?;
                }
                let fits = check_payload_within(&value, left);
                fits.map_err(|large| {
                    expression.error(large.to_string().replacen(
                        "payload",
                        "with this value, the template",
                        1,
                    ))
                })?;
                Ok(value)
            }
            Template::List(items) => {
                let items: Result<_, _> =
                    items.iter().map(|item| item.fill(bindings, left)).collect();
                items.map(Value::Array)
            }
            Template::Map(fields) => {
                let fields: Result<Map<_, _>, _> = fields
                    .iter()
                    .map(|(key, item)| Ok((key.clone(), item.fill(bindings, left)?)))
                    .collect();
                fields.map(Value::Object)
            }
        }
    }
}

fn compile(
    value: &Value,
    path: &str,
    scope: &Scope<'_>,
    findings: &mut Vec<RawDiagnostic>,
) -> Template {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Template::Literal(value.clone()),
        Value::String(text) => compile_text(text, path, scope, findings),
        Value::Array(items) => {
            let parts = items.iter().enumerate();
            let parts: Vec<_> = parts
                .map(|(i, item)| compile(item, &format!("{path}[{i}]"), scope, findings))
                .collect();
            // A constant part stays one value, which needs one copy and no evaluation.
            if parts.iter().all(is_literal) {
                Template::Literal(unescaped(value))
            } else {
                Template::List(parts)
            }
        }
        Value::Object(fields) => {
            let parts = fields.iter();
            let parts: Vec<_> = parts
                .map(|(key, item)| {
                    (
                        key.clone(),
                        compile(item, &format!("{path}.{key}"), scope, findings),
                    )
                })
                .collect();
            if parts.iter().all(|(_, part)| is_literal(part)) {
                Template::Literal(unescaped(value))
            } else {
                Template::Map(parts)
            }
        }
    }
}

fn is_literal(template: &Template) -> bool {
    matches!(template, Template::Literal(_))
}

fn compile_text(
    text: &str,
    path: &str,
    scope: &Scope<'_>,
    findings: &mut Vec<RawDiagnostic>,
) -> Template {
    match text.strip_prefix('=') {
        Some(rest) if !rest.starts_with('=') => {
            match compile_expression(rest, path, scope, findings) {
                Some(expression) => Template::Computed(expression, None),
                None => Template::Literal(Value::Null),
            }
        }
        Some(escaped) => Template::Literal(Value::from(escaped)),
        None => Template::Literal(Value::from(text)),
    }
}

/// Compiles one expression and adds errors to `findings`.
pub(crate) fn compile_expression(
    source: &str,
    path: &str,
    scope: &Scope<'_>,
    findings: &mut Vec<RawDiagnostic>,
) -> Option<Expression> {
    // A hostile definition must not compile thousands of invalid expressions.
    if findings.len() >= MAX_DIAGNOSTICS {
        return None;
    }
    match Expression::compile(source, scope) {
        Ok(expression) => Some(expression),
        Err(errors) => {
            findings.extend(errors.into_iter().map(|r| {
                RawDiagnostic::new(path, r.message)
                    .within(r.at.or(Some((1, 1))))
                    .with_optional_suggestion(r.suggestion)
            }));
            None
        }
    }
}

/// Returns the JSON of a template without expressions.
fn unescaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.strip_prefix('=').unwrap_or(text)),
        Value::Array(items) => Value::Array(items.iter().map(unescaped).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, item)| (key.clone(), unescaped(item)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
