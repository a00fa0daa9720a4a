//! Exports spans: one trace covers an event, transitions, work, attempts and the next transition,
//! across pods. docs/tracing.md lists their names and attributes.
//!
//! Spans are created after the commit and after the attempt, so they delay neither. Their ids are
//! assigned earlier, so that outgoing messages can reference them. The tracer of the SDK starts
//! spans under new ids, so finished spans go directly to its batch processor.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    self as sdk, BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingDecision, SdkTracer,
    SdkTracerProvider, ShouldSample, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use orlog_model::TraceParent;

use super::otlp::{self, BatchSettings, CountingExporter, ExportState, SPANS};
use crate::clock::ClockReading;
use crate::config::{BusKind, Config};

/// Maximum number of links per span; the span counts the others.
const MAX_LINKS: usize = 128;

/// Exporter of spans in batches.
#[derive(Debug)]
pub struct SpanExporter {
    processor: BatchSpanProcessor,
    state: Arc<ExportState>,
    /// Decides about traces that start here.
    sampler: Box<dyn ShouldSample>,
    scope: InstrumentationScope,
    /// Value of the attribute `messaging.system`.
    pub(super) messaging: &'static str,
}

/// Fields of every span.
pub(super) struct SpanFrame<'a> {
    pub(super) own: &'a TraceParent,
    pub(super) parent: Option<&'a TraceParent>,
    pub(super) kind: SpanKind,
    /// Name, in parts.
    pub(super) name: &'a [&'a str],
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
}

impl<'a> SpanFrame<'a> {
    /// Creates the frame of a span that ends now.
    pub(super) fn since(
        started: Instant,
        own: &'a TraceParent,
        parent: Option<&'a TraceParent>,
        kind: SpanKind,
        name: &'a [&'a str],
    ) -> Self {
        let now = ClockReading::now();
        Self {
            own,
            parent,
            kind,
            name,
            start: now.system_at(started),
            end: now.system,
        }
    }
}

impl SpanExporter {
    /// Starts the export to the collector; call it on a tokio runtime.
    ///
    /// # Errors
    /// Fails if the collector address is invalid.
    pub fn start(config: &Config) -> anyhow::Result<Arc<Self>> {
        let BatchSettings {
            queue_size,
            batch_size,
            delay,
        } = BatchSettings::of(&SPANS, config);
        let state = ExportState::new(&SPANS, queue_size);
        let builder = opentelemetry_otlp::SpanExporter::builder().with_http();
        let exporter = otlp::configure(builder, &SPANS, config, &state)?.build()?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(queue_size)
            .with_max_export_batch_size(batch_size)
            .with_scheduled_delay(delay)
            .build();

        let mut processor = BatchSpanProcessor::new(
            CountingExporter {
                exporter,
                state: Arc::clone(&state),
            },
            batches,
        );

        processor.set_resource(&otlp::resource(config));
        let messaging = match config.bus.kind {
            BusKind::Embedded => "orlog",
            BusKind::Nats => "nats",
        };

        Ok(Arc::new(Self {
            processor,
            state,
            sampler: sampler(config),
            scope: otlp::scope(),
            messaging,
        }))
    }

    /// Exports the queued spans and stops. Blocks until then, for at most 5 s.
    pub fn stop(&self) {
        self.state
            .stop(|timeout| self.processor.shutdown_with_timeout(timeout));
    }

    /// Returns the number of dropped spans.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts().dropped.get()
    }

    pub(super) fn counts(&self) -> &otlp::ExportCounts {
        &self.state.counts
    }

    /// Returns whether a trace that starts here is sampled: equal in every process.
    pub(super) fn is_sampled(&self, trace: [u8; 16]) -> bool {
        let trace = TraceId::from_bytes(trace);
        let sampled = self
            .sampler
            .should_sample(None, trace, "", &SpanKind::Internal, &[], &[]);
        sampled.decision == SamplingDecision::RecordAndSample
    }

    /// Creates a span and queues it; `fill` adds its other fields, unless the queue is full.
    pub(super) fn emit(&self, frame: &SpanFrame<'_>, fill: impl FnOnce(&mut SpanData)) {
        // Before the span is built: a dropped span costs no attribute.
        if !self.state.admit() {
            return;
        }

        let mut span = SpanData {
            span_context: span_context(frame.own),
            parent_span_id: frame.parent.map_or(SpanId::INVALID, |parent| {
                SpanId::from_bytes(parent.span_id_bytes())
            }),
            parent_span_is_remote: matches!(frame.kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: frame.kind.clone(),
            name: frame.name.concat().into(),
            // A timer can fire before its due time, if the wall clock was set back.
            start_time: frame.start.min(frame.end),
            end_time: frame.end,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        };

        fill(&mut span);
        self.processor.on_end(span);
    }

    /// Returns a tracer that exports spans with this exporter. Its caller decides about sampling,
    /// before it creates a span.
    pub(super) fn tracer(self: &Arc<Self>) -> SdkTracer {
        use opentelemetry::trace::TracerProvider as _;
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_span_processor(LiveSpans(Arc::clone(self)))
            .build();
        provider.tracer_with_scope(self.scope.clone())
    }
}

/// Returns the sampler of `OTEL_TRACES_SAMPLER`, or one with the configured ratio.
fn sampler(config: &Config) -> Box<dyn ShouldSample> {
    if std::env::var_os("OTEL_TRACES_SAMPLER").is_some() {
        // The default configuration of the SDK reads the variable.
        return sdk::Config::default().sampler;
    }
    Box::new(Sampler::TraceIdRatioBased(config.telemetry.sample_ratio))
}

/// Receives spans that the tracer of the SDK started.
#[derive(Debug)]
struct LiveSpans(Arc<SpanExporter>);

impl SpanProcessor for LiveSpans {
    fn on_start(&self, _span: &mut sdk::Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.state.admit() {
            self.0.processor.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.processor.shutdown_with_timeout(timeout)
    }
}

/// Converts a trace context.
fn span_context(trace: &TraceParent) -> SpanContext {
    let trace_id = trace.trace_id_bytes();
    let span_id = trace.span_id_bytes();
    let flags = TraceFlags::default().with_sampled(trace.is_sampled());
    let trace_id = TraceId::from_bytes(trace_id);
    let span_id = SpanId::from_bytes(span_id);
    SpanContext::new(trace_id, span_id, flags, false, TraceState::NONE)
}

/// Adds a span event.
pub(super) fn add_event(span: &mut SpanData, name: &'static str, at: SystemTime) {
    span.events.events.push(Event::new(name, at, Vec::new(), 0));
}

/// Adds links to other spans with their relation; those above the limit are only counted.
pub(super) fn link<'a>(
    span: &mut SpanData,
    to: impl ExactSizeIterator<Item = &'a TraceParent>,
    relation: &'static str,
) {
    span.links.dropped_count =
        u32::try_from(to.len().saturating_sub(MAX_LINKS)).unwrap_or(u32::MAX);

    span.links.links.extend(to.take(MAX_LINKS).map(|to| {
        Link::new(
            span_context(to),
            vec![KeyValue::new("orlog.link", relation)],
            0,
        )
    }));
}

/// Sets the error status with an error type.
pub(super) fn fail(span: &mut SpanData, kind: &str, reason: &'static str) {
    span.attributes
        .push(KeyValue::new("error.type", kind.to_owned()));
    span.status = Status::error(reason);
}
