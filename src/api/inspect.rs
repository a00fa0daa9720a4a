//! `GET /v1/inspect/{table}`: the rows of a table as they are stored, for whoever looks for a fault.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::extract::{Params, Part, Tenant, page_limit};
use super::problem::Problem;

/// Tables whose rows belong to no tenant.
const COMMON: [&str; 3] = ["checkpoint", "definition", "meta"];

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct First {
    /// Rows at most; 100 where nothing is said.
    limit: Option<usize>,
}

/// Rows of a table.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rows {
    table: String,
    rows: Vec<Row>,
}

/// A row.
#[derive(Debug, Serialize, ToSchema)]
struct Row {
    /// What it is about.
    #[schema(example = "saga:acme:order:o-1")]
    key: String,
    /// What is stored, as JSON; times in milliseconds since 1970.
    value: Value,
}

/// The first rows of a table
#[utoipa::path(
    get,
    path = "/v1/inspect/{table}",
    tag = "node",
    params(
        ("table" = String, Path, description = "`saga`, `outbox`, `schedule`, `dedupe`, `deadletter` …"),
        First
    ),
    responses((status = 200, description = "In the order of their keys", body = Rows))
)]
pub(super) async fn rows(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(table): Part,
    Params(first): Params<First>,
) -> Result<Json<Rows>, Problem> {
    let limit = page_limit(first.limit, &api);
    let rows = api.read(move |app| {
        let owner = (!COMMON.contains(&table.as_str())).then_some(&tenant);
        let mut rows = Vec::new();
        for reader in app.runtime.readers() {
            let found = reader.rows(&table, owner, limit - rows.len())?;
            rows.extend(
                found.into_iter().map(|row| Row { key: row.key, value: app.config.redact.shown(row.value) }),
            );
        }
        Ok(Rows { table, rows })
    });
    Ok(Json(rows.await?))
}
