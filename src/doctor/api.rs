//! `GET /admin/diagnostics`: checks of a running node for the doctor.

use std::time::Duration;

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::context::ApiState;
use crate::api::problem::Problem;
use crate::doctor::check::{CheckResult, CheckStatus};

/// Timeout of the bus check. Default: 2s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Results of the checks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiagnosticsResponse {
    /// Highest severity: `ok`, `warn` or `error`.
    severity: &'static str,
    /// Checks with `name`, `status`, `message` and, if an action is required, `remedy`.
    #[schema(value_type = Vec<serde_json::Value>)]
    checks: Vec<CheckResult>,
}

/// Check the node and return remedies
#[utoipa::path(
    get,
    path = "/admin/diagnostics",
    tag = "node",
    responses((status = 200, description = "Results of all checks", body = DiagnosticsResponse))
)]
pub(crate) async fn diagnostics(api: ApiState) -> Result<Json<DiagnosticsResponse>, Problem> {
    let response = tokio::time::timeout(CHECK_TIMEOUT, api.app.bus.last_sequence()).await;
    let (last, bus) = match response {
        Ok(Ok(last)) => (Some(last), CheckResult::ok("bus", format!("responds, last sequence {last}"))),
        Ok(Err(error)) => {
            (None, CheckResult::error("bus", error.to_string(), "check the servers, or the disk"))
        }
        Err(_) => (
            None,
            CheckResult::error("bus", format!("no response within {CHECK_TIMEOUT:?}"), "check the servers"),
        ),
    };
    let mut findings = api.read(move |app| Ok(app.diagnostics(last))).await?;
    findings.insert(1, bus);
    let worst = findings.iter().map(|finding| finding.status).max().unwrap_or(CheckStatus::Ok).as_str();
    Ok(Json(DiagnosticsResponse { severity: worst, checks: findings }))
}
