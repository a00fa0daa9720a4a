//! Versions of events and of responses: older payloads are upcast to the newest version before they
//! are applied.

use std::borrow::Cow;

use orlog_model::{CURRENT_SCHEMA, Event, Failure, WorkOutcome};
use serde_json::Value;

use super::compiled::CompiledSaga;
use super::execution::{Execution, NoTransition};
use super::in_doubt::{EXECUTED, NOT_EXECUTED};
use crate::contract::ProgramError;
use crate::versions::{UnsupportedVersionPolicy, VersionedPayload};

/// Decision about the version of an event.
#[derive(Debug)]
pub(super) enum VersionDecision {
    /// The event is used unchanged.
    Current,
    /// The event is replaced by this one, whose payload has the newest version.
    Upcast(Box<Event>),
    /// The event is ignored.
    Ignored,
    /// The event starts compensation.
    Compensates(Failure),
}

/// Resolves the version of an event.
pub(super) fn resolve(saga: &CompiledSaga, event: &Event) -> Result<VersionDecision, ProgramError> {
    let Some(versions) = saga.versions.get(&event.kind) else {
        return Ok(VersionDecision::Current);
    };
    Ok(
        match versions.resolve(event.kind.as_str(), event.schema_version, &event.data)? {
            VersionedPayload::Current => VersionDecision::Current,
            VersionedPayload::Upcast(data) => VersionDecision::Upcast(Box::new(Event {
                data,
                ..without_data(event)
            })),
            VersionedPayload::Unsupported(policy, message) => match policy {
                UnsupportedVersionPolicy::DeadLetter => {
                    return Err(ProgramError::SchemaMismatch(message));
                }
                UnsupportedVersionPolicy::Ignore => VersionDecision::Ignored,
                UnsupportedVersionPolicy::Compensate => {
                    VersionDecision::Compensates(schema_version(message))
                }
            },
        },
    )
}

/// Resolves the version of the response of an effect.
pub(super) fn resolve_response<'o>(
    run: &Execution<'_>,
    tag: &str,
    outcome: &'o WorkOutcome,
) -> Result<Cow<'o, WorkOutcome>, NoTransition> {
    let unchanged = Ok(Cow::Borrowed(outcome));
    let WorkOutcome::Succeeded {
        event,
        payload,
        schema_version: version,
    } = outcome
    else {
        return unchanged;
    };

    let is_decision = event
        .as_ref()
        .is_some_and(|event| [EXECUTED, NOT_EXECUTED].contains(&event.as_str()));
    let Some((at, is_compensation)) = run.step_of_tag(tag) else {
        return unchanged;
    };

    // The decision of an operator is no response of the upstream, so its data has no version.
    let versions = run.action_of(at, is_compensation).kind.kind().responses();
    let Some(versions) = versions.filter(|_| !is_decision && *version != CURRENT_SCHEMA) else {
        return unchanged;
    };

    Ok(Cow::Owned(
        match versions.resolve(&format!("the response of {tag}"), *version, payload)? {
            VersionedPayload::Current => return unchanged,
            VersionedPayload::Upcast(payload) => WorkOutcome::Succeeded {
                event: event.clone(),
                payload,
                schema_version: CURRENT_SCHEMA,
            },
            VersionedPayload::Unsupported(UnsupportedVersionPolicy::Compensate, message) => {
                // The effect was executed, so its outcome is unknown: the step fails and is
                // compensated.
                WorkOutcome::TimedOut {
                    failure: schema_version(message),
                }
            }
            VersionedPayload::Unsupported(
                // The compiler rejects `ignore` here: the result is the only one, and the step
                // would wait for ever.
                UnsupportedVersionPolicy::DeadLetter | UnsupportedVersionPolicy::Ignore,
                message,
            ) => return Err(NoTransition::Error(ProgramError::SchemaMismatch(message))),
        },
    ))
}

fn schema_version(message: String) -> Failure {
    Failure {
        code: "schema_version".to_owned(),
        message,
    }
}

fn without_data(event: &Event) -> Event {
    Event {
        id: event.id.clone(),
        tenant: event.tenant.clone(),
        kind: event.kind.clone(),
        source: event.source.clone(),
        subject: event.subject.clone(),
        time: event.time,
        correlation: event.correlation.clone(),
        causation: event.causation.clone(),
        trace: event.trace.clone(),
        schema_version: event.schema_version,
        // The caller replaces the data, so a copy of it would be wasted.
        data: Value::Null,
        user: event.user.clone(),
        attributes: event.attributes.clone(),
    }
}
