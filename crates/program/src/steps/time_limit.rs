//! Time limits: a constant, or an expression for a duration or for a point in time.

use std::time::Duration;

use orlog_model::{Timestamp, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, Expression, kind_of};
use crate::language::{Codec, Decoder, Period, ValueSchema};
use crate::limits::{check_duration, duration_problem};
use crate::yaml::tree::{Content, Node};

/// Remaining time until a point in time that has passed. No limit is zero, because upstreams take
/// zero for "no limit".
const PASSED: Duration = Duration::from_millis(1);

/// Time limit of a step, a saga or an escalation, or delay of a retry.
///
/// The value of an expression is a duration (`30m`, a CEL duration, or a number of seconds), or a
/// point in time as RFC 3339 text, which ends the limit. It is evaluated once, when the time
/// begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TimeLimit {
    /// The same for all instances. It is stored as before there were expressions, so that
    /// definitions keep their hash.
    Constant(Duration),
    /// Expression that starts with `=`.
    Computed(String),
}

impl TimeLimit {
    /// Returns the duration, unless an expression computes it.
    #[must_use]
    pub fn constant(&self) -> Option<Duration> {
        match self {
            TimeLimit::Constant(duration) => Some(*duration),
            TimeLimit::Computed(_) => None,
        }
    }

    /// Returns the expression, if there is one.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match self {
            TimeLimit::Constant(_) => None,
            TimeLimit::Computed(expression) => Some(expression),
        }
    }
}

impl Codec for TimeLimit {
    type Value = Self;
    const SCHEMA: ValueSchema =
        ValueSchema::AnyOf(&[ValueSchema::Duration, ValueSchema::Expression]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        match &node.content {
            Content::Scalar { text, .. } if text.starts_with('=') => {
                Some(TimeLimit::Computed(text.clone()))
            }
            Content::Scalar { .. } | Content::List(_) | Content::Map(_) => {
                Period::decode(decoder, node, path).map(TimeLimit::Constant)
            }
        }
    }
}

/// Compiled time limit.
#[derive(Debug)]
pub(crate) enum CompiledTimeLimit {
    Constant(Duration),
    Computed(Expression),
}

impl CompiledTimeLimit {
    /// Compiles the limit in a field of the site. An expression without variables must have a valid
    /// value.
    pub(crate) fn compile(
        compiler: &mut ExpressionCompiler<'_>,
        site: Site<'_>,
        field: &str,
        limit: Option<&TimeLimit>,
    ) -> Option<Self> {
        let path = if site.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", site.path)
        };

        match limit? {
            TimeLimit::Constant(duration) => {
                check_duration(&path, Some(*duration), &mut compiler.findings);
                Some(CompiledTimeLimit::Constant(*duration))
            }
            TimeLimit::Computed(source) => {
                let expression = compiler.condition(site.at(&path), Some(source))?;

                // A value that no variable changes fails when the definition is deployed, not in
                // each instance.
                for value in expression.constant_results() {
                    let checked = value
                        .map_err(|error| error.reason)
                        .and_then(|value| limit_of(&value, None));
                    if let Err(reason) = checked {
                        compiler.report(RawDiagnostic::new(&path, reason));
                    }
                }
                Some(CompiledTimeLimit::Computed(expression))
            }
        }
    }

    /// Returns the duration, unless an expression computes it.
    pub(crate) fn constant(&self) -> Option<Duration> {
        match self {
            CompiledTimeLimit::Constant(duration) => Some(*duration),
            CompiledTimeLimit::Computed(_) => None,
        }
    }

    /// Returns the duration of a limit that begins now.
    pub(crate) fn evaluate(
        &self,
        now: Timestamp,
        bindings: &Bindings<'_>,
    ) -> Result<Duration, EvalError> {
        match self {
            CompiledTimeLimit::Constant(duration) => Ok(*duration),
            // Evaluated once, when the time begins; the timer stores the result (ADR 0075).
            CompiledTimeLimit::Computed(expression) => {
                limit_of(&expression.evaluate(bindings)?, Some(now))
                    .map_err(|reason| expression.error(reason))
            }
        }
    }
}

/// Returns the duration of a limit with this value that begins now; at an unknown time, any point
/// in time is valid.
fn limit_of(value: &Value, now: Option<Timestamp>) -> Result<Duration, String> {
    // A time first: no text is both a time and a duration.
    let until = value.as_str().and_then(|text| Timestamp::parse(text).ok());
    let duration = match until {
        Some(until) => now.map_or(PASSED, |now| until.duration_since(now).max(PASSED)),
        None => {
            read_duration(value).map_err(|reason| format!("{reason}, or a time in RFC 3339"))?
        }
    };

    duration_problem(duration).map_or(Ok(duration), |problem| Err(problem.to_owned()))
}

/// Returns a duration: a text such as `30m` or `1.5s`, which is also the text of a CEL duration, or
/// a number of seconds.
pub(super) fn read_duration(value: &Value) -> Result<Duration, String> {
    if let Some(text) = value.as_str()
        && let Ok(duration) = parse_duration(text)
    {
        return Ok(duration);
    }
    // Negative and infinite numbers are no durations.
    if let Some(seconds) = value.as_f64()
        && let Ok(duration) = Duration::try_from_secs_f64(seconds)
    {
        return Ok(duration);
    }

    Err(match value {
        Value::String(text) => {
            format!("`{text}` is not a duration; write 30m, a positive number of seconds")
        }
        Value::Number(number) => {
            format!("{number} is not a duration; write 30m, a positive number of seconds")
        }
        other => {
            format!(
                "a duration must be a text such as 30m or a number of seconds, but is {}",
                kind_of(other)
            )
        }
    })
}
