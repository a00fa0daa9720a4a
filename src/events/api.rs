//! `POST /v1/events`: publishes one event or a batch. Accepted events are durable before the response.

#[expect(dead_code, reason = "the types only describe requests")]
mod schema;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use orlog_bus::codec::{self, DecodeDefaults, DecodeError};
use orlog_model::{Event, TraceParent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::api::body;
use crate::api::context::ApiState;
use crate::api::extract::{QueryParams, Tenant, request_trace};
use crate::api::problem::{Code, Problem, ProblemDetail};
use crate::api::read_scope::ReadScope;
use crate::auth::Caller;
use schema::PublishedEvents;

/// Maximum number of invalid events of a batch in a response; the rest is counted.
const MAX_NAMED_ERRORS: usize = 16;

/// Accepted events, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedEvents {
    accepted: Vec<AcceptedEvent>,
}

/// Durable event.
#[derive(Debug, Serialize, ToSchema)]
struct AcceptedEvent {
    /// Event id.
    id: String,
    /// Sequence in the stream.
    sequence: u64,
    /// The event was accepted before and has no further effect.
    duplicate: bool,
    /// Number of sagas whose active definitions consume the event type, at the time of the request; with 0, the event
    /// has no effect.
    matched: usize,
    /// With `existing=true`, for a start event: whether an instance existed before the request. Then the event starts
    /// nothing. Absent if that is unknown, because the shard of the instance runs in another pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<bool>,
}

/// Options of a publication.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PublishQuery {
    /// Whether to report for each start event whether its instance exists. It reads the store for each event.
    #[serde(default)]
    existing: bool,
}

/// Format of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    Structured,
    Batch,
    Binary,
    /// One event or an array; CloudEvents or Aggregate envelopes.
    Plain,
}

/// Publish one event or a batch
///
/// Accepts CloudEvents 1.0 (structured, binary, batch) and the Aggregate envelope (an object or an
/// array). A batch is atomic: one invalid event rejects the batch. A repeated event with the same id
/// and source is a duplicate without effect. The extension attribute `orloguser` is the authenticated
/// user; only an admin can state another one. Without authentication, it is the stated user.
#[utoipa::path(
    post,
    path = "/v1/events",
    tag = "events",
    params(PublishQuery),
    request_body(
        content = PublishedEvents,
        description = "One event, or a batch. Also as `application/cloudevents+json` and `application/cloudevents-batch+json`; in binary mode, the headers contain the attributes, and the body is the data"
    ),
    responses((status = 202, description = "The events are durable; processing is asynchronous", body = AcceptedEvents))
)]
pub(crate) async fn publish(
    api: ApiState,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<PublishQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<AcceptedEvents>), Problem> {
    takes_work(&api)?;
    let http = &api.app.config.http;
    let format = format(&headers)?;
    let limit = match format {
        BodyFormat::Batch | BodyFormat::Plain => http.max_batch_size.max(http.max_body_size),
        BodyFormat::Structured | BodyFormat::Binary => http.max_body_size,
    };
    let body = body::read(&api, &headers, body, limit).await?;
    let defaults = DecodeDefaults { tenant: Some(tenant), now: api.app.clock.now() };
    let (trace, single_limit) = (request_trace(&headers), http.max_body_size);
    let decoded = move |bytes: &[u8]| {
        let mut events = decode(format, &headers, bytes, single_limit, &defaults)?;
        inherit(&mut events, trace.as_ref());
        for event in &mut events {
            event.user = caller.check_user(event.user.take())?;
        }
        Ok(events)
    };
    // The body stays in the budget until its events are durable.
    let events = api.bodies.parse(&body, decoded).await?;
    let matches = events.iter().map(|event| (event.id.to_string(), api.app.programs.consumers(&event.kind)));
    let matches: Vec<_> = matches.collect();
    let existing = if query.existing {
        let of = events.clone();
        api.read(move |app| of.iter().map(|event| has_instance(app, event)).collect()).await?
    } else {
        vec![None; events.len()]
    };
    let receipts = if events.is_empty() { Vec::new() } else { api.app.publish(events).await? };
    let accepted = matches.into_iter().zip(existing).zip(receipts);
    let accepted = accepted.map(|(((id, matched), existing), receipt)| AcceptedEvent {
        id,
        sequence: receipt.sequence,
        duplicate: receipt.duplicate,
        matched,
        existing,
    });
    Ok((StatusCode::ACCEPTED, Json(AcceptedEvents { accepted: accepted.collect() })))
}

/// Returns whether an instance exists that a start event would start; `None` if the event is no start event, or another
/// pod runs the shard.
fn has_instance(app: &ReadScope, event: &Event) -> Result<Option<bool>, Problem> {
    let mut found = None;
    for key in app.programs.route(event).into_iter().flatten() {
        let program = app.programs.active(&key.saga);
        let starts = program.is_some_and(|program| program.start_event(Some(&event.kind)).is_some());
        if let Some(reader) = app.reader(&key).filter(|_| starts) {
            found = Some(reader.instance(&key)?.is_some() || found == Some(true));
        }
    }
    Ok(found)
}

