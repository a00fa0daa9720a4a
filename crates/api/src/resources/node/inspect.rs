//! `GET /v1/inspect/{table}`: stored rows of a table, for diagnosis.

use axum::Extension;
use orlog_model::TenantId;
use orlog_store::InspectQuery;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, NodeAccess, QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder, PageLimits};
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::auth::{Caller, Right};
use orlog_node::sagas::instance_pages::parse_cursor;

/// Number of rows that one read returns: each of them can have several MiB as JSON.
const STEP: usize = 16;
/// Tables whose rows belong to no tenant.
const COMMON: [&str; 3] = ["checkpoint", "definition", "meta"];
/// Common tables with rows of contexts, which can be closed to a caller with access to all tenants.
const OF_ALL_CONTEXTS: [&str; 2] = ["definition", "meta"];

/// Page of rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RowQuery {
    /// Maximum number of rows. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Rows of a table.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InspectPage {
    table: String,
    rows: Vec<RowView>,
    /// Cursor of the next page; null after the last one. A page can be short or empty and still
    /// have a next page.
    next_cursor: Option<String>,
    /// Whether the request scanned `http.scan_limit` rows before it found enough rows.
    scan_limit_reached: bool,
}

/// Row of a table.
#[derive(Debug, Serialize, ToSchema)]
struct RowView {
    /// Key of the row.
    #[schema(example = "saga:acme:order:o-1")]
    key: String,
    /// Stored value as JSON; times in milliseconds since 1970.
    value: Value,
}

/// List rows of a table
#[utoipa::path(
    get,
    path = "/v1/inspect/{table}",
    operation_id = "inspect",
    tag = "node",
    params(
        ("table" = String, Path, description = "`saga`, `outbox`, `schedule`, `dedupe`, \
                                                `deadletter` …"),
        RowQuery
    ),
    responses((status = 200, description = "Rows ordered by key", body = InspectPage))
)]
pub(crate) async fn rows(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Extension(caller): Extension<Caller>,
    NodeAccess(sees_node): NodeAccess,
    LastSegment(table): LastSegment,
    QueryParams(first): QueryParams<RowQuery>,
) -> Result<EncodedJson, Problem> {
    if COMMON.contains(&table.as_str()) && !sees_node {
        let detail = format!(
            "the table {table:?} has data of the node and requires access to all tenants (*)"
        );
        return Err(Problem::new(Code::TenantForbidden, detail));
    }
    // Access to all tenants does not include contexts: their lists can omit the caller.
    if OF_ALL_CONTEXTS.contains(&table.as_str()) && !caller.roles.allow(Right::Admin) {
        let detail = format!(
            "the table {table:?} has the definitions of all contexts and requires an administrator \
             of the node"
        );
        return Err(Problem::new(Code::Forbidden, detail));
    }

    let limits = page_limits(first.limit, &api);
    let (shard, position) = parse_cursor(first.cursor.as_deref())?;
    let position = position.map(hex::decode).transpose();
    let position =
        position.map_err(|_| invalid_parameter("cursor", "not a cursor of this table"))?;

    api.read_json(move |scope| {
        let owner = (!COMMON.contains(&table.as_str())).then_some(&tenant);
        let table = table.as_str();
        rows_of(scope, table, owner, limits, shard, position)
    })
    .await
}

/// Reads the rows of the shards in sequence, starting after a position in one of them, until the
/// page is full.
fn rows_of(
    scope: &ReadScope,
    table: &str,
    tenant: Option<&TenantId>,
    limits: PageLimits,
    first: usize,
    mut after: Option<Vec<u8>>,
) -> Result<InspectPage, Problem> {
    let mut page = PageBuilder::new(limits);
    let mut scan_limit = scope.http().scan_limit;
    let mut rest = None;
    let mut scan_limit_reached = false;
    let shards = scope
        .stores()
        .numbered_readers()
        .skip_while(|(shard, _)| usize::from(*shard) < first);

    'shards: for (shard, reader) in shards {
        // The position belongs to the shard of the cursor, which may have moved to another process.
        if usize::from(shard) != first {
            after = None;
        }
        loop {
            if page.is_full() || scan_limit == 0 {
                let position = after.map(hex::encode).unwrap_or_default();
                rest = Some(format!("{shard}.{position}"));
                scan_limit_reached = !page.is_full();
                break 'shards;
            }

            let query = InspectQuery {
                table,
                tenant,
                after,
                limit: STEP.min(limits.entries),
                scan_limit,
            };
            let found = reader.inspect_page(&query)?;
            scan_limit -= found.scanned;

            for row in found.rows {
                let cursor = format!("{shard}.{}", hex::encode(&row.position));
                let view = RowView {
                    key: row.key,
                    value: scope.redact().redact_row(row.value),
                };
                if !page.push(view, cursor) {
                    break 'shards;
                }
            }

            after = found.next;
            if after.is_none() {
                break;
            }
        }
    }

    let page = page.finish(rest);
    Ok(InspectPage {
        table: table.to_owned(),
        rows: page.entries,
        next_cursor: page.next,
        scan_limit_reached,
    })
}
