//! Functions of expressions: CEL's library for times, texts, lists and numbers, and Orlog's
//! replacements. The checker uses a replacement if the CEL function does not support JSON or cost
//! limits.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cel::common::ast::{Expr, IdedExpr};
use cel::common::types::{
    BYTES_TYPE, CelBool, CelBytes, CelInt, CelList, CelMap, CelString, CelTimestamp, DYN_TYPE,
    INT_TYPE, Kind, LIST_TYPE, STRING_TYPE, TIMESTAMP_TYPE, Type,
};
use cel::common::value::{CowVal, FromVal, Val};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Env, ExecutionError, ParseError};

use super::arithmetic::{self, Number};
use super::ast;
use super::cost::{charge, exhausted_error, spend_copy, text_cost};
use super::json;
use super::pattern::{PATTERN_UNITS, pattern_of, pattern_weight};
use super::search::{self, Search};

/// Function that replaces `==`.
pub(super) const EQUAL: &str = "@equal";
/// Function that replaces `in`.
pub(super) const IN: &str = "@within";
/// Charges for the range of `map`, `filter`, `all` and `exists`, multiplied by the cost of the
/// body.
pub(super) const EACH: &str = "@each";
/// Charges for a copy of a variable that a comprehension binds.
pub(super) const USE: &str = "@use";

/// Turns a timestamp to UTC. The crate `cel` 0.15.0 takes the parts of a timestamp, such as
/// `getHours()`, from the offset in which it was written; CEL defines them in UTC. A stored timestamp
/// is in UTC, so that a decision would change after it was stored.
pub(super) const UTC: &str = "@utc";

/// Charges for a computed input of a function. Inputs that are read from data are charged when
/// read.
pub(super) const INPUT: &str = "@input";

/// Functions whose cost is not that of their arguments, with the function that charges for or
/// replaces them.
pub(super) const COSTLY: [(&str, CostWrapper); 8] = [
    ("distinct", CostWrapper::Around("@distinct")),
    ("format", CostWrapper::Around("@format")),
    ("split", CostWrapper::Around("@split")),
    ("range", CostWrapper::Around("@range")),
    ("indexOf", CostWrapper::Whole("@indexOf")),
    ("lastIndexOf", CostWrapper::Whole("@lastIndexOf")),
    ("join", CostWrapper::Whole("@join")),
    ("replace", CostWrapper::Whole("@replace")),
];

/// Wrapper that charges for a costly function.
#[derive(Clone, Copy, Debug)]
pub(super) enum CostWrapper {
    /// The named function wraps the receiver or the first argument.
    Around(&'static str),
    /// The named function replaces the call.
    Whole(&'static str),
}

/// Returns CEL's standard library with its extensions and Orlog's functions, built once.
pub(super) fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut env = Env::stdlib();
        let extended = cel::extensions::strings(&mut env)
            .and_then(|()| cel::extensions::math(&mut env))
            .and_then(|()| cel::extensions::lists(&mut env))
            .and_then(|()| super::two_variable_macros::extension(&mut env))
            .and_then(|()| arithmetic::add_functions(&mut env))
            .and_then(|()| orlog_functions(&mut env));

        extended.expect("no two functions have the same name and arguments");
        Arc::new(env)
    })
}

