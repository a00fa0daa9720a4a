//! Request forwarding: with many pods, each pod accepts any request and forwards it to the owner of
//! the shard.
//!
//! The data of a tenant are in one shard, except for key-sharded tenants. For those, a request
//! about one instance is forwarded to its owner; a list contains the instances of this pod, and
//! headers name the other pods.

pub(crate) mod scoped_routes;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orlog_bus::membership::Pod;
use orlog_model::{CorrelationId, InstanceKey, SagaName, Slot, TenantId};
use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};

use super::body;
use super::body_budget::RequestBody;
use super::context::{ApiState, RequestContext};
use super::extract::{TENANT_HEADER, accepts_events};
use super::parts::cluster::Cluster;
use super::problem::{Code, Problem};
use super::signed_request;
use orlog_node::cluster::SlotOwner;
use orlog_node::cluster::pod_client::{self, FORWARDED_BY};
use orlog_node::definitions::schedules;
use orlog_node::{batches, flows, messages, shadows};

/// Header of a list of a key-sharded tenant: the list contains the instances of one pod.
const PARTIAL: HeaderName = HeaderName::from_static("x-orlog-partial");
/// Header of such a list: the names of the pods with the other instances, percent-encoded and
/// separated by commas.
const MISSING_PODS: HeaderName = HeaderName::from_static("x-orlog-missing-pods");
/// Characters of a name that the header encodes, in addition to those that are not ASCII.
const LISTED_NAME: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b'%');
/// Creates the key of a built-in instance from the id in its path.
type BuiltInKey = fn(TenantId, &str) -> Result<InstanceKey, String>;

/// Roots of the paths of built-in instances.
const BUILT_IN_ROUTES: [(&str, BuiltInKey); 5] = [
    ("/v1/flows/", flows::key),
    ("/v1/messages/", messages::key),
    ("/v1/batches/", batches::key),
    ("/v1/schedules/", schedules::key),
    ("/v1/shadows/", shadows::key),
];

/// Headers that apply to one connection only, and those that this pod has checked (`origin.rs`).
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::HOST,
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
];

/// Handles the request, or forwards it to the pod that owns the shard.
pub(crate) async fn forward(State(api): State<ApiState>, request: Request, next: Next) -> Response {
    let cluster = Cluster::for_request(&api, request.extensions());
    if !cluster.is_clustered() {
        return next.run(request).await;
    }
    if follows_lines(&request) {
        // The handler reads each page from the owner, which may change.
        return next.run(request).await;
    }
    let Some(tenant) = scoped_tenant(&request) else {
        return next.run(request).await;
    };

    let Some(slot) = slot(&cluster, &tenant, request.uri().path()) else {
        if is_start(&request) {
            // The handler finds the instance in the body.
            return next.run(request).await;
        }

        // The handlers of workers take jobs from all pods, so that their responses lack none.
        let is_partial = !is_about_jobs(&request);
        let mut response = next.run(request).await;
        if is_partial {
            state_missing_parts(&cluster, &tenant, response.headers_mut());
        }
        return response;
    };

    // A request is forwarded once: pods that disagree about the owner would pass it around.
    match cluster.owner(slot) {
        SlotOwner::Local => next.run(request).await,
        // Before the forwarding, because the client for pods cannot pass a stream on.
        SlotOwner::Pod(pod) if request.headers().contains_key(header::UPGRADE) => {
            let detail = format!(
                "streams are not forwarded; the pod {} at {} owns the shard of the tenant: open \
                 the stream there",
                pod.name, pod.url
            );
            Problem::new(Code::Unavailable, detail).into_response()
        }
        SlotOwner::Pod(pod) if !is_forwarded(request.headers()) => {
            let api = api.for_request(request.extensions());
            send(&api, &cluster, &pod, request)
                .await
                .unwrap_or_else(IntoResponse::into_response)
        }
        SlotOwner::Pod(_) | SlotOwner::None => Problem::moving().into_response(),
    }
}

/// States which pods have data of a key-sharded tenant that the response lacks. No header: it lacks
/// none.
fn state_missing_parts(cluster: &Cluster, tenant: &TenantId, headers: &mut HeaderMap) {
    let missing = cluster.missing_parts(tenant);
    if missing.is_empty() {
        return;
    }

    let names = missing.iter().map(|name| {
        let encoded = utf8_percent_encode(name, LISTED_NAME);
        encoded.to_string()
    });
    let names = names.collect::<Vec<_>>().join(",");
    headers.insert(PARTIAL, HeaderValue::from_static("true"));
    let names = HeaderValue::from_str(&names).expect("encoded names are ASCII");

    headers.insert(MISSING_PODS, names);
}

