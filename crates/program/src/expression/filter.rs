//! Conditions over named values: filters of an operator over instances, and invariants.
//!
//! Filters are checked like the expressions of a definition: every name exists, and the cost is
//! bounded. An example provides the available names and also detects early that a filter is not a
//! condition.

use std::collections::BTreeSet;
use std::fmt;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::CelBool;
use serde_json::{Map, Value};

use super::ast::children;
use super::check::{self, CheckedExpression, NameResolution};
use super::cost;
use super::evaluate::FreeVariables;
use super::functions::{EQUAL, environment};
use super::rewrite::wrap;
use super::run;

/// A compiled condition over named values.
#[derive(Debug)]
pub struct Filter {
    parsed: CheckedExpression,
    names: BTreeSet<String>,
}

/// Error of an invalid condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Line and column, from 1.
    pub at: Option<(usize, usize)>,
    /// Description of the error.
    pub message: String,
    /// Suggested correction.
    pub suggestion: Option<String>,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Compiles a condition. Its names are those of `example`; names in `times` are read as
    /// timestamps.
    ///
    /// # Errors
    /// If the condition does not parse, uses unknown names, costs too much, or is not a boolean for
    /// the example. If a value of the example is null, its type is unknown.
    pub fn compile(
        source: &str,
        example: &Map<String, Value>,
        times: &[&str],
    ) -> Result<Self, FilterError> {
        let known: Vec<_> = example.keys().map(String::as_str).collect();
        let parsed = check::parse(environment(), source, NameResolution::Free(&known));
        let mut parsed = parsed.map_err(first_error)?;

        let mut names = BTreeSet::new();
        collect(&parsed.expression, &mut names);
        // Names that comprehensions bind are no values of an instance.
        names.retain(|name| example.contains_key(name));
        read_as_times(&mut parsed.expression, times, &mut Vec::new());

        // The example shows early whether the filter is a condition.
        let filter = Self { parsed, names };

        // An error for a null value is uncertain: other instances have a value of another type.
        let certain = filter.names.iter().all(|name| !example[name].is_null());
        match filter.holds(example).0 {
            Err(FilterEvalError::NotBoolean(message)) => Err(FilterError {
                at: None,
                message,
                suggestion: None,
            }),
            Err(FilterEvalError::NoValue(message)) if certain => Err(FilterError {
                at: None,
                message,
                suggestion: None,
            }),
            Ok(_) | Err(FilterEvalError::NoValue(_)) => Ok(filter),
        }
    }

    /// Compiles a condition over these names, whose values have no example.
    pub(crate) fn over(source: &str, names: &[&str]) -> Result<Self, Vec<check::CheckError>> {
        let parsed = check::parse(environment(), source, NameResolution::Free(names))?;
        let mut used = BTreeSet::new();
        collect(&parsed.expression, &mut used);
        used.retain(|name| names.contains(&name.as_str()));
        Ok(Self {
            parsed,
            names: used,
        })
    }

    /// Returns true if the condition uses this name.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the comparisons of a name or a field with a literal that hold for every match: those
    /// that `&&` combines at the top.
    #[must_use]
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut found = Vec::new();
        comparisons(&self.parsed.expression, &mut found);
        found
    }

    /// Evaluates the condition and returns the used units of work
    /// ([`MAX_EVALUATION_COST`](crate::MAX_EVALUATION_COST) at most). Only the names that it uses
    /// must be present.
    pub fn holds(&self, values: &Map<String, Value>) -> (Result<bool, FilterEvalError>, u32) {
        let mut none = None;
        let read = cost::evaluate(None, || {
            run(&self.parsed, &FreeVariables(values), |value| {
                let condition = value.downcast_ref::<CelBool>().map(|b| *b.inner());

                // A value of another type is an error of the condition, not of one instance.
                if condition.is_none() {
                    none = Some(format!(
                        "a condition must be true or false, but is {}",
                        value.get_type().name()
                    ));
                }
                Ok(condition.unwrap_or_default())
            })
        });

        let result = match (read, none) {
            (Ok(_), Some(reason)) => Err(FilterEvalError::NotBoolean(reason)),
            (Ok(holds), None) => Ok(holds),
            (Err(reason), _) => Err(FilterEvalError::NoValue(reason)),
        };
        (result, cost::spent_units())
    }
}

