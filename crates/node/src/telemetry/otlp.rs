//! Export by OTLP over HTTP (protobuf) with the OpenTelemetry SDK: what spans and log records
//! share.
//!
//! The SDK queues, batches, encodes, compresses and retries, and reads the `OTEL_*` environment
//! variables. This module adds the settings of Orlog, the HTTP client of the process, and the
//! counts of sent and dropped records, which the SDK does not expose.

use std::fmt::Debug;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prost::Message as _;
use reqwest::Url;
use tokio::runtime::Handle;

use crate::config::Config;

/// Target of the log records of this module.
pub(super) const TARGET: &str = module_path!();
/// Timeout of an export, unless `OTEL_EXPORTER_OTLP_TIMEOUT` sets another.
const EXPORT_TIMEOUT_MS: u64 = 10_000;
/// Maximum number of records per batch, unless an environment variable sets another.
const BATCH: usize = 2048;
/// Maximum time in milliseconds that a record waits for its batch, unless an environment variable
/// sets another.
const DELAY_MS: u64 = 1_000;
/// Maximum time for the export of the queued records at the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Kind of exported records.
pub(super) struct Signal {
    label: &'static str,
    /// Path of the collector.
    path: &'static str,
    /// Part of the names of the environment variables of the exporter.
    exporter: &'static str,
    /// Part of the names of the environment variables of the batch processor.
    processor: &'static str,
}

/// Spans.
pub(super) const SPANS: Signal = Signal {
    label: "spans",
    path: "/v1/traces",
    exporter: "TRACES",
    processor: "BSP",
};
/// Log records.
pub(super) const LOGS: Signal = Signal {
    label: "logs",
    path: "/v1/logs",
    exporter: "LOGS",
    processor: "BLRP",
};

impl Signal {
    /// Returns whether a collector is configured, by Orlog or by an environment variable.
    pub(super) fn has_collector(&self, config: &Config) -> bool {
        !config.telemetry.otlp_endpoint.is_empty()
            || self.exporter_variable::<String>("ENDPOINT").is_some()
    }

