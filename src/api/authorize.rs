//! At the door: who calls, whether they may, and the record of what they did.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use orlog_model::{Clock as _, TenantId};

use super::context::Api;
use super::extract::TENANT_HEADER;
use super::forward::FORWARDED_BY;
use super::permissions::{self, Right};
use super::problem::{Code, Problem};
use crate::audit::{Outcome, Record};
use crate::auth::{Caller, Denied, NotTheirs, Reach, Role, Shown};

/// What observe calls a path that leads nowhere.
pub(super) const NO_ROUTE: &str = "none";
/// The longest text of a request that a record repeats, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Lets a request in or refuses it, and keeps a record where it changes something.
pub(super) async fn guarded<F>(
    api: &Api,
    (route, id): (&str, &HeaderValue),
    mut request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let mut entry = Entry::of(api, route, id, &request);
    let response = match admit(api, route, &mut request, entry.as_mut()).await {
        Ok(()) => answer(request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(entry) = entry {
        entry.end(&response);
    }
    response
}

async fn admit(
    api: &Api,
    route: &str,
    request: &mut Request,
    entry: Option<&mut Entry>,
) -> Result<(), Problem> {
    let access = &api.app.access;
    if !access.asks() || route == NO_ROUTE {
        request.extensions_mut().insert(Caller::anybody());
        return Ok(());
    }
    let right = permissions::of(request.method().as_str(), route, &api.app.config.auth.public);
    let (Right::Tenant(needed) | Right::Node(needed)) = right else { return Ok(()) };
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let source = peer(request).map(|peer| peer.ip());
    let caller = access.caller(&Shown { headers, source }).await?;
    if let Some(name) = &caller.name {
        tracing::Span::current().record("who", name);
    }
    if let Some(entry) = entry {
        (entry.record.who, entry.record.role) = (caller.name.clone(), caller.role);
    }
    has_role(&caller, needed)?;
    match right {
        Right::Node(_) if caller.reach != Reach::All => {
            let detail = "this is about the whole node, and takes somebody who may act for all tenants (*)";
            return Err(Problem::new(Code::NotYourTenant, detail));
        }
        Right::Tenant(_) => acts_for(&caller, request.headers_mut())?,
        Right::Node(_) | Right::Open => {}
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn has_role(caller: &Caller, needed: Role) -> Result<(), Problem> {
    if caller.role >= Some(needed) {
        return Ok(());
    }
    let name = caller.name.as_deref().unwrap_or("the caller");
    let has = caller.role.map_or_else(|| "none".to_owned(), |role| role.as_str().to_owned());
    let detail = format!("this takes the role {}; that of {name} is {has}", needed.as_str());
    Err(Problem::new(Code::Forbidden, detail))
}

/// Refuses tenants that are not the caller's; who names none means the only one they have.
fn acts_for(caller: &Caller, headers: &mut HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(TENANT_HEADER)
        && let Some(only) = caller.reach.only()
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
        // What no tenant can be is nobody's; the handler says so.
        let tenant = std::str::from_utf8(value.as_bytes()).ok().and_then(|text| TenantId::new(text).ok());
        if let Some(tenant) = tenant.filter(|tenant| !caller.reach.has(tenant)) {
            let detail = match tenant.as_str() {
                "" => {
                    format!("the caller may not act for the default tenant; name a tenant in {TENANT_HEADER}")
                }
                name => format!("the caller may not act for the tenant {name:?}"),
            };
            return Err(Problem::new(Code::NotYourTenant, detail));
        }
    }
    Ok(())
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let code = match &denied {
            Denied::Nobody(_) => Code::NoCaller,
            Denied::Disbelieved(_) => Code::BadCaller,
            Denied::Unknowable(_) => Code::Unavailable,
        };
        Problem::new(code, denied.to_string())
    }
}

impl From<NotTheirs> for Problem {
    fn from(error: NotTheirs) -> Self {
        Problem::new(Code::Forbidden, error.to_string())
    }
}

fn peer(request: &Request) -> Option<SocketAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.0)
}

/// A record that is kept when it is dropped.
struct Entry {
    api: Api,
    record: Record,
}

impl Entry {
    /// `None` for what changes nothing.
    fn of(api: &Api, route: &str, id: &HeaderValue, request: &Request) -> Option<Self> {
        let method = request.method();
        if route == NO_ROUTE || [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return None;
        }
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(shortened(&String::from_utf8_lossy(value.as_bytes())))
        };
        let of_tenant = route.starts_with("/v1/");
        let record = Record {
            id: uuid::Uuid::now_v7(),
            at: crate::clock::SystemClock.now().to_string(),
            who: None,
            role: None,
            tenant: of_tenant.then(|| text(TENANT_HEADER).unwrap_or_default()),
            route: format!("{method} {route}"),
            target: shortened(request.uri().path_and_query().map_or("", |target| target.as_str())),
            outcome: Outcome::Unknown,
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
        self.record.outcome = Outcome::of(self.record.status);
        self.record.code = response.extensions().get::<Code>().map(|code| code.as_str());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let except = &self.api.app.config.audit.except;
        if self.record.outcome != Outcome::Done || !except.contains(&self.record.route) {
            self.api.app.audit.keep(&self.record);
        }
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