fn orlog_functions(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_overload(EQUAL, "equal", vec![DYN_TYPE, DYN_TYPE], |args| {
        Ok(equal(&args))
    })?;
    env.add_overload(IN, "within", vec![DYN_TYPE, DYN_TYPE], |args| within(&args))?;
    env.add_overload(EACH, "each", vec![DYN_TYPE, INT_TYPE], each)?;

    // Functions that charge: the rewriter puts them around inputs and costly calls (ADR 0037).
    env.add_overload(USE, "use", vec![DYN_TYPE], |args| copy(one(args)?))?;
    env.add_overload(INPUT, "input", vec![DYN_TYPE], |args| {
        charge_argument(args, input)
    })?;
    env.add_overload(UTC, "utc", vec![TIMESTAMP_TYPE], |args| utc(&args))?;
    env.add_overload("@distinct", "distinct", vec![DYN_TYPE], |args| {
        charge_argument(args, squared)
    })?;
    env.add_overload("@format", "format", vec![DYN_TYPE], |args| {
        charge_argument(args, clauses)
    })?;
    env.add_overload("@split", "split", vec![DYN_TYPE], |args| {
        charge_argument(args, pieces)
    })?;
    env.add_overload("@range", "range", vec![DYN_TYPE], |args| {
        charge_argument(args, number)
    })?;
    env.add_overload("@join", "join", vec![LIST_TYPE], |args| join(&args))?;
    env.add_overload("@join", "join_with", vec![LIST_TYPE, STRING_TYPE], |args| {
        join(&args)
    })?;

    let texts = |n: usize| -> Vec<Type> { (0..n).map(|_| STRING_TYPE).collect() };
    env.add_overload("@replace", "replace", texts(3), |args| replace(&args))?;
    let counted: Vec<Type> = texts(3).into_iter().chain([INT_TYPE]).collect();
    env.add_overload("@replace", "replace_n", counted, |args| replace(&args))?;

    let from = || -> Vec<Type> { texts(2).into_iter().chain([INT_TYPE]).collect() };
    env.add_overload("@indexOf", "index_of", texts(2), |args| {
        search(&args, search::index_of)
    })?;
    env.add_overload("@indexOf", "index_of_from", from(), |args| {
        search(&args, search::index_of)
    })?;
    env.add_overload("@lastIndexOf", "last_index_of", texts(2), |args| {
        search(&args, search::last_index_of)
    })?;
    env.add_overload("@lastIndexOf", "last_index_of_from", from(), |args| {
        search(&args, search::last_index_of)
    })?;

    env.add_overload("matches", "matches", texts(2), |args| matches(&args))?;
    env.add_member_overload("matches", "text_matches", STRING_TYPE, texts(1), |args| {
        matches(&args)
    })?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, Vec::new(), |args| sum(&args))?;

    env.add_macro(Macro::receiver("bind", 3, bind))?;
    env.add_overload("base64.encode", "encode", vec![BYTES_TYPE], |args| {
        encode(&args)
    })?;
    env.add_overload("base64.decode", "decode", vec![STRING_TYPE], |args| {
        decode(&args)
    })
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type EvalResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn one<'b, 'v>(mut args: Args<'b, 'v>) -> EvalResult<'b, 'v> {
    args.pop()
        .ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))
}

fn arg<'a, 'b: 'a, 'v: 'b, T: Val + FromVal<'a, 'v>>(
    args: &'a [CowVal<'b, 'v>],
    index: usize,
) -> Result<&'a T, ExecutionError> {
    let value: &'a (dyn Val + 'v) = args
        .get(index)
        .ok_or_else(|| ExecutionError::invalid_argument_count(index + 1, args.len()))?
        .as_ref();
    value
        .downcast_ref::<T>()
        .ok_or_else(|| ExecutionError::UnexpectedType {
            got: value.get_type().name().to_owned(),
            want: T::cel_type().name().to_owned(),
        })
}

fn equal<'b, 'v>(args: &[CowVal<'b, 'v>]) -> CowVal<'b, 'v> {
    let same = matches!(args, [a, b] if json::equal(a.as_ref(), b.as_ref()));
    CowVal::owned(CelBool::from(same))
}

/// Evaluates `x in list` with Orlog's equality; for a map, checks whether it has the key.
fn within<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let [value, range] = args else {
        return Err(ExecutionError::invalid_argument_count(2, args.len()));
    };
    let no_overload = || {
        ExecutionError::no_such_overload(
            "in",
            vec![name_of(value.as_ref()), name_of(range.as_ref())],
        )
    };

    // CEL compares elements with their own types only; JSON elements need the equality of Orlog.
    let found = if range.get_type().kind() == Kind::List {
        let mut items = range.as_iterable().ok_or_else(no_overload)?.iter();
        let mut found = false;
        while let (false, Some(item)) = (found, items.next()) {
            found = json::equal(item, value.as_ref());
        }
        found
    } else {
        range
            .as_container()
            .ok_or_else(no_overload)?
            .contains(value.as_ref())?
    };

    Ok(CowVal::owned(CelBool::from(found)))
}

