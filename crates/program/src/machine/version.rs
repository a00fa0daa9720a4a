//! Event versions: accepted versions, and upcasts of older payloads to the newest version.

use orlog_model::{Event, Failure};
use serde_json::Value;

use super::compiled::{CompiledSaga, EventVersions};
use crate::contract::ProgramError;
use crate::definition::UnsupportedVersionPolicy;
use crate::expression::Bindings;
use crate::limits::check_payload;

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
    let Some(versions) = saga.versions.get(&event.kind) else { return Ok(VersionDecision::Current) };
    if versions.accepts.contains(&event.schema_version) {
        let newest = upcast(versions, event)?;
        return Ok(newest.map_or(VersionDecision::Current, |data| {
            let upcast_event = Event { data, ..without_data(event) };
            VersionDecision::Upcast(Box::new(upcast_event))
        }));
    }
    let message = rejection_message(versions, event);
    match versions.on_unsupported {
        UnsupportedVersionPolicy::DeadLetter => Err(ProgramError::SchemaMismatch(message)),
        UnsupportedVersionPolicy::Ignore => Ok(VersionDecision::Ignored),
        UnsupportedVersionPolicy::Compensate => {
            Ok(VersionDecision::Compensates(Failure { code: "schema_version".to_owned(), message }))
        }
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
        data: Value::Null,
        user: event.user.clone(),
    }
}

fn rejection_message(versions: &EventVersions, event: &Event) -> String {
    let accepted: Vec<_> = versions.accepts.iter().map(ToString::to_string).collect();
    let (kind, version) = (&event.kind, event.schema_version);
    format!("version {version} of {kind} is not accepted; accepted versions: {}", accepted.join(", "))
}

/// Returns the upcast payload; `None` if it can stay unchanged.
pub(crate) fn upcast(versions: &EventVersions, event: &Event) -> Result<Option<Value>, ProgramError> {
    let Some(template) = versions.upcast.get(&event.schema_version) else { return Ok(None) };
    let upcast_error = |reason: String| {
        ProgramError::SchemaMismatch(format!(
            "cannot upcast version {} of {}: {reason}",
            event.schema_version, event.kind
        ))
    };
    let bindings = Bindings::before_any_instance().event(&event.data);
    let data = template.evaluate(&bindings).map_err(|error| upcast_error(error.to_string()))?;
    check_payload(&data).map_err(|large| upcast_error(large.to_string()))?;
    Ok(Some(data))
}
