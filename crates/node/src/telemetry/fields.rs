//! Fields of a log record: those of its enclosing spans, outermost first, then its own. All fields
//! are flat, under the names of docs/logs.md.

use std::fmt::Debug;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

/// Field of the message text.
const MESSAGE: &str = "message";

/// Fields in recording order.
#[derive(Debug, Default)]
pub(super) struct LogFields(Vec<(&'static str, Value)>);

impl LogFields {
    fn put(&mut self, field: &Field, value: Value) {
        match self.0.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, old)) => *old = value,
            None => self.0.push((field.name(), value)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0
            .iter()
            .filter(|(name, _)| *name != MESSAGE)
            .map(|(name, value)| (*name, value))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .and_then(|(_, value)| value.as_str())
    }

    pub(super) fn message(&self) -> &str {
        self.get(MESSAGE).unwrap_or_default()
    }
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, Value::from(format!("{value:?}")));
    }
}

/// Layer that stores the fields of spans for the log records within them.
pub(super) struct FieldLayer;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for FieldLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = LogFields::default();
        attributes.record(&mut fields);
        span.extensions_mut().replace(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<LogFields>() {
            values.record(fields);
        }
    }
}

/// Returns all fields of a log record.
pub(super) fn gather<S>(event: &Event<'_>, context: &Context<'_, S>) -> LogFields
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let mut all = LogFields::default();
    for span in context
        .event_scope(event)
        .into_iter()
        .flat_map(Scope::from_root)
    {
        if let Some(LogFields(fields)) = span.extensions().get::<LogFields>() {
            for (name, value) in fields {
                // The field of an inner span replaces that of an outer one.
                all.0.retain(|(known, _)| known != name);
                all.0.push((name, value.clone()));
            }
        }
    }

    event.record(&mut all);
    all
}
