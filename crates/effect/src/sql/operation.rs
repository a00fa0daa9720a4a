//! What an effect does in a database: statements, what they must come to, and what of them is the answer.

use orlog_model::EventType;
use serde_json::{Value, json};

use super::database::Rows;
use super::scan::Statement;
use crate::placeholders::{Json, Scope, Unfilled};
use crate::provider::Refusal;

/// What one effect does.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) steps: Vec<Step>,
    pub(crate) marker: bool,
    pub(crate) answer: Answer,
}

/// A statement, the values of its names, and what it must come to.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) statement: Statement,
    pub(crate) values: Vec<Json>,
    pub(crate) expect: Option<Expect>,
}

/// What a statement must come to; otherwise everything is rolled back and the effect has failed.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    pub(crate) rows: Count,
    pub(crate) code: String,
    pub(crate) event: Option<EventType>,
}

/// How many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Exactly(u64),
    /// At least one.
    Some,
}

/// What of the last statement is the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// `{"count": …, "rows": […]}`.
    #[default]
    Rows,
    /// The first row, or `null`.
    Row,
    /// `{"count": …}`.
    Count,
}

impl Step {
    /// The values of its names.
    pub(super) fn values(&self, scope: Scope<'_>, place: &str) -> Result<Vec<Value>, Refusal> {
        let filled = self.values.iter().zip(self.statement.names()).map(|(template, name)| {
            template.fill(scope).map_err(|why| match why {
                Unfilled::Payload(why) => Refusal::failed("bad_payload", format!("{place}, :{name}: {why}")),
                Unfilled::Secret(why) => Refusal::retry("secret", format!("{place}, :{name}: {why}")),
            })
        });
        filled.collect()
    }
}

impl Expect {
    pub(super) fn check(&self, rows: &Rows, place: &str) -> Result<(), Refusal> {
        let (holds, wanted) = match self.rows {
            Count::Exactly(count) => (rows.count == count, count.to_string()),
            Count::Some => (rows.count > 0, "at least 1".to_owned()),
        };
        if holds {
            return Ok(());
        }
        let message = format!("{place} came to {} rows instead of {wanted}", rows.count);
        Err(match &self.event {
            Some(event) => Refusal::declined(event.clone(), self.code.as_str(), message),
            None => Refusal::failed(self.code.as_str(), message),
        })
    }
}

impl Answer {
    pub(super) fn of(self, rows: Rows) -> Value {
        match self {
            Self::Rows => json!({ "count": rows.count, "rows": rows.rows }),
            Self::Row => rows.rows.into_iter().next().map_or(Value::Null, Value::Object),
            Self::Count => json!({ "count": rows.count }),
        }
    }
}
