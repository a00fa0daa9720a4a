//! `GET /admin/diagnosis`: what the doctor asks a running node.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::context::Api;
use super::problem::Problem;
use crate::doctor::check::{Finding, Level};

/// How long the bus may take to say where it stands.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Diagnosis {
    /// The worst of them: `ok`, `warn` or `bad`.
    worst: &'static str,
    /// Each with `check`, `level`, `found` and, where something is to be done, `remedy`.
    #[schema(value_type = Vec<serde_json::Value>)]
    findings: Vec<Finding>,
}

/// How the node does, and what to do about it
#[utoipa::path(
    get,
    path = "/admin/diagnosis",
    tag = "node",
    responses((status = 200, description = "Part by part", body = Diagnosis))
)]
pub(super) async fn diagnosis(State(api): State<Api>) -> Result<Json<Diagnosis>, Problem> {
    let asked = tokio::time::timeout(PATIENCE, api.app.bus.last_sequence()).await;
    let (last, bus) = match asked {
        Ok(Ok(last)) => (Some(last), Finding::ok("bus", format!("it answers, and is at {last}"))),
        Ok(Err(error)) => {
            (None, Finding::bad("bus", error.to_string(), "see to the servers, or to the disk"))
        }
        Err(_) => (None, Finding::bad("bus", format!("no answer within {PATIENCE:?}"), "see to the servers")),
    };
    let mut findings = api.read(move |app| Ok(app.examined(last))).await?;
    findings.insert(1, bus);
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok).as_str();
    Ok(Json(Diagnosis { worst, findings }))
}
