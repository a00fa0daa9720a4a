//! JSON log: one object per line, on standard error.

use std::io::Write;

use orlog_model::Clock;
use serde_json::Value;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::{LogFields, gather};
use crate::clock::SystemClock;

/// Reserved field names of every log record.
const OWN: [&str; 4] = ["timestamp", "level", "target", "message"];

pub(super) struct JsonLogLayer;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for JsonLogLayer {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let line = line(
            &SystemClock.now().to_string(),
            *metadata.level(),
            metadata.target(),
            &{ gather(event, &context) },
        );

        // The reader of the log may have disconnected, and there is no other place to report the
        // error.
        std::io::stderr().lock().write_all(line.as_bytes()).ok();
    }
}

fn line(timestamp: &str, level: Level, target: &str, fields: &LogFields) -> String {
    let own = [timestamp, level.as_str(), target, fields.message()];
    let own = OWN.into_iter().zip(own.map(Value::from));
    let others = fields
        .iter()
        // Two members of one name would make the object ambiguous.
        .filter(|(name, _)| !OWN.contains(name))
        .map(|(name, v)| (name, v.clone()));
    let pairs: Vec<String> = own
        .chain(others)
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();

    format!("{{{}}}\n", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::fields::FieldLayer;
    use super::*;

    struct CaptureLayer(Arc<Mutex<Vec<Value>>>);

    impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for CaptureLayer {
        fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
            let line = line(
                "now",
                *event.metadata().level(),
                "here",
                &gather(event, &context),
            );
            assert_eq!(line.lines().count(), 1);
            self.0.lock().push(serde_json::from_str(&line).unwrap());
        }
    }

    #[test]
    fn log_line_includes_span_fields() {
        let captured = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry()
            .with(FieldLayer)
            .with(CaptureLayer(Arc::clone(&captured)));
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!(
                "request",
                tenant = tracing::field::Empty,
                route = "/v1",
                count = 1
            );
            span.record("tenant", "acme");
            let nothing: Option<&str> = None;
            span.in_scope(|| tracing::warn!(count = 2, took = ?"3\n4", nothing, "it \"failed\""));
        });
        let expected = json!({
            "timestamp": "now", "level": "WARN", "target": "here", "message": "it \"failed\"",
            "tenant": "acme", "route": "/v1", "count": 2, "took": "\"3\\n4\"",
        });
        assert_eq!(*captured.lock(), [expected]);
    }
}
