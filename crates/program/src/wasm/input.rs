//! Input of a module, as JSON.

use std::collections::BTreeMap;

use orlog_model::{DefinitionRef, Event, Failure, WorkOutcome};
use serde::Serialize;
use serde_json::Value;

use crate::contract::{Context, ProgramInput};

/// Input of `apply`. Of the fields after `context`, only the one that `kind` names is present.
/// `retry`, `skip` and `forceComplete` have none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    kind: &'static str,
    context: ContextInput<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventInput<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work_result: Option<WorkResultInput<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<Timer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<Cancel<'a>>,
}

#[derive(Serialize)]
struct ContextInput<'a> {
    tenant: &'a str,
    saga: &'a str,
    correlation: &'a str,
    /// State version after the transition.
    version: u64,
    /// Milliseconds since 1970.
    now: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventInput<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    source: &'a str,
    subject: Option<&'a str>,
    /// Milliseconds since 1970.
    time: i64,
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_schema: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<&'a BTreeMap<String, String>>,
    data: &'a Value,
}

#[derive(Serialize)]
struct WorkResultInput<'a> {
    tag: &'a str,
    /// One of `accepted`, `succeeded`, `failed`, `timedOut`.
    outcome: &'static str,
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

/// Source version of a state, for `migrate`.
#[derive(Serialize)]
struct MigrationInput<'a> {
    context: ContextInput<'a>,
    saga: &'a str,
    version: u32,
    hash: String,
}

/// Returns the input of `apply`.
pub(super) fn of(program_input: &ProgramInput<'_>, context: &Context<'_>) -> Vec<u8> {
    let mut input = Input {
        kind: "",
        context: context_input(context),
        event: None,
        work_result: None,
        timer: None,
        cancel: None,
    };

    match program_input {
        ProgramInput::Event(event) => {
            input.kind = "event";
            input.event = Some(event_input(event));
        }
        ProgramInput::WorkResult { tag, outcome } => {
            input.kind = "workResult";
            input.work_result = Some(work_result_input(tag, outcome));
        }
        ProgramInput::Timer { name } => {
            input.kind = "timer";
            input.timer = Some(Timer { name });
        }
        ProgramInput::Cancel { reason } => {
            input.kind = "cancel";
            input.cancel = Some(Cancel { reason });
        }
        ProgramInput::Retry => input.kind = "retry",
        ProgramInput::Skip => input.kind = "skip",
        ProgramInput::ForceComplete => input.kind = "forceComplete",
    }

    bytes(&input)
}

/// Returns the second argument of `migrate`.
pub(super) fn migration_input(from: &DefinitionRef, context: &Context<'_>) -> Vec<u8> {
    // As text: JSON numbers of most languages have 53 bits.
    let hash = format!("{:032x}", u128::from_be_bytes(from.hash));
    bytes(&MigrationInput {
        context: context_input(context),
        saga: from.saga.as_str(),
        version: from.version,
        hash,
    })
}

fn context_input<'a>(context: &Context<'a>) -> ContextInput<'a> {
    ContextInput {
        tenant: context.key.tenant.as_str(),
        saga: context.key.saga.as_str(),
        correlation: context.key.correlation.as_str(),
        version: context.version,
        now: context.now.as_millis(),
    }
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data with text keys serializes to JSON")
}

fn event_input(event: &Event) -> EventInput<'_> {
    EventInput {
        id: event.id.as_str(),
        kind: event.kind.as_str(),
        source: &event.source,
        subject: event.subject.as_deref(),
        time: event.time.as_millis(),
        schema_version: event.schema_version,
        content_type: event
            .attributes
            .as_ref()
            .and_then(|attributes| attributes.content_type.as_deref()),
        data_schema: event
            .attributes
            .as_ref()
            .and_then(|attributes| attributes.data_schema.as_deref()),
        extensions: event
            .attributes
            .as_ref()
            .map(|attributes| &attributes.extensions),
        data: &event.data,
    }
}

fn work_result_input<'a>(tag: &'a str, outcome: &'a WorkOutcome) -> WorkResultInput<'a> {
    let result =
        |outcome, event: Option<&'a orlog_model::EventType>, payload, failure| WorkResultInput {
            tag,
            outcome,
            event: event.map(orlog_model::EventType::as_str),
            payload,
            failure,
        };
    match outcome {
        WorkOutcome::Accepted => result("accepted", None, &Value::Null, None),
        WorkOutcome::Succeeded { event, payload, .. } => {
            result("succeeded", event.as_ref(), payload, None)
        }
        WorkOutcome::Failed {
            event,
            failure,
            payload,
        } => result("failed", event.as_ref(), payload, Some(failure)),
        WorkOutcome::TimedOut { failure } => result("timedOut", None, &Value::Null, Some(failure)),
    }
}
