//! What the process tells about itself: log lines on standard error, for people or for programs, and lines and spans for a
//! collector.

mod batch_queue;
mod fields;
mod json_log;
mod levels;
mod log_exporter;
pub mod metric_specs;
mod metrics_registry;
mod otlp_client;
mod protobuf;
mod span_exporter;
mod span_mapping;

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use orlog_actors::Sheet;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{Config, LogFormat};
use batch_queue::Queue;
use fields::Keep;
use json_log::Lines;
use log_exporter::Push;

pub use levels::{Filter, Levels, levels};
pub use metrics_registry::Shown;
pub use span_exporter::Spans;
pub(crate) use span_mapping::Answered;

/// What is sent to a collector, and by whom.
#[derive(Clone, Default)]
pub struct Telemetry {
    /// Makes spans, where they are sent anywhere.
    pub spans: Option<Arc<Spans>>,
    logs: Option<Arc<Queue>>,
}

impl Telemetry {
    /// Spans only; the process logs as it does.
    #[must_use]
    pub fn of(spans: Arc<Spans>) -> Self {
        Self { spans: Some(spans), logs: None }
    }

    /// Shows what is sent and what is dropped.
    pub fn show(&self, sheet: &mut impl Sheet) {
        let spans = self.spans.as_ref().map(|spans| spans.counts().clone()).unwrap_or_default();
        sheet.put("telemetry_spans_sent_total", spans.sent);
        sheet.put("telemetry_spans_dropped_total", spans.dropped);
        let logs = self.logs.as_ref().map(|logs| logs.counts().clone()).unwrap_or_default();
        sheet.put("telemetry_logs_sent_total", logs.sent);
        sheet.put("telemetry_logs_dropped_total", logs.dropped);
    }

    /// Sends what was not sent yet.
    pub async fn stop(self) {
        let stop = move || {
            if let Some(spans) = &self.spans {
                spans.stop();
            }
            if let Some(logs) = &self.logs {
                logs.stop();
            }
        };
        // It waits for the collector, and the runtime must go on to carry what is sent. An error would be a panic there.
        tokio::task::spawn_blocking(stop).await.ok();
    }
}

/// Begins to log as the configuration says, and to send spans and lines where it names a collector. Once a process, on a
/// tokio runtime.
///
/// # Errors
/// When the filter or the collector's address cannot be read, or something logs already.
pub fn start(config: &Config) -> anyhow::Result<Telemetry> {
    let (log, telemetry) = (&config.log, &config.telemetry);
    let filter = levels::parse(&log.filter).map_err(|error| anyhow::anyhow!("log.filter: {error}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let is_terminal = std::io::stderr().is_terminal();
    let lines = match log.format {
        LogFormat::Human => human(),
        LogFormat::Auto if is_terminal => human(),
        LogFormat::Auto | LogFormat::Json => Lines.boxed(),
    };
    let sends = !telemetry.otlp_endpoint.is_empty();
    let pushed = (sends && telemetry.logs).then(|| Push::start(config)).transpose()?;
    let (push, logs) = pushed.unzip();
    Registry::default()
        .with(filter)
        .with(Keep)
        .with(lines)
        .with(push)
        .try_init()
        .context("something logs already")?;
    levels::keep(handle, &log.filter);
    let spans = (sends && telemetry.traces).then(|| Spans::start(config)).transpose()?;
    Ok(Telemetry { spans, logs })
}

/// Colours on a terminal, unless `NO_COLOR` is set.
fn human<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false).boxed()
}
