//! Constant results of expressions, so that the compiler reports those without a meaning.

use cel::common::ast::{Expr, IdedExpr, operators};
use serde_json::Value;

use super::ast::children;
use super::check::CheckedExpression;
use super::{Bindings, EvalError, Expression, Kind, cost, output};

impl Expression {
    /// Evaluates the results of the expression that read no variable: itself, or the branches of
    /// its conditionals.
    pub(crate) fn constant_results(&self) -> Vec<Result<Value, EvalError>> {
        let Kind::Cel(parsed) = &self.kind else {
            return Vec::new();
        };
        let bindings = Bindings::before_any_instance();

        let mut values = Vec::new();
        for node in results(&parsed.expression) {
            if reads_variable(node) {
                continue;
            }
            let part = CheckedExpression {
                expression: node.clone(),
                deep: parsed.deep,
                reads_envelope: parsed.reads_envelope,
            };
            values.push(cost::evaluate(None, || {
                self.evaluate_cel(&part, &bindings, output::to_json)
            }));
        }
        values
    }
}

/// Returns the expressions of which one is the value: the branches of a conditional, or the
/// expression itself.
fn results(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            // The condition itself, the first argument, is no result.
            call.args[1..].iter().flat_map(results).collect()
        }
        _ => vec![node],
    }
}

/// Returns whether the expression reads a variable, also one that it binds itself.
fn reads_variable(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Ident(_)) || children(node).into_iter().any(reads_variable)
}
