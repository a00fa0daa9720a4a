//! Spans, sent by OTLP over HTTP: one trace from an event through transitions, work and attempts to the next transition, across
//! pods. docs/tracing.md names them and their attributes.
//!
//! They are made where the facts are known, after the commit and after the attempt, so that nothing waits for them. Their
//! ids are known before, so that what goes out can name them. A span is written once, straight as it is sent.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use orlog_model::{SpanKey, TraceParent};

use super::batch_queue::{Counts, Queue};
use super::otlp_client::{Post, RECORD};
use super::protobuf::{Message, Value};
use crate::clock::Present;
use crate::config::{BusKind, Config};

/// The path of the collector that takes spans.
const TRACES: &str = "/v1/traces";
/// Links of one span, at most; the others are counted in it.
const MOST_LINKS: usize = 128;
/// Of a span's flags: it is sampled; it is known whether its parent is elsewhere; that it is.
const SAMPLED: u32 = 1;
const PLACE_IS_KNOWN: u32 = 1 << 8;
const PARENT_IS_REMOTE: u32 = 1 << 9;
/// The status that says that something went wrong.
const ERROR: u64 = 2;

thread_local! {
    /// Where a span is written before it goes to the others.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes spans and sends them in batches.
pub struct Spans {
    queue: Arc<Queue>,
    ratio: f64,
    /// What `messaging.system` says.
    pub(super) messaging: &'static str,
}

/// What a span is to whoever sees it from outside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

/// What every span has.
pub(super) struct Frame<'a> {
    pub(super) own: &'a TraceParent,
    pub(super) parent: Option<&'a TraceParent>,
    pub(super) kind: Kind,
    /// Its name, in parts.
    pub(super) name: &'a [&'a str],
    /// In nanoseconds since 1970.
    pub(super) begun: u64,
    pub(super) ended: u64,
}

/// A span that is being written.
pub(super) struct Span<'a, 'b>(&'a mut Message<'b>);

impl<'a> Frame<'a> {
    /// A span that ends now.
    pub(super) fn since(
        begun: Instant,
        own: &'a TraceParent,
        parent: Option<&'a TraceParent>,
        kind: Kind,
        name: &'a [&'a str],
    ) -> Self {
        let now = Present::look();
        Self { own, parent, kind, name, begun: now.nanos_at(begun), ended: now.nanos() }
    }

    fn write(&self, span: &mut Message<'_>) {
        span.bytes(1, &self.own.trace_bytes());
        span.bytes(2, &self.own.span_bytes());
        if let Some(parent) = self.parent {
            span.bytes(4, &parent.span_bytes());
        }
        let is_remote = matches!(self.kind, Kind::Server | Kind::Consumer);
        span.fixed32(16, SAMPLED | PLACE_IS_KNOWN | if is_remote { PARENT_IS_REMOTE } else { 0 });
        span.parts(5, self.name);
        span.number(6, self.kind as u64);
        span.fixed64(7, self.begun.min(self.ended));
        span.fixed64(8, self.ended);
    }
}

impl Spans {
    /// Begins to send to the collector; call it on a tokio runtime.
    ///
    /// # Errors
    /// When the collector's address cannot be read.
    pub fn start(config: &Config) -> anyhow::Result<Arc<Self>> {
        let post = Post::to(config, TRACES)?;
        let room = (config.telemetry.queue, post.room());
        let queue = Queue::start("spans", room, move |batch| post.send(batch))?;
        let messaging = match config.bus.kind {
            BusKind::Embedded => "orlog",
            BusKind::Nats => "nats",
        };
        Ok(Arc::new(Self { queue, ratio: config.telemetry.sample_ratio, messaging }))
    }

    /// Sends what was not sent yet. Blocks until then.
    pub fn stop(&self) {
        self.queue.stop();
    }

    /// Spans that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.counts().dropped.get()
    }

    pub(super) fn counts(&self) -> &Counts {
        self.queue.counts()
    }

    /// Whether a trace that begins here is kept: the same answer in every process.
    pub(super) fn keeps(&self, trace: [u8; 16]) -> bool {
        let drawn = trace.last_chunk().map_or(0, |low| u32::from_be_bytes(*low));
        f64::from(drawn) < self.ratio * (f64::from(u32::MAX) + 1.0)
    }

    /// Writes a span and hands it over; `more` says what it has besides.
    pub(super) fn emit(&self, frame: &Frame<'_>, more: impl FnOnce(&mut Span<'_, '_>)) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            Message(scratch).nested(RECORD, |span| {
                frame.write(span);
                more(&mut Span(span));
            });
            self.queue.put(scratch);
        });
    }
}

impl Span<'_, '_> {
    /// An attribute.
    pub(super) fn put(&mut self, name: &str, value: Value<'_>) {
        self.0.attribute(9, name, value);
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.put(name, Value::Text(value));
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.put(name, Value::Number(value.cast_signed()));
    }

    /// Something that happened in it.
    pub(super) fn event(&mut self, name: &str, at: u64) {
        self.0.nested(11, |event| {
            event.fixed64(1, at);
            event.text(2, name);
        });
    }

    /// Another span, and what it is to this one.
    pub(super) fn link(&mut self, to: &TraceParent, what: &str) {
        self.0.nested(13, |link| {
            link.bytes(1, &to.trace_bytes());
            link.bytes(2, &to.span_bytes());
            link.attribute(4, "orlog.link", Value::Text(what));
            link.fixed32(6, SAMPLED | PLACE_IS_KNOWN);
        });
    }

    /// Many of them; those that are too many are counted.
    pub(super) fn links<'a>(&mut self, to: impl ExactSizeIterator<Item = &'a TraceParent>, what: &str) {
        let dropped = to.len().saturating_sub(MOST_LINKS);
        to.take(MOST_LINKS).for_each(|to| self.link(to, what));
        self.0.number(14, dropped as u64);
    }

    /// It went wrong.
    pub(super) fn failed(&mut self, kind: &str, why: &str) {
        self.text("error.type", kind);
        self.error(why);
    }

    /// It went wrong, and nobody gave that a name.
    pub(super) fn error(&mut self, why: &str) {
        self.0.nested(15, |status| {
            status.text(2, why);
            status.number(3, ERROR);
        });
    }
}

/// A span's own id where it need not be found again.
pub(super) fn random_span() -> SpanKey {
    // Nobody must be kept from guessing it, and the kernel's numbers would cost more than the span.
    SpanKey::new(fastrand::u64(..).to_be_bytes())
}

/// A trace of its own.
pub(super) fn random_trace() -> [u8; 16] {
    // All zero is not allowed.
    fastrand::u128(1..).to_be_bytes()
}
