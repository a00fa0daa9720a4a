//! Exports spans by OTLP over HTTP: one trace covers an event, transitions, work, attempts and the next
//! transition, across pods. docs/tracing.md lists their names and attributes.
//!
//! Spans are created after the commit and after the attempt, so they delay neither. Their ids are
//! assigned earlier, so that outgoing messages can reference them. A span is encoded once, directly in
//! its wire format.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use orlog_model::{SpanId, TraceParent};

use super::batch_queue::{BatchQueue, QueueCounts};
use super::otlp_client::{OtlpClient, RECORDS_FIELD};
use super::protobuf::{MessageWriter, Value};
use crate::clock::ClockReading;
use crate::config::{BusKind, Config};

/// Path of the collector for spans.
const TRACES: &str = "/v1/traces";
/// Maximum number of links per span; the span counts the others.
const MAX_LINKS: usize = 128;
/// Span flags: sampled; "has remote parent" is known; the parent is remote.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 1 << 8;
const PARENT_IS_REMOTE: u32 = 1 << 9;
/// Status code of a failed span.
const ERROR: u64 = 2;

thread_local! {
    /// Buffer in which a span is encoded before it is queued.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Exporter of spans in batches.
pub struct SpanExporter {
    queue: Arc<BatchQueue>,
    ratio: f64,
    /// Value of the attribute `messaging.system`.
    pub(super) messaging: &'static str,
}

/// Kind of a span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

/// Fields of every span.
pub(super) struct SpanFrame<'a> {
    pub(super) own: &'a TraceParent,
    pub(super) parent: Option<&'a TraceParent>,
    pub(super) kind: SpanKind,
    /// Name, in parts.
    pub(super) name: &'a [&'a str],
    /// Start time in nanoseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Span that is being encoded.
pub(super) struct SpanWriter<'a, 'b>(&'a mut MessageWriter<'b>);

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
        Self { own, parent, kind, name, start: now.nanos_at(started), end: now.nanos() }
    }

    fn write(&self, span: &mut MessageWriter<'_>) {
        span.bytes(1, &self.own.trace_id_bytes());
        span.bytes(2, &self.own.span_id_bytes());
        if let Some(parent) = self.parent {
            span.bytes(4, &parent.span_id_bytes());
        }
        let is_remote = matches!(self.kind, SpanKind::Server | SpanKind::Consumer);
        span.fixed32(16, SAMPLED | HAS_IS_REMOTE | if is_remote { PARENT_IS_REMOTE } else { 0 });
        span.parts(5, self.name);
        span.number(6, self.kind as u64);
        span.fixed64(7, self.start.min(self.end));
        span.fixed64(8, self.end);
    }
}

impl SpanExporter {
    /// Starts the export to the collector; call it on a tokio runtime.
    ///
    /// # Errors
    /// Fails if the collector address is invalid.
    pub fn start(config: &Config) -> anyhow::Result<Arc<Self>> {
        let post = OtlpClient::new(config, TRACES)?;
        let room = (config.telemetry.queue_size, post.room());
        let queue = BatchQueue::start("spans", room, move |batch| post.send(batch))?;
        let messaging = match config.bus.kind {
            BusKind::Embedded => "orlog",
            BusKind::Nats => "nats",
        };
        Ok(Arc::new(Self { queue, ratio: config.telemetry.sample_ratio, messaging }))
    }

    /// Exports the queued spans. Blocks until then.
    pub fn stop(&self) {
        self.queue.stop();
    }

    /// Returns the number of dropped spans.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.counts().dropped.get()
    }

    pub(super) fn counts(&self) -> &QueueCounts {
        self.queue.counts()
    }

    /// Returns whether a trace that starts here is sampled: equal in every process.
    pub(super) fn is_sampled(&self, trace: [u8; 16]) -> bool {
        let drawn = trace.last_chunk().map_or(0, |low| u32::from_be_bytes(*low));
        f64::from(drawn) < self.ratio * (f64::from(u32::MAX) + 1.0)
    }

    /// Encodes a span and queues it; `more` adds its other fields.
    pub(super) fn emit(&self, frame: &SpanFrame<'_>, more: impl FnOnce(&mut SpanWriter<'_, '_>)) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            MessageWriter(scratch).nested(RECORDS_FIELD, |span| {
                frame.write(span);
                more(&mut SpanWriter(span));
            });
            self.queue.put(scratch);
        });
    }
}

impl SpanWriter<'_, '_> {
    /// Adds an attribute.
    pub(super) fn put(&mut self, name: &str, value: Value<'_>) {
        self.0.attribute(9, name, value);
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.put(name, Value::Text(value));
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.put(name, Value::Number(value.cast_signed()));
    }

    /// Adds a span event.
    pub(super) fn event(&mut self, name: &str, at: u64) {
        self.0.nested(11, |event| {
            event.fixed64(1, at);
            event.text(2, name);
        });
    }

    /// Adds a link to another span with its relation.
    pub(super) fn link(&mut self, to: &TraceParent, relation: &str) {
        self.0.nested(13, |link| {
            link.bytes(1, &to.trace_id_bytes());
            link.bytes(2, &to.span_id_bytes());
            link.attribute(4, "orlog.link", Value::Text(relation));
            link.fixed32(6, SAMPLED | HAS_IS_REMOTE);
        });
    }

    /// Adds many links; those above the limit are only counted.
    pub(super) fn links<'a>(&mut self, to: impl ExactSizeIterator<Item = &'a TraceParent>, relation: &str) {
        let dropped = to.len().saturating_sub(MAX_LINKS);
        to.take(MAX_LINKS).for_each(|to| self.link(to, relation));
        self.0.number(14, dropped as u64);
    }

    /// Sets the error status with an error type.
    pub(super) fn failed(&mut self, kind: &str, reason: &str) {
        self.text("error.type", kind);
        self.error(reason);
    }

    /// Sets the error status without an error type.
    pub(super) fn error(&mut self, reason: &str) {
        self.0.nested(15, |status| {
            status.text(2, reason);
            status.number(3, ERROR);
        });
    }
}

/// Returns a random span id, for spans that need no derivable id.
pub(super) fn random_span() -> SpanId {
    // The id need not be unpredictable, and random numbers of the kernel would cost more than the span.
    SpanId::new(fastrand::u64(..).to_be_bytes())
}

/// Returns a random trace id.
pub(super) fn random_trace() -> [u8; 16] {
    // The format forbids an id of zeros.
    fastrand::u128(1..).to_be_bytes()
}