/// Returns whether the request is one of a worker, whose handler takes jobs from all pods.
fn is_about_jobs(request: &Request) -> bool {
    request.uri().path().starts_with("/v1/work/")
}

/// Returns whether the request is for a stream of the lines of a flow.
fn follows_lines(request: &Request) -> bool {
    let path = request.uri().path();
    accepts_events(request.headers()) && path.starts_with("/v1/flows/") && path.ends_with("/lines")
}

/// Returns the tenant of a tenant-scoped request. The handler rejects malformed requests.
fn scoped_tenant(request: &Request) -> Option<TenantId> {
    let uri = request.uri();
    if !scoped_routes::is_scoped(request.method(), uri.path(), uri.query()) {
        return None;
    }
    let tenant = request
        .headers()
        .get(TENANT_HEADER)
        .map_or(Ok(""), HeaderValue::to_str)
        .ok()?;
    TenantId::new(tenant).ok()
}

/// Returns the slot; `None` if the tenant is key-sharded and the request is not about one instance.
fn slot(cluster: &Cluster, tenant: &TenantId, path: &str) -> Option<Slot> {
    let slots = cluster.slots();
    slots.tenant_slot(tenant).or_else(|| {
        let key = instance_of(tenant, path)?;
        Some(slots.slot_of(&key))
    })
}

/// Returns the instance that a path names.
fn instance_of(tenant: &TenantId, path: &str) -> Option<InstanceKey> {
    for (root, key) in BUILT_IN_ROUTES {
        if let Some(rest) = path.strip_prefix(root) {
            let id = decoded(rest.split('/').next()?)?;
            return key(tenant.clone(), &id).ok();
        }
    }

    let mut parts = path.strip_prefix("/v1/sagas/")?.split('/');
    let saga = SagaName::new(decoded(parts.next()?)?).ok()?;
    let correlation = CorrelationId::new(decoded(parts.next()?)?).ok()?;
    Some(InstanceKey {
        tenant: tenant.clone(),
        saga,
        correlation,
    })
}

fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part)
        .decode_utf8()
        .ok()
        .map(String::from)
}

/// Returns whether the request starts an instance or a shadow, submits a flow, sends a message, or
/// creates a batch.
fn is_start(request: &Request) -> bool {
    let path = request.uri().path();
    let saga = path.strip_prefix("/v1/sagas/");
    request.method() == Method::POST
        && (matches!(
            path,
            "/v1/flows" | "/v1/messages" | "/v1/batches" | "/v1/shadows"
        ) || saga.is_some_and(|saga| !saga.contains('/')))
}

/// Forwards a request about an instance to the owner of its shard; `None` if that is this pod.
/// `generated` is the correlation id that the owner cannot find in the request.
pub(crate) async fn to_owner(
    cluster: &Cluster,
    key: &InstanceKey,
    uri: &Uri,
    generated: Option<&CorrelationId>,
    headers: &HeaderMap,
    body: &RequestBody,
) -> Result<Option<Response>, Problem> {
    if !cluster.is_clustered() {
        return Ok(None);
    }

    match cluster.owner_of(key) {
        SlotOwner::Local => Ok(None),
        SlotOwner::Pod(pod) if !is_forwarded(headers) => {
            let mut target = uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned();

            if let Some(correlation) = generated {
                target.push(if uri.query().is_some() { '&' } else { '?' });
                target.push_str("correlation=");
                target.extend(utf8_percent_encode(correlation.as_str(), NON_ALPHANUMERIC));
            }

            // The handler has received the decoded body.
            let mut headers = headers.clone();
            headers.remove(header::CONTENT_ENCODING);
            send_body(cluster, &pod, Method::POST, &target, headers, body.bytes())
                .await
                .map(Some)
        }
        SlotOwner::Pod(_) | SlotOwner::None => Err(Problem::moving()),
    }
}

/// Sends a GET request of a caller to another pod, which authenticates the caller again.
pub(crate) async fn get(
    cluster: &Cluster,
    pod: &Pod,
    target: &str,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    send_body(cluster, pod, Method::GET, target, headers, Bytes::new()).await
}

