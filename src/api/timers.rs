//! `GET /v1/timers`: what falls due next.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::extract::{Params, Tenant, page_limit};
use super::problem::Problem;

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct First {
    /// Entries at most; 100 where nothing is said.
    limit: Option<usize>,
}

/// The timers that fall due first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Timers {
    items: Vec<ArmedTimer>,
}

/// A timer that is armed.
#[derive(Debug, Serialize, ToSchema)]
struct ArmedTimer {
    due: String,
    name: String,
    saga: String,
    correlation: String,
    /// The state version that armed it.
    token: u64,
}

/// The timers that fall due first
#[utoipa::path(
    get,
    path = "/v1/timers",
    tag = "timers",
    params(First),
    responses((status = 200, description = "In the order in which they fall due", body = Timers))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(first): Params<First>,
) -> Result<Json<Timers>, Problem> {
    let limit = page_limit(first.limit, &api);
    let timers = api.read(move |app| {
        let mut timers = Vec::new();
        for reader in app.runtime.readers() {
            timers.extend(reader.timers(Some(&tenant), limit)?);
        }
        timers.sort_by_key(|(_, timer)| timer.due);
        timers.truncate(limit);
        Ok(timers)
    });
    let items = timers.await?.into_iter().map(|(key, timer)| ArmedTimer {
        due: timer.due.to_string(),
        name: timer.name.to_string(),
        saga: key.saga.to_string(),
        correlation: key.correlation.to_string(),
        token: timer.token,
    });
    Ok(Json(Timers { items: items.collect() }))
}
