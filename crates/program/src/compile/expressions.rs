//! Compiler of the expressions and templates of a definition, with the variables of their
//! locations.

use orlog_model::{Name, SagaName};
use serde_json::{Map, Value};

use super::required_values::RequiredValues;
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::expression::{Expression, Root, Scope};
use crate::template::{Template, compile_expression};

/// Variables that are available to the expressions at a location.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpressionScope {
    /// Stored variables.
    Forward,
    /// Also an event with its envelope, or a result.
    Result,
    /// Also the response of an action that no event completes.
    Response,
    /// Also the failure.
    Compensation,
    /// Only the data of an event or response.
    Event,
    /// Only the start event.
    Start,
}

/// Location of expressions, and their variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'p> {
    pub(crate) path: &'p str,
    pub(crate) scope: ExpressionScope,
    /// Name of the element, if the location belongs to a `foreach` step.
    pub(crate) element: Option<&'p str>,
    /// Whether the location belongs to a loop, so that `round` exists.
    pub(crate) in_loop: bool,
    /// Whether the location belongs to a step that collects events, so that `events` exists.
    pub(crate) collects: bool,
    /// Whether the location belongs to a reminder, so that `reminder` exists.
    pub(crate) reminds: bool,
    /// In the action of a compensation: the variables and job results that must not be null.
    pub(crate) required: Option<RequiredValues<'p>>,
}

/// Compiles expressions and collects diagnostics.
pub(crate) struct ExpressionCompiler<'a> {
    pub(crate) saga: &'a SagaName,
    /// Ids of all steps.
    pub(crate) steps: Vec<&'a Name>,
    /// All names under `vars` that the definition sets.
    pub(crate) vars: Vec<String>,
    /// The definition has jobs, so `results` exists.
    pub(crate) has_jobs: bool,
    pub(crate) findings: RawDiagnostics,
    /// Whether an expression reads `envelope`.
    pub(crate) reads_envelope: bool,
    /// Collector of the texts of templates and conditions, for the lints; `None` if they are not
    /// required.
    pub(crate) texts: Option<DefinitionTexts>,
}

/// Texts of the templates and conditions of a definition.
#[derive(Debug, Default)]
pub(crate) struct DefinitionTexts {
    pub(crate) literals: Vec<LiteralText>,
    pub(crate) expressions: Vec<ExpressionText>,
}

/// Expression of a definition.
#[derive(Debug)]
pub(crate) struct ExpressionText {
    pub(crate) path: String,
    /// Text without the `=`.
    pub(crate) source: String,
    /// Name of the element of a `foreach` step.
    pub(crate) element: Option<String>,
}

/// Text of a template that is not an expression, with what an expression in its place could read.
#[derive(Debug)]
pub(crate) struct LiteralText {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) roots: Vec<Root>,
    /// Name of the element of a `foreach` step.
    pub(crate) element: Option<String>,
}

impl<'p> Site<'p> {
    pub(crate) fn new(path: &'p str, scope: ExpressionScope) -> Self {
        Self {
            path,
            scope,
            element: None,
            in_loop: false,
            collects: false,
            reminds: false,
            required: None,
        }
    }

    /// Returns the site of another path with the same variables.
    pub(crate) fn at<'q>(self, path: &'q str) -> Site<'q>
    where
        'p: 'q,
    {
        Site { path, ..self }
    }
}

