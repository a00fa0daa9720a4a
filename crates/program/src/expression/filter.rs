//! Conditions outside definitions: what an operator asks of instances.
//!
//! They are checked like the expressions of a definition: every name exists, and the cost is bounded. What they speak of is given by
//! example, which also shows early that a condition is none.

use std::collections::BTreeSet;
use std::fmt;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::common::types::CelBool;
use serde_json::{Map, Value};

use super::ast::children;
use super::check::{self, Known, Parsed};
use super::cost;
use super::functions::environment;
use super::rewrite::wrap;
use super::{Free, run};

/// A compiled condition over values with names.
#[derive(Debug)]
pub struct Filter {
    parsed: Parsed,
    names: BTreeSet<String>,
}

/// A condition that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Line and column, from 1.
    pub at: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    /// What was probably meant.
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
    /// Compiles a condition. The names it may use are those of `example`; the ones in `times` are read as times.
    ///
    /// # Errors
    /// When it does not parse, names what there is not, costs too much, or is found not to be true or false of the example. Where the
    /// example is null, nothing is known of what may stand there.
    pub fn compile(source: &str, example: &Map<String, Value>, times: &[&str]) -> Result<Self, FilterError> {
        let known: Vec<_> = example.keys().map(String::as_str).collect();
        let parsed = check::parse(environment(), source, Known::Free(&known));
        let mut parsed = parsed.map_err(|refused| {
            let first = refused.into_iter().next();
            let (at, message, suggestion) =
                first.map_or((None, "it is refused".to_owned(), None), |r| (r.at, r.message, r.suggestion));
            FilterError { at, message, suggestion }
        })?;
        let mut names = BTreeSet::new();
        collect(&parsed.expression, &mut names);
        names.retain(|name| example.contains_key(name));
        read_as_times(&mut parsed.expression, times, &mut Vec::new());
        let filter = Self { parsed, names };
        let certain = filter.names.iter().all(|name| !example[name].is_null());
        match filter.holds(example).0 {
            Err(Unmet::NotACondition(message)) => Err(FilterError { at: None, message, suggestion: None }),
            Err(Unmet::NoValue(message)) if certain => {
                Err(FilterError { at: None, message, suggestion: None })
            }
            Ok(_) | Err(Unmet::NoValue(_)) => Ok(filter),
        }
    }

    /// Whether it speaks of this name.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether it holds of these values, and the units of work that it took to know ([`MAX_EVALUATION`](crate::MAX_EVALUATION) at
    /// most). Only the names that it uses need be there.
    pub fn holds(&self, values: &Map<String, Value>) -> (Result<bool, Unmet>, u32) {
        let mut none = None;
        let read = run(&self.parsed, &Free(values), |value| {
            let condition = value.downcast_ref::<CelBool>().map(|b| *b.inner());
            if condition.is_none() {
                none =
                    Some(format!("a condition must be true or false, this is {}", value.get_type().name()));
            }
            Ok(condition.unwrap_or_default())
        });
        let answer = match (read, none) {
            (Ok(_), Some(why)) => Err(Unmet::NotACondition(why)),
            (Ok(holds), None) => Ok(holds),
            (Err(why), _) => Err(Unmet::NoValue(why)),
        };
        (answer, cost::used())
    }
}

/// Why a condition is neither true nor false of some values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// It is something else, a text say.
    #[error("{0}")]
    NotACondition(String),
    /// It cannot be told: there is no such field, or what is there cannot be compared.
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

/// `updated_at` becomes `timestamp(updated_at)`, but where a comprehension has given the name to something else.
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
        Expr::List(list) => list.elements.iter_mut().for_each(|item| read_as_times(item, times, bound)),
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

    #[track_caller]
    fn check(source: &str, vars: Value, expected: bool) {
        let mut values = example();
        values.insert("vars".to_owned(), vars);
        let (holds, units) = compile(source).unwrap().holds(&values);
        assert_eq!(holds, Ok(expected), "{source}");
        assert!(units < 1000, "{units}");
    }

    #[test]
    fn a_condition_is_asked_of_values() {
        check("status == 'running' && version > 2", Value::Null, true);
        check("vars.total > 100.0", json!({ "total": 250.5 }), true);
        check("waits.exists(w, w.name == 'charge') && updated_at < now - duration('1h')", Value::Null, true);
        check("updated_at < now - duration('3h')", Value::Null, false);
        check("['a', 'b'].exists(now, now == 'b')", Value::Null, true);
        check("vars.?customer.?vip.orValue(false)", json!({}), false);
    }

    #[track_caller]
    fn refused(source: &str, expected: &str) {
        let error = compile(source).unwrap_err().to_string();
        assert!(error.contains(expected), "{source}: {error}");
    }

    #[test]
    fn what_is_no_condition_is_refused_with_its_place() {
        refused("status == 'x' && stauts == 'y'", "line 1, column 18: `stauts` is not known here");
        refused("stauts == 'y'", "status");
        refused("status", "true or false, this is string");
        refused("version > 'x'", "");
        refused("status ==", "ends too early");
        refused("statis(1)", "there is no function");
    }

    #[test]
    fn a_row_without_what_is_asked_for_is_neither_nor() {
        let filter = compile("vars.total > 100").unwrap();
        assert!(filter.uses("vars") && !filter.uses("status"));
        let values = json!({ "vars": { "other": 1 } });
        let (holds, _) = filter.holds(values.as_object().unwrap());
        assert!(matches!(holds, Err(Unmet::NoValue(_))), "{holds:?}");
    }
}
