//! Exports log records by OTLP over HTTP, in addition to standard error.
//!
//! OTLP instead of Loki's own protocol: Loki and other backends accept it. Only the resource
//! attributes, which identify the process, become labels. All fields of a record are attributes, so
//! tenants and instances create no series.

use std::sync::Arc;

use orlog_model::trace;
use serde_json::Value as Json;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::batch_queue::BatchQueue;
use super::fields::{LogFields, gather};
use super::otlp_client::{OtlpClient, RECORDS_FIELD};
use super::protobuf::{MessageWriter, Value};
use crate::clock::ClockReading;
use crate::config::Config;

/// Path of the collector for log records.
const LOGS: &str = "/v1/logs";

/// Targets of the export transport. Their records are not exported, because each would create another.
const EXCLUDED: [&str; 6] =
    ["hyper", "reqwest", "rustls", "h2", "orlog::telemetry::post", "orlog::telemetry::queue"];

/// Layer that exports log records in batches.
pub(super) struct OtlpLogLayer(Arc<BatchQueue>);

impl OtlpLogLayer {
    /// Starts the export; call it on a tokio runtime.
    pub(super) fn start(config: &Config) -> anyhow::Result<(Self, Arc<BatchQueue>)> {
        let post = OtlpClient::new(config, LOGS)?;
        let room = (config.telemetry.queue_size, post.room());
        let queue = BatchQueue::start("logs", room, move |batch| post.send(batch))?;
        Ok((Self(Arc::clone(&queue)), queue))
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for OtlpLogLayer {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if EXCLUDED.iter().any(|prefix| metadata.target().starts_with(prefix)) {
            return;
        }
        let mut bytes = Vec::with_capacity(512);
        let fields = gather(event, &context);
        MessageWriter(&mut bytes)
            .nested(RECORDS_FIELD, |line| write(line, *metadata.level(), metadata.target(), &fields));
        self.0.put(&bytes);
    }
}

fn write(line: &mut MessageWriter<'_>, level: Level, target: &str, fields: &LogFields) {
    let now = ClockReading::now().nanos();
    line.fixed64(1, now);
    line.fixed64(11, now);
    line.number(2, severity(level));
    line.text(3, level.as_str());
    line.any(5, Value::Text(fields.message()));
    line.attribute(6, "target", Value::Text(target));
    for (name, value) in fields.iter() {
        put(line, name, value);
    }
    if let Some(trace) = fields.get("trace_id").and_then(trace::parse_trace_id) {
        line.bytes(9, &trace);
    }
}

fn put(line: &mut MessageWriter<'_>, name: &str, value: &Json) {
    let as_text;
    let value = match value {
        Json::Bool(truth) => Value::Bool(*truth),
        Json::String(text) => Value::Text(text),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Number(integer),
            (None, float) => Value::Float(float.unwrap_or(f64::NAN)),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => {
            as_text = value.to_string();
            Value::Text(&as_text)
        }
    };
    line.attribute(6, name, value);
}

fn severity(level: Level) -> u64 {
    match level {
        Level::ERROR => 17,
        Level::WARN => 13,
        Level::INFO => 9,
        Level::DEBUG => 5,
        Level::TRACE => 1,
    }
}
