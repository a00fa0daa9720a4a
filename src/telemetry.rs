//! What the process tells about itself: log lines on standard error, for people or for programs, and spans for a collector.

mod courier;
mod sheet;
mod spans;
pub mod spec;

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::config::{Config, LogFormat};

pub use sheet::Shown;
pub use spans::Spans;

/// Begins to log as the configuration says, and to send spans where it names a collector. Once a process, on a tokio runtime.
///
/// # Errors
/// When the filter or the collector's address cannot be read, or something logs already.
pub fn start(config: &Config) -> anyhow::Result<Option<Arc<Spans>>> {
    let log = &config.log;
    let filter = EnvFilter::try_new(&log.filter)
        .with_context(|| format!("log.filter {:?} cannot be read", log.filter))?;
    let is_terminal = std::io::stderr().is_terminal();
    let lines = match log.format {
        LogFormat::Human => human(),
        LogFormat::Auto if is_terminal => human(),
        LogFormat::Auto | LogFormat::Json => json(),
    };
    Registry::default().with(lines.with_filter(filter)).try_init().context("something logs already")?;
    let wanted = !config.telemetry.otlp_endpoint.is_empty();
    wanted.then(|| Spans::start(config).map(Arc::new)).transpose()
}

/// Colours on a terminal, unless `NO_COLOR` is set.
fn human() -> Box<dyn Layer<Registry> + Send + Sync> {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false).boxed()
}

/// One object a line; the fields of an event stand beside `timestamp`, `level`, `target` and `message`.
fn json() -> Box<dyn Layer<Registry> + Send + Sync> {
    fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed()
}