    /// Reads a variable of the exporter; the one of the signal has priority.
    fn exporter_variable<T: FromStr>(&self, name: &str) -> Option<T> {
        let own = variable(&format!("OTEL_EXPORTER_OTLP_{}_{name}", self.exporter));
        own.or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn processor_variable<T: FromStr>(&self, name: &str) -> Option<T> {
        variable(&format!("OTEL_{}_{name}", self.processor))
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())?
        .parse()
        .ok()
}

/// Settings of a batch processor.
pub(super) struct BatchSettings {
    pub(super) queue_size: usize,
    pub(super) batch_size: usize,
    pub(super) delay: Duration,
}

impl BatchSettings {
    pub(super) fn of(signal: &Signal, config: &Config) -> Self {
        let queue_size = signal
            .processor_variable("MAX_QUEUE_SIZE")
            .unwrap_or(config.telemetry.queue_size);
        let batch_size = signal
            .processor_variable("MAX_EXPORT_BATCH_SIZE")
            .unwrap_or(BATCH);
        let delay = signal
            .processor_variable("SCHEDULE_DELAY")
            .unwrap_or(DELAY_MS);

        Self {
            queue_size,
            batch_size,
            delay: Duration::from_millis(delay),
        }
    }
}

/// Counters of sent and dropped records.
#[derive(Clone, Debug, Default)]
pub(super) struct ExportCounts {
    pub(super) sent: Counter,
    pub(super) dropped: Counter,
}

/// State of the export of a signal. Bounds its records before they are created: the queue of the
/// SDK is never full, and an excess record costs no attribute.
#[derive(Debug)]
pub(super) struct ExportState {
    label: &'static str,
    /// Maximum number of pending records; 0 after the stop.
    limit: AtomicUsize,
    /// Number of records that are queued or being sent.
    pending: AtomicUsize,
    /// Number of records of the current batch that the collector rejected.
    rejected: AtomicU64,
    /// Error of the last request; the SDK hides it.
    error: Mutex<String>,
    /// Whether the last batch failed.
    is_failing: AtomicBool,
    pub(super) counts: ExportCounts,
}

impl ExportState {
    pub(super) fn new(signal: &Signal, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            label: signal.label,
            limit: limit.into(),
            pending: AtomicUsize::default(),
            rejected: AtomicU64::default(),
            error: Mutex::default(),
            is_failing: AtomicBool::default(),
            counts: ExportCounts::default(),
        })
    }

    /// Reserves space in the queue for a record. Counts the record as dropped if there is none.
    pub(super) fn admit(&self) -> bool {
        // Added before the comparison, so that concurrent records do not exceed the limit together.
        let is_admitted =
            self.pending.fetch_add(1, Ordering::Relaxed) < self.limit.load(Ordering::Relaxed);
        if !is_admitted {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.inc();
        }
        is_admitted
    }

    /// Stops: rejects new records, then calls `shut_down`, which exports the queued ones within a
    /// timeout.
    pub(super) fn stop(&self, shut_down: impl FnOnce(Duration) -> OTelSdkResult) {
        // First, so that the queue only shrinks: the export would otherwise not end under load.
        self.limit.store(0, Ordering::Relaxed);
        if let Err(error) = shut_down(STOP_TIMEOUT) {
            tracing::warn!(%error, "not all {} were exported", self.label);
        }
    }

    /// Counts the records that the collector rejected in a response.
    fn count_rejected(&self, response: &[u8]) {
        // A response that cannot be decoded rejects nothing.
        let response = ExportResponse::decode(response).unwrap_or_default();
        let Some(PartialSuccess {
            rejected,
            message: reason,
        }) = response.partial_success
        else {
            return;
        };

        if rejected > 0 || !reason.is_empty() {
            tracing::warn!(rejected, reason, "collector rejected some records");
        }

        self.rejected.store(
            u64::try_from(rejected).unwrap_or_default(),
            Ordering::Relaxed,
        );
    }

    fn set_error(&self, error: String) {
        *self.error.lock() = error;
    }

    fn finish(&self, batch: usize, result: &OTelSdkResult) {
        self.pending.fetch_sub(batch, Ordering::Relaxed);
        let label = self.label;
        let count = batch as u64;

        if result.is_ok() {
            // The collector states this number, so that it can exceed the batch.
            let rejected = self.rejected.swap(0, Ordering::Relaxed).min(count);
            self.counts.sent.inc_by(count - rejected);
            self.counts.dropped.inc_by(rejected);

            // Each change is logged once; a collector that is away for an hour is one warning.
            if self.is_failing.swap(false, Ordering::Relaxed) {
                tracing::info!("collector accepts {label} again");
            }
        } else {
            self.counts.dropped.inc_by(count);
            if !self.is_failing.swap(true, Ordering::Relaxed) {
                let error = self.error.lock().clone();
                tracing::warn!(error, "collector rejects {label}; dropping");
            }
        }
    }
}

