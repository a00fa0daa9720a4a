//! Around every request: its id, its span, its metrics, and a net under handlers that panic.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use orlog_model::TraceParent;
use tracing::{Instrument, field};
use uuid::Uuid;

use super::authorize::{self, NO_ROUTE};
use super::context::Api;
use super::extract::{TRACEPARENT, trace_of};
use super::problem::{Code, Problem};
use crate::telemetry::Answered;

const REQUEST_ID: &str = "x-request-id";
/// The longest request id that is taken over from a caller, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// Routes whose answers take as long as there is something to do.
const LONG: [&str; 3] = ["/admin/backup", "/admin/drain", "/v1/replays"];

tokio::task_local! {
    static TRACE: Option<TraceParent>;
}

/// The trace that what is done for the present request belongs to.
pub(super) fn trace() -> Option<TraceParent> {
    TRACE.try_with(Clone::clone).ok().flatten()
}

/// Sees a request through.
pub(super) async fn observe(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = known_method(request.method().as_str());
    let trace = trace_of(request.headers());
    let own = follow(&api, &mut request, (method, &route), trace.as_ref());
    let path = own.as_ref().map(|_| request.uri().path().to_owned()).unwrap_or_default();
    let span = tracing::info_span!(
        "request",
        method,
        route,
        request_id = id.to_str().unwrap_or_default(),
        tenant = field::Empty,
        who = field::Empty,
        trace_id = own.as_ref().or(trace.as_ref()).map(TraceParent::trace_id),
    );
    let inside = |request| answer(&api, &route, request, next);
    let guarded = authorize::guarded(&api, (&route, &id), request, inside).instrument(span.clone());
    let mut response = TRACE.scope(own.clone().or_else(|| trace.clone()), guarded).await;
    let (status, took) = (response.status(), started.elapsed());
    api.requests.note(&route, method, status.as_u16(), took);
    if let (Some(spans), Some(own)) = (&api.app.telemetry.spans, &own) {
        let (parent, route, path, status) = (trace.as_ref(), &route, &path, status.as_u16());
        spans.answered(&Answered { own, parent, method, route, path, status, begun: started });
    }
    span.in_scope(|| {
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), ?took, "a request failed");
        } else {
            tracing::debug!(status = status.as_u16(), ?took, "a request was answered");
        }
    });
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The request's own span, where somebody makes spans: what comes of the request goes on from it. A request that changes
/// something begins a trace where it came without one; workers that ask for jobs do not.
fn follow(
    api: &Api,
    request: &mut Request,
    (method, route): (&str, &str),
    trace: Option<&TraceParent>,
) -> Option<TraceParent> {
    let changes = method != "GET" && route.starts_with("/v1/") && !route.starts_with("/v1/work/");
    let own = api.app.telemetry.spans.as_ref()?.request(changes, trace)?;
    let value = HeaderValue::try_from(own.as_str()).expect("a traceparent is ASCII");
    request.headers_mut().insert(TRACEPARENT, value);
    Some(own)
}

/// The handler's answer; a problem when it panics or takes too long.
async fn answer(api: &Api, route: &str, request: Request, next: Next) -> Response {
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    let patience = api.app.config.http.request_timeout;
    let handled = if LONG.contains(&route) {
        Ok(handled.await)
    } else {
        // The body may take the same time; what it leaves is for the work.
        tokio::time::timeout(patience * 2, handled).await
    };
    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            tracing::error!(panic = text_of(panic.as_ref()), "a handler panicked");
            let detail = "a bug in the server; its log has this request's x-request-id and the cause";
            Problem::new(Code::Internal, detail).into_response()
        }
        Err(_) => {
            let detail = format!("no answer within {:?}; whether it was done is not known", patience * 2);
            Problem::new(Code::Unavailable, detail).into_response()
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// The caller's id where it is short and printable, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let printable = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let new = || HeaderValue::try_from(Uuid::now_v7().to_string()).expect("an id is ASCII");
    headers.get(REQUEST_ID).filter(printable).cloned().unwrap_or_else(new)
}

/// Callers can make up methods; metrics and logs name those that are known.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), HeaderValue::from_bytes(value).unwrap())])
    }

    #[test]
    fn takes_over_short_printable_request_ids_only() {
        assert_eq!(request_id(&with(b"abc-1")), "abc-1");
        for strange in [&b""[..], b"a b", &[0xff], &[b'x'; 129]] {
            assert_eq!(request_id(&with(strange)).len(), 36);
        }
    }

    #[test]
    fn made_up_methods_do_not_become_labels() {
        assert_eq!((known_method("GET"), known_method("BREW")), ("GET", "OTHER"));
    }
}
