//! `/health` and `/ready`: liveness and readiness of the process.

pub(crate) mod bus_check;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::context::ApiState;
use super::problem::{Code, Problem};
use bus_check::BusUnavailable;
use orlog_node::config::BusKind;

/// Timeout of the bus check. Default: 2s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Health of the components.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`; `degraded`: alive, but a component does not work and a restart does not help; `down`.
    status: &'static str,
    store: ComponentHealth,
    bus: ComponentHealth,
    shards: ComponentHealth,
}

/// Health of one component.
#[derive(Debug, Serialize, ToSchema)]
struct ComponentHealth {
    /// `ok`, `degraded` or `down`.
    status: &'static str,
    /// Reason, unless the status is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl ComponentHealth {
    fn ok() -> Self {
        Self {
            status: "ok",
            detail: None,
        }
    }

    fn degraded(detail: impl Into<String>) -> Self {
        Self {
            status: "degraded",
            detail: Some(detail.into()),
        }
    }

    fn down(detail: impl Into<String>) -> Self {
        Self {
            status: "down",
            detail: Some(detail.into()),
        }
    }
}

/// Check liveness
///
/// 503 if a component is down and a restart may help. A restart does not fix a full disk: then the
/// status is `degraded`, with 200, and `/ready` returns 503.
#[utoipa::path(
    get,
    path = "/health",
    tag = "node",
    responses(
        (status = 200, description = "It lives", body = Health),
        (status = 503, description = "A component is down", body = Health)
    )
)]
pub(crate) async fn health(State(api): State<ApiState>) -> Response {
    let store = store(&api);
    let bus = bus(&api).await;
    let shards = shards(&api);
    let any = |status: &str| {
        [&store, &bus, &shards]
            .iter()
            .any(|component| component.status == status)
    };
    let (code, status) = if any("down") {
        (StatusCode::SERVICE_UNAVAILABLE, "down")
    } else if any("degraded") {
        (StatusCode::OK, "degraded")
    } else {
        (StatusCode::OK, "ok")
    };

    (
        code,
        Json(Health {
            status,
            store,
            bus,
            shards,
        }),
    )
        .into_response()
}

fn store(api: &ApiState) -> ComponentHealth {
    let failure = api
        .shared
        .app
        .runtime
        .readers()
        .find_map(|reader| reader.stats().flush_failure);
    let closed = api
        .shared
        .app
        .runtime
        .readers()
        .find_map(|reader| reader.outbox_depth().err());

    let away = api
        .shared
        .app
        .runtime
        .readers()
        .find_map(|reader| reader.stats().replication?.unavailable);

    // In the order of the remedy: only a closed store is down, because a restart opens it again.
    match (closed, failure) {
        (Some(error), _) => ComponentHealth::down(error.to_string()),
        (None, _) if away.is_some() => ComponentHealth::degraded(format!(
            "a shard log does not respond: {}",
            away.unwrap_or_default()
        )),
        (None, Some(failure)) => {
            ComponentHealth::degraded(format!("memtable flush fails: {failure}"))
        }
        (None, None) if !api.shared.app.runtime.health().has_capacity => {
            ComponentHealth::degraded("the store is full")
        }
        (None, None) => match api.shared.app.runtime.metrics().commit_failure() {
            Some(failure) => ComponentHealth::degraded(format!("commits are retried: {failure}")),
            None => ComponentHealth::ok(),
        },
    }
}

async fn bus(api: &ApiState) -> ComponentHealth {
    // A restart restores no lost messages, so that the process must stay up.
    if let Some(lost) = lost_stream(api) {
        return ComponentHealth::degraded(format!("{}: {lost}", Code::DataLoss.as_str()));
    }

    let failing = api.shared.app.runtime.metrics().failing_subscriptions();
    if failing > 0 {
        let message =
            format!("{failing} subscriptions to streams fail; the log contains the reason");
        return ComponentHealth::degraded(message);
    }
    if let Some(failure) = api.shared.app.bus.publish_failure() {
        return ComponentHealth::degraded(format!("the last publish failed: {failure}"));
    }

    // A restart of this process does not recover external servers.
    let unhealthy = match api.shared.app.config.bus.kind {
        BusKind::Embedded => ComponentHealth::down,
        BusKind::Nats => ComponentHealth::degraded,
    };

    if let Err(error) = check_bus(api).await {
        return unhealthy(error.to_string());
    }

    // While the bus does not respond, no reader advances.
    match api.shared.app.transport.read_failure() {
        Some(failure) => ComponentHealth::degraded(failure),
        None => ComponentHealth::ok(),
    }
}

/// Checks whether the bus responds; callers share one check at a time.
pub(crate) async fn check_bus(api: &ApiState) -> Result<(), BusUnavailable> {
    let bus = Arc::clone(&api.shared.app.bus);
    let check = || async move {
        let last = tokio::time::timeout(CHECK_TIMEOUT, bus.last_sequence()).await;
        let last = last.map_err(|_| format!("no response within {CHECK_TIMEOUT:?}"))?;
        last.map(drop).map_err(|error| error.to_string())
    };
    api.shared.bus_check.result(check).await
}

/// Returns the first stream that is not read because it lost messages, with the reason.
fn lost_stream(api: &ApiState) -> Option<String> {
    let (stream, reason) = api.shared.app.runtime.lost_streams().pop_first()?;
    Some(format!("stream {stream} is not read: {reason}"))
}

fn shards(api: &ApiState) -> ComponentHealth {
    if !api.shared.app.workers_running() {
        return ComponentHealth::down("too many restarts of the workers");
    }
    // Down only while it lasts: a shard that fails too often ends the process by itself.
    if !api.shared.app.runtime.health().is_running {
        return ComponentHealth::down("a shard is restarting");
    }

    // The node retries; a restart does not help against servers, logs and other processes.
    match api.shared.app.obstacles().summary() {
        Some(obstacle) => ComponentHealth::degraded(obstacle),
        None => ComponentHealth::ok(),
    }
}

/// Readiness of the node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReadyResponse {
    ready: bool,
}

/// Check readiness
#[utoipa::path(
    get,
    path = "/ready",
    tag = "node",
    responses((status = 200, description = "The node accepts work", body = ReadyResponse))
)]
pub(crate) async fn ready(State(api): State<ApiState>) -> Result<Json<ReadyResponse>, Problem> {
    let health = api.shared.app.runtime.health();
    if !health.accepting {
        return Err(Problem::new(
            Code::Draining,
            "the node is draining and accepts no new events",
        ));
    }
    if !health.has_capacity {
        return Err(Problem::new(Code::InsufficientStorage, "the store is full"));
    }
    if !health.is_running {
        return Err(Problem::new(Code::Unavailable, "a shard is restarting"));
    }
    if let Some(obstacle) = api.shared.app.obstacles().summary() {
        return Err(Problem::new(Code::Unavailable, obstacle));
    }
    if let Some(lost) = lost_stream(&api) {
        return Err(Problem::new(Code::DataLoss, lost));
    }
    if let Some(reason) = api.shared.app.failing_subscription() {
        return Err(Problem::new(Code::Unavailable, reason));
    }

    Ok(Json(ReadyResponse { ready: true }))
}
