//! Arithmetic of numbers from JSON, which has one type of numbers: a sender may write 10.0 as `10`.
//!
//! | operands | result |
//! |---|---|
//! | two whole numbers of one type | as in CEL: exact up to 64 bits; `/` cuts the fraction off |
//! | `int` and `uint` | whole number, `uint` only beyond 63 bits |
//! | one or two decimal numbers | decimal number, computed with the decimal digits of both |
//!
//! A decimal number is a double, which JSON writes with its shortest decimal digits. CEL computes
//! with its binary value, so `0.1 + 0.2` is 0.30000000000000004. Here it is computed with those
//! digits and rounded once to the nearest double (ADR 0099). Decimals have 28 digits and 28 decimal
//! places: numbers beyond, and results that would keep fewer digits than a double, are computed as
//! doubles.

use cel::common::ast::operators;
use cel::common::types::{CelDouble, CelInt, CelUInt, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use rust_decimal::Decimal;

/// Operation of two values.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operation {
    /// Returns the name of the operation in errors, as CEL has it.
    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "sub",
            Self::Multiply => "mul",
            Self::Divide => "div",
            Self::Remainder => "rem",
        }
    }
}

const ADD: &str = "@add";
const SUBTRACT: &str = "@subtract";
const MULTIPLY: &str = "@multiply";
const DIVIDE: &str = "@divide";
const REMAINDER: &str = "@remainder";

/// Returns the function that replaces an operator.
pub(super) fn replacement(operator: &str) -> Option<&'static str> {
    match operator {
        operators::ADD => Some(ADD),
        operators::SUBSTRACT => Some(SUBTRACT),
        operators::MULTIPLY => Some(MULTIPLY),
        operators::DIVIDE => Some(DIVIDE),
        operators::MODULO => Some(REMAINDER),
        _ => None,
    }
}

/// Adds the functions that replace the operators.
pub(super) fn add_functions(env: &mut Env) -> Result<(), DeclarationError> {
    let two_values = || vec![DYN_TYPE, DYN_TYPE];
    env.add_overload(ADD, "add", two_values(), |args| {
        evaluate(Operation::Add, &args)
    })?;
    env.add_overload(SUBTRACT, "subtract", two_values(), |args| {
        evaluate(Operation::Subtract, &args)
    })?;
    env.add_overload(MULTIPLY, "multiply", two_values(), |args| {
        evaluate(Operation::Multiply, &args)
    })?;
    env.add_overload(DIVIDE, "divide", two_values(), |args| {
        evaluate(Operation::Divide, &args)
    })?;
    env.add_overload(REMAINDER, "remainder", two_values(), |args| {
        evaluate(Operation::Remainder, &args)
    })
}

/// Returns the sum of two numbers.
pub(super) fn sum(left: Number, right: Number) -> Result<Number, ExecutionError> {
    left.apply(Operation::Add, right)
}

/// Number of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// 64 bits, with or without a sign.
    Whole(i128),
    Decimal(f64),
}

impl Number {
    pub(super) const ZERO: Self = Self::Whole(0);

    /// Returns the number of a value; `None` if it is none.
    pub(super) fn of(value: &dyn Val) -> Option<Self> {
        if let Some(number) = value.downcast_ref::<CelInt>() {
            return Some(Self::Whole(i128::from(*number.inner())));
        }
        if let Some(number) = value.downcast_ref::<CelDouble>() {
            return Some(Self::Decimal(*number.inner()));
        }
        let number = value.downcast_ref::<CelUInt>()?;
        Some(Self::Whole(i128::from(*number.inner())))
    }

    /// Returns the value of the number.
    pub(super) fn into_value<'b, 'v>(self) -> CowVal<'b, 'v> {
        match self {
            Self::Decimal(number) => CowVal::owned(CelDouble::from(number)),
            Self::Whole(number) => {
                if let Ok(number) = i64::try_from(number) {
                    return CowVal::owned(CelInt::from(number));
                }
                let number = u64::try_from(number).expect("results have at most 64 bits");
                CowVal::owned(CelUInt::from(number))
            }
        }
    }

    fn apply(self, operation: Operation, right: Self) -> Result<Self, ExecutionError> {
        match (self, right) {
            (Self::Whole(left), Self::Whole(right)) => whole(operation, left, right),
            (left, right) => Ok(Self::Decimal(decimal(operation, left, right))),
        }
    }

    fn as_double(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "beyond the range of decimals")]
            Self::Whole(number) => number as f64,
            Self::Decimal(number) => number,
        }
    }

    /// Returns the decimal digits of the number; `None` beyond the range of decimals.
    fn as_decimal(self) -> Option<Decimal> {
        match self {
            Self::Whole(number) => Decimal::try_from_i128_with_scale(number, 0).ok(),
            // The display of a double has its shortest digits, as JSON writes them.
            Self::Decimal(number) => Decimal::from_str_exact(&number.to_string()).ok(),
        }
    }
}

