//! `GET /v1/mailboxes`: instances with the most queued inputs.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::context::ApiState;
use crate::api::extract::{QueryParams, Tenant, page_limit};

/// Number of entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MailboxQuery {
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
}

/// Deepest mailboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MailboxPage {
    items: Vec<MailboxView>,
}

/// Mailbox of a live instance.
#[derive(Debug, Serialize, ToSchema)]
struct MailboxView {
    saga: String,
    correlation: String,
    /// Number of queued inputs.
    depth: usize,
}

/// List the live instances with the most queued inputs
#[utoipa::path(
    get,
    path = "/v1/mailboxes",
    operation_id = "mailboxes",
    tag = "sagas",
    params(MailboxQuery),
    responses((status = 200, description = "Deepest first", body = MailboxPage))
)]
pub(crate) async fn deepest(
    api: ApiState,
    Tenant(tenant): Tenant,
    QueryParams(first): QueryParams<MailboxQuery>,
) -> Json<MailboxPage> {
    let limit = page_limit(first.limit, &api);
    let all = api.app.runtime.deepest_mailboxes(usize::MAX).into_iter();
    let items = all
        .filter(|(key, _)| key.tenant == tenant)
        .take(limit)
        .map(|(key, depth)| MailboxView {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            depth,
        });
    Json(MailboxPage {
        items: items.collect(),
    })
}
