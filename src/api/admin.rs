//! `/info`, `/admin/drain`: what the node is, and what an operator can tell it.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::context::Api;
use super::problem::Problem;

/// What the node is: build, definitions, effects, upstreams, durability, bounds
#[utoipa::path(
    get,
    path = "/info",
    tag = "node",
    responses((status = 200, description = "What it is", body = Value))
)]
pub(super) async fn info(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    let info = api.read(|app| Ok(serde_json::to_value(app.info()))).await?;
    Ok(Json(info.expect("what a node says about itself is plain data")))
}

/// What draining came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Drained {
    /// It came to rest; if not, what is left goes on at the next start.
    drained: bool,
}

/// Take no new work, finish what is under way
///
/// Answers when the node is at rest, or when `drain.deadline` has passed. Then the process ends.
#[utoipa::path(
    post,
    path = "/admin/drain",
    tag = "node",
    responses((status = 200, description = "It takes no more work", body = Drained))
)]
pub(super) async fn drain(State(api): State<Api>) -> Json<Drained> {
    Json(Drained { drained: api.app.drain().await })
}