/// Applies an operation to the numbers, and CEL's own to other values: texts, lists, times.
fn evaluate<'b, 'v>(
    operation: Operation,
    args: &[CowVal<'b, 'v>],
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [left, right] = args else {
        return Err(ExecutionError::invalid_argument_count(2, args.len()));
    };
    let left = left.as_ref();
    let right = right.as_ref();

    // CEL computes exactly with whole numbers of one type, and most numbers are.
    let is_decimal = left.downcast_ref::<CelDouble>().is_some();
    if (is_decimal || left.get_type().kind() != right.get_type().kind())
        && let Some(left) = Number::of(left)
        && let Some(right) = Number::of(right)
    {
        return left.apply(operation, right).map(Number::into_value);
    }

    Ok(CowVal::Owned(
        evaluate_by_cel(operation, left, right)?.into_owned(),
    ))
}

fn evaluate_by_cel<'b, 'v>(
    operation: Operation,
    left: &'b (dyn Val + 'v),
    right: &'b (dyn Val + 'v),
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let result = match operation {
        Operation::Add => left.as_adder().map(|left| left.add(right)),
        Operation::Subtract => left.as_subtractor().map(|left| left.sub(right)),
        Operation::Multiply => left.as_multiplier().map(|left| left.mul(right)),
        Operation::Divide => left.as_divider().map(|left| left.div(right)),
        Operation::Remainder => left.as_modder().map(|left| left.modulo(right)),
    };

    // The values are not a part of the message: they can be large.
    result.unwrap_or_else(|| {
        let name = operation.name();
        Err(ExecutionError::UnsupportedBinaryOperator(
            name,
            cel::Value::Null,
            cel::Value::Null,
        ))
    })
}

/// Returns a whole result. 128 bits contain every result of two numbers of 64 bits.
fn whole(operation: Operation, left: i128, right: i128) -> Result<Number, ExecutionError> {
    let result = match operation {
        Operation::Add => left + right,
        Operation::Subtract => left - right,
        Operation::Multiply => left * right,
        Operation::Divide if right == 0 => {
            return Err(ExecutionError::DivisionByZero(cel::Value::Null));
        }
        Operation::Remainder if right == 0 => {
            return Err(ExecutionError::RemainderByZero(cel::Value::Null));
        }
        Operation::Divide => left / right,
        Operation::Remainder => left % right,
    };

    // Only numbers that do not fit into an `int` are unsigned.
    let is_unsigned = left.max(right) > i128::from(i64::MAX);
    let max = if is_unsigned {
        i128::from(u64::MAX)
    } else {
        i128::from(i64::MAX)
    };
    if result < i128::from(i64::MIN) || result > max {
        return Err(ExecutionError::Overflow(
            operation.name(),
            cel::Value::Null,
            cel::Value::Null,
        ));
    }
    Ok(Number::Whole(result))
}

fn decimal(operation: Operation, left: Number, right: Number) -> f64 {
    if let Some(left) = left.as_decimal()
        && let Some(right) = right.as_decimal()
        && let Some(result) = exact(operation, left, right)
        && let Ok(rounded) = result.to_string().parse()
    {
        // The parser of texts rounds to the nearest double; the conversion of the library does not.
        return rounded;
    }

    let left = left.as_double();
    let right = right.as_double();
    match operation {
        Operation::Add => left + right,
        Operation::Subtract => left - right,
        Operation::Multiply => left * right,
        Operation::Divide => left / right,
        Operation::Remainder => left % right,
    }
}

/// Returns the decimal result; `None` if it exceeds the range, or has fewer digits than a double.
fn exact(operation: Operation, left: Decimal, right: Decimal) -> Option<Decimal> {
    match operation {
        Operation::Add => left.checked_add(right),
        Operation::Subtract => left.checked_sub(right),
        // None for a division by zero, which is infinite for doubles.
        Operation::Remainder => left.checked_rem(right),
        // A product of few decimal places is exact. Others are rounded to 28 places, which leave
        // few digits of a small number, or none.
        Operation::Multiply => left.checked_mul(right).filter(|product| {
            left.scale() + right.scale() <= Decimal::MAX_SCALE || has_digits_of_double(product)
        }),
        // A quotient is exact, or rounded in the same way.
        Operation::Divide => left.checked_div(right).filter(|quotient| {
            quotient.checked_mul(right) == Some(left) || has_digits_of_double(quotient)
        }),
    }
}

/// Returns whether the number has the 17 digits that identify every double.
fn has_digits_of_double(number: &Decimal) -> bool {
    number.mantissa().unsigned_abs() >= 10_u128.pow(16)
}
