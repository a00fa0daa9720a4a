//! Spans, sent by OTLP over HTTP: one for each transition and each attempt of an instance whose first event carried a
//! `traceparent`, in the trace of that event.
//!
//! They are made where the facts are known, after the commit and after the attempt, so that nothing waits for them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use orlog_actors::CommitObserver;
use orlog_effect::{Attempted, Ending, Observer};
use orlog_model::{Clock, Commit, InstanceKey, Timestamp, TraceParent};

use super::courier::Courier;
use crate::clock::SystemClock;
use crate::config::Config;

/// The path of the collector that takes spans.
const TRACES: &str = "/v1/traces";

/// Makes spans and sends them in batches.
pub struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    clock: Arc<dyn Clock>,
}

impl Spans {
    /// Begins to send to the collector; call it on a tokio runtime.
    pub(super) fn start(config: &Config) -> anyhow::Result<Self> {
        let endpoint = format!("{}{TRACES}", config.telemetry.otlp_endpoint.trim_end_matches('/'));
        let exporter =
            SpanExporter::builder().with_http().with_http_client(Courier::new()?).with_endpoint(&endpoint);
        let exporter = exporter.build().with_context(|| format!("spans cannot be sent to {endpoint}"))?;
        let node = KeyValue::new("service.instance.id", config.node_name());
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::TraceIdRatioBased(config.telemetry.sample_ratio))
            .with_resource(Resource::builder().with_service_name("orlog").with_attribute(node).build())
            .build();
        let tracer = provider.tracer("orlog");
        Ok(Self { provider, tracer, clock: Arc::new(SystemClock) })
    }

    /// Sends what was not sent yet. Blocks until then.
    pub fn stop(&self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "the last spans may not have arrived");
        }
    }

    fn emit(&self, span: SpanBuilder, trace: &TraceParent, took: Duration, status: Status) {
        let Some(parent) = parent(trace) else { return };
        let end = system_time(self.clock.now());
        let span = span.with_start_time(end.checked_sub(took).unwrap_or(end));
        let mut span =
            span.start_with_context(&self.tracer, &Context::new().with_remote_span_context(parent));
        span.set_status(status);
        span.end_with_timestamp(end);
    }
}

impl CommitObserver for Spans {
    fn committed(&self, commit: &Commit) {
        let trace = commit.instance.as_ref().and_then(|instance| instance.trace.as_ref());
        let (Some(trace), Some(record)) = (trace, &commit.history) else { return };
        let mut attributes = of_instance(&commit.key);
        attributes.extend([
            KeyValue::new("orlog.input", record.label.clone()),
            KeyValue::new("orlog.note", record.note.clone()),
            KeyValue::new("orlog.status", record.status.as_str()),
        ]);
        let name = format!("{} {}", commit.key.saga, record.label);
        let span = self.tracer.span_builder(name).with_kind(SpanKind::Consumer).with_attributes(attributes);
        self.emit(span, trace, Duration::ZERO, Status::Unset);
    }
}

impl Observer for Spans {
    fn attempted(&self, attempted: &Attempted<'_>) {
        let Some(trace) = &attempted.item.trace else { return };
        let mut attributes = of_instance(&attempted.item.instance);
        attributes.extend([
            KeyValue::new("orlog.upstream", attempted.upstream.to_owned()),
            KeyValue::new("orlog.work_id", attempted.item.id.to_string()),
            KeyValue::new("orlog.ending", attempted.ending.as_str()),
        ]);
        let name = attempted.item.work.label();
        let span = self.tracer.span_builder(name).with_kind(SpanKind::Client).with_attributes(attributes);
        let status = match attempted.ending {
            Ending::Done => Status::Ok,
            ending => Status::error(ending.as_str()),
        };
        self.emit(span, trace, attempted.took, status);
    }
}

fn of_instance(key: &InstanceKey) -> Vec<KeyValue> {
    vec![
        KeyValue::new("orlog.tenant", key.tenant.to_string()),
        KeyValue::new("orlog.saga", key.saga.to_string()),
        KeyValue::new("orlog.correlation", key.correlation.to_string()),
    ]
}

/// `00-<trace id>-<parent id>-<flags>`; `None` for the all-zero ids that mean nothing.
fn parent(trace: &TraceParent) -> Option<SpanContext> {
    let mut parts = trace.as_str().split('-').skip(1);
    let id = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let parent = SpanContext::new(id, span, TraceFlags::SAMPLED, true, TraceState::default());
    parent.is_valid().then_some(parent)
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + at.since(Timestamp::from_millis(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_the_span_that_the_header_names() {
        let trace = TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        let parent = parent(&trace).unwrap();
        assert_eq!(parent.trace_id().to_string(), trace.trace_id());
        assert_eq!(parent.span_id().to_string(), "00f067aa0ba902b7");
        let nothing = format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16));
        assert!(super::parent(&TraceParent::new(&nothing).unwrap()).is_none());
    }
}
