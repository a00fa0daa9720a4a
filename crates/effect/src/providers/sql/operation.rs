//! SQL operation of an effect: statements, expected rows, and the form of the result.

use orlog_model::EventType;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::database::Rows;
use super::scan::ParsedStatement;
use crate::provider::ProviderError;
use crate::template::{JsonTemplate, PlaceholderScope};

#[derive(Clone, Debug)]
pub(crate) struct SqlOperation {
    pub(crate) steps: Vec<StatementStep>,
    pub(crate) marker: bool,
    pub(crate) response: ResultShape,
}

/// Statement with its parameter values and expected rows.
#[derive(Clone, Debug)]
pub(crate) struct StatementStep {
    pub(crate) statement: ParsedStatement,
    pub(crate) values: Vec<JsonTemplate>,
    pub(crate) expect: Option<RowExpectation>,
}

/// Expected rows of a statement; otherwise the transaction is rolled back and the effect fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowExpectation {
    /// Number of rows: a number, or `"some"`.
    pub rows: RowCount,
    /// Failure code of another result.
    #[serde(default = "unexpected")]
    pub otherwise: String,
    /// Event type of the failure for the saga.
    pub event: Option<EventType>,
}

/// Expected number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RowText", into = "RowText")]
pub enum RowCount {
    /// This number.
    Exactly(u64),
    /// At least one.
    Some,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of rows or \"some\"")]
enum RowText {
    Number(i64),
    Text(String),
}

impl TryFrom<RowText> for RowCount {
    type Error = String;

    fn try_from(text: RowText) -> Result<Self, String> {
        match text {
            RowText::Number(rows) => u64::try_from(rows)
                .map(Self::Exactly)
                .map_err(|_| "rows is negative".to_owned()),
            RowText::Text(text) if text == "some" => Ok(Self::Some),
            RowText::Text(other) => Err(format!(
                "invalid rows {other:?}: expected a number or \"some\""
            )),
        }
    }
}

impl From<RowCount> for RowText {
    fn from(count: RowCount) -> Self {
        match count {
            RowCount::Exactly(rows) => Self::Number(i64::try_from(rows).unwrap_or(i64::MAX)),
            RowCount::Some => Self::Text("some".to_owned()),
        }
    }
}

fn unexpected() -> String {
    "unexpected_rows".to_owned()
}

/// Form of the result, from the last statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultShape {
    /// `{"count": …, "rows": […]}`.
    #[default]
    Rows,
    /// The first row, or `null`.
    Row,
    /// `{"count": …}`.
    Count,
}

impl StatementStep {
    pub(super) fn values(
        &self,
        scope: PlaceholderScope<'_>,
        label: &str,
    ) -> Result<Vec<Value>, ProviderError> {
        let filled = self
            .values
            .iter()
            .zip(self.statement.names())
            .map(|(template, name)| {
                template
                    .fill(scope)
                    .map_err(|reason| reason.labeled(&format!("{label}, :{name}")))
            });
        filled.collect()
    }
}

impl RowExpectation {
    pub(super) fn check(&self, rows: &Rows, label: &str) -> Result<(), ProviderError> {
        let (is_met, expected) = match self.rows {
            RowCount::Exactly(count) => (rows.count == count, count.to_string()),
            RowCount::Some => (rows.count > 0, "at least 1".to_owned()),
        };
        if is_met {
            return Ok(());
        }

        // A permanent error, after which the caller rolls the transaction back.
        let message = format!("{label} has {} rows, expected {expected}", rows.count);
        Err(match &self.event {
            Some(event) => {
                ProviderError::permanent_with_event(event.clone(), self.otherwise.as_str(), message)
            }
            None => ProviderError::permanent(self.otherwise.as_str(), message),
        })
    }
}

impl ResultShape {
    pub(super) fn of(self, rows: Rows) -> Value {
        match self {
            Self::Rows => json!({ "count": rows.count, "rows": rows.rows }),
            Self::Row => rows
                .rows
                .into_iter()
                .next()
                .map_or(Value::Null, Value::Object),
            Self::Count => json!({ "count": rows.count }),
        }
    }
}
