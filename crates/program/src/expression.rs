//! Expressions: CEL over `vars`, `event`, `envelope`, `failure`, `key`, `results` and list
//! elements; pure and checked at compile time.
//!
//! A plain chain of fields (`vars.orderId`) is by far the most frequent expression; it is resolved
//! in the JSON without CEL. All other expressions run on `cel`, which reads the JSON in place. The
//! same input always gives the same value: maps are read in key order. Cost is limited before the
//! run (length, nesting) and during the run (data read and produced).

mod arithmetic;
mod ast;
mod check;
mod constants;
pub(crate) mod cost;
mod evaluate;
mod event_data;
mod filter;
mod functions;
mod json;
mod names;
mod output;
mod pattern;
mod reads;
mod resolver;
mod rewrite;
mod root;
mod search;
mod sources;
mod two_variable_macros;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, IdedExpr};
use cel::common::types::CelBool;
use cel::common::value::Val;
use cel::context::VariableResolver;
use cel::{Context, Value as CelValue};
use orlog_model::InstanceKey;
use serde_json::{Map, Value, json};

pub(crate) use check::{CheckError, Scope};
pub use evaluate::evaluate;
pub(crate) use event_data::{ENVELOPE_FIELDS, Envelope, EventData, envelope};
pub use filter::{Comparison, ComparisonOperator, Filter, FilterError, FilterEvalError};

use crate::budget;
use crate::contract::FailureCause;
use check::{CheckedExpression, NameResolution};
use functions::environment;
pub(crate) use json::kind_of;
pub(crate) use reads::{
    FieldTest, FreeRead, TextComparison, first_fields, free_reads, tested_fields, text_comparisons,
    untested_fields,
};
use resolver::{Element, Message, Resolver};
pub(crate) use root::{EVENTS, FAILURE_FIELDS, INDEX, Root};
pub(crate) use sources::ValueSource;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    source: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Path { root: Root, fields: Vec<String> },
    Cel(Box<CheckedExpression>),
}

/// Evaluation error: an expression had no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}`: {reason}")]
pub(crate) struct EvalError {
    /// Text of the expression.
    pub(crate) expression: String,
    /// Reason of the error.
    pub(crate) reason: String,
    /// A compensation would be requested with null instead of the value of a step.
    pub(crate) lacks_value: bool,
}

/// Values of the variables.
pub(crate) struct Bindings<'a> {
    vars: Option<Cow<'a, Map<String, Value>>>,
    event: Option<&'a Value>,
    envelope: Option<Envelope<'a>>,
    cause: Option<&'a FailureCause>,
    results: Cow<'a, Map<String, Value>>,
    element: Option<Element<'a>>,
    round: Option<Value>,
    events: Option<&'a Value>,
    reminder: Option<Value>,
    instance: Option<&'a InstanceKey>,
    message: Option<Message<'a>>,
    /// Whether a compensation may be requested with null instead of the value of a step.
    pub(crate) allows_null: bool,
    /// Step to which the expression belongs, for errors.
    pub(crate) step: Option<&'a str>,
    built_envelope: OnceCell<Value>,
    failure: OnceCell<Value>,
    key: OnceCell<Value>,
}