/// Returns the first error of a condition; later ones are mostly consequences of it.
fn first_error(rejected: Vec<check::CheckError>) -> FilterError {
    match rejected.into_iter().next() {
        Some(first) => FilterError {
            at: first.at,
            message: first.message,
            suggestion: first.suggestion,
        },
        None => FilterError {
            at: None,
            message: "the expression is invalid".to_owned(),
            suggestion: None,
        },
    }
}

/// Comparison in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Compared name, with its field: `saga` or `vars.total`.
    pub path: String,
    /// Operator.
    pub operator: ComparisonOperator,
    /// Literal to the right of the operator.
    pub value: Value,
}

/// Operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `==`
    Equal,
    /// `<` or `<=`
    AtMost,
    /// `>` or `>=`
    AtLeast,
}

fn comparisons(node: &IdedExpr, found: &mut Vec<Comparison>) {
    let Expr::Call(call) = &node.expr else { return };
    let [left, right] = call.args.as_slice() else {
        return;
    };
    let (operator, mirrored) = match call.func_name.as_str() {
        operators::LOGICAL_AND => {
            comparisons(left, found);
            comparisons(right, found);
            return;
        }
        operators::EQUALS | EQUAL => (ComparisonOperator::Equal, ComparisonOperator::Equal),
        // A bound may contain more than the condition, which decides afterwards.
        operators::LESS | operators::LESS_EQUALS => {
            (ComparisonOperator::AtMost, ComparisonOperator::AtLeast)
        }
        operators::GREATER | operators::GREATER_EQUALS => {
            (ComparisonOperator::AtLeast, ComparisonOperator::AtMost)
        }
        _ => return,
    };

    // The literal can be on either side.
    found.extend(comparison(left, operator, right));
    found.extend(comparison(right, mirrored, left));
}

/// Returns the comparison of a path with a literal, if it is one.
fn comparison(
    name: &IdedExpr,
    operator: ComparisonOperator,
    value: &IdedExpr,
) -> Option<Comparison> {
    Some(Comparison {
        path: path(name)?,
        operator,
        value: literal(value)?,
    })
}

/// Returns the path of a name or of a field of a name.
fn path(node: &IdedExpr) -> Option<String> {
    match &node.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => match &select.operand.expr {
            Expr::Ident(name) => Some(format!("{name}.{}", select.field)),
            _ => None,
        },
        _ => None,
    }
}

fn literal(node: &IdedExpr) -> Option<Value> {
    let Expr::Literal(literal) = &node.expr else {
        return None;
    };
    match literal {
        LiteralValue::Boolean(value) => Some((*value.inner()).into()),
        LiteralValue::Int(value) => Some((*value.inner()).into()),
        LiteralValue::UInt(value) => Some((*value.inner()).into()),
        LiteralValue::Double(value) => Some((*value.inner()).into()),
        LiteralValue::String(value) => Some(value.inner().into()),
        LiteralValue::Bytes(_) | LiteralValue::Null => None,
    }
}

/// Evaluation error of a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterEvalError {
    /// The value is not a boolean, for example a text.
    #[error("{0}")]
    NotBoolean(String),
    /// The condition has no value: a field is missing, or values cannot be compared.
    #[error("{0}")]
    NoValue(String),
}

fn collect(node: &IdedExpr, names: &mut BTreeSet<String>) {
    if let Expr::Ident(name) = &node.expr {
        names.insert(name.clone());
    }
    for child in children(node) {
        collect(child, names);
    }
}

