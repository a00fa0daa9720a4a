//! `/health` and `/ready`: whether the process lives, and whether it should be sent work.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::context::Api;
use super::problem::{Code, Problem};
use crate::config::BusKind;

/// How long the bus may take to say where it stands.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the parts do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`; `degraded`: alive, but there is no room or a fold fails; `down`.
    status: &'static str,
    store: Part,
    bus: Part,
    shards: Part,
}

/// How one part does.
#[derive(Debug, Serialize, ToSchema)]
struct Part {
    /// `ok`, `degraded` or `down`.
    status: &'static str,
    /// What is wrong, where something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Part {
    fn ok() -> Self {
        Self { status: "ok", detail: None }
    }

    fn degraded(detail: impl Into<String>) -> Self {
        Self { status: "degraded", detail: Some(detail.into()) }
    }

    fn down(detail: impl Into<String>) -> Self {
        Self { status: "down", detail: Some(detail.into()) }
    }
}

/// Whether the process lives
///
/// 503 when a part is down and a restart may help. A full disk is not cured by a restart: then the status is `degraded`,
/// with 200, and `/ready` answers 503.
#[utoipa::path(
    get,
    path = "/health",
    tag = "node",
    responses(
        (status = 200, description = "It lives", body = Health),
        (status = 503, description = "A part is down", body = Health)
    )
)]
pub(super) async fn health(State(api): State<Api>) -> Response {
    let (store, bus, shards) = (store(&api), bus(&api).await, shards(&api));
    let any = |status: &str| [&store, &bus, &shards].iter().any(|part| part.status == status);
    let (code, status) = if any("down") {
        (StatusCode::SERVICE_UNAVAILABLE, "down")
    } else if any("degraded") {
        (StatusCode::OK, "degraded")
    } else {
        (StatusCode::OK, "ok")
    };
    (code, Json(Health { status, store, bus, shards })).into_response()
}

fn store(api: &Api) -> Part {
    let failure = api.app.runtime.readers().find_map(|reader| reader.stats().fold_failure);
    let closed = api.app.runtime.readers().find_map(|reader| reader.outbox_depth().err());
    let away = api.app.runtime.readers().find_map(|reader| reader.stats().replication?.unavailable);
    match (closed, failure) {
        (Some(error), _) => Part::down(error.to_string()),
        (None, _) if away.is_some() => {
            Part::degraded(format!("the log of a shard does not answer: {}", away.unwrap_or_default()))
        }
        (None, Some(failure)) => Part::degraded(format!("the tables lag behind the journal: {failure}")),
        (None, None) if !api.app.runtime.health().room => Part::degraded("there is no room"),
        (None, None) => Part::ok(),
    }
}

async fn bus(api: &Api) -> Part {
    // No restart of this process brings back servers that are elsewhere.
    let bad = match api.app.config.bus.kind {
        BusKind::Embedded => Part::down,
        BusKind::Nats => Part::degraded,
    };
    match tokio::time::timeout(PATIENCE, api.app.bus.last_sequence()).await {
        Ok(Ok(_)) => Part::ok(),
        Ok(Err(error)) => bad(error.to_string()),
        Err(_) => bad(format!("no answer within {PATIENCE:?}")),
    }
}

fn shards(api: &Api) -> Part {
    if !api.app.workers_are_up() {
        return Part::down("the workers have given up");
    }
    if api.app.runtime.health().up { Part::ok() } else { Part::down("a shard is restarting") }
}

/// That work can be sent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    ready: bool,
}

/// Whether work should be sent here
#[utoipa::path(
    get,
    path = "/ready",
    tag = "node",
    responses((status = 200, description = "It takes work", body = Ready))
)]
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Ready>, Problem> {
    let health = api.app.runtime.health();
    if !health.accepting {
        return Err(Problem::new(Code::Draining, "the process is draining and takes no new events"));
    }
    if !health.room {
        return Err(Problem::new(Code::Full, "there is no room in the store"));
    }
    if !health.up {
        return Err(Problem::new(Code::Unavailable, "a shard is restarting"));
    }
    Ok(Json(Ready { ready: true }))
}
