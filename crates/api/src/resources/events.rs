//! `POST /v1/events`: publishes one event or a batch. Accepted events are durable before the
//! response.

mod decoding;
#[expect(dead_code, reason = "the types only describe requests")]
mod schema;
mod signed;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use orlog_bus::Message;
use orlog_bus::codec::DecodeDefaults;
use orlog_model::Event;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::server::body;
use crate::server::context::RequestContext;
use crate::server::extract::{QueryParams, Tenant, request_trace};
use crate::server::parts::events::Events;
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;
use decoding::{BodyFormat, decode, format, inherit};
use orlog_node::auth::Caller;
use schema::PublishedEvents;
use signed::Received;

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
    /// Number of sagas whose active definitions consume the event type, at the time of the request;
    /// with 0, the event has no effect.
    matched: usize,
    /// With `existing=true`, for a start event: whether an instance existed before the request.
    /// Then the event starts nothing. Absent if that is unknown, because the shard of the instance
    /// runs in another pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<bool>,
}

/// Options of a publication.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PublishQuery {
    /// Whether to report for each start event whether its instance exists. It reads the store for
    /// each event.
    #[serde(default)]
    existing: bool,
}

/// Publish one event or a batch
///
/// Accepts CloudEvents 1.0 (structured, binary, batch) and the Aggregate envelope (an object or an
/// array). One invalid event rejects its batch. A repeated event with the same id and source is a
/// duplicate without effect. The extension attribute `orloguser` is the
/// authenticated user; only an admin can state another one. Without authentication, it is the
/// stated user.
#[utoipa::path(
    post,
    path = "/v1/events",
    tag = "events",
    params(PublishQuery),
    request_body(
        content = PublishedEvents,
        description = "One event, or a batch. Also as `application/cloudevents+json` and \
                       `application/cloudevents-batch+json`; in binary mode, the headers contain \
                       the attributes, and the body is the data"
    ),
    responses((
        status = 202,
        description = "The events are durable; processing is asynchronous",
        body = AcceptedEvents
    ))
)]
pub(crate) async fn publish(
    api: RequestContext,
    State(bus): State<Events>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<PublishQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<AcceptedEvents>), Problem> {
    // Before the body is read, so that rejected events use no memory of the budget.
    takes_work(&api)?;
    let http = api.http();
    let format = format(&headers)?;
    // A plain body can be a batch, which only parsing shows; `decode` applies the limit of a single
    // event then.
    let limit = match format {
        BodyFormat::Batch | BodyFormat::Plain => http.max_batch_size.max(http.max_body_size),
        BodyFormat::Structured | BodyFormat::Binary => http.max_body_size,
    };
    let body = body::read(&api, &headers, body, limit).await?;
    let now = api.now();

    // Decided once, at one time, for all events of the request.
    let signed_events = bus.required_signatures(&tenant, now);
    let defaults = DecodeDefaults {
        tenant: Some(tenant),
        now,
    };

    let trace = request_trace(&headers);
    let single_limit = http.max_body_size;
    // Decoding and verification are one step, because both run on a thread that may block if the
    // body is large.
    let decoded = move |bytes: &[u8]| {
        let mut events = decode(format, &headers, bytes, single_limit, &defaults)?;
        inherit(&mut events, trace.as_ref());
        if let Some(signed_events) = signed_events {
            let received = Received {
                format,
                headers: &headers,
                bytes,
            };
            let messages =
                signed::authenticate(&signed_events, &caller, now, &received, &mut events)?;
            return Ok((events, messages));
        }

        for event in &mut events {
            event.user = caller.check_user(event.user.take())?;
        }
        Ok((events, Vec::new()))
    };

    // The body stays in the budget until its events are durable.
    let (events, signed) = api.bodies().parse(&body, decoded).await?;
    // Before the publication consumes the events.
    let matches: Vec<_> = events
        .iter()
        .map(|event| (event.id.to_string(), bus.consumers(event)))
        .collect();
    // Only on request: it reads the store for each event.
    let existing = if query.existing {
        let of = events.clone();
        api.read(move |scope| of.iter().map(|event| has_instance(scope, event)).collect())
            .await?
    } else {
        vec![None; events.len()]
    };

    let receipts = if events.is_empty() {
        Vec::new()
    } else if signed.is_empty() {
        bus.publish(events).await?
    } else {
        // A signed event keeps the bytes that its publisher signed; an encoding by this node would
        // invalidate the signature.
        let message = |(signed, event): (Option<Message>, &Event)| match signed {
            Some(message) => bus.vouched(message),
            None => bus.message_of(event),
        };
        bus.publish_messages(signed.into_iter().zip(&events).map(message).collect())
            .await?
    };

    let accepted = matches.into_iter().zip(existing).zip(receipts);
    let accepted = accepted.map(|(((id, matched), existing), receipt)| AcceptedEvent {
        id,
        sequence: receipt.sequence,
        duplicate: receipt.duplicate,
        matched,
        existing,
    });

    Ok((
        StatusCode::ACCEPTED,
        Json(AcceptedEvents {
            accepted: accepted.collect(),
        }),
    ))
}

/// Returns whether an instance exists that a start event would start; `None` if the event is no
/// start event, or another pod runs the shard.
fn has_instance(scope: &ReadScope, event: &Event) -> Result<Option<bool>, Problem> {
    let mut found = None;
    // Several sagas can start with the event; one existing instance is enough.
    for key in scope.programs().route(event).into_iter().flatten() {
        let program = scope.programs().active(&key.tenant, &key.saga);
        let starts =
            program.is_some_and(|program| program.start_event(Some(&event.kind)).is_some());
        if let Some(reader) = scope.reader(&key).filter(|_| starts) {
            found = Some(reader.instance(&key)?.is_some() || found == Some(true));
        }
    }

    Ok(found)
}

/// Rejects a request before its body is read, if the node accepts no events.
pub(crate) fn takes_work(api: &RequestContext) -> Result<(), Problem> {
    api.check_takes_work()?;
    Ok(())
}
