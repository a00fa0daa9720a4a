//! `POST /v1/webhooks/{name}`: receives a webhook. Its event is durable before the response.

mod mapping;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use orlog_model::Event;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::resources::events::takes_work;
use crate::server::body_budget::RequestBody;
use crate::server::context::RequestContext;
use crate::server::extract::{PathParams, TENANT_HEADER, request_trace};
use crate::server::parts::events::Events;
use crate::server::problem::{Code, Problem};
use crate::server::request_info::{RequestId, WEBHOOK_ROUTE};
use crate::server::{authorize, body, tenant_storage};
use mapping::{MappingError, ReceivedBody};
use orlog_node::auth::Caller;
use orlog_node::webhooks::Webhook;
use orlog_node::webhooks::signature::{self, SignatureError};

const FORM: &str = "application/x-www-form-urlencoded";
/// Response to all requests that are not authentic. It does not disclose which check failed.
const NOT_AUTHENTIC: &str =
    "the signature is missing, invalid or expired; the log of the node has the reason";

/// Durable event of a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedWebhook {
    /// Event id: `webhook:`, the name of the webhook, `:` and the delivery id.
    id: String,
    /// The delivery was accepted before and has no further effect.
    duplicate: bool,
}

/// Receive a webhook
///
/// The request requires no token: the signature of the sender authenticates it, as
/// `[webhooks.<name>]` in the configuration describes. The configuration also determines the
/// tenant, and maps the body and the headers to an event. A repeated delivery is a duplicate
/// without effect.
#[utoipa::path(
    post,
    path = "/v1/webhooks/{name}",
    tag = "events",
    params(("name" = String, Path, description = "Name of the webhook")),
    request_body(content = Value, description = "Body as the sender signed it, also as \
                                                 `application/x-www-form-urlencoded`"),
    responses((
        status = 202,
        description = "The event is durable; processing is asynchronous",
        body = AcceptedWebhook
    ))
)]
pub(crate) async fn receive(
    api: RequestContext,
    State(events): State<Events>,
    PathParams(name): PathParams<String>,
    Extension(RequestId(id)): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    // Before the body is read. The sender repeats a delivery until it receives a success.
    takes_work(&api)?;
    let webhook = events.webhooks().get(&name).ok_or_else(|| {
        let name: String = name.chars().take(64).collect();
        Problem::new(
            Code::WebhookNotFound,
            format!("no webhook {name:?} is configured"),
        )
    })?;
    let (parts, body) = request.into_parts();

    let limit = api.http().max_body_size;
    let body = body::receive(&api, &parts.headers, body, limit).await?;
    // The signature covers the body, so that it is read before anything is known about the sender.
    let mut request = Request::from_parts(parts, Body::empty());
    if let Err(problem) = verify(&api, &webhook, request.headers(), &body).await {
        // Anyone can send an invalid signature: it is counted, and does not fill the audit trail.
        let response = problem.into_response();
        authorize::deny_unauthenticated(&api, WEBHOOK_ROUTE, &request, &response);
        return Ok(response);
    }

    let caller = Caller::webhook(&name, &webhook.config.tenant);
    // The configuration determines the tenant; no part of the request can select another one.
    let tenant = &webhook.config.tenant;
    let span = tracing::Span::current();
    span.record("tenant", tenant.as_str());
    span.record("who", caller.name.as_deref());
    request.extensions_mut().insert(caller);

    // The audit record reads the tenant from the header, as for all other requests.
    if let Ok(tenant) = HeaderValue::from_str(tenant.as_str()) {
        request.headers_mut().insert(TENANT_HEADER, tenant);
    }
    let accept = async |request: Request| {
        accept(
            &api,
            &events,
            webhook,
            request.into_parts().0.headers,
            &body,
        )
        .await
        .into_response()
    };

    Ok(authorize::audit_authenticated(&api, WEBHOOK_ROUTE, &id, request, accept).await)
}

/// Verifies the signature of a request.
async fn verify(
    api: &RequestContext,
    webhook: &Arc<Webhook>,
    headers: &HeaderMap,
    body: &RequestBody,
) -> Result<(), Problem> {
    let webhook = Arc::clone(webhook);
    let headers = headers.clone();
    let now = api.now();
    let verified =
        move |bytes: &[u8]| match signature::verify(&webhook.config, &headers, bytes, now) {
            Ok(()) => {
                // The next rejection is a warning again; of rejections in sequence only the first
                // one is.
                webhook.end_rejections();
                Ok(())
            }
            // The secret cannot be read at the moment: the sender must repeat the delivery.
            Err(SignatureError::Unavailable(error)) => {
                Err(Problem::new(Code::Unavailable, error.log()))
            }
            Err(error) => {
                webhook.log_rejection(&error);
                Err(Problem::new(Code::InvalidSignature, NOT_AUTHENTIC))
            }
        };

    api.bodies().parse(body, verified).await
}

/// Publishes the event of an authentic request.
async fn accept(
    api: &RequestContext,
    events: &Events,
    webhook: Arc<Webhook>,
    headers: HeaderMap,
    body: &RequestBody,
) -> Result<(StatusCode, Json<AcceptedWebhook>), Problem> {
    // The layer checks the tenant of the header only, which is set after it.
    tenant_storage::check(api, &webhook.config.tenant)?;
    // After the verification: the sender signs the bytes that it sends.
    let limit = api.http().max_body_size;
    let body = body::decode(api, &headers, body, limit).await?;
    let now = api.now();
    let mapped = move |bytes: &[u8]| -> Result<Event, Problem> {
        let value = parse(&headers, bytes)?;
        let received = ReceivedBody {
            bytes,
            value: &value,
        };
        let mut event = mapping::event(&webhook, &headers, received, now)?;
        event.trace = request_trace(&headers);
        Ok(event)
    };

    let event = api.bodies().parse(&body, mapped).await?;
    let id = event.id.to_string();
    let receipts = events.publish(vec![event]).await?;
    let duplicate = receipts.iter().any(|receipt| receipt.duplicate);
    Ok((
        StatusCode::ACCEPTED,
        Json(AcceptedWebhook { id, duplicate }),
    ))
}

/// Parses the body as JSON or as a form.
fn parse(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Problem> {
    let content_type = body::content_type(headers)?;
    match content_type.as_str() {
        FORM => Ok(Value::Object(form(bytes))),
        "" | "application/json" => body::parse_foreign(bytes),
        json if json.ends_with("+json") => body::parse_foreign(bytes),
        other => {
            let other: String = other.chars().take(64).collect();
            let detail = format!("{other:?} is not supported; send application/json or {FORM}");
            Err(Problem::new(Code::UnsupportedMediaType, detail))
        }
    }
}

/// Returns the fields of a form: texts, and lists of texts for repeated fields.
fn form(bytes: &[u8]) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in form_urlencoded::parse(bytes) {
        let value = Value::from(value.into_owned());
        match fields.get_mut(name.as_ref()) {
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => {
                fields.insert(name.into_owned(), value);
            }
        }
    }

    fields
}

impl From<MappingError> for Problem {
    fn from(error: MappingError) -> Self {
        Problem::new(Code::WebhookNotMapped, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_form_fields_are_a_list() {
        let fields = form(b"a=1&b=x+y%26z&a=2&a=3&c=");
        assert_eq!(
            Value::Object(fields),
            json!({ "a": ["1", "2", "3"], "b": "x y&z", "c": "" })
        );
    }
}