impl ExpressionCompiler<'_> {
    pub(crate) fn report(&mut self, finding: RawDiagnostic) {
        self.findings.push(finding);
    }

    /// Compiles the template in a field of the site.
    pub(crate) fn field(&mut self, site: Site<'_>, field: &str, template: &Value) -> Template {
        self.template(site.at(&format!("{}.{field}", site.path)), template)
    }

    /// Compiles the template in an optional field of the site.
    pub(crate) fn optional_field(
        &mut self,
        site: Site<'_>,
        field: &str,
        template: Option<&Value>,
    ) -> Option<Template> {
        template.map(|template| self.field(site, field, template))
    }

    /// Compiles a list of templates in a field of the site.
    pub(crate) fn list(
        &mut self,
        site: Site<'_>,
        field: &str,
        templates: &[Value],
    ) -> Vec<Template> {
        let templates = templates.iter().enumerate();
        templates
            .map(|(n, template)| self.field(site, &format!("{field}[{n}]"), template))
            .collect()
    }

    /// Compiles the templates of a map.
    pub(crate) fn map(
        &mut self,
        site: Site<'_>,
        fields: &Map<String, Value>,
    ) -> Vec<(String, Template)> {
        fields
            .iter()
            .map(|(key, value)| (key.clone(), self.field(site, key, value)))
            .collect()
    }

    pub(crate) fn template(&mut self, site: Site<'_>, template: &Value) -> Template {
        let roots = self.roots(site);
        if let Some(texts) = &mut self.texts {
            texts.add_template(template, site, &roots);
        }

        let scope = Scope {
            roots: &roots,
            vars: Some(&self.vars),
            element: site.element,
        };

        let mut template = Template::compile(template, site.path, &scope, &mut self.findings);
        if let Some(required) = site.required {
            let path = site
                .path
                .split_once("].")
                .map_or(site.path, |(_, path)| path);
            template.require_values(path, &|source| required.contains(source));
        }
        self.reads_envelope |= template.reads_envelope();
        template
    }

    /// Compiles an optional condition, with or without the `=` of a template.
    pub(crate) fn condition(
        &mut self,
        site: Site<'_>,
        source: Option<&String>,
    ) -> Option<Expression> {
        let source = source?;
        let roots = self.roots(site);
        let scope = Scope {
            roots: &roots,
            vars: Some(&self.vars),
            element: site.element,
        };

        let source = source.strip_prefix('=').unwrap_or(source);
        if let Some(texts) = &mut self.texts {
            texts.add_expression(source, site);
        }

        let condition = compile_expression(source, site.path, &scope, &mut self.findings);
        self.reads_envelope |= condition.as_ref().is_some_and(Expression::reads_envelope);
        condition
    }

    fn roots(&self, site: Site<'_>) -> Vec<Root> {
        let scope = site.scope;
        let mut roots = match scope {
            ExpressionScope::Forward => vec![Root::Vars, Root::Key],
            ExpressionScope::Result => vec![Root::Vars, Root::Event, Root::Envelope, Root::Key],
            ExpressionScope::Response => vec![Root::Vars, Root::Event, Root::Key],
            ExpressionScope::Compensation => vec![Root::Vars, Root::Failure, Root::Key],
            ExpressionScope::Event => vec![Root::Event],
            ExpressionScope::Start => vec![Root::Event, Root::Envelope, Root::Key],
        };
        // Upcasts and the variables of the start event are evaluated before any job has a result.
        let knows_results = !matches!(scope, ExpressionScope::Event | ExpressionScope::Start);

        roots.extend((self.has_jobs && knows_results).then_some(Root::Results));
        roots.extend(site.in_loop.then_some(Root::Round));
        roots.extend(site.collects.then_some(Root::Events));
        roots.extend(site.reminds.then_some(Root::Reminder));
        roots
    }
}

impl DefinitionTexts {
    fn add_expression(&mut self, source: &str, site: Site<'_>) {
        self.expressions.push(ExpressionText {
            path: site.path.to_owned(),
            source: source.to_owned(),
            element: site.element.map(str::to_owned),
        });
    }

    fn add_template(&mut self, template: &Value, site: Site<'_>, roots: &[Root]) {
        match template {
            Value::String(text) if !text.starts_with('=') => self.literals.push(LiteralText {
                path: site.path.to_owned(),
                text: text.clone(),
                roots: roots.to_vec(),
                element: site.element.map(str::to_owned),
            }),
            Value::String(text) => {
                // `==` is a literal `=`.
                if let Some(source) = text.strip_prefix('=')
                    && !source.starts_with('=')
                {
                    self.add_expression(source, site);
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.add_template(item, site.at(&format!("{}[{i}]", site.path)), roots);
                }
            }
            Value::Object(fields) => {
                for (key, item) in fields {
                    self.add_template(item, site.at(&format!("{}.{key}", site.path)), roots);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
