//! Authorization of requests: authenticates the caller, checks permissions, and starts the audit
//! record.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRef, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use orlog_signature::RequestSignature;

use super::admission::{self, Admission};
use super::audit_guard::{self, AuditGuard};
use super::connections::network;
use super::context::{ApiState, RequestContext, RequestScope, SharedState};
use super::login;
use super::origin;
use super::parts::access::Access;
use super::permissions::{self, Permission};
use super::pod_sender;
use super::problem::{Code, Problem};
use super::quotas::{CallerKey, RequestPermit};
use super::request_info::{ENROLL_ROUTE, NO_ROUTE, WEBHOOK_ROUTE, is_over_nats, peer};
use super::signed_request::{self, VerifiedCaller};
use orlog_node::auth::{
    AuthError, Authenticator, Caller, ImpersonationError, RequestCredentials, SignatureRejection,
};

/// Header of a response without authentication: the path that starts a log-in.
const LOGIN_HEADER: HeaderName = HeaderName::from_static("x-orlog-login");

/// Routes without quotas, so that health checks and metrics work while a caller exceeds its quotas.
const UNLIMITED_ROUTES: [&str; 3] = ["/health", "/ready", "/metrics"];

/// Accepts or rejects a request, applies the quotas of its caller, and audits it: changes,
/// sensitive reads, and denials. A denied request counts like another one, and is charged before it
/// stores anything.
pub(crate) async fn authorize<F>(
    api: &ApiState,
    route: &str,
    id: &HeaderValue,
    mut request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let identified = identify(api, route, &mut request).await;
    // A denied request is charged, too: otherwise a caller without rights could send any number.
    // The charge needs the caller, and precedes the nonce that an accepted signature stores.
    let permit = match charge(api, route, &request) {
        Ok(permit) => permit,
        Err(problem) => return problem.into_response(),
    };
    let admitted = match identified {
        Ok(identity) => admit(api, identity, &mut request).await,
        Err(problem) => Err(problem),
    };
    if let Err(problem) = admitted {
        // Any party can repeat a recorded request, so that the owner of the key must not be charged
        // for it.
        let is_repeated = problem.code() == Code::SignatureReplayed;
        if is_repeated && let Err(problem) = charge_address(api, &request, permit) {
            return problem.into_response();
        }

        let mut response = problem.into_response();
        if response.status() == StatusCode::UNAUTHORIZED
            && api.shared.app.authenticator.oidc().is_some()
        {
            response
                .headers_mut()
                .insert(LOGIN_HEADER, HeaderValue::from_static(login::LOGIN_PATH));
        }

        audit_guard::deny(&api.shared, route, &request, &response);
        return response;
    }

    let Some(permit) = permit else {
        return audit(&api.shared, route, id, request, handler).await;
    };

    if let Some(scope) = request.extensions_mut().get_mut::<RequestScope>() {
        // Bodies and reads of the handler now use the shares of this caller.
        scope.caller = Some(permit.budgets.clone());
    }
    let admission = request.extensions().get::<Admission>().cloned();
    let response = if matches!(route, WEBHOOK_ROUTE | ENROLL_ROUTE) {
        // Anyone can send such a request: the handler audits it when the signature or the token is
        // valid.
        handler(request).await
    } else {
        audit(&api.shared, route, id, request, handler).await
    };
    // The handler has ended; the transfer of the body occupies only the connection.
    drop(permit);

    withhold(api, admission, response)
}

/// Handles a request that its handler has authenticated, with its audit record.
pub(crate) async fn audit_authenticated<F>(
    api: &RequestContext,
    route: &str,
    id: &HeaderValue,
    request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    audit(&api.shared, route, id, request, handler).await
}

/// Records the denial of a request whose caller its handler cannot authenticate.
pub(crate) fn deny_unauthenticated(
    api: &RequestContext,
    route: &str,
    request: &Request,
    response: &Response,
) {
    audit_guard::deny(&api.shared, route, request, response);
}

