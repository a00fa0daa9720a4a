//! `GET /v1/mailboxes`: which instances have the most inputs waiting.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::extract::{Params, Tenant, page_limit};

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct First {
    /// Entries at most; 100 where nothing is said.
    limit: Option<usize>,
}

/// The deepest mailboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Mailboxes {
    items: Vec<Mailbox>,
}

/// The mailbox of a live instance.
#[derive(Debug, Serialize, ToSchema)]
struct Mailbox {
    saga: String,
    correlation: String,
    /// Inputs that wait.
    depth: usize,
}

/// The live instances with the most inputs waiting
#[utoipa::path(
    get,
    path = "/v1/mailboxes",
    tag = "sagas",
    params(First),
    responses((status = 200, description = "Deepest first", body = Mailboxes))
)]
pub(super) async fn deepest(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(first): Params<First>,
) -> Json<Mailboxes> {
    let limit = page_limit(first.limit, &api);
    let all = api.app.runtime.deepest_mailboxes(usize::MAX).into_iter();
    let items = all.filter(|(key, _)| key.tenant == tenant).take(limit).map(|(key, depth)| Mailbox {
        saga: key.saga.to_string(),
        correlation: key.correlation.to_string(),
        depth,
    });
    Json(Mailboxes { items: items.collect() })
}
