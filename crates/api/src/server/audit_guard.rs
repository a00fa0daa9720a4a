//! Audit of requests: the record of an authorized request, and the count of a denied one.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use orlog_bus::membership::Pod;
use orlog_model::{Clock as _, TenantId};

use super::context::SharedState;
use super::extract;
use super::problem::{Code, Problem};
use super::request_info::{NO_ROUTE, known_method, peer};
use orlog_node::audit::{AuditOutcome, AuditRecord, DataEdit, Denial, shortened};
use orlog_node::auth::Caller;
use orlog_node::cluster::pod_client::FORWARDED_BY;
use orlog_node::config::AuthMode;

/// Routes of reads that are recorded: they return the data of many instances, or the trail itself.
const RECORDED_READS: [&str; 3] = ["/v1/export", "/admin/backup/{id}/files/{path}", "/v1/audit"];
/// Route of the stream of a worker. Its record is written when the stream opens.
const STREAM_ROUTE: &str = "/v1/work/exchange";
/// Route that completes a log-in. Only successful ones are recorded, without the code in the query.
const LOGIN_ROUTE: &str = "/auth/callback";
/// Routes of stored data of tenants that the node does not need to accept.
const STORED_TENANT_ROUTES: &str = "/v1/dead-letters";
/// Header with the addresses of a client and of the proxies before the gateway.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Audit record of an authorized request, until [`AuditGuard::end`] writes it. A request whose
/// client disconnects has no end: the drop writes its record, with an unknown outcome.
pub(crate) struct AuditGuard {
    shared: Arc<SharedState>,
    /// `None` once the record is written or abandoned.
    record: Option<Box<AuditRecord>>,
    /// User that the request names, once the handler has read it.
    named_user: Arc<OnceLock<String>>,
    is_change: bool,
    is_login: bool,
}

impl AuditGuard {
    /// Creates the record of a request; `None` if the request is not recorded.
    pub(crate) fn of(
        shared: &Arc<SharedState>,
        route: &str,
        id: &HeaderValue,
        request: &mut Request,
    ) -> Option<Self> {
        // A worker completes jobs in the stream that it opens.
        let is_change = !request.method().is_safe() || route == STREAM_ROUTE;
        let is_login = route == LOGIN_ROUTE;
        // An unknown route changes nothing, and any client could fill the trail with such requests.
        let is_recorded =
            route != NO_ROUTE && (is_change || is_login || RECORDED_READS.contains(&route));
        is_recorded.then(|| {
            let record = Some(Box::new(record(shared, route, id, request)));
            let named_user = Arc::<OnceLock<String>>::default();
            // The body is read later: `check_user` returns the user that it names through this
            // cell.
            if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
                caller.named_user = Some(Arc::clone(&named_user));
            }

            Self {
                shared: Arc::clone(shared),
                record,
                named_user,
                is_change,
                is_login,
            }
        })
    }

    /// Makes the start of a change durable if the configuration requires its record.
    ///
    /// # Errors
    /// If the record cannot be made durable. The request must not be executed.
    pub(crate) async fn begin(mut self) -> Result<Self, Problem> {
        let config = &self.shared.app.config.audit;
        if let Some(record) = &mut self.record
            && config.required
            && self.is_change
            && !config.exclude_routes.contains(&record.route)
        {
            // Durable before the change: a crash in between leaves a record of what may have
            // happened.
            record.outcome = AuditOutcome::Started;
            // A disk that does not respond must not hold the request without end.
            let limit = self.shared.app.config.http.request_timeout;
            let begun = tokio::time::timeout(limit, self.shared.app.audit.begin(record)).await;
            if begun != Ok(Ok(())) {
                // The drop would otherwise record a change that is not executed.
                self.record = None;
                let detail = "the audit trail cannot be written; audit.required rejects changes \
                              without a record";
                return Err(Problem::new(Code::AuditUnavailable, detail));
            }

            // A request whose handler is dropped writes this record: its client is gone, its change
            // may be durable.
            record.outcome = AuditOutcome::Unknown;
        }

        Ok(self)
    }

    /// Writes the record with the response. A log-in without success, and the success of an
    /// excluded route, are not recorded.
    pub(crate) fn end(mut self, response: &Response) {
        let Some(mut record) = self.record.take() else {
            return;
        };

        // A log-in has no caller before its handler, so that its response carries the user.
        let user = response.extensions().get::<Caller>();
        if let Some(user) = user {
            record.user = user.name.as_deref().map(shortened);
            record.role = Some(user.roles.clone());
        }

        record.named_user = self.named_user.get().map(|named| shortened(named));
        record.status = response.status().as_u16();
        record.outcome = AuditOutcome::of(record.status);
        record.code = response
            .extensions()
            .get::<Code>()
            .map(|code| code.as_str());
        record.edit = response.extensions().get::<DataEdit>().cloned();

        // An exclusion removes noise; a failure on the same route is what an auditor looks for.
        let excluded = &self.shared.app.config.audit.exclude_routes;
        let is_excluded =
            record.outcome == AuditOutcome::Succeeded && excluded.contains(&record.route);
        if !is_excluded && (user.is_some() || !self.is_login) {
            self.shared.app.audit.record(&record);
        }
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take().filter(|_| !self.is_login) {
            record.named_user = self.named_user.get().map(|named| shortened(named));
            self.shared.app.audit.record(&record);
        }
    }
}

