//! Telemetry of the process: log records on standard error, as text or JSON, and log records and
//! spans for a collector.

mod fields;
mod json_log;
mod levels;
mod log_exporter;
pub mod metric_specs;
mod metrics_registry;
mod otlp;
mod request_span;
mod span_exporter;
mod span_mapping;

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use orlog_actors::MetricSink;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{Config, LogFormat};
use fields::FieldLayer;
use json_log::JsonLogLayer;
use log_exporter::LogExporter;
use otlp::{LOGS, SPANS};

pub use levels::{LogFilter, LogLevels, levels};
pub use metrics_registry::MetricsRegistry;
pub use request_span::{RequestLine, RequestSpan};
pub use span_exporter::SpanExporter;

/// Handle of the telemetry export.
#[derive(Clone, Default)]
pub struct TelemetryHandle {
    /// Span exporter, if a collector is configured.
    pub spans: Option<Arc<SpanExporter>>,
    logs: Option<LogExporter>,
}

impl TelemetryHandle {
    /// Creates a handle that only exports spans and leaves the logging of the process unchanged.
    #[must_use]
    pub fn from_config(spans: Arc<SpanExporter>) -> Self {
        Self {
            spans: Some(spans),
            logs: None,
        }
    }

    /// Registers the metrics of exported and dropped records.
    pub fn register_metrics(&self, sink: &mut impl MetricSink) {
        let spans = self
            .spans
            .as_ref()
            .map(|spans| spans.counts().clone())
            .unwrap_or_default();
        sink.register("telemetry_spans_sent_total", spans.sent);
        sink.register("telemetry_spans_dropped_total", spans.dropped);

        let logs = self
            .logs
            .as_ref()
            .map(|logs| logs.counts().clone())
            .unwrap_or_default();
        sink.register("telemetry_logs_sent_total", logs.sent);
        sink.register("telemetry_logs_dropped_total", logs.dropped);
    }

    /// Exports the queued records and stops.
    pub async fn stop(self) {
        // It waits for the collector, and the runtime must continue to transfer the data. An error
        // would be a panic there.
        tokio::task::spawn_blocking(move || {
            if let Some(spans) = &self.spans {
                spans.stop();
            }
            if let Some(logs) = &self.logs {
                logs.stop();
            }
        })
        .await
        .ok();
    }
}

/// Starts logging, and the export of spans and log records if a collector is configured. Once per
/// process, on a tokio runtime.
///
/// # Errors
/// Fails if the filter or the collector address is invalid, or if a logger is already installed.
pub fn start(config: &Config) -> anyhow::Result<TelemetryHandle> {
    let log = &config.log;
    let telemetry = &config.telemetry;
    let filter =
        levels::parse(&log.filter).map_err(|error| anyhow::anyhow!("log.filter: {error}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let is_terminal = std::io::stderr().is_terminal();
    let log_layer = match log.format {
        LogFormat::Human => human(),
        LogFormat::Auto if is_terminal => human(),
        LogFormat::Auto | LogFormat::Json => JsonLogLayer.boxed(),
    };

    let logs = (telemetry.logs && LOGS.has_collector(config))
        .then(|| LogExporter::start(config))
        .transpose()?;
    let spans = (telemetry.traces && SPANS.has_collector(config))
        .then(|| SpanExporter::start(config))
        .transpose()?;
    // Spans of requests are exported with each log filter, and are no log records.
    let is_record = filter_fn(|metadata| !request_span::is_exported(metadata));
    let records = FieldLayer
        .and_then(log_layer)
        .and_then(logs.as_ref().map(LogExporter::layer));

    Registry::default()
        .with(records.with_filter(filter.and(is_record)))
        .with(spans.as_ref().map(request_span::layer))
        .try_init()
        .context("a logger is already installed")?;

    levels::install(handle, &log.filter);
    Ok(TelemetryHandle { spans, logs })
}

/// Creates the text layer. Uses colors on a terminal unless `NO_COLOR` is set.
fn human<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let colors = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colors)
        .with_target(false)
        .boxed()
}
