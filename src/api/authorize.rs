//! Authorization of requests: authenticates the caller, checks permissions, and starts the audit record.

use std::net::IpAddr;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::admission::{self, Admission};
use super::audit_guard::{self, AuditGuard};
use super::connections::network;
use super::context::{ApiState, RequestScope};
use super::login;
use super::origin;
use super::permissions::{self, Permission};
use super::pod_client;
use super::problem::{Code, Problem};
use super::quotas::CallerKey;
use super::request_info::{ENROLL_ROUTE, NO_ROUTE, WEBHOOK_ROUTE, is_over_nats, peer};
use super::signed_request;
use crate::auth::{
    AuthError, Authenticator, Caller, ImpersonationError, RequestCredentials, SignatureRejection,
};

/// Header of a response without authentication: the path that starts a log-in.
const LOGIN_HEADER: HeaderName = HeaderName::from_static("x-orlog-login");

/// Routes without quotas, so that health checks and metrics work while a caller exceeds its quotas.
const UNLIMITED_ROUTES: [&str; 3] = ["/health", "/ready", "/metrics"];

/// Accepts or rejects a request, applies the quotas of its caller, and audits it: changes, sensitive reads, and
/// denials.
pub(crate) async fn authorize<F>(
    api: &ApiState,
    (route, id): (&str, &HeaderValue),
    mut request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    if let Err(problem) = admit(api, route, &mut request).await {
        let mut response = problem.into_response();
        if response.status() == StatusCode::UNAUTHORIZED && api.app.authenticator.oidc().is_some() {
            response
                .headers_mut()
                .insert(LOGIN_HEADER, HeaderValue::from_static(login::LOGIN_PATH));
        }
        audit_guard::deny(api, route, &request, &response);
        return response;
    }
    if UNLIMITED_ROUTES.contains(&route) {
        return audit(api, (route, id), request, handler).await;
    }
    match api.quotas.begin(caller_key(&request), Instant::now()) {
        Ok(permit) => {
            if let Some(scope) = request.extensions_mut().get_mut::<RequestScope>() {
                scope.caller = Some(permit.budgets.clone());
            }
            let admission = request.extensions().get::<Admission>().cloned();
            let response = if matches!(route, WEBHOOK_ROUTE | ENROLL_ROUTE) {
                // Anyone can send such a request: the handler audits it when the signature or the token is valid.
                handler(request).await
            } else {
                audit(api, (route, id), request, handler).await
            };
            drop(permit);
            withhold(api, admission, response)
        }
        Err(problem) => problem.into_response(),
    }
}

/// Handles an authorized request, with its audit record.
pub(crate) async fn audit<F>(
    api: &ApiState,
    (route, id): (&str, &HeaderValue),
    mut request: Request,
    handler: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let Some(entry) = AuditGuard::of(api, route, id, &mut request) else {
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

/// Returns the caller as quotas count it.
fn caller_key(request: &Request) -> CallerKey {
    let name = request
        .extensions()
        .get::<Caller>()
        .and_then(|caller| caller.name.clone());
    let address = || {
        peer(request).map_or(CallerKey::Others, |peer| {
            CallerKey::Address(network(peer.ip()))
        })
    };
    name.map_or_else(address, CallerKey::User)
}

async fn admit(api: &ApiState, route: &str, request: &mut Request) -> Result<(), Problem> {
    if !is_over_nats(request) {
        origin::check(
            &api.hosts,
            (route, request.method(), request.uri()),
            request.headers(),
        )?;
    }
    pod_client::check_sender(&api.app, request)?;
    let access = &api.app.authenticator;
    let right = permissions::required_permission(
        request.method().as_str(),
        route,
        &api.app.config.auth.public_routes,
    );
    let is_signed = signed_request::is_signed(request.headers());
    if right == Permission::Peer && !is_signed {
        return Err(Problem::not_a_peer());
    }
    if !(access.is_enabled() || is_signed) || route == NO_ROUTE {
        admission::name_context(right, request)?;
        request.extensions_mut().insert(Caller::unauthenticated());
        return Ok(());
    }
    if right == Permission::Public {
        return Ok(());
    }
    // Before the header of the context is set, which the signature does not cover.
    let signed = if is_signed {
        signed_request::authenticate(api, request).await?
    } else {
        None
    };
    let caller = if let Some(caller) = signed {
        caller
    } else {
        let source = peer(request).map(|peer| peer.ip());
        authenticate(access, (request.method(), request.headers()), source).await?
    };
    if let Some(scope) = request.extensions_mut().get_mut::<RequestScope>() {
        scope.key = caller.key;
    }
    if let Some(name) = &caller.name {
        tracing::Span::current().record("who", name);
    }
    admission::name_context(right, request)?;
    let admission = Admission::new(caller, right, request);
    // A denial is counted with its caller.
    request
        .extensions_mut()
        .insert(admission.authenticated().clone());
    let caller = admission.admit(&api.app.access)?;
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(admission);
    Ok(())
}

/// Authenticates a request without a signature of an actor.
async fn authenticate(
    access: &Authenticator,
    (method, headers): (&Method, &HeaderMap),
    source: Option<IpAddr>,
) -> Result<Caller, Problem> {
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

/// Withholds the response to a request that reads or waits, if its caller has lost its access meanwhile.
fn withhold(api: &ApiState, admission: Option<Admission>, response: Response) -> Response {
    match admission.map(|admission| admission.recheck(&api.app)) {
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