/// Counts a request that failed authentication or authorization.
pub(super) fn deny(shared: &SharedState, route: &str, request: &Request, response: &Response) {
    shared.app.audit.deny(Denial {
        route: route_of(route, request),
        status: response.status().as_u16(),
        code: response
            .extensions()
            .get::<Code>()
            .map(|code| code.as_str()),
        user: caller(request)
            .and_then(|caller| caller.name.as_deref())
            .map(shortened),
        source: source(request),
    });
}

fn record(shared: &SharedState, route: &str, id: &HeaderValue, request: &Request) -> AuditRecord {
    let caller = caller(request);
    let user = caller.and_then(|caller| caller.name.as_deref());
    // Any client can send these headers. Only those that passed the gateway are facts.
    let key = caller.and_then(|caller| caller.key);
    let is_trusted =
        shared.app.config.auth.mode == AuthMode::Gateway && user.is_some() && key.is_none();

    AuditRecord {
        id: uuid::Uuid::now_v7(),
        at: orlog_node::clock::SystemClock.now().to_string(),
        user: user.map(shortened),
        key: key.map(|key| key.to_string()),
        named_user: None,
        role: user.and(caller).map(|caller| caller.roles.clone()),
        tenant: route
            .starts_with("/v1/")
            .then(|| tenant(shared, route, request))
            .flatten(),
        route: route_of(route, request),
        // The query of a log-in contains the code of the provider.
        target: shortened(match request.uri().path_and_query() {
            Some(target) if route != LOGIN_ROUTE => target.as_str(),
            _ => request.uri().path(),
        }),
        outcome: AuditOutcome::Unknown,
        status: 0,
        code: None,
        request_id: id.to_str().unwrap_or_default().to_owned(),
        source: source(request),
        forwarded_for: is_trusted.then(|| forwarded_for(request)).flatten(),
        forwarded_by: forwarded_by(request).filter(|pod| {
            is_trusted || is_pod(&shared.app.routing.other_pods(), pod, source(request))
        }),
        node: shared.app.config.node_name(),
        edit: None,
    }
}

/// Returns the tenant that the handler resolves. The handler rejects a request whose tenant is
/// invalid.
fn tenant(shared: &SharedState, route: &str, request: &Request) -> Option<String> {
    let tenant: Option<TenantId> = if route.starts_with(STORED_TENANT_ROUTES) {
        extract::stored_tenant(request.headers()).ok()
    } else {
        extract::tenant(request.headers(), &shared.app.tenants).ok()
    };
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

/// Returns the last address of the list, which the gateway has added. The client can send those
/// before it.
fn forwarded_for(request: &Request) -> Option<IpAddr> {
    let last = request
        .headers()
        .get_all(FORWARDED_FOR)
        .iter()
        .next_back()?;
    last.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
}

/// Returns whether one of the pods has this name and this IP address. A pod with a DNS name has an
/// unknown address.
fn is_pod(pods: &[Pod], name: &str, source: Option<IpAddr>) -> bool {
    let address = |pod: &Pod| {
        Uri::from_str(&pod.url)
            .ok()?
            .host()?
            .trim_matches(['[', ']'])
            .parse()
            .ok()
    };
    source.is_some()
        && pods
            .iter()
            .any(|pod| pod.name == name && address(pod) == source)
}

fn forwarded_by(request: &Request) -> Option<String> {
    let pod = request.headers().get(FORWARDED_BY)?;
    Some(shortened(&String::from_utf8_lossy(pod.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_pod_is_recorded_only_if_the_connection_comes_from_its_address() {
        let pod = |name: &str, url: &str| Pod {
            name: name.to_owned(),
            incarnation: uuid::Uuid::nil(),
            url: url.to_owned(),
            draining: false,
            node_keys: Vec::new(),
        };
        let pods = [
            pod("a", "http://10.1.2.3:7070"),
            pod("b", "http://[fd00::1]:7070"),
            pod("c", "http://c.pods:7070"),
        ];
        let check = |name: &str, source: &str| is_pod(&pods, name, source.parse().ok());
        assert!(check("a", "10.1.2.3") && check("b", "fd00::1"));
        assert!(!check("a", "10.1.2.4") && !check("b", "10.1.2.3") && !check("x", "10.1.2.3"));
        assert!(
            !check("c", "10.1.2.3") && !check("c", ""),
            "its address is unknown"
        );
    }
}
