//! Decoding of published events: formats of the body, batches, and the places of errors.

use axum::http::HeaderMap;
use orlog_bus::codec::{self, DecodeDefaults, DecodeError};
use orlog_model::{Event, TraceParent};
use serde_json::Value;

use crate::server::body;
use crate::server::problem::{Code, Problem, ProblemDetail};

/// Maximum number of invalid events of a batch in a response; the rest is counted.
const MAX_NAMED_ERRORS: usize = 16;

/// Format of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFormat {
    Structured,
    Batch,
    Binary,
    /// One event or an array; CloudEvents or Aggregate envelopes.
    Plain,
}

pub(super) fn format(headers: &HeaderMap) -> Result<BodyFormat, Problem> {
    let content_type = body::content_type(headers)?;
    let binary = headers.keys().any(|name| name.as_str().starts_with("ce-"));
    // The content types of CloudEvents decide first: in structured mode, the body contains the
    // attributes.
    match content_type.as_str() {
        "application/cloudevents+json" => Ok(BodyFormat::Structured),
        "application/cloudevents-batch+json" => Ok(BodyFormat::Batch),
        _ if binary => Ok(BodyFormat::Binary),
        "application/json" | "" => Ok(BodyFormat::Plain),
        other => Err(body::media_type(other)),
    }
}

pub(super) fn decode(
    format: BodyFormat,
    headers: &HeaderMap,
    bytes: &[u8],
    single_limit: u64,
    defaults: &DecodeDefaults,
) -> Result<Vec<Event>, Problem> {
    match format {
        BodyFormat::Structured => one(codec::from_structured(&body::parse(bytes)?, defaults)),
        BodyFormat::Batch => all(
            &body::parse::<Vec<Value>>(bytes)?,
            codec::from_structured,
            defaults,
        ),
        BodyFormat::Binary => binary(headers, bytes, defaults),
        BodyFormat::Plain => match body::parse(bytes)? {
            Value::Array(members) => all(&members, codec::from_json, defaults),
            // The body was read within the limit of a batch, because its format was unknown.
            _ if bytes.len() as u64 > single_limit => Err(body::too_large(
                &format!("one event of {} bytes", bytes.len()),
                single_limit,
            )),
            single => one(codec::from_json(&single, defaults)),
        },
    }
}

fn one(decoded: Result<Event, DecodeError>) -> Result<Vec<Event>, Problem> {
    match decoded {
        Ok(event) => Ok(vec![event]),
        Err(error) => {
            Err(Problem::new(code(&error), error.to_string())
                .with(vec![problem_detail("", &error)]))
        }
    }
}

fn binary(
    headers: &HeaderMap,
    bytes: &[u8],
    defaults: &DecodeDefaults,
) -> Result<Vec<Event>, Problem> {
    let mut attributes = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let is_read =
            name.as_str().starts_with("ce-") || name == "content-type" || name == "traceparent";
        // Only attributes must be text; other headers can contain any bytes.
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) if is_read => attributes.push((name.as_str(), text)),
            Err(_) if is_read => {
                return Err(Problem::new(
                    Code::InvalidEvent,
                    format!("the header {name} is not UTF-8"),
                ));
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
    let mut problem_details = Vec::new();
    let mut invalid_count = 0_usize;
    // All members are decoded before the batch is rejected, so that one response lists the errors
    // of all.
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
        // The part distinguishes a body that is no JSON from one member of an event that is none.
        DecodeError::Json {
            part: "the body", ..
        } => Code::InvalidJson,
        _ => Code::InvalidEvent,
    }
}

/// Returns the location of an event error in a body; `base` is the pointer to the event.
pub(super) fn problem_detail(base: &str, error: &DecodeError) -> ProblemDetail {
    let attribute = match error {
        DecodeError::Missing { attribute, .. } | DecodeError::Invalid { attribute, .. } => {
            attribute.as_str()
        }
        DecodeError::Tenant { .. } => "tenantid",
        // A part with a space is a description, not the name of a member.
        DecodeError::Json { part, .. } if !part.contains(' ') => part,
        _ => "",
    };
    // Members of the Aggregate envelope are nested, for example `metadata.correlation_id`.
    let parts = attribute.split('.').filter(|part| !part.is_empty());

    let pointer = parts.fold(base.to_owned(), |pointer, part| {
        pointer + "/" + &body::escape(part)
    });
    ProblemDetail {
        pointer,
        detail: error.to_string(),
    }
}

/// Assigns the trace of the request to events without a trace.
pub(super) fn inherit(events: &mut [Event], trace: Option<&TraceParent>) {
    for event in events {
        if event.trace.is_none() {
            event.trace = trace.cloned();
        }
    }
}
