//! OpenTelemetry collector: receives spans and log records by OTLP over HTTP (protobuf) and exposes
//! them to tests.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use parking_lot::{Condvar, Mutex};
use prost::Message as _;

use crate::wait::WAIT_TIMEOUT;

/// Received span; ids in hexadecimal digits.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// Trace id.
    pub trace: String,
    /// Span id.
    pub span: String,
    /// Id of the parent span; empty at the root.
    pub parent: String,
    /// Span name.
    pub name: String,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: i32,
    /// Sender: `service.instance.id`.
    pub node: String,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
    /// Links: trace id, span id and relation.
    pub links: Vec<(String, String, String)>,
    /// Names of the span events.
    pub events: Vec<String>,
    /// Error message; `None` if there is no error.
    pub error: Option<String>,
    /// Start and end, in nanoseconds since 1970.
    pub duration: (u64, u64),
    /// Header `tracestate`.
    pub trace_state: String,
}

/// Received log record.
#[derive(Clone, Debug)]
pub struct ReceivedLog {
    /// Trace id; empty if there is none.
    pub trace: String,
    /// Span id; empty or zero if there is none.
    pub span: String,
    /// Level.
    pub level: String,
    /// Message.
    pub body: String,
    /// Fields.
    pub attributes: BTreeMap<String, String>,
    /// Resource attributes of the process.
    pub resource: BTreeMap<String, String>,
}

#[derive(Default)]
struct ReceivedTelemetry {
    spans: Vec<ReceivedSpan>,
    lines: Vec<ReceivedLog>,
    headers: Vec<BTreeMap<String, String>>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<ReceivedTelemetry>,
    changed: Condvar,
}

/// Collector that listens on a free loopback port until the process ends.
pub struct OtlpCollector {
    /// Base URL.
    pub url: String,
    shared: Arc<Shared>,
}

impl OtlpCollector {
    /// Starts listening.
    ///
    /// # Panics
    /// If no port is available.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it opens a port")]
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!(
            "http://{}",
            listener.local_addr().expect("the listener is bound")
        );
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&own);
                std::thread::spawn(move || while serve(&stream, &shared).is_some() {});
            }
        });
        Self { url, shared }
    }

    /// Returns all spans received so far.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.shared.received.lock().spans.clone()
    }

    /// Returns the headers of all requests, with lowercase names.
    #[must_use]
    pub fn headers(&self) -> Vec<BTreeMap<String, String>> {
        self.shared.received.lock().headers.clone()
    }

    /// Waits until the received spans satisfy a condition, and returns all spans.
    ///
    /// # Panics
    /// On timeout; the message lists the received spans.
    #[must_use]
    #[track_caller]
    pub fn spans_when(&self, enough: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let (mut received, until) = (self.shared.received.lock(), Instant::now() + WAIT_TIMEOUT);
        while !enough(&received.spans) {
            let remaining = until.saturating_duration_since(Instant::now());
            assert!(
                !remaining.is_zero(),
                "not all spans have arrived:\n{}",
                format_spans(&received.spans)
            );
            self.shared.changed.wait_for(&mut received, remaining);
        }
        received.spans.clone()
    }

    /// Waits for a log record.
    ///
    /// # Panics
    /// If none arrives in time.
    #[must_use]
    #[track_caller]
    pub fn line_when(&self, predicate: impl Fn(&ReceivedLog) -> bool) -> ReceivedLog {
        let (mut received, until) = (self.shared.received.lock(), Instant::now() + WAIT_TIMEOUT);
        loop {
            if let Some(found) = received.lines.iter().find(|line| predicate(line)) {
                return found.clone();
            }
            let remaining = until.saturating_duration_since(Instant::now());
            assert!(
                !remaining.is_zero(),
                "the log record has not arrived: {:#?}",
                received.lines
            );
            self.shared.changed.wait_for(&mut received, remaining);
        }
    }
}

/// Formats one line per span.
#[must_use]
pub fn format_spans(spans: &[ReceivedSpan]) -> String {
    let line = |span: &ReceivedSpan| {
        let ReceivedSpan {
            trace,
            span: id,
            parent,
            name,
            node,
            ..
        } = span;
        format!("{node} {trace} {parent:16} > {id} {name}")
    };
    spans.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Handles one request; `None` when the connection ends.
fn serve(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        let mut decompressed = Vec::new();
        GzDecoder::new(&body[..])
            .read_to_end(&mut decompressed)
            .ok()?;
        body = decompressed;
    }
    shared.received.lock().headers.push(headers);
    let is_known = take(first.split(' ').nth(1)?, &body, shared).is_some();
    let status = if is_known {
        "200 OK"
    } else {
        "400 Bad Request"
    };
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(response.as_bytes()).ok()
}

fn take(path: &str, body: &[u8], shared: &Shared) -> Option<()> {
    let mut received = shared.received.lock();
    match path {
        "/v1/traces" => {
            for of in ExportTraceServiceRequest::decode(body).ok()?.resource_spans {
                let node = resource(of.resource)
                    .remove("service.instance.id")
                    .unwrap_or_default();
                let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                received.spans.extend(spans.map(|span| seen(span, &node)));
            }
        }
        "/v1/logs" => {
            for of in ExportLogsServiceRequest::decode(body).ok()?.resource_logs {
                let resource = resource(of.resource);
                let lines = of
                    .scope_logs
                    .into_iter()
                    .flat_map(|scope| scope.log_records);
                received
                    .lines
                    .extend(lines.map(|record| line(record, resource.clone())));
            }
        }
        _ => return None,
    }
    shared.changed.notify_all();
    Some(())
}

fn seen(span: Span, node: &str) -> ReceivedSpan {
    let link = |link: opentelemetry_proto::tonic::trace::v1::span::Link| {
        let kind = attributes(link.attributes)
            .remove("orlog.link")
            .unwrap_or_default();
        (
            hex::encode(&link.trace_id),
            hex::encode(&link.span_id),
            kind,
        )
    };
    let failed = span
        .status
        .filter(|status| status.code == StatusCode::Error as i32);
    ReceivedSpan {
        trace: hex::encode(&span.trace_id),
        span: hex::encode(&span.span_id),
        parent: hex::encode(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        node: node.to_owned(),
        attributes: attributes(span.attributes),
        links: span.links.into_iter().map(link).collect(),
        events: span.events.into_iter().map(|event| event.name).collect(),
        error: failed.map(|status| status.message),
        duration: (span.start_time_unix_nano, span.end_time_unix_nano),
        trace_state: span.trace_state,
    }
}

fn line(record: LogRecord, resource: BTreeMap<String, String>) -> ReceivedLog {
    ReceivedLog {
        trace: hex::encode(&record.trace_id),
        span: hex::encode(&record.span_id),
        level: record.severity_text,
        body: record.body.map(text).unwrap_or_default(),
        attributes: attributes(record.attributes),
        resource,
    }
}

fn resource(resource: Option<Resource>) -> BTreeMap<String, String> {
    attributes(
        resource
            .map(|resource| resource.attributes)
            .unwrap_or_default(),
    )
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|pair| (pair.key, pair.value.map(text).unwrap_or_default()))
        .collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(Any::StringValue(text)) => text,
        Some(Any::BoolValue(truth)) => truth.to_string(),
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}
