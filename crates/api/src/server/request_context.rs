//! Request context: request id, span, metrics, and recovery from handler panics.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use orlog_model::{TraceParent, format_duration};
use tracing::{Instrument, field};
use uuid::Uuid;

use super::authorize;
use super::context::{ApiState, RequestScope};
use super::extract::{TRACEPARENT, request_trace};
use super::problem::{Code, Problem};
use super::request_info::{NO_ROUTE, RequestId, is_over_nats, known_method};
use super::security_headers;
use orlog_node::cluster::pod_client::handling_limit;
use orlog_node::telemetry::{RequestLine, RequestSpan};

const REQUEST_ID: &str = "x-request-id";
/// Maximum length of a request id of a caller, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// Routes whose duration has no limit.
const UNLIMITED_ROUTES: [&str; 3] = ["/admin/backup", "/admin/drain", "/v1/replays"];

/// Runs a request with its context.
pub(crate) async fn with_request_context(
    State(api): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    // The pattern, not the path: labels and permissions need a bounded number of values.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or(NO_ROUTE, MatchedPath::as_str)
        .to_owned();
    let method = known_method(request.method().as_str());
    let trace = request_trace(request.headers());

    let exported = follow(&api, &mut request, method, &route, trace.as_ref());
    let trace = exported.trace().cloned().or(trace);
    let span = tracing::info_span!(
        "request",
        method,
        route,
        request_id = id.to_str().unwrap_or_default(),
        tenant = field::Empty,
        who = field::Empty,
        trace_id = trace.as_ref().map(TraceParent::trace_id),
    );

    // Before the authorization, which adds the caller to it.
    let uri = request.uri().clone();
    request.extensions_mut().insert(RequestScope {
        trace,
        uri,
        ..RequestScope::default()
    });
    request.extensions_mut().insert(RequestId(id.clone()));

    let guarded = authorize::authorize(&api, &route, &id, request, |request| {
        respond(&api, &route, request, next)
    })
    .instrument(span.clone());
    let mut response = guarded.instrument(exported.span().clone()).await;
    let status = response.status();
    let took = started.elapsed();
    api.shared
        .requests
        .record(&route, method, status.as_u16(), took);

    let log = || {
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), ?took, "request failed");
        } else {
            tracing::debug!(status = status.as_u16(), ?took, "request completed");
        }
    };
    exported.span().in_scope(|| span.in_scope(log));
    exported.finish(status.as_u16());
    // At the end, so that rejections have these headers, too.
    response.headers_mut().insert(REQUEST_ID, id);
    security_headers::add(response.headers_mut());

    response
}

/// Starts the exported span of the request; work of the request continues its trace. A request that
/// changes state and has no trace starts one, except for job claims of workers.
fn follow(
    api: &ApiState,
    request: &mut Request,
    method: &str,
    route: &str,
    trace: Option<&TraceParent>,
) -> RequestSpan {
    let changes = method != "GET" && route.starts_with("/v1/") && !route.starts_with("/v1/work/");
    let scheme = match (
        is_over_nats(request),
        api.shared.app.config.http.tls.is_enabled(),
    ) {
        (true, _) => "nats",
        (false, true) => "https",
        (false, false) => "http",
    };
    let line = RequestLine {
        method,
        route,
        path: request.uri().path(),
        scheme,
    };
    let exported = RequestSpan::start(
        api.shared.app.telemetry.spans.as_ref(),
        &line,
        changes,
        trace,
        request.headers(),
    );

    // The handler and the pod to which the request is forwarded continue this span, not that of the
    // client.
    if let Some(own) = exported.trace() {
        let value = HeaderValue::try_from(own.as_str()).expect("a traceparent is ASCII");
        request.headers_mut().insert(TRACEPARENT, value);
    }
    exported
}

/// Returns the response of the handler, or a problem if the handler panics or times out.
async fn respond(api: &ApiState, route: &str, request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let limit = handling_limit(query, api.shared.app.config.http.request_timeout);
    // The unwinding drops all that the handler owned; what remains shared is behind locks without
    // poisoning.
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    let handled = if UNLIMITED_ROUTES.contains(&route) {
        Ok(handled.await)
    } else {
        tokio::time::timeout(limit, handled).await
    };

    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            tracing::error!(panic = text_of(panic.as_ref()), "handler panicked");
            let detail = "internal error; see the server log for this x-request-id";
            Problem::new(Code::Internal, detail).into_response()
        }
        Err(_) => {
            let limit = format_duration(limit);
            let detail = format!("no response within {limit}; the outcome is unknown");
            Problem::new(Code::Unavailable, detail).into_response()
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// Returns the request id of the caller if it is short and printable, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let printable = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };

    headers
        .get(REQUEST_ID)
        .filter(printable)
        .cloned()
        .unwrap_or_else(|| {
            HeaderValue::try_from(Uuid::now_v7().to_string()).expect("an id is ASCII")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(
            REQUEST_ID.parse().unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        )])
    }

    #[test]
    fn accepts_short_printable_request_ids_only() {
        assert_eq!(request_id(&with(b"abc-1")), "abc-1");
        for strange in [&b""[..], b"a b", &[0xff], &[b'x'; 129]] {
            assert_eq!(request_id(&with(strange)).len(), 36);
        }
    }
}
