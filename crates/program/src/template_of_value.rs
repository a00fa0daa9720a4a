//! Templates outside definitions: over a received message, or over one named value.

use std::fmt;

use serde_json::Value;

use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, Root, Scope};
use crate::template::Template;

/// Compiled template over a received message. Text that starts with `=` is an expression, as in
/// definitions.
#[derive(Debug)]
pub struct MessageTemplate(Template);

/// Error in a template, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Path below the template, for example `data.lines[0]`.
    pub path: String,
    /// Line and column in the expression, from 1.
    pub at: Option<(usize, usize)>,
    /// Description of the error.
    pub message: String,
    /// Suggested correction.
    pub suggestion: Option<String>,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "line {line}, column {column} of the expression: ")?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TemplateError {}

impl From<RawDiagnostic> for TemplateError {
    fn from(found: RawDiagnostic) -> Self {
        let RawDiagnostic {
            path,
            within: at,
            message,
            suggestion,
            at_key: _,
        } = found;
        Self {
            path,
            at,
            message,
            suggestion,
        }
    }
}

impl MessageTemplate {
    /// Compiles a template; `path` is its name in errors.
    ///
    /// # Errors
    /// All errors of its expressions.
    pub fn compile(template: &Value, path: &str) -> Result<Self, Vec<TemplateError>> {
        let scope = Scope {
            roots: &[Root::Body, Root::Headers],
            vars: None,
            element: None,
        };
        compile(template, path, &scope).map(Self)
    }

    /// Evaluates the template. Its cost is bounded as in definitions.
    ///
    /// # Errors
    /// The expression without a value, and the reason.
    pub fn evaluate(&self, body: &Value, headers: &Value) -> Result<Value, String> {
        let bindings = Bindings::before_any_instance().message(body, headers);
        self.0
            .evaluate(&bindings)
            .map_err(|error| error.to_string())
    }
}

/// Compiled template over one value, which expressions read by a name: `= schedule.time`.
#[derive(Debug)]
pub struct VariableTemplate {
    variable: &'static str,
    template: Template,
}

impl VariableTemplate {
    /// Compiles a template over the variable; `path` is its name in errors.
    ///
    /// # Errors
    /// All errors of its expressions.
    pub fn compile(
        template: &Value,
        path: &str,
        variable: &'static str,
    ) -> Result<Self, Vec<TemplateError>> {
        let scope = Scope {
            roots: &[],
            vars: None,
            // The variable takes the place of an element, the only root whose name is free.
            element: Some(variable),
        };
        let template = compile(template, path, &scope)?;
        Ok(Self { variable, template })
    }

    /// Evaluates the template. Its cost is bounded as in definitions.
    ///
    /// # Errors
    /// The expression without a value, and the reason.
    pub fn evaluate(&self, value: &Value) -> Result<Value, String> {
        let bindings = Bindings::before_any_instance().element(self.variable, value, 0);
        self.template
            .evaluate(&bindings)
            .map_err(|error| error.to_string())
    }
}

fn compile(
    template: &Value,
    path: &str,
    scope: &Scope<'_>,
) -> Result<Template, Vec<TemplateError>> {
    let mut findings = Vec::new();
    let template = Template::compile(template, path, scope, &mut findings);
    if findings.is_empty() {
        Ok(template)
    } else {
        Err(findings.into_iter().map(TemplateError::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(template: &Value, expected: Result<Value, &str>) {
        let body = json!({ "id": "evt_1", "lines": [{ "sku": "a" }, { "sku": "b" }] });
        let headers = json!({ "x-github-event": "push" });
        let found = MessageTemplate::compile(template, "data")
            .unwrap()
            .evaluate(&body, &headers);
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected)),
            Err(part) => assert!(
                found.as_ref().is_err_and(|error| error.contains(part)),
                "{found:?}"
            ),
        }
    }

    #[test]
    fn message_template_reads_body_and_headers() {
        check(
            &json!("= 'git.' + headers['x-github-event']"),
            Ok(json!("git.push")),
        );
        check(
            &json!({ "id": "= body.id", "of": "stripe" }),
            Ok(json!({ "id": "evt_1", "of": "stripe" })),
        );
        check(
            &json!("= body.lines.map(line, line.sku)"),
            Ok(json!(["a", "b"])),
        );
        check(
            &json!("= body.?customer.orValue('none')"),
            Ok(json!("none")),
        );
        check(&json!("==x"), Ok(json!("=x")));
        check(
            &json!("= body"),
            Ok(json!({ "id": "evt_1", "lines": [{ "sku": "a" }, { "sku": "b" }] })),
        );
    }

    #[test]
    fn missing_value_names_the_expression() {
        check(&json!("= body.customer"), Err("`customer` does not exist"));
        check(&json!("= headers['x-none'] + 'a'"), Err("x-none"));
    }

    #[track_caller]
    fn rejected(template: &Value, path: &str, expected: &str) {
        let errors = MessageTemplate::compile(template, "data").unwrap_err();
        assert_eq!(errors[0].path, path);
        assert!(errors[0].to_string().contains(expected), "{}", errors[0]);
    }

    #[test]
    fn invalid_message_template_is_rejected_with_position() {
        rejected(
            &json!({ "a": ["= bdy.id"] }),
            "data.a[0]",
            "line 1, column 2 of the expression: unknown name `bdy`; available: `body` and `headers`; did you mean `body`",
        );
        rejected(
            &json!("= event.id"),
            "data",
            "unknown name `event`; available: `body` and `headers`",
        );
        rejected(&json!("= vars.x"), "data", "unknown name `vars`");
        rejected(&json!("= body.id +"), "data", "ends too early");
    }
}
