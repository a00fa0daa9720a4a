//! `GET /v1/audit`: audit trail, newest first.

use axum::Extension;
use axum::extract::State;
use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::EncodedJson;
use crate::server::parts::access::Access;
use crate::server::problem::{Code, Problem};
use orlog_node::audit::{AuditFilter, Error, FileSet};
use orlog_node::auth::{Caller, Right, TenantScope};

/// Filter of audit records.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Include all tenants and node-wide records, not only the tenant of the request. Contexts of
    /// which the caller is no member are omitted.
    #[serde(default)]
    all: bool,
    /// Return the counts of denied requests instead of records. Requires access to all tenants.
    #[serde(default)]
    denials: bool,
    /// Filter by user.
    user: Option<String>,
    /// Filter by text in the route, for example `/admin/`.
    route: Option<String>,
    /// Filter by outcome: `started`, `succeeded`, `rejected`, `failed` or `unknown`.
    outcome: Option<String>,
    /// Records at or after this time, RFC 3339.
    #[serde(default, deserialize_with = "extract::time")]
    #[param(value_type = Option<String>, format = "date-time")]
    from: Option<Timestamp>,
    /// Maximum number of records. Default: 100.
    limit: Option<usize>,
    /// Cursor of the previous page.
    cursor: Option<String>,
}

/// Records of authorized requests that change state or read exports, backups or the trail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPageView {
    /// Records, newest first.
    items: Vec<Value>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
    /// Sequence of the oldest scanned record that does not match the line before it; null if there
    /// is none.
    broken_at: Option<u64>,
}

/// List the audit trail
///
/// Every authorized request that changes state leaves a record, and so do reads of exports, backups
/// and the trail. Requests that fail authentication or authorization are counted (`denials`). The
/// node that received the request stores the record; this lists the records of one node.
#[utoipa::path(
    get,
    path = "/v1/audit",
    operation_id = "audit",
    tag = "node",
    params(AuditQuery),
    responses((status = 200, description = "Newest first", body = AuditPageView))
)]
pub(crate) async fn list(
    api: RequestContext,
    State(access): State<Access>,
    Tenant(tenant): Tenant,
    Extension(caller): Extension<Caller>,
    QueryParams(search): QueryParams<AuditQuery>,
) -> Result<EncodedJson, Problem> {
    // Counts of denied requests have no tenant, so that they are data of the node.
    if (search.all || search.denials) && caller.tenants != TenantScope::All {
        let detail = "all=true and denials=true require access to all tenants (*)";
        return Err(Problem::new(Code::TenantForbidden, detail));
    }

    let limits = page_limits(search.limit, &api);
    // Access to all tenants does not include contexts whose lists omit the caller.
    let closed =
        (search.all || search.denials).then(|| access.registry().closed_to(&caller, Right::Audit));
    api.read_json(move |scope| {
        let filter = AuditFilter {
            tenant: (!search.all && !search.denials).then(|| tenant.as_str()),
            closed: closed.as_ref(),
            user: search.user.as_deref(),
            route: search.route.as_deref(),
            outcome: search.outcome.as_deref(),
            from_millis: search.from.map(Timestamp::as_millis),
            cursor: search.cursor.as_deref(),
            limit: limits.entries,
            bytes: Some(limits.bytes),
            // A filter can match no record at all, so that the number of scanned lines is limited,
            // too.
            scan: scope.http().scan_limit,
        };

        let set = if search.denials {
            FileSet::Denials
        } else {
            FileSet::Calls
        };
        let page = access
            .audit()
            .read(set, &filter)
            .map_err(|error| match error {
                Error::InvalidCursor(_) => invalid_parameter("cursor", error.to_string()),
                Error::Io(_) => Problem::new(Code::Unavailable, error.to_string()),
            })?;

        Ok(AuditPageView {
            items: page.records,
            next_cursor: page.next.map(|position| limits.list.cursor(&position)),
            broken_at: page.broken_at,
        })
    })
    .await
}