static NO_RESULTS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'a> Bindings<'a> {
    pub(crate) fn new(instance: &'a InstanceKey) -> Self {
        Self {
            instance: Some(instance),
            ..Self::before_any_instance()
        }
    }

    /// Returns bindings without an instance, before correlation.
    pub(crate) fn before_any_instance() -> Self {
        Self {
            vars: None,
            event: None,
            envelope: None,
            cause: None,
            results: Cow::Borrowed(&*NO_RESULTS),
            element: None,
            round: None,
            events: None,
            reminder: None,
            instance: None,
            message: None,
            allows_null: false,
            step: None,
            built_envelope: OnceCell::new(),
            failure: OnceCell::new(),
            key: OnceCell::new(),
        }
    }

    pub(crate) fn results(mut self, results: Option<&'a Map<String, Value>>) -> Self {
        self.results = Cow::Borrowed(results.unwrap_or(&NO_RESULTS));
        self
    }

    /// Sets the number of the round of a loop.
    pub(crate) fn round(mut self, round: usize) -> Self {
        self.round = Some(Value::from(round));
        self
    }

    /// Sets the payloads of the collected events.
    pub(crate) fn events(mut self, events: &'a Value) -> Self {
        self.events = Some(events);
        self
    }

    /// Sets the number of a reminder.
    pub(crate) fn reminder(mut self, number: u32) -> Self {
        self.reminder = Some(Value::from(number));
        self
    }

    /// Replaces variables by those of an earlier round of a loop, or of a failed step.
    pub(crate) fn replaced_vars(mut self, vars: Option<&Map<String, Value>>) -> Self {
        if let (Some(all), Some(vars)) = (&mut self.vars, vars)
            && !vars.is_empty()
        {
            all.to_mut().extend(vars.clone());
        }
        self
    }

    /// Replaces results of jobs by those of an earlier round of a loop.
    pub(crate) fn replaced_results(mut self, results: &Map<String, Value>) -> Self {
        if !results.is_empty() {
            self.results.to_mut().extend(results.clone());
        }
        self
    }

    pub(crate) fn element(mut self, name: &'a str, value: &'a Value, index: usize) -> Self {
        self.element = Some(Element {
            name,
            value,
            index: Value::from(index),
        });
        self
    }

    /// Sets whether a compensation may be requested with null instead of the value of a step.
    pub(crate) fn allow_null(mut self, allows_null: bool) -> Self {
        self.allows_null = allows_null;
        self
    }

    /// Sets the step to which the expression belongs.
    pub(crate) fn step(mut self, step: &'a str) -> Self {
        self.step = Some(step);
        self
    }

    pub(crate) fn message(mut self, body: &'a Value, headers: &'a Value) -> Self {
        self.message = Some(Message { body, headers });
        self
    }

    pub(crate) fn vars(mut self, vars: &'a Map<String, Value>) -> Self {
        self.vars = Some(Cow::Borrowed(vars));
        self
    }

    pub(crate) fn event(mut self, event: impl Into<EventData<'a>>) -> Self {
        let EventData { data, envelope } = event.into();
        self.event = Some(data);
        self.envelope = envelope;
        self
    }

    pub(crate) fn cause(mut self, cause: Option<&'a FailureCause>) -> Self {
        self.cause = cause;
        self
    }

    fn envelope(&self) -> Option<&Value> {
        Some(match self.envelope? {
            Envelope::Of(event) => self.built_envelope.get_or_init(|| envelope(event)),
            Envelope::Kept(value) => value,
        })
    }

    fn failure(&self) -> &Value {
        self.failure.get_or_init(|| {
            self.cause.map_or(
                Value::Null,
                |cause| json!({ "code": cause.code, "message": cause.message, "step": cause.step }),
            )
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

    /// Returns the value at a chain of fields; the error is the first missing field.
    fn lookup<'s>(&'s self, root: Root, fields: &'s [String]) -> Result<CowJson<'s>, &'s str> {
        let (start, fields) = match (root, self.vars.as_deref(), fields) {
            (Root::Vars, Some(vars), []) => return Ok(CowJson::Fields(vars)),
            (Root::Vars, Some(vars), [first, rest @ ..]) => {
                (vars.get(first).ok_or(first.as_str())?, rest)
            }
            (Root::Vars, None, _) => return Err(root.name()),
            (Root::Event, _, fields) => (self.event.ok_or(root.name())?, fields),
            (Root::Envelope, _, fields) => (self.envelope().ok_or(root.name())?, fields),
            (Root::Failure, _, fields) => (self.failure(), fields),
            (Root::Key, _, fields) => (self.key(), fields),
            (Root::Results, _, []) => return Ok(CowJson::Fields(&self.results)),
            (Root::Results, _, [first, rest @ ..]) => {
                (self.results.get(first).ok_or(first.as_str())?, rest)
            }
            (Root::Element, _, fields) => (self.element.as_ref().ok_or(root.name())?.value, fields),
            (Root::Body, _, fields) => (self.message.ok_or(root.name())?.body, fields),
            (Root::Headers, _, fields) => (self.message.ok_or(root.name())?.headers, fields),
            (Root::Round, _, fields) => (self.round.as_ref().ok_or(root.name())?, fields),
            (Root::Events, _, fields) => (self.events.ok_or(root.name())?, fields),
            (Root::Reminder, _, fields) => (self.reminder.as_ref().ok_or(root.name())?, fields),
            (Root::Index, _, fields) => (&self.element.as_ref().ok_or(root.name())?.index, fields),
        };

        let found = fields
            .iter()
            .try_fold(start, |value, field| value.get(field).ok_or(field.as_str()))?;
        Ok(CowJson::Value(found))
    }
}

/// A value, or an object of which only the fields are available.
enum CowJson<'a> {
    Value(&'a Value),
    Fields(&'a Map<String, Value>),
}

impl CowJson<'_> {
    fn is_null(&self) -> bool {
        match self {
            CowJson::Value(value) => value.is_null(),
            CowJson::Fields(_) => false,
        }
    }

    fn into_value(self) -> Value {
        match self {
            CowJson::Value(value) => value.clone(),
            CowJson::Fields(fields) => Value::Object(fields.clone()),
        }
    }
}

/// Runs a checked expression within the open cost budget.
fn run<T: Send>(
    parsed: &CheckedExpression,
    resolver: &dyn VariableResolver,
    read: impl FnOnce(&dyn Val) -> Result<T, String> + Send,
) -> Result<T, String> {
    let resolve = || {
        let mut context = Context::with_env(Arc::clone(environment()));
        context.set_variable_resolver(resolver);
        let value = CelValue::resolve_val(&parsed.expression, &context);
        let value = value.map_err(|error| output::reason(&error))?;
        read(value.as_ref())
    };

    // An expression with many operators recurses deeper than the stack of the caller permits.
    let value = if parsed.deep {
        cost::share_with_thread(resolve)
    } else {
        resolve()
    };

    // A value that was built after the budget was exceeded lacks the data that was not read.
    if cost::is_exhausted() {
        cost::exceed_transition();
        Err("the expression processes too much data".to_owned())
    } else {
        value
    }
}

impl Expression {
    /// Compiles and checks an expression.
    pub(crate) fn compile(source: &str, scope: &Scope<'_>) -> Result<Self, Vec<CheckError>> {
        let parsed = check::parse(environment(), source, NameResolution::Scoped(scope))?;
        let kind = match path_of(&parsed.expression, scope) {
            Some((root, fields)) => Kind::Path { root, fields },
            None => Kind::Cel(Box::new(parsed)),
        };

        Ok(Self {
            source: source.to_owned(),
            kind,
        })
    }

    /// Evaluates the expression.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        cost::evaluate(bindings.step, || self.evaluate_within_budget(bindings))
    }

    /// Evaluates the expression as a part of a template, which opened the cost budget.
    pub(crate) fn evaluate_within_budget(
        &self,
        bindings: &Bindings<'_>,
    ) -> Result<Value, EvalError> {
        let value = match &self.kind {
            Kind::Path { root, fields } => self.lookup(bindings, *root, fields),
            Kind::Cel(parsed) => self.evaluate_cel(parsed, bindings, output::to_json),
        };
        // Also after an error: the data was read.
        self.spend_length(bindings)?;
        value
    }

    fn lookup(
        &self,
        bindings: &Bindings<'_>,
        root: Root,
        fields: &[String],
    ) -> Result<Value, EvalError> {
        match bindings.lookup(root, fields) {
            Ok(found) => Ok(found.into_value()),
            Err(missing) => Err(self.error(format!("`{missing}` does not exist"))),
        }
    }

    /// Spends the budget of the transition for the length of the expression. Also records the place
    /// at which the budget is exceeded.
    fn spend_length(&self, bindings: &Bindings<'_>) -> Result<(), EvalError> {
        // The budget of the expression itself counts only the data.
        if budget::spend_bytes(self.source.len()) {
            return Ok(());
        }
        budget::record_place(bindings.step, Some(&self.source));
        Err(self.error("the transition exceeds its cost budget".to_owned()))
    }

    /// Evaluates the expression, whose value must be a boolean.
    pub(crate) fn holds(&self, bindings: &Bindings<'_>) -> Result<bool, EvalError> {
        cost::evaluate(bindings.step, || {
            let holds = self.condition(bindings);
            self.spend_length(bindings)?;
            holds
        })
    }

    fn condition(&self, bindings: &Bindings<'_>) -> Result<bool, EvalError> {
        match &self.kind {
            Kind::Path { root, fields } => match self.lookup(bindings, *root, fields)? {
                Value::Bool(holds) => Ok(holds),
                other => Err(self.error(format!(
                    "a condition must be true or false, but is {}",
                    kind_of(&other)
                ))),
            },
            Kind::Cel(parsed) => self.evaluate_cel(parsed, bindings, |value| {
                let condition = value.downcast_ref::<CelBool>().map(|b| *b.inner());
                condition.ok_or_else(|| {
                    format!(
                        "a condition must be true or false, but is {}",
                        value.get_type().name()
                    )
                })
            }),
        }
    }

    fn evaluate_cel<T: Send>(
        &self,
        parsed: &CheckedExpression,
        bindings: &Bindings<'_>,
        read: impl FnOnce(&dyn Val) -> Result<T, String> + Send,
    ) -> Result<T, EvalError> {
        let resolver = Resolver {
            vars: bindings.vars.as_deref(),
            event: bindings.event,
            // The value of an envelope or of a failure is built only if it can be read.
            envelope: parsed.reads_envelope.then(|| bindings.envelope()).flatten(),
            failure: bindings.cause.map(|_| bindings.failure()),
            key: Some(bindings.key()),
            results: &bindings.results,
            element: bindings.element.as_ref(),
            round: bindings.round.as_ref(),
            events: bindings.events,
            reminder: bindings.reminder.as_ref(),
            message: bindings.message,
        };

        run(parsed, &resolver, read).map_err(|reason| self.error(reason))
    }

    /// Returns whether the expression reads the attributes of the event.
    pub(crate) fn reads_envelope(&self) -> bool {
        match &self.kind {
            Kind::Path { root, .. } => *root == Root::Envelope,
            Kind::Cel(parsed) => parsed.reads_envelope,
        }
    }

    /// Creates the error of an invalid value.
    pub(crate) fn error(&self, reason: String) -> EvalError {
        EvalError {
            expression: self.source.clone(),
            reason,
            lacks_value: false,
        }
    }
}

/// Returns `vars.a.b` as a root and fields if the expression is only a chain of fields.
fn path_of(expression: &IdedExpr, scope: &Scope<'_>) -> Option<(Root, Vec<String>)> {
    let mut fields = Vec::new();
    let mut at = expression;
    while let Expr::Select(select) = &at.expr {
        // `has(vars.a)` is a test of the field, not its value.
        if select.test {
            return None;
        }
        fields.push(select.field.clone());
        at = &select.operand;
    }

    let Expr::Ident(name) = &at.expr else {
        return None;
    };

    // The outermost selection is the last field.
    fields.reverse();
    Some((scope.root(name)?, fields))
}

#[cfg(test)]
mod function_cost_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;
