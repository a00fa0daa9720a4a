//! Expressions: CEL over `vars`, `event`, `failure`, `key`, `results` and elements of lists; pure, and checked when loaded.
//!
//! A plain chain of fields (`vars.orderId`) is by far the most frequent expression; it is looked up in the JSON without
//! CEL. Everything else runs on `cel` with the JSON read in place. The same input gives the same value: maps are read in the
//! order of their keys. What it may cost is bounded before it runs (its length, its nesting) and while it runs (what it goes
//! through and what it makes).

mod ast;
mod check;
mod cost;
mod filter;
mod functions;
mod json;
mod names;
mod output;
mod pattern;
mod rewrite;
mod root;
mod two_variable_macros;

use std::cell::OnceCell;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, IdedExpr};
use cel::common::types::CelBool;
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Value as CelValue};
use orlog_model::InstanceKey;
use serde_json::{Map, Value, json};

pub(crate) use check::{Refused, Scope};
pub(crate) use cost::Account;
pub use filter::{Filter, FilterError, Unmet};

use crate::contract::Cause;
use check::{Known, Parsed};
use functions::environment;
use json::{wrap, wrap_map};
pub(crate) use root::{INDEX, Root};

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    source: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Path { root: Root, fields: Vec<String> },
    Cel(Box<Parsed>),
}

/// An expression had no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}`: {reason}")]
pub(crate) struct EvalError {
    /// The expression's text.
    pub(crate) expression: String,
    /// Why.
    pub(crate) reason: String,
}

/// What the variables stand for.
pub(crate) struct Bindings<'a> {
    vars: Option<&'a Map<String, Value>>,
    event: Option<&'a Value>,
    cause: Option<&'a Cause>,
    results: &'a Map<String, Value>,
    element: Option<Element<'a>>,
    instance: Option<&'a InstanceKey>,
    failure: OnceCell<Value>,
    key: OnceCell<Value>,
}

/// An element of a list, the name the definition gives it, and its place.
struct Element<'a> {
    name: &'a str,
    value: &'a Value,
    index: Value,
}

static NO_RESULTS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'a> Bindings<'a> {
    pub(crate) fn new(instance: &'a InstanceKey) -> Self {
        Self { instance: Some(instance), ..Self::before_any_instance() }
    }

    /// Where it is not known yet which instance it is about.
    pub(crate) fn before_any_instance() -> Self {
        Self {
            vars: None,
            event: None,
            cause: None,
            results: &NO_RESULTS,
            element: None,
            instance: None,
            failure: OnceCell::new(),
            key: OnceCell::new(),
        }
    }

    pub(crate) fn results(mut self, results: Option<&'a Map<String, Value>>) -> Self {
        self.results = results.unwrap_or(&NO_RESULTS);
        self
    }

    pub(crate) fn element(mut self, name: &'a str, value: &'a Value, index: usize) -> Self {
        self.element = Some(Element { name, value, index: Value::from(index) });
        self
    }

    pub(crate) fn vars(mut self, vars: &'a Map<String, Value>) -> Self {
        self.vars = Some(vars);
        self
    }

    pub(crate) fn event(mut self, event: &'a Value) -> Self {
        self.event = Some(event);
        self
    }

    pub(crate) fn cause(mut self, cause: Option<&'a Cause>) -> Self {
        self.cause = cause;
        self
    }

    fn failure(&self) -> &Value {
        self.failure.get_or_init(|| {
            self.cause
                .map_or(Value::Null, |c| json!({ "code": c.code, "message": c.message, "step": c.step }))
        })
    }

    fn key(&self) -> &Value {
        self.key.get_or_init(|| {
            self.instance.map_or(Value::Null, |instance| {
                json!({
                    "tenant": instance.tenant.as_str(),
                    "saga": instance.saga.as_str(),
                    "correlation": instance.correlation.as_str(),
                })
            })
        })
    }

    /// The value at a chain of fields; the error names the first that is missing.
    fn look_up<'s>(&'s self, root: Root, fields: &'s [String]) -> Result<CowJson<'s>, &'s str> {
        let (start, fields) = match (root, self.vars, fields) {
            (Root::Vars, Some(vars), []) => return Ok(CowJson::Fields(vars)),
            (Root::Vars, Some(vars), [first, rest @ ..]) => (vars.get(first).ok_or(first.as_str())?, rest),
            (Root::Vars, None, _) => return Err(root.name()),
            (Root::Event, _, fields) => (self.event.ok_or(root.name())?, fields),
            (Root::Failure, _, fields) => (self.failure(), fields),
            (Root::Key, _, fields) => (self.key(), fields),
            (Root::Results, _, []) => return Ok(CowJson::Fields(self.results)),
            (Root::Results, _, [first, rest @ ..]) => (self.results.get(first).ok_or(first.as_str())?, rest),
            (Root::Element, _, fields) => (self.element.as_ref().ok_or(root.name())?.value, fields),
            (Root::Index, _, fields) => (&self.element.as_ref().ok_or(root.name())?.index, fields),
        };
        let found = fields.iter().try_fold(start, |value, field| value.get(field).ok_or(field.as_str()))?;
        Ok(CowJson::Value(found))
    }
}

/// A value, or an object of which only the fields are at hand.
enum CowJson<'a> {
    Value(&'a Value),
    Fields(&'a Map<String, Value>),
}

impl CowJson<'_> {
    fn into_value(self) -> Value {
        match self {
            CowJson::Value(value) => value.clone(),
            CowJson::Fields(fields) => Value::Object(fields.clone()),
        }
    }
}