fn name_of(value: &dyn Val) -> String {
    value.get_type().name().to_owned()
}

/// Returns the range after charging for it; for an unordered CEL map, its keys in order.
fn each<'b, 'v>(mut args: Args<'b, 'v>) -> EvalResult<'b, 'v> {
    let weight = usize::try_from(*arg::<CelInt>(&args, 1)?.inner()).unwrap_or(usize::MAX);
    args.truncate(1);

    let range = one(args)?;
    let size = range.as_sizer().map_or(0, |sizer| {
        usize::try_from(*sizer.size().inner()).unwrap_or(0)
    });
    let built =
        range.downcast_ref::<CelList>().is_some() || range.downcast_ref::<CelMap>().is_some();
    // Data that is read in place charges for its elements when it creates them.
    charge(size.saturating_mul(weight + usize::from(built)))?;

    let Some(map) = range.downcast_ref::<CelMap>() else {
        return Ok(range);
    };

    // CEL maps are hash maps; without an order, an expression has no stable value.
    let mut keys: Vec<_> = map.inner().keys().collect();
    keys.sort();
    let keys: Vec<Box<dyn Val + 'v>> = keys
        .into_iter()
        .map(|key| key.inner().clone_as_boxed())
        .collect();
    Ok(CowVal::owned(CelList::from(keys)))
}

fn utc<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let written = arg::<CelTimestamp>(args, 0)?.inner();
    Ok(CowVal::owned(CelTimestamp::from(
        written.to_utc().fixed_offset(),
    )))
}

fn copy<'b, 'v>(value: CowVal<'b, 'v>) -> EvalResult<'b, 'v> {
    if spend_copy(value.as_ref()) {
        Ok(value)
    } else {
        Err(exhausted_error())
    }
}

/// Expands `cel.bind(name, value, result)`; any other `bind` stays a call.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    if !target
        .as_ref()
        .is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "cel"))
    {
        return Ok(None);
    }

    let Ok([name, value, result]) = <[IdedExpr; 3]>::try_from(std::mem::take(args)) else {
        return Ok(None);
    };
    let Expr::Ident(bound) = name.expr else {
        return Err(helper.new_error(
            name.id,
            "the first argument of cel.bind must be a simple name",
        ));
    };

    let bind = ast::bind(bound, value, result, |expr| helper.next_expr(expr));
    Ok(Some(helper.next_expr(bind)))
}

/// Returns the argument after charging the additional cost of the called function.
fn charge_argument<'b, 'v>(args: Args<'b, 'v>, units: fn(&dyn Val) -> usize) -> EvalResult<'b, 'v> {
    let value = one(args)?;
    charge(units(value.as_ref()))?;
    Ok(value)
}

fn size_of(value: &dyn Val) -> usize {
    value.as_sizer().map_or(0, |sizer| {
        usize::try_from(*sizer.size().inner()).unwrap_or(0)
    })
}

/// Returns the cost of an input: every 64 bytes of a text, and every element of a list or a map.
fn input(value: &dyn Val) -> usize {
    if let Some(string) = value.downcast_ref::<CelString>() {
        return string.inner().len() / 64;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return bytes.inner().len() / 64;
    }
    size_of(value)
}

/// Returns the cost of `distinct`, which compares all pairs of elements, each with its text.
fn squared(value: &dyn Val) -> usize {
    let size = size_of(value);
    let list = value.downcast_ref::<CelList>();
    let texts: usize = list.map_or(0, |list| {
        list.inner().iter().map(|item| input(item.as_ref())).sum()
    });
    size.saturating_mul(size.saturating_add(texts)) / 16
}

/// Returns the cost of `format`, of which a clause writes up to 400 digits.
fn clauses(value: &dyn Val) -> usize {
    let found = value
        .downcast_ref::<CelString>()
        .map_or(0, |format| format.matches('%').count());
    found.saturating_mul(16)
}

/// Returns the cost of `split`, which creates up to one text per character.
fn pieces(value: &dyn Val) -> usize {
    value
        .downcast_ref::<CelString>()
        .map_or(0, |string| string.inner().len() / 4)
}

