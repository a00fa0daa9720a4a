//! With many pods, any of them answers for any instance: a request about what lives in another pod's shard is sent there.
//!
//! The data of a tenant lie in one shard, but for tenants that are spread. Of those a request about one instance is sent
//! where the instance lives; a list shows what this pod has, and says so in a header.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orlog_model::{CorrelationId, InstanceKey, SagaName, Slot, TenantId};
use percent_encoding::percent_decode_str;

use super::context::Api;
use super::extract::TENANT_HEADER;
use super::problem::{Code, Problem};
use crate::app::Whose;

/// The pod that sent a request on; such a request is not sent on again.
pub(super) const FORWARDED_BY: HeaderName = HeaderName::from_static("x-orlog-forwarded-by");
/// On the list of a tenant that is spread: these are the instances of one pod.
const PARTIAL: HeaderName = HeaderName::from_static("x-orlog-partial");
/// What a tenant has.
const OF_TENANTS: [&str; 9] = [
    "/v1/sagas",
    "/v1/tasks",
    "/v1/dead-letters",
    "/v1/export",
    "/v1/timers",
    "/v1/work",
    "/v1/inspect",
    "/v1/overview",
    "/v1/replays",
];
/// They belong to one connection.
const HOP_BY_HOP: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::CONTENT_LENGTH];

/// Answers here, or sends the request to the pod that can.
pub(super) async fn forward(State(api): State<Api>, request: Request, next: Next) -> Response {
    if !api.app.is_clustered() {
        return next.run(request).await;
    }
    let Some(tenant) = concerned(&request) else { return next.run(request).await };
    let Some(slot) = slot(&api, &tenant, request.uri().path()) else {
        let mut response = next.run(request).await;
        response.headers_mut().insert(PARTIAL, HeaderValue::from_static("true"));
        return response;
    };
    match api.app.whose(slot) {
        Whose::Here => next.run(request).await,
        Whose::Pod(pod) if !is_forwarded(request.headers()) => {
            send(&api, &pod.url, request).await.unwrap_or_else(IntoResponse::into_response)
        }
        Whose::Pod(_) | Whose::Nobody => {
            let detail = "the shard is on its way from one pod to another; try again";
            Problem::new(Code::Unavailable, detail).into_response()
        }
    }
}

/// Whose data a request is about, where it is about a tenant's. What is malformed is refused by the handler.
fn concerned(request: &Request) -> Option<TenantId> {
    let path = request.uri().path();
    let is_below =
        |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    OF_TENANTS.iter().find(|root| is_below(root))?;
    let tenant = request.headers().get(TENANT_HEADER).map_or(Ok(""), HeaderValue::to_str).ok()?;
    TenantId::new(tenant).ok()
}

/// `None`: the data are spread, and the request is about more than one instance.
fn slot(api: &Api, tenant: &TenantId, path: &str) -> Option<Slot> {
    let slots = api.app.slots();
    slots.of_tenant(tenant).or_else(|| {
        let mut parts = path.strip_prefix("/v1/sagas/")?.split('/');
        let mut part = || percent_decode_str(parts.next()?).decode_utf8().ok().map(String::from);
        let (saga, correlation) = (SagaName::new(part()?).ok()?, CorrelationId::new(part()?).ok()?);
        Some(slots.of(&InstanceKey { tenant: tenant.clone(), saga, correlation }))
    })
}

async fn send(api: &Api, url: &str, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let limit = usize::try_from(api.app.config.http.max_batch_size).unwrap_or(usize::MAX);
    let body = axum::body::to_bytes(body, limit).await;
    let body = body.map_err(|error| Problem::new(Code::TooSlow, error.to_string()))?;
    let mut headers = without_hops(parts.headers);
    headers.remove(header::HOST);
    headers.insert(FORWARDED_BY, node(api));
    let gone = |error: reqwest::Error| {
        Problem::new(Code::Unavailable, format!("the pod that has the shard does not answer: {error}"))
    };
    let asked = api.forwarder.request(parts.method, format!("{url}{target}")).headers(headers).body(body);
    let answer = asked.send().await.map_err(gone)?;
    let (status, headers) = (answer.status(), without_hops(answer.headers().clone()));
    let body = answer.bytes().await.map_err(gone)?;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Whether another pod has sent this request.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_BY)
}

/// Posts what a caller has posted here to another pod too, which asks again who it is.
pub(super) async fn post(
    api: &Api,
    url: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<StatusCode, reqwest::Error> {
    let mut headers = without_hops(headers.clone());
    headers.remove(header::HOST);
    headers.insert(FORWARDED_BY, node(api));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = api.forwarder.post(url).headers(headers).body(body).send().await?;
    Ok(answer.status())
}

fn node(api: &Api) -> HeaderValue {
    HeaderValue::from_str(&api.app.config.node_name()).unwrap_or(HeaderValue::from_static("pod"))
}

fn without_hops(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}
