//! Exports log records by OTLP, in addition to standard error.
//!
//! OTLP instead of Loki's own protocol: Loki and other backends accept it. Only the resource
//! attributes, which identify the process, become labels. All fields of a record are attributes, so
//! tenants and instances create no series.

use std::sync::Arc;

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::trace::{SpanId, TraceContextExt as _, TraceId};
use opentelemetry::{Context, Key};
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, SdkLogger, SdkLoggerProvider,
};
use orlog_model::trace;
use serde_json::Value as Json;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer;
use tracing_subscriber::registry::LookupSpan;

use super::fields::gather;
use super::otlp::{self, BatchSettings, CountingExporter, ExportCounts, ExportState, LOGS};
use crate::clock::ClockReading;
use crate::config::Config;

/// Targets of the export transport. Their records are not exported, because each would create
/// another.
const EXCLUDED: [&str; 6] = [
    "hyper",
    "reqwest",
    "rustls",
    "h2",
    "opentelemetry",
    otlp::TARGET,
];

/// Exporter of log records in batches.
#[derive(Clone)]
pub(super) struct LogExporter {
    provider: SdkLoggerProvider,
    state: Arc<ExportState>,
}

impl LogExporter {
    /// Starts the export; call it on a tokio runtime.
    pub(super) fn start(config: &Config) -> anyhow::Result<Self> {
        let BatchSettings {
            queue_size,
            batch_size,
            delay,
        } = BatchSettings::of(&LOGS, config);
        let state = ExportState::new(&LOGS, queue_size);
        let builder = opentelemetry_otlp::LogExporter::builder().with_http();
        let exporter = otlp::configure(builder, &LOGS, config, &state)?.build()?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(queue_size)
            .with_max_export_batch_size(batch_size)
            .with_scheduled_delay(delay)
            .build();

        let exporter = CountingExporter {
            exporter,
            state: Arc::clone(&state),
        };
        let processor = BatchLogProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let provider = SdkLoggerProvider::builder()
            .with_log_processor(processor)
            .with_resource(otlp::resource(config));

        Ok(Self {
            provider: provider.build(),
            state,
        })
    }

    pub(super) fn layer(&self) -> OtlpLogLayer {
        OtlpLogLayer {
            logger: self.provider.logger_with_scope(otlp::scope()),
            state: Arc::clone(&self.state),
        }
    }

    pub(super) fn counts(&self) -> &ExportCounts {
        &self.state.counts
    }

    /// Exports the queued records and stops. Blocks until then, for at most 5 s.
    pub(super) fn stop(&self) {
        self.state
            .stop(|timeout| self.provider.shutdown_with_timeout(timeout));
    }
}

/// Layer that exports log records. The appender of OpenTelemetry repeats a field of an event and
/// its span, and does not relate a record to the trace of its instance.
pub(super) struct OtlpLogLayer {
    logger: SdkLogger,
    state: Arc<ExportState>,
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for OtlpLogLayer {
    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        let metadata = event.metadata();

        // The exporter thread suppresses its own records.
        if EXCLUDED
            .iter()
            .any(|prefix| metadata.target().starts_with(prefix))
            || Context::is_current_telemetry_suppressed()
            || !self.state.admit()
        {
            return;
        }

        // After the admission, because the fields are copies.
        let fields = gather(event, &context);
        let level = *metadata.level();
        let mut record = self.logger.create_log_record();
        record.set_timestamp(ClockReading::now().system);
        record.set_severity_number(severity(level));
        record.set_severity_text(level.as_str());
        record.set_body(fields.message().to_owned().into());
        record.add_attribute("target", metadata.target());
        record.add_attributes(
            fields
                .iter()
                .map(|(name, value)| (Key::from_static_str(name), any(value))),
        );

        // In a request, the SDK adds the trace and the span of the request.
        if !Context::map_current(|current| current.span().span_context().is_valid())
            && let Some(trace) = fields.get("trace_id").and_then(trace::parse_trace_id)
        {
            record.set_trace_context(TraceId::from_bytes(trace), SpanId::INVALID, None);
        }

        self.logger.emit(record);
    }
}

fn any(value: &Json) -> AnyValue {
    match value {
        Json::Bool(truth) => AnyValue::Boolean(*truth),
        Json::String(text) => text.clone().into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => AnyValue::Int(integer),
            (None, float) => AnyValue::Double(float.unwrap_or(f64::NAN)),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => value.to_string().into(),
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warn,
        Level::INFO => Severity::Info,
        Level::DEBUG => Severity::Debug,
        Level::TRACE => Severity::Trace,
    }
}