fn number(value: &dyn Val) -> usize {
    value
        .downcast_ref::<CelInt>()
        .map_or(0, |number| usize::try_from(*number.inner()).unwrap_or(0))
}

fn join<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let separator = if args.len() > 1 {
        arg::<CelString>(args, 1)?.inner()
    } else {
        ""
    };
    let mut items = args[0]
        .as_iterable()
        .ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))?
        .iter();

    let mut joined = String::new();
    let mut first = true;
    while let Some(item) = items.next() {
        let part =
            item.downcast_ref::<CelString>()
                .ok_or_else(|| ExecutionError::UnexpectedType {
                    got: name_of(item),
                    want: "string".to_owned(),
                })?;
        // Charged for each part, so that a long result is never created first.
        charge(text_cost(part.inner().len() + separator.len()))?;
        if !std::mem::take(&mut first) {
            joined.push_str(separator);
        }
        joined.push_str(part.inner());
    }
    Ok(CowVal::owned(CelString::from(joined)))
}

/// Returns the sum of numbers; 0 for an empty list.
fn sum<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let mut items = args[0]
        .as_iterable()
        .ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))?
        .iter();

    let mut sum = Number::ZERO;
    while let Some(item) = items.next() {
        charge(1)?;
        let number = Number::of(item).ok_or_else(|| ExecutionError::UnexpectedType {
            got: name_of(item),
            want: "int or double".to_owned(),
        })?;
        sum = arithmetic::sum(sum, number)
            .map_err(|_| ExecutionError::function_error("sum", "the sum exceeds 64 bits"))?;
    }
    Ok(sum.into_value())
}

fn replace<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let whole = arg::<CelString>(args, 0)?.inner();
    let from = arg::<CelString>(args, 1)?.inner();
    let to = arg::<CelString>(args, 2)?.inner();
    let limit = if args.len() > 3 {
        *arg::<CelInt>(args, 3)?.inner()
    } else {
        -1
    };
    // A negative limit means all occurrences.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);

    // The result is charged before it is created.
    let times = whole.matches(from).take(limit).count();
    charge(text_cost(
        whole.len().saturating_add(times.saturating_mul(to.len())),
    ))?;
    Ok(CowVal::owned(CelString::from(
        whole.replacen(from, to, limit),
    )))
}

fn search<'b, 'v>(
    args: &[CowVal<'b, 'v>],
    find: impl FnOnce(&Search<'_>) -> Result<Option<usize>, ExecutionError>,
) -> EvalResult<'b, 'v> {
    let text = arg::<CelString>(args, 0)?.inner();
    let needle = arg::<CelString>(args, 1)?.inner();
    let offset = args
        .get(2)
        .map(|_| arg::<CelInt>(args, 2))
        .transpose()?
        .map(|offset| *offset.inner());

    let found = find(&Search {
        text,
        needle,
        offset,
    })?;
    let position = found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1);
    Ok(CowVal::owned(CelInt::from(position)))
}

fn matches<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let whole = arg::<CelString>(args, 0)?.inner();
    let pattern = arg::<CelString>(args, 1)?.inner();
    // Charged before the cache is read, so that the cost does not depend on earlier evaluations.
    let text_units = text_cost(whole.len()).saturating_mul(pattern_weight(pattern));
    charge(PATTERN_UNITS.saturating_add(text_units))?;
    let found =
        pattern_of(pattern).map_err(|reason| ExecutionError::function_error("matches", reason))?;
    Ok(CowVal::owned(CelBool::from(found.is_match(whole))))
}

/// Base64 engine that writes padding and reads with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn encode<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    Ok(CowVal::owned(CelString::from(to_base64(
        arg::<CelBytes>(args, 0)?.inner(),
    ))))
}

fn decode<'b, 'v>(args: &[CowVal<'b, 'v>]) -> EvalResult<'b, 'v> {
    let decoded = BASE64.decode(arg::<CelString>(args, 0)?.inner());
    let bytes =
        decoded.map_err(|_| ExecutionError::function_error("base64.decode", "invalid base64"))?;
    Ok(CowVal::owned(CelBytes::from(bytes)))
}
