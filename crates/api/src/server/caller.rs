//! `GET /auth/caller`: the caller as the node authenticates it, with its rights and tenants.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::parts::access::Access;
use super::{extract, login};
use orlog_node::auth::{Caller, Right, TenantScope};

/// Caller of the request, with its roles in the context of the tenant in `x-tenant-id`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallerView {
    /// User name; null if authentication is off.
    user: Option<String>,
    /// Id of the key that signed the request; null without a signature.
    key: Option<String>,
    roles: Vec<&'static str>,
    /// Rights that the roles grant.
    rights: Vec<&'static str>,
    /// Tenants for which the caller may act; null: all tenants and the node.
    tenants: Option<Vec<String>>,
    /// Roles for human tasks.
    task_roles: Vec<String>,
    /// The user logged in, and can log out with `POST /auth/logout`.
    session: bool,
}

/// Returns a member of the context of the request with its roles there. Other callers are
/// unchanged, so that they cannot find out which contexts exist.
fn in_context(access: &Access, caller: Caller, headers: &HeaderMap) -> Caller {
    let Ok(tenant) = extract::tenant(headers, access.tenants()) else {
        return caller;
    };
    let mut member = caller.clone();
    // While the registry is outdated, the caller is shown as it was authenticated.
    let is_entered = access.registry().enter(&mut member, &tenant).is_ok();
    let is_member = is_entered && member.tenants.contains(&tenant);
    if is_member { member } else { caller }
}

/// Show the caller: its user, roles, rights and tenants
#[utoipa::path(
    get,
    path = "/auth/caller",
    operation_id = "caller",
    tag = "node",
    responses((status = 200, description = "The caller", body = CallerView))
)]
pub(crate) async fn show(
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Json<CallerView> {
    let caller = in_context(&access, caller, &headers);
    let rights = Right::ALL
        .into_iter()
        .filter(|right| caller.roles.allow(*right));
    Json(CallerView {
        user: caller.name.clone(),
        key: caller.key.map(|key| key.to_string()),
        roles: caller.roles.names().collect(),
        rights: rights.map(Right::as_str).collect(),
        tenants: match &caller.tenants {
            TenantScope::All => None,
            TenantScope::Only(tenants) => Some(
                tenants
                    .iter()
                    .map(|tenant| tenant.as_str().to_owned())
                    .collect(),
            ),
        },
        task_roles: caller.task_roles.into_iter().collect(),
        session: access.authenticator().oidc().is_some() && login::has_session(&headers),
    })
}