/// Exporter that counts the records of another exporter.
#[derive(Debug)]
pub(super) struct CountingExporter<E> {
    pub(super) exporter: E,
    pub(super) state: Arc<ExportState>,
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.state.finish(count, &result);
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for CountingExporter<E> {
    fn export(&self, batch: LogBatch<'_>) -> impl Future<Output = OTelSdkResult> + Send {
        let count = batch.iter().count();
        let exported = self.exporter.export(batch);
        async move {
            let result = exported.await;
            self.state.finish(count, &result);
            result
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Configures an exporter; call it on a tokio runtime. Without an endpoint in the configuration,
/// the SDK uses the one of the environment.
///
/// # Errors
/// Fails if the endpoint in the configuration is invalid.
pub(super) fn configure<B: WithExportConfig + WithHttpConfig>(
    builder: B,
    signal: &Signal,
    config: &Config,
    state: &Arc<ExportState>,
) -> anyhow::Result<B> {
    let timeout = signal
        .exporter_variable("TIMEOUT")
        .unwrap_or(EXPORT_TIMEOUT_MS);
    let timeout = Duration::from_millis(timeout);
    let http = orlog_effect::http::client().timeout(timeout).build()?;
    let client = RuntimeClient {
        http,
        runtime: Handle::try_current()?,
        state: Arc::clone(state),
    };
    let builder = builder.with_timeout(timeout).with_http_client(client);
    let endpoint = config.telemetry.otlp_endpoint.trim_end_matches('/');

    if endpoint.is_empty() {
        return Ok(builder);
    }

    let url = format!("{endpoint}{}", signal.path);
    check(&url).with_context(|| format!("telemetry.otlp_endpoint: invalid address {url:?}"))?;
    Ok(builder.with_endpoint(url))
}

fn check(url: &str) -> anyhow::Result<()> {
    ensure!(
        ["http", "https"].contains(&Url::parse(url)?.scheme()),
        "it must start with http:// or https://"
    );
    Ok(())
}

/// Returns the attributes of the process. Those of `OTEL_RESOURCE_ATTRIBUTES` and
/// `OTEL_SERVICE_NAME` have priority.
pub(super) fn resource(config: &Config) -> Resource {
    let own = [
        KeyValue::new("service.name", "orlog"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", config.node_name()),
    ];
    let resource = Resource::builder_empty()
        .with_attributes(own)
        .with_detectors(&[
            Box::new(TelemetryResourceDetector),
            Box::new(EnvResourceDetector::new()),
        ]);

    match variable::<String>("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// Returns the origin of all records.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("orlog")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// HTTP client of the exporters. They call it on a thread without a runtime that may outlive the
/// runtime when the process ends; so the runtime runs the request.
#[derive(Debug)]
struct RuntimeClient {
    http: reqwest::Client,
    runtime: Handle,
    state: Arc<ExportState>,
}

#[async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Headers for the collector may contain a secret.
        request
            .headers_mut()
            .values_mut()
            .for_each(|value| value.set_sensitive(true));

        let request = reqwest::Request::try_from(request)?;

        // The thread of the exporter has no runtime, and the client requires one.
        let sent = self.runtime.spawn(send(self.http.clone(), request)).await;
        let response = sent.map_err(anyhow::Error::from).flatten();
        match &response {
            Ok(response) if response.status().is_success() => {
                self.state.count_rejected(response.body());
            }
            Ok(response) => self
                .state
                .set_error(format!("status {}", response.status())),
            Err(error) => self.state.set_error(format!("{error:#}")),
        }

        Ok(response?)
    }
}

async fn send(http: reqwest::Client, request: reqwest::Request) -> anyhow::Result<Response<Bytes>> {
    let mut received = http.execute(request).await?;
    let status = received.status();
    let headers = std::mem::take(received.headers_mut());
    let mut response = Response::new(received.bytes().await?);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Response of the collector.
#[derive(Clone, PartialEq, prost::Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// Partial success: the collector accepted only some records.
#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn otlp_endpoint_must_be_http() {
        assert!(check("http://127.0.0.1:4318/v1/traces").is_ok());
        for invalid in [
            "",
            "127.0.0.1:4318/v1/traces",
            "grpc://collector:4317/v1/traces",
        ] {
            assert!(check(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn records_above_the_limit_are_dropped_and_counted() {
        let state = ExportState::new(&SPANS, 2);
        assert_eq!(
            [state.admit(), state.admit(), state.admit()],
            [true, true, false]
        );
        let response = ExportResponse {
            partial_success: Some(PartialSuccess {
                rejected: 1,
                message: "too old".to_owned(),
            }),
        };
        state.count_rejected(&response.encode_to_vec());
        state.finish(2, &Ok(()));
        assert_eq!(
            (state.counts.sent.get(), state.counts.dropped.get()),
            (1, 2)
        );
        assert!(state.admit());
        state.stop(|_| Ok(()));
        assert!(!state.admit());
        assert_eq!(
            (state.counts.sent.get(), state.counts.dropped.get()),
            (1, 3)
        );
    }
}