/// Handles an authorized request, with its audit record.
async fn audit<F>(
    shared: &Arc<SharedState>,
    route: &str,
    id: &HeaderValue,
    mut request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let Some(entry) = AuditGuard::of(shared, route, id, &mut request) else {
        return handler(request).await;
    };
    match entry.begin().await {
        Ok(entry) => {
            let response = handler(request).await;
            entry.end(&response);
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// Begins the request of its caller, also of one that will be denied: a denial has a cost, too.
/// `None` if no quota applies.
fn charge(
    api: &ApiState,
    route: &str,
    request: &Request,
) -> Result<Option<RequestPermit>, Problem> {
    // An accepted signature stores a nonce, also on the route of the metrics.
    let is_unlimited =
        UNLIMITED_ROUTES.contains(&route) && !signed_request::is_signed(request.headers());
    if is_unlimited {
        return Ok(None);
    }

    api.shared
        .quotas
        .begin(caller_key(request), Instant::now())
        .map(Some)
}

/// Charges a repeated signature to its address instead: an attacker who repeats a recorded request
/// must not use the quota of its caller.
fn charge_address(
    api: &ApiState,
    request: &Request,
    permit: Option<RequestPermit>,
) -> Result<(), Problem> {
    let now = Instant::now();
    if let Some(permit) = permit {
        permit.refund(now);
    }
    // The request is denied: it is no longer in progress.
    api.shared.quotas.begin(address_key(request), now).map(drop)
}

/// Returns the caller as quotas count it: its name, or the address of a request without an
/// authenticated caller.
fn caller_key(request: &Request) -> CallerKey {
    let name = request
        .extensions()
        .get::<Caller>()
        .and_then(|caller| caller.name.as_deref());
    name.map_or_else(|| address_key(request), |name| CallerKey::User(name.into()))
}

fn address_key(request: &Request) -> CallerKey {
    peer(request).map_or(CallerKey::Others, |peer| {
        CallerKey::Address(network(peer.ip()))
    })
}

/// Identified request: what its caller still needs.
#[derive(Default)]
struct Identity {
    /// `None` if every caller may send the request.
    admission: Option<Admission>,
    /// Verified signature that is not accepted yet.
    signature: Option<Box<RequestSignature>>,
}

/// Identifies the caller of a request. Stores nothing.
async fn identify(api: &ApiState, route: &str, request: &mut Request) -> Result<Identity, Problem> {
    // Before authentication, so that a page of another site cannot use a node that has none. Over
    // NATS there is no browser.
    if !is_over_nats(request) {
        origin::check(
            &api.shared.hosts,
            route,
            request.method(),
            request.uri(),
            request.headers(),
        )?;
    }

    // Before the caller is identified, because a forwarded request can have a grant in place of its
    // signature.
    pod_sender::check_sender(&api.shared.app, request)?;
    let access = &api.shared.app.authenticator;
    let right = permissions::required_permission(
        request.method().as_str(),
        route,
        &api.shared.app.config.auth.public_routes,
    );
    let is_signed = signed_request::is_signed(request.headers());
    // A peer is a signer without rights; no token can stand for its key.
    if right == Permission::Peer && !is_signed {
        return Err(Problem::not_a_peer());
    }
    if !(access.is_enabled() || is_signed) || route == NO_ROUTE {
        admission::name_context(right, request)?;
        request.extensions_mut().insert(Caller::unauthenticated());
        return Ok(Identity::default());
    }
    // The signature of a public route is not verified, so that it stores no nonce.
    if right == Permission::Public {
        return Ok(Identity::default());
    }

    // Before the header of the context is set, which the signature does not cover.
    let verified = if is_signed {
        signed_request::verify(api, request).await?
    } else {
        None
    };
    let VerifiedCaller { caller, signature } = if let Some(verified) = verified {
        verified
    } else {
        let source = peer(request).map(|peer| peer.ip());
        VerifiedCaller {
            caller: authenticate(access, request.method(), request.headers(), source).await?,
            signature: None,
        }
    };

    if let Some(scope) = request.extensions_mut().get_mut::<RequestScope>() {
        scope.key = caller.key;
        scope.user = caller.name.as_deref().map(Arc::from);
    }

    // Also for requests that are denied below: their log lines name the caller.
    if let Some(name) = &caller.name {
        tracing::Span::current().record("who", name);
    }
    admission::name_context(right, request)?;

    let admission = Admission::new(caller, right, request);
    // A denial is counted with its caller.
    request
        .extensions_mut()
        .insert(admission.authenticated().clone());
    Ok(Identity {
        admission: Some(admission),
        signature,
    })
}

/// Accepts the signature of an identified request, and checks the permission of its caller.
async fn admit(api: &ApiState, identity: Identity, request: &mut Request) -> Result<(), Problem> {
    // After the charge of the quota, because each accepted signature stores its nonce.
    if let Some(signature) = &identity.signature {
        api.shared
            .app
            .authenticator
            .signed()
            .accept(signature)
            .await?;
    }
    if let Some(admission) = identity.admission {
        let caller = admission.admit(&api.shared.app.access)?;
        // Replaces the caller without the roles of the context, which `identify` has inserted for
        // denials.
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(admission);
    }

    Ok(())
}

/// Authenticates a request without a signature of an actor.
async fn authenticate(
    access: &Authenticator,
    method: &Method,
    headers: &HeaderMap,
    source: Option<IpAddr>,
) -> Result<Caller, Problem> {
    // The browser sends the cookie of a session with every request, so that a change needs the
    // proof that a page of this node sent it.
    if access.oidc().is_some() && login::has_session(headers) {
        origin::check_session(method, headers)?;
    }
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();

    Ok(access
        .authenticate(&RequestCredentials { headers, source })
        .await?)
}

/// Withholds the response to a request that reads or waits, if its caller has lost its access
/// meanwhile.
fn withhold(api: &ApiState, admission: Option<Admission>, response: Response) -> Response {
    match admission.map(|admission| admission.recheck(&Access::from_ref(api))) {
        Some(Err(problem)) => problem.into_response(),
        _ => response,
    }
}

impl From<AuthError> for Problem {
    fn from(denied: AuthError) -> Self {
        let code = match &denied {
            AuthError::Missing(_) => Code::Unauthenticated,
            AuthError::Invalid(_) => Code::InvalidCredentials,
            AuthError::Signature(rejection) => match rejection {
                SignatureRejection::Time(..) | SignatureRejection::BeforeStart(_) => {
                    Code::SignatureTime
                }
                SignatureRejection::Replayed => Code::SignatureReplayed,
                SignatureRejection::InvalidKey(..) => Code::InvalidKey,
                SignatureRejection::Unreadable(_)
                | SignatureRejection::NotAuthentic(_)
                | SignatureRejection::Digest
                | SignatureRejection::Node(_)
                | SignatureRejection::Grant => Code::InvalidRequestSignature,
            },
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
