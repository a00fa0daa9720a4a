//! What expressions read of an input: its data as `event`, and the attributes of an event as
//! `envelope`.

use orlog_model::{Event, EventAttributes};
use serde_json::{Value, json};

/// Fields of `envelope`, by their CloudEvents names.
pub(crate) const ENVELOPE_FIELDS: [&str; 12] = [
    "id",
    "source",
    "type",
    "time",
    "subject",
    "datacontenttype",
    "dataschema",
    "dataversion",
    "correlationid",
    "causationid",
    "user",
    "extensions",
];

/// Data of an input, and the attributes if it is an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventData<'a> {
    pub(crate) data: &'a Value,
    pub(crate) envelope: Option<Envelope<'a>>,
}

/// Attributes of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Envelope<'a> {
    /// Those of this event; their value is created when an expression reads it.
    Of(&'a Event),
    /// Value that was kept with an early event.
    Kept(&'a Value),
}

impl<'a> EventData<'a> {
    /// Returns the data of an input that is no event.
    pub(crate) fn of_result(data: &'a Value) -> Self {
        Self {
            data,
            envelope: None,
        }
    }
}

impl<'a> From<&'a Event> for EventData<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            data: &event.data,
            envelope: Some(Envelope::Of(event)),
        }
    }
}

/// Returns the value of `envelope`. An absent attribute is null; `extensions` has only those that
/// are present.
pub(crate) fn envelope(event: &Event) -> Value {
    let none = EventAttributes::default();
    let EventAttributes {
        content_type,
        data_schema,
        extensions,
    } = event.attributes.as_deref().unwrap_or(&none);
    json!({
        "id": event.id,
        "source": event.source,
        "type": event.kind,
        "time": event.time.to_string(),
        "subject": event.subject,
        "datacontenttype": content_type.as_deref().unwrap_or("application/json"),
        "dataschema": data_schema,
        "dataversion": event.schema_version,
        "correlationid": event.correlation,
        "causationid": event.causation,
        "user": event.user,
        "extensions": extensions,
    })
}
