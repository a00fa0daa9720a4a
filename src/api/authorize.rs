//! Authorization of requests: authenticates the caller, checks permissions, and audits changes.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use orlog_model::{Clock as _, TenantId};

use super::context::ApiState;
use super::extract::TENANT_HEADER;
use super::forward::FORWARDED_BY;
use super::origin;
use super::permissions::{self, Permission};
use super::problem::{Code, Problem};
use crate::audit::{AuditOutcome, AuditRecord};
use crate::auth::{AuthError, Caller, ImpersonationError, RequestCredentials, Right, Role, TenantScope};

/// Label of an unknown route.
pub(super) const NO_ROUTE: &str = "none";
/// Maximum length of request text in an audit record, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Address of the connected client.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

/// Accepts or rejects a request, and audits requests that change state.
pub(super) async fn authorize<F>(
    api: &ApiState,
    (route, id): (&str, &HeaderValue),
    mut request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let mut entry = AuditGuard::of(api, route, id, &request);
    let response = match admit(api, route, &mut request, entry.as_mut()).await {
        Ok(()) => handler(request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(entry) = entry {
        entry.end(&response);
    }
    response
}

async fn admit(
    api: &ApiState,
    route: &str,
    request: &mut Request,
    entry: Option<&mut AuditGuard>,
) -> Result<(), Problem> {
    origin::check(&api.hosts, (route, request.method(), request.uri()), request.headers())?;
    let access = &api.app.authenticator;
    if !access.is_enabled() || route == NO_ROUTE {
        request.extensions_mut().insert(Caller::unauthenticated());
        return Ok(());
    }
    let right = permissions::required_permission(
        request.method().as_str(),
        route,
        &api.app.config.auth.public_routes,
    );
    let (Permission::Tenant(needed) | Permission::Node(needed)) = right else { return Ok(()) };
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let source = peer(request).map(|peer| peer.ip());
    let caller = access.authenticate(&RequestCredentials { headers, source }).await?;
    if let Some(name) = &caller.name {
        tracing::Span::current().record("who", name);
    }
    if let Some(entry) = entry {
        (entry.record.user, entry.record.role) = (caller.name.clone(), Some(caller.roles.clone()));
    }
    has_right(&caller, needed)?;
    match right {
        Permission::Node(_) if caller.tenants != TenantScope::All => {
            let detail = "this route affects the whole node and requires access to all tenants (*)";
            return Err(Problem::new(Code::TenantForbidden, detail));
        }
        Permission::Tenant(_) => acts_for(&caller, request.headers_mut())?,
        Permission::Node(_) | Permission::Public => {}
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn has_right(caller: &Caller, needed: Right) -> Result<(), Problem> {
    if caller.roles.allow(needed) {
        return Ok(());
    }
    let name = caller.name.as_deref().unwrap_or("the caller");
    let granting: Vec<_> = Role::all().filter(|role| role.allows(needed)).map(Role::as_str).collect();
    let detail = format!(
        "this requires the right {:?}; roles that grant it: {}; roles of {name}: {}",
        needed.as_str(),
        granting.join(", "),
        caller.roles
    );
    Err(Problem::new(Code::Forbidden, detail))
}

/// Rejects tenants that the caller may not access. Without a named tenant, the only tenant of the
/// caller applies.
fn acts_for(caller: &Caller, headers: &mut HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(TENANT_HEADER)
        && let Some(only) = caller.tenants.single_tenant()
        && let Ok(only) = HeaderValue::from_str(only.as_str())
    {
        headers.insert(TENANT_HEADER, only);
    }
    let absent = HeaderValue::from_static("");
    let mut named: Vec<&HeaderValue> = headers.get_all(TENANT_HEADER).iter().collect();
    if named.is_empty() {
        named.push(&absent);
    }
    for value in named {
        // An invalid tenant id belongs to no tenant; the handler rejects it.
        let tenant = std::str::from_utf8(value.as_bytes()).ok().and_then(|text| TenantId::new(text).ok());
        if let Some(tenant) = tenant.filter(|tenant| !caller.tenants.contains(tenant)) {
            let detail = match tenant.as_str() {
                "" => {
                    format!("no access to the default tenant; set a tenant in {TENANT_HEADER}")
                }
                name => format!("no access to the tenant {name:?}"),
            };
            return Err(Problem::new(Code::TenantForbidden, detail));
        }
    }
    Ok(())
}

impl From<AuthError> for Problem {
    fn from(denied: AuthError) -> Self {
        let code = match &denied {
            AuthError::Missing(_) => Code::Unauthenticated,
            AuthError::Invalid(_) => Code::InvalidCredentials,
            AuthError::Unavailable(_) => Code::Unavailable,
        };
        Problem::new(code, denied.to_string())
    }
}

impl From<ImpersonationError> for Problem {
    fn from(error: ImpersonationError) -> Self {
        Problem::new(Code::Forbidden, error.to_string())
    }
}

fn peer(request: &Request) -> Option<SocketAddr> {
    request.extensions().get::<PeerAddress>().map(|peer| peer.0)
}

/// Audit record that is written on drop.
struct AuditGuard {
    api: ApiState,
    record: AuditRecord,
}

impl AuditGuard {
    /// Creates the guard; `None` if the request changes nothing.
    fn of(api: &ApiState, route: &str, id: &HeaderValue, request: &Request) -> Option<Self> {
        let method = request.method();
        if route == NO_ROUTE || [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return None;
        }
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(shortened(&String::from_utf8_lossy(value.as_bytes())))
        };
        let of_tenant = route.starts_with("/v1/");
        let record = AuditRecord {
            id: uuid::Uuid::now_v7(),
            at: crate::clock::SystemClock.now().to_string(),
            user: None,
            role: None,
            tenant: of_tenant.then(|| text(TENANT_HEADER).unwrap_or_default()),
            route: format!("{method} {route}"),
            target: shortened(request.uri().path_and_query().map_or("", |target| target.as_str())),
            outcome: AuditOutcome::Unknown,
            status: 0,
            code: None,
            request_id: id.to_str().unwrap_or_default().to_owned(),
            source: peer(request).map(|peer| peer.ip().to_string()),
            forwarded_for: text("x-forwarded-for"),
            forwarded_by: text(FORWARDED_BY.as_str()),
            node: api.app.config.node_name(),
        };
        Some(Self { api: api.clone(), record })
    }

    fn end(mut self, response: &Response) {
        self.record.status = response.status().as_u16();
        self.record.outcome = AuditOutcome::of(self.record.status);
        self.record.code = response.extensions().get::<Code>().map(|code| code.as_str());
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        let except = &self.api.app.config.audit.exclude_routes;
        if self.record.outcome != AuditOutcome::Succeeded || !except.contains(&self.record.route) {
            self.api.app.audit.record(&self.record);
        }
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
