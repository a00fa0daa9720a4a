//! HTTP requests: bodies in all formats, cursors, filters and other parameters.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use orlog::config::Config;
use orlog::{App, AppOverrides};
use orlog_testkit::fuzz::{Random, mutate};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// Request to be sent. An invalid header or URI cannot be sent.
#[derive(Debug)]
pub(super) struct FuzzRequest {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// Node in this process.
pub(super) struct Node {
    runtime: Runtime,
    router: Router,
    app: Arc<App>,
    _dir: TempDir,
}

impl Node {
    pub(super) fn start(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        config.export.enabled = true;
        // All inputs are of one caller.
        config.http.per_caller.max_query_time_per_minute = std::time::Duration::ZERO;
        change(&mut config);
        let runtime = Runtime::new().unwrap();
        let app = runtime
            .block_on(App::start_with(config, AppOverrides::default()))
            .unwrap();
        let _context = runtime.enter();
        let router = orlog::api::router(Arc::clone(&app));
        Self {
            router,
            app,
            _dir: dir,
            runtime,
        }
    }

    /// Sends the request. `None` if it is not a valid request of HTTP.
    pub(super) fn send(&self, request: &FuzzRequest) -> Option<(StatusCode, String)> {
        let uri = Uri::try_from(&request.target).ok()?;
        let mut built = Request::builder().method(request.method).uri(uri);
        for (name, value) in &request.headers {
            built = built.header(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value).ok()?,
            );
        }
        let request = built.body(Body::from(request.body.clone())).ok()?;
        self.runtime.block_on(async {
            let response = self.router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            let text = to_bytes(response.into_body(), 64 << 20).await.unwrap();
            Some((status, String::from_utf8_lossy(&text).into_owned()))
        })
    }

    /// Sends the request, and returns whether it succeeds.
    pub(super) fn run(&self, request: &FuzzRequest) -> bool {
        let Some((status, text)) = self.send(request) else {
            return false;
        };
        assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{text}");
        assert!(
            status.is_success() || text.len() < 100_000,
            "{} bytes of problem",
            text.len()
        );
        status.is_success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.runtime.block_on(self.app.stop()));
    }
}

const EVENT: &str = r#"{"specversion":"1.0","id":"e-1","type":"Nothing","source":"urn:shop","data":{"a":[1,null]}}"#;
const ENVELOPE: &str = r#"{"event_id":"e-2","aggregate_type":"order","aggregate_id":"o-1","event_type":"Placed","event_data":{}}"#;

/// Route, content type and body of valid requests.
const BODIES: [(&str, &str, &str); 11] = [
    ("/v1/events", "application/cloudevents+json", EVENT),
    ("/v1/events", "application/cloudevents-batch+json", "[]"),
    ("/v1/events", "application/json", ENVELOPE),
    ("/v1/events", "text/plain", "hello"),
    (
        "/v1/sagas/order/o-1/signal",
        "application/json",
        r#"{"type":"Paid","data":{"a":1}}"#,
    ),
    (
        "/v1/sagas/order/o-1/cancel",
        "application/json",
        r#"{"reason":"x","expected_version":1,"user":"ada"}"#,
    ),
    (
        "/v1/work/claim",
        "application/json",
        r#"{"effects":["a.b"],"worker":"w","max":1,"wait_seconds":0}"#,
    ),
    (
        "/v1/work/exchange",
        "application/json",
        r#"{"effects":["a.b"],"worker":"w","credit":1,"results":[{"job":"018f4d4e-0000-7000-8000-000000000001","claim":"x"}]}"#,
    ),
    (
        "/v1/work/jobs/018f4d4e-0000-7000-8000-000000000001/result",
        "application/json",
        r#"{"claim":"018f4d4e-0000-7000-8000-000000000002","result":"succeeded","payload":{},"facts":[{"type":"F"}]}"#,
    ),
    (
        "/v1/dead-letters/redrive",
        "application/json",
        r#"{"reason":"x","canary":1}"#,
    ),
    (
        "/v1/replays",
        "application/json",
        r#"{"saga":"order","from":"2026-01-01T00:00:00Z"}"#,
    ),
];

/// Lists with a valid query.
const QUERIES: [(&str, &str, &str); 9] = [
    ("/v1/sagas", "cursor", "0."),
    ("/v1/sagas", "cursor", "0.0a1b2c"),
    (
        "/v1/sagas",
        "filter",
        "vars.total > 100 && status == 'running'",
    ),
    (
        "/v1/sagas",
        "filter",
        "tasks.exists(t, t.roles.all(r, r.matches('^a+$')))",
    ),
    ("/v1/sagas", "updated_from", "2026-01-01T00:00:00+02:00"),
    ("/v1/tasks", "cursor", "eyJhIjoxfQ"),
    ("/v1/timers", "cursor", "0.00"),
    ("/v1/dead-letters", "cursor", "0.00"),
    ("/v1/export", "after", "eyJhIjoxfQ"),
];

pub(super) fn make(random: &mut Random) -> FuzzRequest {
    let mut request = if random.once_in(2) {
        body(random)
    } else {
        query(random)
    };
    if random.once_in(4) {
        request
            .headers
            .push(("x-tenant-id", mutate(random, b"acme", EVENT.as_bytes())));
    }
    if random.once_in(8) {
        let trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        request
            .headers
            .push(("traceparent", mutate(random, trace, b"")));
    }
    request
}

fn body(random: &mut Random) -> FuzzRequest {
    let ((target, content_type, valid), (.., other)) =
        (*random_of(random, &BODIES), *random_of(random, &BODIES));
    let mut body = mutate(random, valid.as_bytes(), other.as_bytes());
    if target == "/v1/events" && random.once_in(3) {
        let members: Vec<_> = (0..random.below(20))
            .map(|_| mutate(random, EVENT.as_bytes(), ENVELOPE.as_bytes()))
            .collect();
        body = [b"[".as_slice(), &members.join(&b','), b"]"].concat();
    }
    let content_type = if random.once_in(8) {
        random_of(random, &BODIES).1
    } else {
        content_type
    };
    let mut headers = vec![("content-type", content_type.as_bytes().to_vec())];
    if content_type == "text/plain" {
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", "e-3"),
            ("ce-type", "Nothing"),
            ("ce-source", "urn:shop"),
        ] {
            headers.push((name, mutate(random, value.as_bytes(), b"urn:x")));
        }
    }
    FuzzRequest {
        method: "POST",
        target: target.to_owned(),
        headers,
        body,
    }
}

fn query(random: &mut Random) -> FuzzRequest {
    let ((path, name, valid), (.., other)) =
        (*random_of(random, &QUERIES), *random_of(random, &QUERIES));
    let value = mutate(random, valid.as_bytes(), other.as_bytes());
    let target = format!("{path}?{name}={}", percent_encode(&value, NON_ALPHANUMERIC));
    FuzzRequest {
        method: "GET",
        target,
        headers: Vec::new(),
        body: Vec::new(),
    }
}

fn random_of<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[random.below(from.len())]
}