/// Rewrites `updated_at` to `timestamp(updated_at)`, unless a comprehension binds the name.
fn read_as_times(node: &mut IdedExpr, times: &[&str], bound: &mut Vec<String>) {
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => {}
        Expr::Ident(name) => {
            if times.contains(&name.as_str()) && !bound.contains(name) {
                wrap(node, "timestamp", Vec::new());
            }
        }
        Expr::Select(select) => read_as_times(&mut select.operand, times, bound),
        Expr::Call(call) => {
            let parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
            parts.for_each(|part| read_as_times(part, times, bound));
        }
        Expr::List(list) => list
            .elements
            .iter_mut()
            .for_each(|item| read_as_times(item, times, bound)),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    read_as_times(&mut entry.key, times, bound);
                    read_as_times(&mut entry.value, times, bound);
                }
            }
        }
        Expr::Comprehension(c) => {
            read_as_times(&mut c.iter_range, times, bound);
            read_as_times(&mut c.accu_init, times, bound);
            let outer = bound.len();
            bound.extend([c.iter_var.clone(), c.accu_var.clone()]);
            bound.extend(c.iter_var2.clone());
            for part in [&mut c.loop_cond, &mut c.loop_step, &mut c.result] {
                read_as_times(part, times, bound);
            }
            // The names are bound only in the parts of the loop.
            bound.truncate(outer);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Map<String, Value> {
        let example = json!({
            "status": "running", "version": 3, "updated_at": "2026-11-21T08:00:00Z", "now": "2026-11-21T10:30:00Z",
            "waits": [{ "name": "charge" }], "vars": null,
        });
        example.as_object().cloned().unwrap_or_default()
    }

    fn compile(source: &str) -> Result<Filter, FilterError> {
        Filter::compile(source, &example(), &["updated_at", "now"])
    }

    #[test]
    fn comparisons_that_hold_for_every_match_are_found() {
        let found = |source| -> Vec<String> {
            let found = compile(source).unwrap().comparisons();
            found
                .iter()
                .map(|c| format!("{} {:?} {}", c.path, c.operator, c.value))
                .collect()
        };
        assert_eq!(
            found(
                "vars.customer == 'c-1' && (vars.total >= 10 && 20.5 > vars.total) && version < 9"
            ),
            [
                "vars.customer Equal \"c-1\"",
                "vars.total AtLeast 10",
                "vars.total AtMost 20.5",
                "version AtMost 9"
            ]
        );
        assert_eq!(found("vars.vip == true"), ["vars.vip Equal true"]);
        for other in [
            "vars.total > 1 || version == 2",
            "!(vars.total > 1)",
            "vars.total + 1 > 2",
            "has(vars.a)",
        ] {
            assert_eq!(found(other), Vec::<String>::new(), "{other}");
        }
    }

    #[track_caller]
    fn check(source: &str, vars: Value, expected: bool) {
        let mut values = example();
        values.insert("vars".to_owned(), vars);
        let (holds, units) = compile(source).unwrap().holds(&values);
        assert_eq!(holds, Ok(expected), "{source}");
        assert!(units < 1000, "{units}");
    }

    #[test]
    fn filter_is_evaluated_on_values() {
        check("status == 'running' && version > 2", Value::Null, true);
        check("vars.total > 100.0", json!({ "total": 250.5 }), true);
        check(
            "waits.exists(w, w.name == 'charge') && updated_at < now - duration('1h')",
            Value::Null,
            true,
        );
        check("updated_at < now - duration('3h')", Value::Null, false);
        check("['a', 'b'].exists(now, now == 'b')", Value::Null, true);
        check("vars.?customer.?vip.orValue(false)", json!({}), false);
    }

    #[track_caller]
    fn rejected(source: &str, expected: &str) {
        let error = compile(source).unwrap_err().to_string();
        assert!(error.contains(expected), "{source}: {error}");
    }

    #[test]
    fn invalid_filter_is_rejected_with_position() {
        rejected(
            "status == 'x' && stauts == 'y'",
            "line 1, column 18: unknown name `stauts`",
        );
        rejected("stauts == 'y'", "status");
        rejected("status", "true or false, but is string");
        rejected("version > 'x'", "");
        rejected("status ==", "ends too early");
        rejected("statis(1)", "unknown function `statis`");
    }

    #[test]
    fn missing_field_is_a_filter_error() {
        let filter = compile("vars.total > 100").unwrap();
        assert!(filter.uses("vars") && !filter.uses("status"));
        let values = json!({ "vars": { "other": 1 } });
        let (holds, _) = filter.holds(values.as_object().unwrap());
        assert!(
            matches!(holds, Err(FilterEvalError::NoValue(_))),
            "{holds:?}"
        );
    }
}
