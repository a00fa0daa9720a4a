//! Rewrites checked expressions: `==`, `in` and arithmetic support JSON, and calls that can cost
//! more than the expression length suggests are charged. Timestamps are in UTC.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

use super::arithmetic;
use super::ast::{children, is_bind};
use super::functions::{COSTLY, CostWrapper, EACH, EQUAL, IN, INPUT, USE, UTC};

/// Number of nodes of a comprehension's body that the unit of an element includes.
const BODY_NODES: usize = 16;

/// Rewrites the expression.
pub(super) fn rewrite(expression: &mut IdedExpr) {
    Rewriter { bound: Vec::new() }.node(expression);
}

/// A variable that a comprehension binds.
struct BoundVariable {
    name: String,
    /// JSON element, whose fields charge for themselves.
    json: bool,
}

struct Rewriter {
    bound: Vec<BoundVariable>,
}

impl Rewriter {
    fn node(&mut self, node: &mut IdedExpr) {
        if let Some((name, deep)) = chain(node) {
            let bound = self.bound.iter().rev().find(|bound| bound.name == name);

            // A field of a JSON element charges for itself when it is read.
            let pays = bound.is_some_and(|bound| !(bound.json && deep));

            self.within_chain(node);
            if pays {
                wrap(node, USE, Vec::new());
            }
            return;
        }

        match &mut node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => {}
            Expr::Select(select) if select.test => self.within_chain(&mut select.operand),
            Expr::Select(select) => self.node(&mut select.operand),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.elements.iter_mut().for_each(|item| self.node(item)),
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        self.node(&mut entry.key);
                        self.node(&mut entry.value);
                    }
                }
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }

        know_json(node);
        if matches!(&node.expr, Expr::Call(call) if call.func_name == "timestamp") {
            wrap(node, UTC, Vec::new());
        }
    }

    /// Rewrites the index expressions in a chain of fields, which is read in place.
    fn within_chain(&mut self, node: &mut IdedExpr) {
        match &mut node.expr {
            Expr::Select(select) if !select.test => self.within_chain(&mut select.operand),
            Expr::Call(call) if is_step(call) => {
                let mut nodes = call.args.iter_mut();
                if let Some(operand) = nodes.next() {
                    self.within_chain(operand);
                }
                nodes.for_each(|index| self.node(index));
            }
            Expr::Ident(_) => {}
            _ => self.node(node),
        }
    }

    fn call(&mut self, call: &mut CallExpr) {
        call.target.iter_mut().for_each(|target| self.node(target));
        call.args.iter_mut().for_each(|arg| self.node(arg));

        if call
            .func_name
            .starts_with(|c: char| c.is_ascii_alphabetic())
        {
            let inputs = call.target.as_deref_mut().into_iter().chain(&mut call.args);
            inputs
                .filter(|input| is_computed(input))
                .for_each(|input| wrap(input, INPUT, Vec::new()));
        }

        if call.target.is_none()
            && !call.args.iter().any(is_accumulator)
            && let Some(function) = arithmetic::replacement(&call.func_name)
        {
            function.clone_into(&mut call.func_name);
            return;
        }

        let Some((_, instead)) = COSTLY.iter().find(|(name, _)| *name == call.func_name) else {
            return;
        };

        match (*instead, call.target.take()) {
            (CostWrapper::Whole(name), Some(target)) => {
                name.clone_into(&mut call.func_name);
                call.args.insert(0, *target);
            }
            // `lists.range(n)`
            (CostWrapper::Around("@range"), target) => {
                call.target = target;
                call.args
                    .iter_mut()
                    .take(1)
                    .for_each(|arg| wrap(arg, "@range", Vec::new()));
            }
            (CostWrapper::Around(name), Some(mut target)) => {
                wrap(&mut target, name, Vec::new());
                call.target = Some(target);
            }
            (CostWrapper::Whole(_) | CostWrapper::Around(_), None) => {}
        }
    }

    fn comprehension(&mut self, c: &mut ComprehensionExpr) {
        let binds = is_bind(c);
        // Only data that is read in place has elements that charge for themselves.
        let json = chain(&c.iter_range).is_some_and(|(root, _)| {
            self.bound
                .iter()
                .rev()
                .find(|bound| bound.name == root)
                .is_none_or(|bound| bound.json)
        });
        // Counted before the rewrite adds calls that the author did not write.
        let weight = (nodes(&c.loop_cond) + nodes(&c.loop_step)) / BODY_NODES;

        self.node(&mut c.iter_range);
        self.node(&mut c.accu_init);

        let outer = self.bound.len();
        self.bound.push(BoundVariable {
            name: c.iter_var.clone(),
            json,
        });
        if binds {
            self.bound.push(BoundVariable {
                name: c.accu_var.clone(),
                json: false,
            });
        }
        for part in [&mut c.loop_cond, &mut c.loop_step, &mut c.result] {
            self.node(part);
        }
        self.bound.truncate(outer);

        // Each element costs its unit, and more if the body is large.
        if !binds {
            let weight = i64::try_from(weight).unwrap_or(i64::MAX);
            let weight = Expr::Literal(LiteralValue::Int(weight.into()));
            let id = c.iter_range.id;
            wrap(&mut c.iter_range, EACH, vec![IdedExpr { id, expr: weight }]);
        }
    }
}

