//! Audit of requests: the record of an authorized request, and the count of a denied one.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use orlog_model::{Clock as _, TenantId};

use super::context::ApiState;
use super::extract;
use super::problem::{Code, Problem};
use super::request_info::{FORWARDED_BY, NO_ROUTE, known_method, peer};
use crate::audit::{AuditOutcome, AuditRecord, Denial, shortened};
use crate::auth::Caller;
use crate::config::AuthMode;

/// Routes of reads that are recorded: they return the data of many instances, or the trail itself.
const RECORDED_READS: [&str; 3] = ["/v1/export", "/admin/backup/{id}/files/{path}", "/v1/audit"];
/// Header with the addresses of a client and of the proxies before the gateway.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Audit record of an authorized request. It is written on drop, also if the client disconnects.
pub(super) struct AuditGuard {
    api: ApiState,
    record: AuditRecord,
    is_change: bool,
    /// Whether the request was not executed because its record cannot be made durable.
    is_rejected: bool,
}

impl AuditGuard {
    /// Creates the record of a request; `None` if the request is not recorded.
    pub(super) fn of(api: &ApiState, route: &str, id: &HeaderValue, request: &Request) -> Option<Self> {
        let is_change = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        let is_recorded = route != NO_ROUTE && (is_change || RECORDED_READS.contains(&route));
        is_recorded.then(|| {
            let record = record(api, route, id, request);
            Self { api: api.clone(), record, is_change, is_rejected: false }
        })
    }

    /// Makes the start of a change durable if the configuration requires its record.
    ///
    /// # Errors
    /// If the record cannot be made durable. The request must not be executed.
    pub(super) async fn begin(mut self) -> Result<Self, Problem> {
        let config = &self.api.app.config.audit;
        if config.required && self.is_change && !config.exclude_routes.contains(&self.record.route) {
            self.record.outcome = AuditOutcome::Started;
            let limit = self.api.app.config.http.request_timeout;
            let begun = tokio::time::timeout(limit, self.api.app.audit.begin(&self.record)).await;
            if begun != Ok(Ok(())) {
                self.is_rejected = true;
                let detail =
                    "the audit trail cannot be written; audit.required rejects changes without a record";
                return Err(Problem::new(Code::AuditUnavailable, detail));
            }
            self.record.outcome = AuditOutcome::Unknown;
        }
        Ok(self)
    }

    /// Ends the record with a response, and returns the response.
    pub(super) fn end(mut self, response: Response) -> Response {
        self.record.status = response.status().as_u16();
        self.record.outcome = AuditOutcome::of(self.record.status);
        self.record.code = response.extensions().get::<Code>().map(|code| code.as_str());
        response
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        let except = &self.api.app.config.audit.exclude_routes;
        let is_excluded =
            self.record.outcome == AuditOutcome::Succeeded && except.contains(&self.record.route);
        if !is_excluded && !self.is_rejected {
            self.api.app.audit.record(&self.record);
        }
    }
}

/// Counts a request that failed authentication or authorization.
pub(super) fn deny(api: &ApiState, route: &str, request: &Request, response: &Response) {
    api.app.audit.deny(Denial {
        route: route_of(route, request),
        status: response.status().as_u16(),
        code: response.extensions().get::<Code>().map(|code| code.as_str()),
        user: caller(request).and_then(|caller| caller.name.as_deref()).map(shortened),
        source: source(request),
    });
}

fn record(api: &ApiState, route: &str, id: &HeaderValue, request: &Request) -> AuditRecord {
    let caller = caller(request);
    let user = caller.and_then(|caller| caller.name.as_deref());
    // Any client can send these headers. Only those that passed the gateway are facts.
    let is_trusted = api.app.config.auth.mode == AuthMode::Gateway && user.is_some();
    AuditRecord {
        id: uuid::Uuid::now_v7(),
        at: crate::clock::SystemClock.now().to_string(),
        user: user.map(shortened),
        role: user.and(caller).map(|caller| caller.roles.clone()),
        tenant: route.starts_with("/v1/").then(|| tenant(api, request)).flatten(),
        route: route_of(route, request),
        target: shortened(request.uri().path_and_query().map_or("", |target| target.as_str())),
        outcome: AuditOutcome::Unknown,
        status: 0,
        code: None,
        request_id: id.to_str().unwrap_or_default().to_owned(),
        source: source(request),
        forwarded_for: is_trusted.then(|| forwarded_for(request)).flatten(),
        forwarded_by: is_trusted.then(|| forwarded_by(request)).flatten(),
        node: api.app.config.node_name(),
    }
}

/// Returns the tenant that the handler resolves. The handler rejects a request whose tenant is invalid.
fn tenant(api: &ApiState, request: &Request) -> Option<String> {
    let tenant: Option<TenantId> = extract::tenant(request.headers(), api).ok();
    tenant.map(|tenant| tenant.as_str().to_owned())
}

fn caller(request: &Request) -> Option<&Caller> {
    request.extensions().get::<Caller>()
}

fn source(request: &Request) -> Option<IpAddr> {
    peer(request).map(|peer| peer.ip().to_canonical())
}

/// Returns the method and the route, both from a bounded number of values.
fn route_of(route: &str, request: &Request) -> String {
    format!("{} {route}", known_method(request.method().as_str()))
}

/// Returns the last address of the list, which the gateway has added. The client can send those before it.
fn forwarded_for(request: &Request) -> Option<IpAddr> {
    let last = request.headers().get_all(FORWARDED_FOR).iter().next_back()?;
    last.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
}

fn forwarded_by(request: &Request) -> Option<String> {
    let pod = request.headers().get(FORWARDED_BY)?;
    Some(shortened(&String::from_utf8_lossy(pod.as_bytes())))
}