/// Bindings as CEL looks them up. The parts are borrowed from [`Bindings`].
struct Resolver<'a> {
    vars: Option<&'a Map<String, Value>>,
    event: Option<&'a Value>,
    failure: Option<&'a Value>,
    key: Option<&'a Value>,
    results: &'a Map<String, Value>,
    element: Option<&'a Element<'a>>,
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let owned = |value: &'b Value| CowVal::Owned(wrap(value));
        match self.element {
            Some(element) if element.name == variable => return Some(owned(element.value)),
            Some(element) if variable == INDEX => return Some(owned(&element.index)),
            Some(_) | None => {}
        }
        match Root::named(variable)? {
            Root::Vars => self.vars.map(|vars| CowVal::Owned(wrap_map(vars))),
            Root::Event => self.event.map(owned),
            Root::Failure => self.failure.map(owned),
            Root::Key => self.key.map(owned),
            Root::Results => Some(CowVal::Owned(wrap_map(self.results))),
            Root::Element | Root::Index => None,
        }
    }
}

/// Variables under their own names.
struct Free<'a>(&'a Map<String, Value>);

impl VariableResolver for Free<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        self.0.get(variable).map(|value| CowVal::Owned(wrap(value)))
    }
}

/// The value of an expression outside a definition, with `variables` as its names: for tools, and for the tests of the
/// language. Checks, limits and the JSON of the value are those of an expression in a definition.
///
/// # Errors
/// Why it is refused, or why it has no value.
pub fn evaluate(source: &str, variables: &Map<String, Value>) -> Result<Value, String> {
    let names: Vec<_> = variables.keys().map(String::as_str).collect();
    let parsed = check::parse(environment(), source, Known::Free(&names));
    let parsed = parsed.map_err(|refused| {
        refused.into_iter().next().map_or_else(|| "it is refused".to_owned(), |refused| refused.message)
    })?;
    run(&parsed, &Free(variables), output::to_json)
}

/// Runs a checked expression within an account.
fn run<T: Send>(
    parsed: &Parsed,
    resolver: &dyn VariableResolver,
    read: impl FnOnce(&dyn Val) -> Result<T, String> + Send,
) -> Result<T, String> {
    let account = Account::open();
    let resolve = || {
        let mut context = Context::with_env(Arc::clone(environment()));
        context.set_variable_resolver(resolver);
        let value = CelValue::resolve_val(&parsed.expression, &context);
        value.map_err(|e| output::reason(&e)).and_then(|value| read(value.as_ref()))
    };
    let value = if parsed.deep { cost::carried(resolve) } else { resolve() };
    drop(account);
    if cost::is_spent() { Err("it goes through too much data".to_owned()) } else { value }
}

impl Expression {
    /// Compiles and checks.
    pub(crate) fn compile(source: &str, scope: &Scope<'_>) -> Result<Self, Vec<Refused>> {
        let parsed = check::parse(environment(), source, Known::Place(scope))?;
        let kind = match path_of(&parsed.expression, scope) {
            Some((root, fields)) => Kind::Path { root, fields },
            None => Kind::Cel(Box::new(parsed)),
        };
        Ok(Self { source: source.to_owned(), kind })
    }

    /// Its value.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        match &self.kind {
            Kind::Path { root, fields } => match bindings.look_up(*root, fields) {
                Ok(found) => Ok(found.into_value()),
                Err(missing) => Err(self.error(format!("there is no `{missing}`"))),
            },
            Kind::Cel(parsed) => self.evaluate_cel(parsed, bindings, output::to_json),
        }
    }

    /// Its value, which must be true or false.
    pub(crate) fn holds(&self, bindings: &Bindings<'_>) -> Result<bool, EvalError> {
        match &self.kind {
            Kind::Path { .. } => match self.evaluate(bindings)? {
                Value::Bool(holds) => Ok(holds),
                other => {
                    Err(self.error(format!("a condition must be true or false, this is {}", kind_of(&other))))
                }
            },
            Kind::Cel(parsed) => self.evaluate_cel(parsed, bindings, |value| {
                let wrong =
                    || format!("a condition must be true or false, this is {}", value.get_type().name());
                value.downcast_ref::<CelBool>().map(|b| *b.inner()).ok_or_else(wrong)
            }),
        }
    }

    fn evaluate_cel<T: Send>(
        &self,
        parsed: &Parsed,
        bindings: &Bindings<'_>,
        read: impl FnOnce(&dyn Val) -> Result<T, String> + Send,
    ) -> Result<T, EvalError> {
        let resolver = Resolver {
            vars: bindings.vars,
            event: bindings.event,
            failure: bindings.cause.map(|_| bindings.failure()),
            key: Some(bindings.key()),
            results: bindings.results,
            element: bindings.element.as_ref(),
        };
        run(parsed, &resolver, read).map_err(|reason| self.error(reason))
    }

    /// Why its value is not taken.
    pub(crate) fn error(&self, reason: String) -> EvalError {
        EvalError { expression: self.source.clone(), reason }
    }
}

/// `vars.a.b` as a root and fields, where the expression is nothing else.
fn path_of(expression: &IdedExpr, scope: &Scope<'_>) -> Option<(Root, Vec<String>)> {
    let mut fields = Vec::new();
    let mut at = expression;
    while let Expr::Select(select) = &at.expr {
        if select.test {
            return None;
        }
        fields.push(select.field.clone());
        at = &select.operand;
    }
    let Expr::Ident(name) = &at.expr else { return None };
    fields.reverse();
    Some((scope.root(name)?, fields))
}

/// What people call the type of a JSON value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;
