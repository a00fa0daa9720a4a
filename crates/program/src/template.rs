//! Templates: JSON in which a text that begins with `=` is an expression; `==` stands for a plain `=`.

use serde_json::{Map, Value};

use crate::diagnostic::Finding;
use crate::expression::{Account, Bindings, EvalError, Expression, Scope};
use crate::limits::{MAX_FINDINGS, MAX_PAYLOAD_BYTES, check_payload, take_payload};

/// A compiled template. Parts without expressions are kept as plain JSON.
#[derive(Debug)]
pub(crate) enum Template {
    Literal(Value),
    Computed(Expression),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
}

impl Template {
    /// Compiles; what is wrong goes to `findings`, with its place under `path`.
    pub(crate) fn compile(value: &Value, path: &str, scope: &Scope<'_>, findings: &mut Vec<Finding>) -> Self {
        if let Err(large) = check_payload(value) {
            findings.push(Finding::new(path, format!("the template is too large: {large}")));
            return Template::Literal(Value::Null);
        }
        compile(value, path, scope, findings)
    }

    /// Its value. All its expressions together may cost and hold what one may.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        let account = Account::open();
        let mut left = MAX_PAYLOAD_BYTES;
        let value = self.fill(bindings, &mut left);
        drop(account);
        value
    }

    fn fill(&self, bindings: &Bindings<'_>, left: &mut usize) -> Result<Value, EvalError> {
        match self {
            Template::Literal(value) => Ok(value.clone()),
            Template::Computed(expression) => {
                let value = expression.evaluate(bindings)?;
                let fits = take_payload(&value, left);
                fits.map_err(|large| {
                    expression.error(large.to_string().replacen("it", "with it the template", 1))
                })?;
                Ok(value)
            }
            Template::List(items) => {
                let items: Result<_, _> = items.iter().map(|item| item.fill(bindings, left)).collect();
                items.map(Value::Array)
            }
            Template::Map(fields) => {
                let fields: Result<Map<_, _>, _> =
                    fields.iter().map(|(key, item)| Ok((key.clone(), item.fill(bindings, left)?))).collect();
                fields.map(Value::Object)
            }
        }
    }
}

fn compile(value: &Value, path: &str, scope: &Scope<'_>, findings: &mut Vec<Finding>) -> Template {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Template::Literal(value.clone()),
        Value::String(text) => compile_text(text, path, scope, findings),
        Value::Array(items) => {
            let parts = items.iter().enumerate();
            let parts: Vec<_> =
                parts.map(|(i, item)| compile(item, &format!("{path}[{i}]"), scope, findings)).collect();
            if parts.iter().all(is_literal) {
                Template::Literal(unescaped(value))
            } else {
                Template::List(parts)
            }
        }
        Value::Object(fields) => {
            let parts = fields.iter();
            let parts: Vec<_> = parts
                .map(|(key, item)| (key.clone(), compile(item, &format!("{path}.{key}"), scope, findings)))
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

fn compile_text(text: &str, path: &str, scope: &Scope<'_>, findings: &mut Vec<Finding>) -> Template {
    match text.strip_prefix('=') {
        Some(rest) if !rest.starts_with('=') => match compile_expression(rest, path, scope, findings) {
            Some(expression) => Template::Computed(expression),
            None => Template::Literal(Value::Null),
        },
        Some(escaped) => Template::Literal(Value::from(escaped)),
        None => Template::Literal(Value::from(text)),
    }
}

/// Compiles one expression; what is wrong goes to `findings`. Where enough is wrong already, it is not looked at.
pub(crate) fn compile_expression(
    source: &str,
    path: &str,
    scope: &Scope<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Expression> {
    if findings.len() >= MAX_FINDINGS {
        return None;
    }
    match Expression::compile(source, scope) {
        Ok(expression) => Some(expression),
        Err(refused) => {
            findings.extend(refused.into_iter().map(|r| {
                Finding::new(path, r.message).within(r.at.or(Some((1, 1)))).maybe_suggest(r.suggestion)
            }));
            None
        }
    }
}

/// A template without expressions as the JSON it stands for.
fn unescaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.strip_prefix('=').unwrap_or(text)),
        Value::Array(items) => Value::Array(items.iter().map(unescaped).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, item)| (key.clone(), unescaped(item))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