async fn send(
    api: &RequestContext,
    cluster: &Cluster,
    pod: &Pod,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    // That of every route whose requests are forwarded here: batches of events go to the bus.
    let limit = api.http().max_body_size;
    // The whole body before the request: a grant for the other pod covers its digest. The other pod
    // decodes it.
    let body = body::receive(api, &parts.headers, body, limit).await?;

    send_body(
        cluster,
        pod,
        parts.method,
        target,
        parts.headers,
        body.bytes(),
    )
    .await
}

/// Sends a request of a caller to another pod, and returns its response.
pub(crate) async fn send_body(
    cluster: &Cluster,
    pod: &Pod,
    method: Method,
    target: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let mut headers = without_hops(headers);
    headers.insert(FORWARDED_BY, node(cluster));
    // The signature of the actor covers the authority of this pod, so the other pod cannot verify
    // it again.
    if let Some(key) = cluster.key {
        signed_request::grant(
            cluster.authenticator(),
            key,
            &method,
            target,
            &mut headers,
            &body,
        )
        .await?;
    }

    let limit = pod_client::timeout(target, cluster.request_timeout());
    let unavailable = |reason: pod_client::Error| {
        tracing::warn!(pod = pod.name, url = pod.url, %reason, "a forwarded request has no response");
        Problem::new(Code::Unavailable, reason.explain(&pod.name, limit))
    };
    let forwarded_request = cluster
        .request_to(pod, method, target)
        .map_err(unavailable)?;
    let forwarded_request = forwarded_request.headers(headers).body(body);
    let pod_response = forwarded_request
        .send()
        .await
        .map_err(|error| unavailable(error.into()))?;
    let status = pod_response.status();
    let headers = without_hops(pod_response.headers().clone());
    // Read to its end here: a lost connection to the pod is then a 503, not a truncated response.
    let body = pod_response
        .bytes()
        .await
        .map_err(|error| unavailable(error.into()))?;

    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Returns whether this pod serves the jobs of a tenant, or a part of them.
pub(crate) fn is_local(cluster: &Cluster, tenant: &TenantId) -> bool {
    let slot = cluster
        .is_clustered()
        .then(|| cluster.slots().tenant_slot(tenant))
        .flatten();
    slot.is_none_or(|slot| matches!(cluster.owner(slot), SlotOwner::Local))
}

/// Returns whether another pod forwarded this request.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_BY)
}

/// Forwards a POST request to another pod, which authenticates the caller again: by its
/// credentials, or by a grant for its signature. Returns the status and the body of the response.
pub(crate) async fn forward_post(
    cluster: &Cluster,
    pod: &Pod,
    path: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Bytes), pod_client::Error> {
    let mut headers = headers.clone();
    // The headers can be those of a handshake, which have no content type.
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    status_and_body(cluster, pod, Method::POST, path, headers, body).await
}

/// Sends a GET request of a caller to another pod as [`forward_post`].
pub(crate) async fn forward_get(
    cluster: &Cluster,
    pod: &Pod,
    path: &str,
    headers: &HeaderMap,
) -> Result<(StatusCode, Bytes), pod_client::Error> {
    status_and_body(
        cluster,
        pod,
        Method::GET,
        path,
        headers.clone(),
        Bytes::new(),
    )
    .await
}

async fn status_and_body(
    cluster: &Cluster,
    pod: &Pod,
    method: Method,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Bytes), pod_client::Error> {
    let mut headers = without_hops(headers);
    // The body is the one of this pod, not that of the client.
    headers.remove(header::CONTENT_ENCODING);
    headers.insert(FORWARDED_BY, node(cluster));
    if let Some(key) = cluster.key {
        let granted = signed_request::grant(
            cluster.authenticator(),
            key,
            &method,
            path,
            &mut headers,
            &body,
        )
        .await;
        granted.map_err(|error| pod_client::Error::Request(error.into()))?;
    }

    let request = cluster.request_to(pod, method, path)?;
    let pod_response = request.headers(headers).body(body).send().await?;
    Ok((pod_response.status(), pod_response.bytes().await?))
}

fn node(cluster: &Cluster) -> HeaderValue {
    // Any value marks the request as forwarded, which is what prevents a circle.
    HeaderValue::from_str(&cluster.node_name()).unwrap_or(HeaderValue::from_static("pod"))
}

fn without_hops(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}
