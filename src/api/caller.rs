//! `GET /auth/caller`: the caller as the node authenticates it, with its rights and tenants.

use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::{Caller, Right, TenantScope};

/// Caller of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallerView {
    /// User name; null if authentication is off.
    user: Option<String>,
    roles: Vec<&'static str>,
    /// Rights that the roles grant.
    rights: Vec<&'static str>,
    /// Tenants for which the caller may act; null: all tenants and the node.
    tenants: Option<Vec<String>>,
    /// Roles for human tasks.
    task_roles: Vec<String>,
}

/// Show the caller: its user, roles, rights and tenants
#[utoipa::path(
    get,
    path = "/auth/caller",
    tag = "node",
    responses((status = 200, description = "The caller", body = CallerView))
)]
pub(super) async fn show(Extension(caller): Extension<Caller>) -> Json<CallerView> {
    let rights = Right::ALL.into_iter().filter(|right| caller.roles.allow(*right));
    Json(CallerView {
        user: caller.name.clone(),
        roles: caller.roles.names().collect(),
        rights: rights.map(Right::as_str).collect(),
        tenants: match &caller.tenants {
            TenantScope::All => None,
            TenantScope::Only(tenants) => {
                Some(tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect())
            }
        },
        task_roles: caller.task_roles.into_iter().collect(),
    })
}
