//! SQL operation of an effect: statements, expected rows, and the form of the result.

use orlog_model::EventType;
use serde_json::{Value, json};

use super::database::Rows;
use super::scan::ParsedStatement;
use crate::placeholders::{FillError, JsonTemplate, PlaceholderScope};
use crate::provider::ProviderError;

/// SQL operation of one effect.
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
#[derive(Clone, Debug)]
pub(crate) struct RowExpectation {
    pub(crate) rows: RowCount,
    pub(crate) code: String,
    pub(crate) event: Option<EventType>,
}

/// Expected number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowCount {
    Exactly(u64),
    /// At least one.
    Some,
}

/// Form of the result, from the last statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// Returns the values of its parameters.
    pub(super) fn values(
        &self,
        scope: PlaceholderScope<'_>,
        label: &str,
    ) -> Result<Vec<Value>, ProviderError> {
        let filled = self.values.iter().zip(self.statement.names()).map(|(template, name)| {
            template.fill(scope).map_err(|reason| match reason {
                FillError::Payload(reason) => {
                    ProviderError::permanent("invalid_payload", format!("{label}, :{name}: {reason}"))
                }
                FillError::Secret(reason) => {
                    ProviderError::unavailable("secret", format!("{label}, :{name}: {reason}"))
                }
            })
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
        let message = format!("{label} has {} rows, expected {expected}", rows.count);
        Err(match &self.event {
            Some(event) => ProviderError::permanent_with_event(event.clone(), self.code.as_str(), message),
            None => ProviderError::permanent(self.code.as_str(), message),
        })
    }
}

impl ResultShape {
    pub(super) fn of(self, rows: Rows) -> Value {
        match self {
            Self::Rows => json!({ "count": rows.count, "rows": rows.rows }),
            Self::Row => rows.rows.into_iter().next().map_or(Value::Null, Value::Object),
            Self::Count => json!({ "count": rows.count }),
        }
    }
}
