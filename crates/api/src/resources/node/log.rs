//! `/admin/log`: log filter of this process, mutable at runtime.

use std::time::Duration;

use axum::Json;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::server::body::{self, CheckedBody};
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::telemetry::{self, LogFilter, LogLevels};

/// Maximum duration of a change, so that a forgotten change expires. Permanent changes go to the
/// configuration.
const MAX_DURATION: Duration = Duration::from_hours(24);

/// Requested log filter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogFilterBody {
    /// Log filter: a level, and levels for modules: `info,orlog_actors=debug`.
    filter: String,
    /// Duration, at most 24 hours: `10m`. Default: until the next change or the end of the process.
    #[serde(rename = "for")]
    #[schema(format = "duration")]
    duration: Option<String>,
}

/// Current log filter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogFilterView {
    /// Active filter.
    filter: String,
    /// Configured filter.
    configured: String,
    /// Time at which the configured filter is restored; null: no limit.
    #[schema(format = "date-time")]
    until: Option<String>,
}

impl From<LogFilter> for LogFilterView {
    fn from(
        LogFilter {
            filter,
            configured,
            until,
        }: LogFilter,
    ) -> Self {
        Self {
            filter,
            configured,
            until: until.map(|until| until.to_string()),
        }
    }
}

/// Show the log filter
#[utoipa::path(
    get,
    path = "/admin/log",
    operation_id = "log_filter",
    tag = "node",
    responses((status = 200, description = "The active filter", body = LogFilterView))
)]
pub(crate) async fn show() -> Result<Json<LogFilterView>, Problem> {
    Ok(Json(levels()?.current().into()))
}

/// Change the log filter
#[utoipa::path(
    put,
    path = "/admin/log",
    operation_id = "set_log_filter",
    tag = "node",
    request_body = LogFilterBody,
    responses((status = 200, description = "The filter that is now active", body = LogFilterView))
)]
pub(crate) async fn update(CheckedBody(body): CheckedBody) -> Result<Json<LogFilterView>, Problem> {
    let LogFilterBody {
        filter,
        duration: lasting,
    } = body::parse(&body)?;
    let lasting = lasting.as_deref().map(duration).transpose()?;
    let changed = levels()?
        .set(&filter, lasting)
        .map_err(|error| invalid_field("/filter", error))?;

    Ok(Json(changed.into()))
}

/// Restore the configured log filter
#[utoipa::path(
    delete,
    path = "/admin/log",
    operation_id = "reset_log_filter",
    tag = "node",
    responses((status = 200, description = "The filter that is now active", body = LogFilterView))
)]
pub(crate) async fn reset() -> Result<Json<LogFilterView>, Problem> {
    Ok(Json(levels()?.reset().into()))
}

fn levels() -> Result<&'static LogLevels, Problem> {
    let reason = "the host application of this process controls its logs";
    telemetry::levels().ok_or_else(|| Problem::new(Code::Unavailable, reason))
}

fn duration(text: &str) -> Result<Duration, Problem> {
    let parsed = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok());
    parsed
        .filter(|lasting| !lasting.is_zero() && *lasting <= MAX_DURATION)
        .ok_or_else(|| {
            invalid_field(
                "/for",
                format!("invalid duration {text:?}; expected at most 24 hours, such as \"10m\""),
            )
        })
}

fn invalid_field(pointer: &str, detail: String) -> Problem {
    let problem_detail = ProblemDetail {
        pointer: pointer.to_owned(),
        detail: detail.clone(),
    };
    Problem::new(Code::InvalidBody, detail).with(vec![problem_detail])
}
