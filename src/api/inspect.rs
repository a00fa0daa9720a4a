//! `GET /v1/inspect/{table}`: stored rows of a table, for diagnosis.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::context::ApiState;
use super::extract::{LastSegment, QueryParams, Tenant, page_limit};
use super::problem::Problem;

/// Tables whose rows belong to no tenant.
const COMMON: [&str; 3] = ["checkpoint", "definition", "meta"];

/// Number of rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct InspectQuery {
    /// Maximum number of rows. Default: 100.
    limit: Option<usize>,
}

/// Rows of a table.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InspectPage {
    table: String,
    rows: Vec<RowView>,
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
    tag = "node",
    params(
        ("table" = String, Path, description = "`saga`, `outbox`, `schedule`, `dedupe`, `deadletter` …"),
        InspectQuery
    ),
    responses((status = 200, description = "Rows ordered by key", body = InspectPage))
)]
pub(super) async fn rows(
    State(api): State<ApiState>,
    Tenant(tenant): Tenant,
    LastSegment(table): LastSegment,
    QueryParams(first): QueryParams<InspectQuery>,
) -> Result<Json<InspectPage>, Problem> {
    let limit = page_limit(first.limit, &api);
    let rows = api.read(move |app| {
        let owner = (!COMMON.contains(&table.as_str())).then_some(&tenant);
        let mut rows = Vec::new();
        for reader in app.runtime.readers() {
            let found = reader.inspect_rows(&table, owner, limit - rows.len())?;
            rows.extend(
                found
                    .into_iter()
                    .map(|row| RowView { key: row.key, value: app.config.redact.redact(row.value) }),
            );
        }
        Ok(InspectPage { table, rows })
    });
    Ok(Json(rows.await?))
}
