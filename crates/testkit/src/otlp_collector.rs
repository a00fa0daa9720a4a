//! A collector of OpenTelemetry: takes spans and log lines by OTLP over HTTP (protobuf), as a real one would, and shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;

/// How long what is expected may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A span as it was sent, ids in hexadecimal digits.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The trace.
    pub trace: String,
    /// Its own id.
    pub span: String,
    /// The id of the one above; empty at the root.
    pub parent: String,
    /// What it is called.
    pub name: String,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: i32,
    /// Who sent it: `service.instance.id`.
    pub node: String,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// Traces and spans that it points to, and what they are to it.
    pub links: Vec<(String, String, String)>,
    /// What happened in it.
    pub events: Vec<String>,
    /// What went wrong; `None`: nothing.
    pub error: Option<String>,
    /// From when to when, in nanoseconds since 1970.
    pub lasted: (u64, u64),
}

/// A log line as it was sent.
#[derive(Clone, Debug)]
pub struct Line {
    /// The trace it belongs to; empty for none.
    pub trace: String,
    /// Its level.
    pub level: String,
    /// What it says.
    pub body: String,
    /// Its fields.
    pub attributes: BTreeMap<String, String>,
    /// What identifies the process.
    pub resource: BTreeMap<String, String>,
}

#[derive(Default)]
struct Taken {
    spans: Vec<Seen>,
    lines: Vec<Line>,
}

#[derive(Default)]
struct Shared {
    taken: Mutex<Taken>,
    changed: Condvar,
}

/// A collector that listens on a free port of the loopback for as long as the process lives.
pub struct Collector {
    /// Its base URL.
    pub url: String,
    shared: Arc<Shared>,
}

impl Collector {
    /// Begins to listen.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it opens a port")]
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
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

    /// All spans so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Seen> {
        self.lock().spans.clone()
    }

    /// Waits until what has come satisfies somebody, and returns all spans.
    ///
    /// # Panics
    /// When that takes too long; the text lists what has come.
    #[must_use]
    #[track_caller]
    pub fn spans_when(&self, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let (mut taken, until) = (self.lock(), Instant::now() + PATIENCE);
        while !enough(&taken.spans) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not all spans have come:\n{}", listed(&taken.spans));
            taken = self.wait(taken, left);
        }
        taken.spans.clone()
    }

    /// Waits for a log line.
    ///
    /// # Panics
    /// When none comes in time.
    #[must_use]
    #[track_caller]
    pub fn line_when(&self, wanted: impl Fn(&Line) -> bool) -> Line {
        let (mut taken, until) = (self.lock(), Instant::now() + PATIENCE);
        loop {
            if let Some(found) = taken.lines.iter().find(|line| wanted(line)) {
                return found.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the line has not come: {:#?}", taken.lines);
            taken = self.wait(taken, left);
        }
    }

    fn wait<'a>(&'a self, taken: MutexGuard<'a, Taken>, left: Duration) -> MutexGuard<'a, Taken> {
        self.shared.changed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line a span, for people.
#[must_use]
pub fn listed(spans: &[Seen]) -> String {
    let line = |span: &Seen| {
        let Seen { trace, span: id, parent, name, node, .. } = span;
        format!("{node} {trace} {parent:16} > {id} {name}")
    };
    spans.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Takes one request; `None` when the connection ends.
fn serve(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let is_known = take(first.split(' ').nth(1)?, &body, shared).is_some();
    let status = if is_known { "200 OK" } else { "400 Bad Request" };
    let answer =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()
}

fn take(path: &str, body: &[u8], shared: &Shared) -> Option<()> {
    let mut taken = shared.taken.lock().unwrap_or_else(PoisonError::into_inner);
    match path {
        "/v1/traces" => {
            for of in ExportTraceServiceRequest::decode(body).ok()?.resource_spans {
                let node = resource(of.resource).remove("service.instance.id").unwrap_or_default();
                let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                taken.spans.extend(spans.map(|span| seen(span, &node)));
            }
        }
        "/v1/logs" => {
            for of in ExportLogsServiceRequest::decode(body).ok()?.resource_logs {
                let resource = resource(of.resource);
                let lines = of.scope_logs.into_iter().flat_map(|scope| scope.log_records);
                taken.lines.extend(lines.map(|record| line(record, resource.clone())));
            }
        }
        _ => return None,
    }
    shared.changed.notify_all();
    Some(())
}

fn seen(span: Span, node: &str) -> Seen {
    let link = |link: opentelemetry_proto::tonic::trace::v1::span::Link| {
        let what = attributes(link.attributes).remove("orlog.link").unwrap_or_default();
        (hex(&link.trace_id), hex(&link.span_id), what)
    };
    let failed = span.status.filter(|status| status.code == StatusCode::Error as i32);
    Seen {
        trace: hex(&span.trace_id),
        span: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        node: node.to_owned(),
        attributes: attributes(span.attributes),
        links: span.links.into_iter().map(link).collect(),
        events: span.events.into_iter().map(|event| event.name).collect(),
        error: failed.map(|status| status.message),
        lasted: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn line(record: LogRecord, resource: BTreeMap<String, String>) -> Line {
    Line {
        trace: hex(&record.trace_id),
        level: record.severity_text,
        body: record.body.map(text).unwrap_or_default(),
        attributes: attributes(record.attributes),
        resource,
    }
}

fn resource(resource: Option<Resource>) -> BTreeMap<String, String> {
    attributes(resource.map(|resource| resource.attributes).unwrap_or_default())
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, pair.value.map(text).unwrap_or_default())).collect()
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
