//! Two-variable comprehensions: `map.all(key, value, …)`, `list.exists(index, item, …)`,
//! `transformList`, `transformMap`, `transformMapEntry`. The interpreter supports only one
//! variable, so these macros iterate over a list of pairs.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};
use cel::common::types::{CelInt, CelList, CelMap, CelMapKey, DYN_TYPE, Kind};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper};
use cel::{DeclarationError, Env, ExecutionError, ParseError};

use super::ast;
use super::cost::{charge, exhausted_error, spend_copy};

const PAIR: &str = "@pair";
const RESULT: &str = "@result";
const PAIRS: &str = "@pairs";
const TO_MAP: &str = "@to_map";
const MERGE: &str = "@merge";

/// Kind of macro over pairs.
#[derive(Clone, Copy)]
enum MacroKind {
    All,
    Exists,
    One,
    List,
    Map,
    Entries,
}

/// Adds the macros and the functions that they require.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    for (name, arity, form) in [
        ("all", 3, MacroKind::All),
        ("exists", 3, MacroKind::Exists),
        ("existsOne", 3, MacroKind::One),
        ("exists_one", 3, MacroKind::One),
        ("transformList", 3, MacroKind::List),
        ("transformList", 4, MacroKind::List),
        ("transformMap", 3, MacroKind::Map),
        ("transformMap", 4, MacroKind::Map),
        ("transformMapEntry", 3, MacroKind::Entries),
        ("transformMapEntry", 4, MacroKind::Entries),
    ] {
        env.add_macro(Macro::receiver(
            name,
            arity,
            move |helper: &mut MacroExprHelper<'_>,
                  target: &mut Option<IdedExpr>,
                  args: &mut Vec<IdedExpr>| expand(form, helper, target, args),
        ))?;
    }

    env.add_overload(PAIRS, "pairs", vec![DYN_TYPE], |args| pairs(&args))?;
    env.add_overload(TO_MAP, "to_map", vec![DYN_TYPE], |args| to_map(&args))?;
    env.add_overload(MERGE, "merge", vec![DYN_TYPE], |args| merge(&args))
}

fn expand(
    form: MacroKind,
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    // A call without a receiver is not this macro.
    let Some(range) = target.take() else {
        return Ok(None);
    };

    let mut args = std::mem::take(args).into_iter();
    let mut names = Vec::new();
    for name in args.by_ref().take(2) {
        match name.expr {
            // Two equal names would hide the key or the index.
            Expr::Ident(bound) if !names.contains(&bound) => names.push(bound),
            _ => {
                return Err(
                    helper.new_error(name.id, "the first two arguments must be simple names")
                );
            }
        }
    }

    let body = args
        .next_back()
        .expect("the macro takes three or four arguments");

    let mut builder = AstBuilder { helper, names };
    Ok(Some(builder.comprehension(form, range, args.next(), body)))
}

struct AstBuilder<'a, 'h> {
    helper: &'a mut MacroExprHelper<'h>,
    names: Vec<String>,
}

impl AstBuilder<'_, '_> {
    fn node(&mut self, expr: Expr) -> IdedExpr {
        self.helper.next_expr(expr)
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args,
        }))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::List(ListExpr::new(elements)))
    }

    fn ident(&mut self, name: &str) -> IdedExpr {
        self.node(Expr::Ident(name.to_owned()))
    }

    fn literal(&mut self, literal: LiteralValue) -> IdedExpr {
        self.node(Expr::Literal(literal))
    }

    /// Wraps the body so that the two names refer to the parts of the pair.
    fn within(&mut self, body: IdedExpr) -> IdedExpr {
        let names = self.names.clone();
        names
            .into_iter()
            .zip([0_i64, 1])
            .rev()
            .fold(body, |body, (name, index)| {
                let pair = self.ident(PAIR);
                let index = self.literal(LiteralValue::Int(index.into()));
                let part = self.call(operators::INDEX, vec![pair, index]);
                let bind = ast::bind(name, part, body, |expr| self.helper.next_expr(expr));
                self.node(bind)
            })
    }

    fn comprehension(
        &mut self,
        form: MacroKind,
        range: IdedExpr,
        filter: Option<IdedExpr>,
        body: IdedExpr,
    ) -> IdedExpr {
        let body = match form {
            MacroKind::Map => {
                let key = self.names[0].clone();
                let key = self.ident(&key);
                self.list(vec![key, body])
            }
            MacroKind::All
            | MacroKind::Exists
            | MacroKind::One
            | MacroKind::List
            | MacroKind::Entries => body,
        };
        let body = self.within(body);
        let filter = filter.map(|filter| self.within(filter));

        let [result, sofar, end] = [RESULT; 3].map(|name| self.ident(name));
        let true_literal = self.literal(LiteralValue::Boolean(true.into()));
        let (accu_init, loop_cond, loop_step, result) = match form {
            MacroKind::All => {
                let cond = self.call(operators::NOT_STRICTLY_FALSE, vec![sofar]);
                (
                    true_literal,
                    cond,
                    self.call(operators::LOGICAL_AND, vec![result, body]),
                    end,
                )
            }
            MacroKind::Exists => {
                let not = self.call(operators::LOGICAL_NOT, vec![sofar]);
                let cond = self.call(operators::NOT_STRICTLY_FALSE, vec![not]);
                let fails = self.literal(LiteralValue::Boolean(false.into()));
                (
                    fails,
                    cond,
                    self.call(operators::LOGICAL_OR, vec![result, body]),
                    end,
                )
            }
            MacroKind::One => {
                let [none, one, wanted] =
                    [0_i64, 1, 1].map(|n| self.literal(LiteralValue::Int(n.into())));
                let more = self.call(operators::ADD, vec![result, one]);
                let step = self.call(operators::CONDITIONAL, vec![body, more, sofar]);
                (
                    none,
                    true_literal,
                    step,
                    self.call(operators::EQUALS, vec![end, wanted]),
                )
            }
            MacroKind::List | MacroKind::Map | MacroKind::Entries => {
                let item = self.list(vec![body]);
                let more = self.call(operators::ADD, vec![result, item]);
                let step = match filter {
                    Some(filter) => self.call(operators::CONDITIONAL, vec![filter, more, sofar]),
                    None => more,
                };
                (self.list(Vec::new()), true_literal, step, end)
            }
        };

        let iter_range = self.call(PAIRS, vec![range]);
        let all = self.node(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: PAIR.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init,
            loop_cond,
            loop_step,
            result,
        })));

        match form {
            MacroKind::All | MacroKind::Exists | MacroKind::One | MacroKind::List => all,
            MacroKind::Map => self.call(TO_MAP, vec![all]),
            MacroKind::Entries => self.call(MERGE, vec![all]),
        }
    }
}

type EvalResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Returns index and item of a list, or key and value of a map in key order.
fn pairs<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let range = &args[0];
    // The pairs contain a copy of each value, so the whole range is charged first.
    if !spend_copy(range.as_ref()) {
        return Err(exhausted_error());
    }
    let no_range =
        || ExecutionError::no_such_overload("@pairs", vec![range.get_type().name().to_owned()]);

    let mut items = range.as_iterable().ok_or_else(no_range)?.iter();

    // A list of pairs, because the interpreter binds one variable only.
    let mut all: Vec<(Box<dyn Val + 'v>, Box<dyn Val + 'v>)> = Vec::new();
    if range.get_type().kind() == Kind::List {
        let mut index = 0_i64;
        while let Some(item) = items.next() {
            all.push((Box::new(CelInt::from(index)), item.clone_as_boxed()));
            index += 1;
        }
    } else {
        let values = range.as_indexer().ok_or_else(no_range)?;
        let mut keys = Vec::new();
        while let Some(key) = items.next() {
            keys.push(CelMapKey::try_from(CowVal::Owned(key.clone_as_boxed()))?);
        }

        // A CEL map has no order, and the same input must always give the same value.
        keys.sort();
        for key in keys {
            let value = values.get(key.inner())?.into_owned();
            all.push((key.inner().clone_as_boxed(), value));
        }
    }

    charge(all.len())?;
    let lists = all
        .into_iter()
        .map(|(a, b)| Box::new(CelList::from(vec![a, b])) as Box<dyn Val + 'v>);
    Ok(CowVal::owned(CelList::from(lists.collect::<Vec<_>>())))
}

/// Creates a map from a list of key-value pairs.
fn to_map<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let mut fields = HashMap::new();
    for pair in elements(args) {
        if let Some([key, value]) = pair.downcast_ref::<CelList>().map(CelList::inner) {
            put(&mut fields, key.as_ref(), value.clone_as_boxed())?;
        }
    }
    Ok(CowVal::owned(CelMap::from(fields)))
}

/// Merges a list of maps.
fn merge<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let mut fields = HashMap::new();
    for map in elements(args) {
        let got = || {
            ExecutionError::no_such_overload(
                "transformMapEntry",
                vec![map.get_type().name().to_owned()],
            )
        };
        let values = map
            .as_indexer()
            .filter(|_| map.get_type().kind() == Kind::Map)
            .ok_or_else(got)?;

        let mut keys = map.as_iterable().ok_or_else(got)?.iter();
        while let Some(key) = keys.next() {
            put(&mut fields, key, values.get(key)?.into_owned())?;
        }
    }
    Ok(CowVal::owned(CelMap::from(fields)))
}

fn elements<'a, 'b, 'v>(args: &'a [CowVal<'b, 'v>]) -> &'a [Box<dyn Val + 'v>] {
    args.first()
        .and_then(|list| list.downcast_ref::<CelList>())
        .map_or(&[], CelList::inner)
}

fn put<'v>(
    fields: &mut HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>,
    key: &(dyn Val + 'v),
    value: Box<dyn Val + 'v>,
) -> Result<(), ExecutionError> {
    charge(1)?;
    let key = CelMapKey::try_from(CowVal::Owned(key.clone_as_boxed()))?;
    match fields.insert(key, value) {
        None => Ok(()),
        Some(_) => Err(ExecutionError::function_error(
            "transformMapEntry",
            "a map has a duplicate key",
        )),
    }
}
