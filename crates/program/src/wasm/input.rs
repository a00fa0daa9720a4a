//! What a module is told, as JSON.

use orlog_model::{Event, Failure, ProgramRef, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::contract::{Context, Stimulus};

/// What happened; of the fields after `context` one is there, the one that `kind` names. `retry`, `skip` and
/// `forceComplete` have none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    kind: &'static str,
    context: Surroundings<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Happening<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<Timer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<Cancel<'a>>,
}

#[derive(Serialize)]
struct Surroundings<'a> {
    tenant: &'a str,
    saga: &'a str,
    correlation: &'a str,
    /// The state version that the transition leads to.
    version: u64,
    /// Milliseconds since 1970.
    now: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Happening<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    source: &'a str,
    subject: Option<&'a str>,
    /// Milliseconds since 1970.
    time: i64,
    schema_version: u32,
    data: &'a Value,
}

#[derive(Serialize)]
struct Outcome<'a> {
    tag: &'a str,
    /// `accepted`, `succeeded`, `failed`, `timedOut`.
    verdict: &'static str,
    event: Option<&'a str>,
    payload: &'a Value,
    failure: Option<&'a Failure>,
}

#[derive(Serialize)]
struct Timer<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Cancel<'a> {
    reason: &'a str,
}

/// The version that a state comes from, for `migrate`.
#[derive(Serialize)]
struct Origin<'a> {
    context: Surroundings<'a>,
    saga: &'a str,
    version: u32,
    hash: String,
}

/// The input of `apply`.
pub(super) fn of(stimulus: &Stimulus<'_>, context: &Context<'_>) -> Vec<u8> {
    let mut input = Input {
        kind: "",
        context: surroundings(context),
        event: None,
        outcome: None,
        timer: None,
        cancel: None,
    };
    match stimulus {
        Stimulus::Event(event) => (input.kind, input.event) = ("event", Some(happening(event))),
        Stimulus::Outcome { tag, verdict } => {
            (input.kind, input.outcome) = ("outcome", Some(outcome(tag, verdict)));
        }
        Stimulus::Timer { name } => (input.kind, input.timer) = ("timer", Some(Timer { name })),
        Stimulus::Cancel { reason } => (input.kind, input.cancel) = ("cancel", Some(Cancel { reason })),
        Stimulus::Retry => input.kind = "retry",
        Stimulus::Skip => input.kind = "skip",
        Stimulus::ForceComplete => input.kind = "forceComplete",
    }
    bytes(&input)
}

/// The second argument of `migrate`.
pub(super) fn origin(from: &ProgramRef, context: &Context<'_>) -> Vec<u8> {
    let hash = format!("{:032x}", u128::from_be_bytes(from.hash));
    bytes(&Origin { context: surroundings(context), saga: from.saga.as_str(), version: from.version, hash })
}

fn surroundings<'a>(context: &Context<'a>) -> Surroundings<'a> {
    Surroundings {
        tenant: context.key.tenant.as_str(),
        saga: context.key.saga.as_str(),
        correlation: context.key.correlation.as_str(),
        version: context.version,
        now: context.now.millis(),
    }
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data with text keys is JSON")
}

fn happening(event: &Event) -> Happening<'_> {
    Happening {
        id: event.id.as_str(),
        kind: event.kind.as_str(),
        source: &event.source,
        subject: event.subject.as_deref(),
        time: event.time.millis(),
        schema_version: event.schema_version,
        data: &event.data,
    }
}

fn outcome<'a>(tag: &'a str, verdict: &'a Verdict) -> Outcome<'a> {
    let with = |word, event: Option<&'a orlog_model::EventType>, payload, failure| Outcome {
        tag,
        verdict: word,
        event: event.map(orlog_model::EventType::as_str),
        payload,
        failure,
    };
    match verdict {
        Verdict::Accepted => with("accepted", None, &Value::Null, None),
        Verdict::Succeeded { event, payload } => with("succeeded", event.as_ref(), payload, None),
        Verdict::Failed { event, failure, payload } => with("failed", event.as_ref(), payload, Some(failure)),
        Verdict::TimedOut { failure } => with("timedOut", None, &Value::Null, Some(failure)),
    }
}
