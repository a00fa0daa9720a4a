//! Log lines, sent by OTLP over HTTP beside those on standard error.
//!
//! OTLP and not Loki's own protocol: Loki takes it as well, and so does everything else. What identifies the process is the
//! resource, and that alone becomes labels; all fields of a line are attributes, so that no tenant or instance makes a series.

use std::sync::Arc;

use orlog_model::trace;
use serde_json::Value as Json;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::batch_queue::Queue;
use super::fields::{Fields, gather};
use super::otlp_client::{Post, RECORD};
use super::protobuf::{Message, Value};
use crate::clock::Present;
use crate::config::Config;

/// The path of the collector that takes log lines.
const LOGS: &str = "/v1/logs";

/// What carries the lines is not told about with lines: each would make another.
const OUTSIDE: [&str; 6] =
    ["hyper", "reqwest", "rustls", "h2", "orlog::telemetry::post", "orlog::telemetry::queue"];

/// Sends log lines in batches.
pub(super) struct Push(Arc<Queue>);

impl Push {
    /// Begins to send; call it on a tokio runtime.
    pub(super) fn start(config: &Config) -> anyhow::Result<(Self, Arc<Queue>)> {
        let post = Post::to(config, LOGS)?;
        let room = (config.telemetry.queue, post.room());
        let queue = Queue::start("logs", room, move |batch| post.send(batch))?;
        Ok((Self(Arc::clone(&queue)), queue))
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Push {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if OUTSIDE.iter().any(|outside| metadata.target().starts_with(outside)) {
            return;
        }
        let mut bytes = Vec::with_capacity(512);
        let fields = gather(event, &context);
        Message(&mut bytes).nested(RECORD, |line| write(line, *metadata.level(), metadata.target(), &fields));
        self.0.put(&bytes);
    }
}

fn write(line: &mut Message<'_>, level: Level, target: &str, fields: &Fields) {
    let now = Present::look().nanos();
    line.fixed64(1, now);
    line.fixed64(11, now);
    line.number(2, severity(level));
    line.text(3, level.as_str());
    line.any(5, Value::Text(fields.message()));
    line.attribute(6, "target", Value::Text(target));
    for (name, value) in fields.iter() {
        put(line, name, value);
    }
    if let Some(trace) = fields.get("trace_id").and_then(trace::trace_id) {
        line.bytes(9, &trace);
    }
}

fn put(line: &mut Message<'_>, name: &str, value: &Json) {
    let as_text;
    let value = match value {
        Json::Bool(truth) => Value::Truth(*truth),
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
