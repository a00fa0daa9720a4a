//! Spans of HTTP requests: `tracing` spans that the layer of `tracing-opentelemetry` exports. Log
//! records of the request refer to them.

use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use orlog_model::{SpanId, TraceParent};
use reqwest::header::{HeaderMap, USER_AGENT};
use tracing::{Metadata, Span, Subscriber, field};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, filter};

use super::span_exporter::SpanExporter;
use super::span_mapping::{random_span, random_trace};

/// Target of the exported spans. The layers of log records ignore it, so `log.filter` does not
/// disable them.
const TARGET: &str = "orlog::exported_span";

/// Request line, as the span shows it.
pub struct RequestLine<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Route that matches the path.
    pub route: &'a str,
    /// Path of the URL.
    pub path: &'a str,
    /// Scheme of the URL, or `nats`.
    pub scheme: &'a str,
}

/// Span of a request.
pub struct RequestSpan {
    span: Span,
    trace: Option<TraceParent>,
}

impl RequestSpan {
    /// Starts the span: continues the trace of the caller, or starts one if the request changes
    /// state. The span is disabled if the trace is not sampled.
    pub fn start(
        spans: Option<&Arc<SpanExporter>>,
        line: &RequestLine<'_>,
        changes: bool,
        parent: Option<&TraceParent>,
        headers: &HeaderMap,
    ) -> Self {
        let Some(spans) = spans else {
            return Self::disabled(None);
        };
        let RequestLine {
            method,
            route,
            path,
            scheme,
        } = *line;

        match parent {
            Some(parent) if !parent.is_sampled() => return Self::disabled(None),
            // A read causes no work that a trace could follow.
            None if !changes => return Self::disabled(None),
            None => {
                let trace = random_trace();
                if !spans.is_sampled(trace) {
                    // The work of the request gets this decision, so that no later process samples
                    // a part of it.
                    return Self::disabled(Some(TraceParent::new_root(
                        trace,
                        random_span(),
                        false,
                    )));
                }
            }
            Some(_) => {}
        }

        let span = tracing::info_span!(
            target: TARGET,
            "request",
            otel.name = format!("{method} {route}"),
            otel.kind = "server",
            otel.status_code = field::Empty,
            otel.status_description = field::Empty,
            http.request.method = method,
            http.route = route,
            url.path = path,
            url.scheme = scheme,
            user_agent.original = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()),
            http.response.status_code = field::Empty,
            "error.type" = field::Empty,
        );

        // The caller's context includes its `tracestate`. An error means that the span is disabled.
        let caller = TraceContextPropagator::new()
            .extract_with_context(&Context::new(), &HeaderExtractor(headers));
        span.set_parent(caller).ok();

        let context = span.context();
        let trace = context.span().span_context().clone();

        Self {
            trace: trace.is_valid().then(|| {
                let id = SpanId::new(trace.span_id().to_bytes());
                TraceParent::new_root(trace.trace_id().to_bytes(), id, trace.is_sampled())
            }),
            span,
        }
    }

    fn disabled(trace: Option<TraceParent>) -> Self {
        Self {
            span: Span::none(),
            trace,
        }
    }

    /// Returns the `tracing` span.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the trace context for the work of the request; `None` if the request has no span.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceParent> {
        self.trace.as_ref()
    }

    /// Ends the span.
    pub fn finish(self, status: u16) {
        self.span.record("http.response.status_code", status);
        if status >= 500 {
            self.span.record("error.type", status.to_string());
            self.span.record("otel.status_code", "ERROR");
            self.span
                .record("otel.status_description", "the server failed");
        }
    }
}

/// Returns the layer that exports the spans of this module.
pub(super) fn layer<S>(spans: &Arc<SpanExporter>) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(spans.tracer())
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter::filter_fn(is_exported).with_max_level_hint(LevelFilter::INFO))
}

/// Returns whether the metadata is that of an exported span.
pub(super) fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}