impl From<orlog_bus::Error> for Problem {
    fn from(error: orlog_bus::Error) -> Self {
        use orlog_bus::Error;
        let code = match &error {
            Error::Full(_) => Code::InsufficientStorage,
            Error::TooLarge { .. } => Code::TooLarge,
            Error::InvalidSubject { .. } => Code::InvalidEvent,
            Error::InUse(_) | Error::Unavailable(_) => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

/// Rejects a request before its body is read, if the node accepts no events.
pub(crate) fn takes_work(api: &ApiState) -> Result<(), Problem> {
    let health = api.app.runtime.health();
    if !health.accepting {
        return Err(Problem::new(Code::Draining, "the node is draining and accepts no new events"));
    }
    if !health.has_capacity {
        return Err(Problem::new(
            Code::InsufficientStorage,
            "the store is full; events are accepted when space is available",
        ));
    }
    Ok(())
}

fn format(headers: &HeaderMap) -> Result<BodyFormat, Problem> {
    let content_type = body::content_type(headers)?;
    let binary = headers.keys().any(|name| name.as_str().starts_with("ce-"));
    match content_type.as_str() {
        "application/cloudevents+json" => Ok(BodyFormat::Structured),
        "application/cloudevents-batch+json" => Ok(BodyFormat::Batch),
        _ if binary => Ok(BodyFormat::Binary),
        "application/json" | "" => Ok(BodyFormat::Plain),
        other => Err(body::media_type(other)),
    }
}

fn decode(
    format: BodyFormat,
    headers: &HeaderMap,
    bytes: &[u8],
    single_limit: u64,
    defaults: &DecodeDefaults,
) -> Result<Vec<Event>, Problem> {
    match format {
        BodyFormat::Structured => one(codec::from_structured(&body::parse(bytes)?, defaults)),
        BodyFormat::Batch => all(&body::parse::<Vec<Value>>(bytes)?, codec::from_structured, defaults),
        BodyFormat::Binary => binary(headers, bytes, defaults),
        BodyFormat::Plain => match body::parse(bytes)? {
            Value::Array(members) => all(&members, codec::from_json, defaults),
            _ if bytes.len() as u64 > single_limit => {
                Err(body::too_large(&format!("one event of {} bytes", bytes.len()), single_limit))
            }
            single => one(codec::from_json(&single, defaults)),
        },
    }
}

fn one(decoded: Result<Event, DecodeError>) -> Result<Vec<Event>, Problem> {
    match decoded {
        Ok(event) => Ok(vec![event]),
        Err(error) => {
            Err(Problem::new(code(&error), error.to_string()).with(vec![problem_detail("", &error)]))
        }
    }
}

fn binary(headers: &HeaderMap, bytes: &[u8], defaults: &DecodeDefaults) -> Result<Vec<Event>, Problem> {
    let mut attributes = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let is_read = name.as_str().starts_with("ce-") || name == "content-type" || name == "traceparent";
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) if is_read => attributes.push((name.as_str(), text)),
            Err(_) if is_read => {
                return Err(Problem::new(Code::InvalidEvent, format!("the header {name} is not UTF-8")));
            }
            _ => {}
        }
    }
    codec::from_binary(attributes, bytes, defaults)
        .map(|event| vec![event])
        .map_err(|error| Problem::new(code(&error), error.to_string()))
}

fn all(
    members: &[Value],
    read: impl Fn(&Value, &DecodeDefaults) -> Result<Event, DecodeError>,
    defaults: &DecodeDefaults,
) -> Result<Vec<Event>, Problem> {
    let mut events = Vec::with_capacity(members.len());
    let (mut problem_details, mut invalid_count) = (Vec::new(), 0_usize);
    for (index, member) in members.iter().enumerate() {
        match read(member, defaults) {
            Ok(event) => events.push(event),
            Err(error) => {
                invalid_count += 1;
                if problem_details.len() < MAX_NAMED_ERRORS {
                    problem_details.push(problem_detail(&format!("/{index}"), &error));
                }
            }
        }
    }
    match problem_details.first() {
        None => Ok(events),
        Some(first) => {
            let detail = format!(
                "{invalid_count} of {} events are invalid, batch rejected; first error at {}: {}",
                members.len(),
                first.pointer,
                first.detail
            );
            Err(Problem::new(Code::InvalidEvent, detail).with(problem_details))
        }
    }
}

fn code(error: &DecodeError) -> Code {
    match error {
        DecodeError::TooLarge { .. } => Code::TooLarge,
        DecodeError::Json { part: "the body", .. } => Code::InvalidJson,
        _ => Code::InvalidEvent,
    }
}

/// Returns the location of an event error in a body; `base` is the pointer to the event.
fn problem_detail(base: &str, error: &DecodeError) -> ProblemDetail {
    let attribute = match error {
        DecodeError::Missing { attribute, .. } | DecodeError::Invalid { attribute, .. } => attribute.as_str(),
        DecodeError::Tenant { .. } => "tenantid",
        DecodeError::Json { part, .. } if !part.contains(' ') => part,
        _ => "",
    };
    let parts = attribute.split('.').filter(|part| !part.is_empty());
    let pointer = parts.fold(base.to_owned(), |pointer, part| pointer + "/" + &body::escape(part));
    ProblemDetail { pointer, detail: error.to_string() }
}

/// Assigns the trace of the request to events without a trace.
fn inherit(events: &mut [Event], trace: Option<&TraceParent>) {
    for event in events {
        if event.trace.is_none() {
            event.trace = trace.cloned();
        }
    }
}
