//! Variables and job results from which the value of an expression can come, so that a null value
//! can be traced to them.
//!
//! Only places that can be the value count: a branch of a conditional, not its condition; a field of
//! a variable, not a comparison of it.

use cel::common::ast::{CallExpr, Expr, IdedExpr, operators};

use super::ast::children;
use super::reads::{Accesses, Chain};
use super::root::Root;
use super::{Bindings, Expression, Kind};

/// Roots whose fields results of steps set.
const ROOTS: [Root; 2] = [Root::Vars, Root::Results];

/// Fields of a variable or of a job result that can be the value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueSource {
    root: Root,
    /// Names after the root, at least one.
    fields: Vec<String>,
    /// The value is computed from the fields, for example an element at a computed index.
    is_computed: bool,
    /// The expression has another value if one of the fields is absent.
    handles_absence: bool,
    /// Numbers of fields that the expression compares with null.
    compared: Vec<usize>,
}

impl ValueSource {
    /// Returns the variable or the job result, as `vars.chargeId`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.root.name(), self.fields[0])
    }

    /// Returns whether a null value of the expression can come from here.
    pub(crate) fn explains_null(&self, bindings: &Bindings<'_>) -> bool {
        for count in 1..=self.fields.len() {
            let found = bindings.lookup(self.root, &self.fields[..count]);
            if found.as_ref().is_ok_and(|value| !value.is_null()) {
                continue;
            }

            let is_absent = found.is_err() || count < self.fields.len();
            let is_handled = self.compared.contains(&count) || (is_absent && self.handles_absence);
            return !is_handled;
        }
        self.is_computed
    }

    /// Returns the text of the access.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.root.name(), self.fields.join("."))
    }
}

impl Expression {
    /// Returns the variables and job results from which the value can come.
    pub(crate) fn sources(&self) -> Vec<ValueSource> {
        match &self.kind {
            Kind::Path { root, fields } if ROOTS.contains(root) && !fields.is_empty() => {
                vec![ValueSource {
                    root: *root,
                    fields: fields.clone(),
                    is_computed: false,
                    handles_absence: false,
                    compared: Vec::new(),
                }]
            }
            Kind::Path { .. } => Vec::new(),
            Kind::Cel(parsed) => {
                let mut found = Vec::new();
                for root in ROOTS {
                    add(&parsed.expression, root, Use::default(), &mut found);
                    mark_tests(&parsed.expression, root, &mut found);
                }
                found
            }
        }
    }
}

/// How an expression uses a part of it.
#[derive(Clone, Copy, Default)]
struct Use {
    is_computed: bool,
    handles_absence: bool,
}

fn add(node: &IdedExpr, root: Root, usage: Use, found: &mut Vec<ValueSource>) {
    if let Some(chain) = Chain::of(node, root.name()) {
        if !chain.fields.is_empty() {
            found.push(ValueSource {
                root,
                fields: chain.fields,
                is_computed: usage.is_computed || chain.is_computed,
                handles_absence: usage.handles_absence,
                compared: Vec::new(),
            });
        }
        return;
    }

    match &node.expr {
        // A list or a map is not null, whatever is in it.
        Expr::Unspecified
        | Expr::Literal(_)
        | Expr::Ident(_)
        | Expr::Struct(_)
        | Expr::List(_)
        | Expr::Map(_) => {}
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            for branch in call.args.iter().skip(1) {
                add(branch, root, usage, found);
            }
        }
        Expr::Call(call) if is_default(call) => {
            let handled = Use {
                handles_absence: true,
                ..usage
            };
            if let Some(target) = &call.target {
                add(target, root, handled, found);
            }
            for default in &call.args {
                add(default, root, usage, found);
            }
        }
        Expr::Select(select) if select.test => {}
        // A function can return what it receives.
        Expr::Select(_) | Expr::Call(_) | Expr::Comprehension(_) => {
            let computed = Use {
                is_computed: true,
                ..usage
            };
            for child in children(node) {
                add(child, root, computed, found);
            }
        }
    }
}

/// Returns whether a call has another value if its target is absent.
fn is_default(call: &CallExpr) -> bool {
    call.target.is_some() && matches!(call.func_name.as_str(), "orValue" | "or")
}

/// Adds what the expression itself tests.
fn mark_tests(expression: &IdedExpr, root: Root, found: &mut [ValueSource]) {
    let accesses = Accesses::of(expression, root.name());
    for source in found.iter_mut().filter(|source| source.root == root) {
        let is_prefix = |tested: &&Vec<String>| source.fields.starts_with(tested);
        let compared = accesses.compared_with_null.iter().filter(is_prefix);
        source.compared = compared.map(Vec::len).collect();

        // A variable always exists, so only a test of its fields says something.
        let shortest = if root == Root::Vars { 2 } else { 1 };
        let mut present = accesses.present.iter().filter(is_prefix);
        source.handles_absence |= present.any(|tested| tested.len() >= shortest);
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::InstanceKey;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::expression::Scope;

    /// Checks the value of an expression over these variables, and the sources that explain a null.
    #[track_caller]
    fn check(source: &str, vars: Value, value: &Value, expected: &[&str]) {
        let scope = Scope {
            roots: &[Root::Vars, Root::Results, Root::Key],
            vars: None,
            element: None,
        };
        let expression = Expression::compile(source, &scope).unwrap();
        let key: InstanceKey = serde_json::from_value(json!({
            "tenant": "default", "saga": "s", "correlation": "c"
        }))
        .unwrap();
        let Value::Object(vars) = vars else {
            panic!("variables are a map")
        };
        let results: Map<String, Value> =
            Map::from_iter([("pay".to_owned(), json!({ "id": null }))]);
        let bindings = Bindings::new(&key).vars(&vars).results(Some(&results));
        assert_eq!(expression.evaluate(&bindings).unwrap(), *value, "{source}");

        let sources = expression.sources();
        let explaining = sources.iter().filter(|read| read.explains_null(&bindings));
        let paths: Vec<_> = explaining.map(ValueSource::path).collect();
        assert_eq!(paths, expected, "{source}");
    }

    #[test]
    fn null_is_traced_to_the_variable_that_is_read() {
        let vars = || json!({ "a": null, "b": null, "c": 1, "d": { "id": null }, "l": [null, 2] });
        check("vars.a", vars(), &Value::Null, &["vars.a"]);
        check("vars.d.id", vars(), &Value::Null, &["vars.d.id"]);
        check("vars.l[0]", vars(), &Value::Null, &["vars.l"]);
        check(
            "vars.c == 1 ? vars.a : vars.c",
            vars(),
            &Value::Null,
            &["vars.a"],
        );
        check("results.pay.id", vars(), &Value::Null, &["results.pay.id"]);
        check(
            "has(vars.a) ? vars.a : ''",
            vars(),
            &Value::Null,
            &["vars.a"],
        );
        check("vars.?a.orValue('')", vars(), &Value::Null, &["vars.a"]);
    }

    #[test]
    fn null_that_the_expression_handles_has_no_source() {
        let vars = || json!({ "a": null, "b": null, "c": 1, "d": { "id": null } });
        check("vars.a == null ? null : vars.a", vars(), &Value::Null, &[]);
        check("vars.a == null ? '' : vars.a", vars(), &json!(""), &[]);
        check("vars.?a.?id.orValue(null)", vars(), &Value::Null, &[]);
        check(
            "vars.a != null ? vars.a : vars.b",
            vars(),
            &Value::Null,
            &["vars.b"],
        );
        check("{'id': vars.a}", vars(), &json!({ "id": null }), &[]);
    }
}
