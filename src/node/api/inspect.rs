//! `GET /v1/inspect/{table}`: stored rows of a table, for diagnosis.

use axum::Json;
use orlog_store::InspectRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::api::context::ApiState;
use crate::api::extract::{LastSegment, NodeAccess, QueryParams, Tenant, page_limit};
use crate::api::problem::{Code, Problem};

/// Tables whose rows belong to no tenant.
const COMMON: [&str; 3] = ["checkpoint", "definition", "meta"];

/// Number of rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InspectQuery {
    /// Maximum number of rows. Default: 100.
    limit: Option<usize>,
}

/// Rows of a table.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InspectPage {
    table: String,
    rows: Vec<RowView>,
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

/// List the first rows of a table
#[utoipa::path(
    get,
    path = "/v1/inspect/{table}",
    operation_id = "inspect",
    tag = "node",
    params(
        ("table" = String, Path, description = "`saga`, `outbox`, `schedule`, `dedupe`, `deadletter` …"),
        InspectQuery
    ),
    responses((status = 200, description = "Rows ordered by key", body = InspectPage))
)]
pub(crate) async fn rows(
    api: ApiState,
    Tenant(tenant): Tenant,
    NodeAccess(sees_node): NodeAccess,
    LastSegment(table): LastSegment,
    QueryParams(first): QueryParams<InspectQuery>,
) -> Result<Json<InspectPage>, Problem> {
    let limit = page_limit(first.limit, &api);
    if COMMON.contains(&table.as_str()) && !sees_node {
        let detail = format!(
            "the table {table:?} has data of the node and requires access to all tenants (*)"
        );
        return Err(Problem::new(Code::TenantForbidden, detail));
    }
    let rows = api.read(move |app| {
        let owner = (!COMMON.contains(&table.as_str())).then_some(&tenant);
        let (mut rows, mut scan_limit) = (Vec::new(), app.config.http.scan_limit);
        let mut scan_limit_reached = false;
        for reader in app.readers() {
            let page = reader.inspect_page(&table, owner, limit - rows.len(), scan_limit)?;
            scan_limit -= page.scanned;
            scan_limit_reached |= page.is_cut;
            let view = |row: InspectRow| RowView {
                key: row.key,
                value: app.config.redact.redact_row(row.value),
            };
            rows.extend(page.rows.into_iter().map(view));
        }
        Ok(InspectPage {
            table,
            rows,
            scan_limit_reached,
        })
    });
    Ok(Json(rows.await?))
}