/// Returns whether the node is the accumulator of a macro, which CEL extends in place.
fn is_accumulator(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name.starts_with('@'))
}

/// Returns the name at the start of `name.a[0].?b`, and whether fields follow.
fn chain(node: &IdedExpr) -> Option<(&str, bool)> {
    let mut at = node;
    let mut deep = false;
    loop {
        at = match &at.expr {
            Expr::Ident(name) if !name.starts_with('@') => return Some((name, deep)),
            Expr::Select(select) if !select.test => &select.operand,
            Expr::Call(call) if is_step(call) => call.args.first()?,
            _ => return None,
        };
        deep = true;
    }
}

/// Returns true for a value that the expression computes; other values are charged when they are
/// read.
fn is_computed(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Call(call) => call.func_name != USE && !is_step(call),
        Expr::Comprehension(_) => true,
        _ => false,
    }
}

fn is_step(call: &CallExpr) -> bool {
    let steps = [
        operators::INDEX,
        operators::OPT_INDEX,
        operators::OPT_SELECT,
    ];
    call.target.is_none() && call.args.len() == 2 && steps.contains(&call.func_name.as_str())
}

/// Returns the number of nodes of an expression; every four bytes of a literal text count as one.
fn nodes(node: &IdedExpr) -> usize {
    let own = match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => 1 + text.inner().len() / 4,
        Expr::Literal(LiteralValue::Bytes(bytes)) => 1 + bytes.inner().len() / 4,
        _ => 1,
    };
    own + children(node).into_iter().map(nodes).sum::<usize>()
}

/// Rewrites `x` to `function(x, …)`.
pub(super) fn wrap(node: &mut IdedExpr, function: &str, more: Vec<IdedExpr>) {
    let inner = IdedExpr {
        id: node.id,
        expr: std::mem::take(&mut node.expr),
    };
    let args = std::iter::once(inner).chain(more).collect();
    node.expr = Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    });
}

/// Rewrites `a == b` to `@equal(a, b)`, which supports JSON on either side, and `a in b` likewise.
fn know_json(node: &mut IdedExpr) {
    let Expr::Call(call) = &mut node.expr else {
        return;
    };

    // CEL compares plain literals correctly.
    let has_literal = call
        .args
        .iter()
        .any(|arg| matches!(arg.expr, Expr::Literal(_)));
    let instead = match call.func_name.as_str() {
        operators::IN => IN,
        operators::EQUALS | operators::NOT_EQUALS if !has_literal => EQUAL,
        _ => return,
    };

    let negated = call.func_name == operators::NOT_EQUALS;
    instead.clone_into(&mut call.func_name);
    if negated {
        wrap(node, operators::LOGICAL_NOT, Vec::new());
    }
}
