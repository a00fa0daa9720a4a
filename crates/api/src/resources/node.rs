//! `/info`, `/admin/drain`: node information and drain.

pub(crate) mod inspect;
pub(crate) mod log;
pub(crate) mod mailboxes;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::server::context::RequestContext;
use crate::server::parts::operations::Operations;
use crate::server::problem::Problem;

/// Maximum time that a request waits for the bus.
const BUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Show the node: build, definitions, effects, upstreams, durability, limits
#[utoipa::path(
    get,
    path = "/info",
    tag = "node",
    responses((status = 200, description = "Node information", body = Value))
)]
pub(crate) async fn info(
    api: RequestContext,
    State(operations): State<Operations>,
) -> Result<Json<Value>, Problem> {
    // While the bus does not respond, the response has the known states without backlogs instead of
    // an error.
    let consumers = tokio::time::timeout(BUS_TIMEOUT, operations.job_consumers()).await;
    let consumers = consumers.unwrap_or_else(|_| operations.job_consumer_states());
    let info = api
        .read(move |_| Ok(serde_json::to_value(operations.info(&consumers))))
        .await?;
    Ok(Json(info.expect("node information serializes to JSON")))
}

/// Result of a drain.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DrainResponse {
    /// The drain completed; otherwise remaining work resumes at the next start.
    drained: bool,
}

/// Drain the node: reject new work, finish in-flight work
///
/// Responds after the drain, or when `drain.timeout` expires. Then the process stops.
#[utoipa::path(
    post,
    path = "/admin/drain",
    tag = "node",
    responses((status = 200, description = "The node accepts no new work", body = DrainResponse))
)]
pub(crate) async fn drain(State(operations): State<Operations>) -> Json<DrainResponse> {
    Json(DrainResponse {
        drained: operations.drain().await,
    })
}
