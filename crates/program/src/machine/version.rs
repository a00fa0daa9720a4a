//! Versions of events: which are taken, and how an older payload becomes one of the newest version.

use orlog_model::{Event, Failure};
use serde_json::Value;

use super::compiled::{Saga, Versions};
use crate::contract::Fault;
use crate::definition::Otherwise;
use crate::expression::Bindings;
use crate::limits::check_payload;

/// How an event is to be read.
#[derive(Debug)]
pub(super) enum Reading {
    /// As it came.
    AsItIs,
    /// As this one, whose payload is of the newest version.
    Newer(Box<Event>),
    /// Not at all.
    Ignored,
    /// As a reason to turn back.
    TurnsBack(Failure),
}

/// Reads an event by its version.
pub(super) fn read(saga: &Saga, event: &Event) -> Result<Reading, Fault> {
    let Some(versions) = saga.versions.get(&event.kind) else { return Ok(Reading::AsItIs) };
    if versions.accepts.contains(&event.schema_version) {
        let newest = upcast(versions, event)?;
        return Ok(newest.map_or(Reading::AsItIs, |data| {
            let plain = Event { data, ..without_data(event) };
            Reading::Newer(Box::new(plain))
        }));
    }
    let message = refusal(versions, event);
    match versions.otherwise {
        Otherwise::DeadLetter => Err(Fault::Schema(message)),
        Otherwise::Ignore => Ok(Reading::Ignored),
        Otherwise::Compensate => {
            Ok(Reading::TurnsBack(Failure { code: "schema_version".to_owned(), message }))
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
    }
}

fn refusal(versions: &Versions, event: &Event) -> String {
    let accepted: Vec<_> = versions.accepts.iter().map(ToString::to_string).collect();
    let (kind, version) = (&event.kind, event.schema_version);
    format!("version {version} of {kind} is not accepted, only {}", accepted.join(", "))
}

/// The payload as one of the newest version; nothing where it can stay as it is.
pub(crate) fn upcast(versions: &Versions, event: &Event) -> Result<Option<Value>, Fault> {
    let Some(template) = versions.upcast.get(&event.schema_version) else { return Ok(None) };
    let wrong = |why: String| {
        Fault::Schema(format!("version {} of {} cannot be read: {why}", event.schema_version, event.kind))
    };
    let bindings = Bindings::before_any_instance().event(&event.data);
    let data = template.evaluate(&bindings).map_err(|error| wrong(error.to_string()))?;
    check_payload(&data).map_err(|large| wrong(large.to_string()))?;
    Ok(Some(data))
}
