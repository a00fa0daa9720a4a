//! `POST /v1/events`: events in, one or a batch. What is accepted is on disk before the answer goes out.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orlog_bus::codec::{self, DecodeError, Defaults};
use orlog_model::{Event, TraceParent};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body;
use super::context::Api;
use super::extract::{Tenant, trace_of};
use super::problem::{Code, Place, Problem};

/// Wrong members of a batch that are named; the rest is counted.
const NAMED: usize = 16;

/// What was accepted, in the order given.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Accepted {
    accepted: Vec<AcceptedEvent>,
}

/// An event that is on disk.
#[derive(Debug, Serialize, ToSchema)]
struct AcceptedEvent {
    /// The event's id.
    id: String,
    /// Where it lies in the stream.
    sequence: u64,
    /// It was accepted before; nothing happens twice.
    duplicate: bool,
}

/// How the body is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Structured,
    Batch,
    Binary,
    /// One event or an array; CloudEvents or Aggregate envelopes.
    Plain,
}

/// Publish one event or a batch
///
/// Takes CloudEvents 1.0 (structured, binary, batch) and the Aggregate envelope (an object or an array). A batch is refused
/// whole when one member is wrong. Sending an event again, with the same id and source, is harmless.
#[utoipa::path(
    post,
    path = "/v1/events",
    tag = "events",
    request_body(
        description = "One event, or a batch",
        content(
            (Value = "application/cloudevents+json"),
            (Vec<Value> = "application/cloudevents-batch+json"),
            (Value = "application/json")
        )
    ),
    responses((status = 202, description = "On disk; what follows happens in its own time", body = Accepted))
)]
pub(super) async fn publish(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    takes_work(&api)?;
    let http = &api.app.config.http;
    let format = format(&headers)?;
    let limit = match format {
        Format::Batch | Format::Plain => http.max_batch_size.max(http.max_body_size),
        Format::Structured | Format::Binary => http.max_body_size,
    };
    let bytes = body::read(&headers, body, limit, http.request_timeout).await?;
    let defaults = Defaults { tenant: Some(tenant), now: api.app.clock.now() };
    let mut events = decode(format, &headers, &bytes, http.max_body_size, &defaults)?;
    inherit(&mut events, trace_of(&headers).as_ref());
    let ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    let receipts = if events.is_empty() { Vec::new() } else { api.app.publish(events).await? };
    let accepted = ids.into_iter().zip(receipts).map(|(id, receipt)| AcceptedEvent {
        id,
        sequence: receipt.sequence,
        duplicate: receipt.duplicate,
    });
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted: accepted.collect() })))
}

impl From<orlog_bus::Error> for Problem {
    fn from(error: orlog_bus::Error) -> Self {
        use orlog_bus::Error;
        let code = match &error {
            Error::Full(_) => Code::Full,
            Error::TooLarge { .. } => Code::TooLarge,
            Error::Subject { .. } => Code::InvalidEvent,
            Error::InUse(_) | Error::Unavailable(_) => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

/// Refuses early what would be refused after reading the body.
fn takes_work(api: &Api) -> Result<(), Problem> {
    let health = api.app.runtime.health();
    if !health.accepting {
        return Err(Problem::new(Code::Draining, "the process is draining and takes no new events"));
    }
    if !health.room {
        return Err(Problem::new(
            Code::Full,
            "there is no room in the store; events are taken again once there is",
        ));
    }
    Ok(())
}

fn format(headers: &HeaderMap) -> Result<Format, Problem> {
    let content_type = body::content_type(headers)?;
    let binary = headers.keys().any(|name| name.as_str().starts_with("ce-"));
    match content_type.as_str() {
        "application/cloudevents+json" => Ok(Format::Structured),
        "application/cloudevents-batch+json" => Ok(Format::Batch),
        _ if binary => Ok(Format::Binary),
        "application/json" | "" => Ok(Format::Plain),
        other => Err(body::media_type(other)),
    }
}

fn decode(
    format: Format,
    headers: &HeaderMap,
    bytes: &[u8],
    single_limit: u64,
    defaults: &Defaults,
) -> Result<Vec<Event>, Problem> {
    match format {
        Format::Structured => one(codec::from_structured(&body::parse(bytes)?, defaults)),
        Format::Batch => all(&body::parse::<Vec<Value>>(bytes)?, codec::from_structured, defaults),
        Format::Binary => binary(headers, bytes, defaults),
        Format::Plain => match body::parse(bytes)? {
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
        Err(error) => Err(Problem::new(code(&error), error.to_string()).with(vec![place("", &error)])),
    }
}

fn binary(headers: &HeaderMap, bytes: &[u8], defaults: &Defaults) -> Result<Vec<Event>, Problem> {
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
    read: impl Fn(&Value, &Defaults) -> Result<Event, DecodeError>,
    defaults: &Defaults,
) -> Result<Vec<Event>, Problem> {
    let mut events = Vec::with_capacity(members.len());
    let (mut places, mut wrong) = (Vec::new(), 0_usize);
    for (index, member) in members.iter().enumerate() {
        match read(member, defaults) {
            Ok(event) => events.push(event),
            Err(error) => {
                wrong += 1;
                if places.len() < NAMED {
                    places.push(place(&format!("/{index}"), &error));
                }
            }
        }
    }
    match places.first() {
        None => Ok(events),
        Some(first) => {
            let detail = format!(
                "{wrong} of {} events cannot be accepted, so none is; the first is at {}: {}",
                members.len(),
                first.pointer,
                first.detail
            );
            Err(Problem::new(Code::InvalidEvent, detail).with(places))
        }
    }
}

fn code(error: &DecodeError) -> Code {
    match error {
        DecodeError::TooLarge { .. } => Code::TooLarge,
        DecodeError::Json { part: "the body", .. } => Code::NotJson,
        _ => Code::InvalidEvent,
    }
}

/// Where in a body an event is wrong; `base` is the pointer to the event.
fn place(base: &str, error: &DecodeError) -> Place {
    let attribute = match error {
        DecodeError::Missing { attribute, .. } | DecodeError::Invalid { attribute, .. } => attribute.as_str(),
        DecodeError::Tenant { .. } => "tenantid",
        DecodeError::Json { part, .. } if !part.contains(' ') => part,
        _ => "",
    };
    let parts = attribute.split('.').filter(|part| !part.is_empty());
    let pointer = parts.fold(base.to_owned(), |pointer, part| pointer + "/" + &body::escape(part));
    Place { pointer, detail: error.to_string() }
}

/// Events that belong to no trace belong to that of the request.
fn inherit(events: &mut [Event], trace: Option<&TraceParent>) {
    for event in events {
        if event.trace.is_none() {
            event.trace = trace.cloned();
        }
    }
}
