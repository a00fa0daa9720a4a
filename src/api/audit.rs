//! `GET /v1/audit`: who did what, newest first.

use axum::extract::State;
use axum::{Extension, Json};
use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{self, Params, Tenant, page_limit};
use super::problem::{Code, Problem};
use crate::audit::{Error, Wanted};
use crate::auth::{Caller, Reach};

/// Which records.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Search {
    /// Those about every tenant and about the node, not only about the tenant of the request.
    #[serde(default)]
    all: bool,
    /// By whom.
    who: Option<String>,
    /// Whose route contains this text, for example `/admin/`.
    route: Option<String>,
    /// `done`, `refused`, `failed` or `unknown`.
    outcome: Option<String>,
    /// Not older than this, RFC 3339.
    #[serde(default, deserialize_with = "extract::time")]
    #[param(value_type = Option<String>)]
    from: Option<Timestamp>,
    /// Records at most; 100 where nothing is said.
    limit: Option<usize>,
    /// Where an earlier page ended.
    cursor: Option<String>,
}

/// Records of calls that changed something, or were refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Records {
    /// Newest first.
    items: Vec<Value>,
    /// For the next page; null where there is none.
    next: Option<String>,
}

/// Who did what
///
/// Every call that changes something leaves a record, also where it was refused. Records are kept by the node that took the call;
/// this shows those of one node.
#[utoipa::path(
    get,
    path = "/v1/audit",
    tag = "node",
    params(Search),
    responses((status = 200, description = "Newest first", body = Records))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Extension(caller): Extension<Caller>,
    Params(search): Params<Search>,
) -> Result<Json<Records>, Problem> {
    if search.all && caller.reach != Reach::All {
        let detail = "all=true takes somebody who may act for all tenants (*)";
        return Err(Problem::new(Code::NotYourTenant, detail));
    }
    let limit = page_limit(search.limit, &api);
    let page = api.read(move |app| {
        let wanted = Wanted {
            tenant: (!search.all).then(|| tenant.as_str()),
            who: search.who.as_deref(),
            route: search.route.as_deref(),
            outcome: search.outcome.as_deref(),
            from_millis: search.from.map(Timestamp::millis),
            cursor: search.cursor.as_deref(),
            limit,
            scan: app.config.http.scan_limit,
        };
        app.audit.read(&wanted).map_err(|error| match error {
            Error::BadCursor(_) => bad_parameter("cursor", error.to_string()),
            Error::Io(_) => Problem::new(Code::Unavailable, error.to_string()),
        })
    });
    let page = page.await?;
    Ok(Json(Records { items: page.records, next: page.next }))
}
