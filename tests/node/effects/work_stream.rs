//! Streams of exchanges over a WebSocket.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use futures::{SinkExt as _, StreamExt as _};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::within;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::effects::exchange::{PATH, accepting, board, jobs, post_jobs, status_of, succeeded};
use crate::effects::node::{Dirs, Node};
use crate::effects::workers::worker_config;

/// Stream of a worker.
struct WorkStream(WebSocketStream<TcpStream>);

impl WorkStream {
    /// Opens a stream to the node at `url`.
    async fn open(url: &str, tenant: &str) -> Self {
        Self::try_open(url, ("x-tenant-id", tenant)).await.unwrap()
    }

    /// Opens a stream with a header.
    async fn try_open(
        url: &str,
        (name, value): (&'static str, &str),
    ) -> Result<Self, tungstenite::Error> {
        let address = url.strip_prefix("http://").unwrap();
        let mut request = format!("ws://{address}{PATH}")
            .into_client_request()
            .unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        let connection = TcpStream::connect(address).await.unwrap();
        let opened = within(
            "the handshake",
            tokio_tungstenite::client_async(request, connection),
        )
        .await;
        opened.map(|(stream, _)| Self(stream))
    }

    async fn send(&mut self, message: &Value) {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }

    /// Returns the next message of the node; responds to pings.
    async fn receive(&mut self) -> Value {
        loop {
            match within("a message", self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the node closes the stream, and returns the code and the reason.
    async fn closed(&mut self) -> (CloseCode, String) {
        loop {
            match within("the end of the stream", self.0.next())
                .await
                .unwrap()
                .unwrap()
            {
                Message::Close(Some(frame)) => return (frame.code, frame.reason.to_string()),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Receives jobs until there are as many as expected.
    async fn jobs(&mut self, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(jobs(&self.receive().await));
        }
        assert_eq!(all.len(), count);
        all
    }
}

/// Returns the status of a handshake that the node rejects.
async fn rejection(url: &str, header: (&'static str, &str)) -> u16 {
    match WorkStream::try_open(url, header)
        .await
        .err()
        .expect("the handshake is rejected")
    {
        tungstenite::Error::Http(response) => response.status().as_u16(),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_carries_reports_and_jobs_within_the_credit() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let mut stream = WorkStream::open(&node.serve().await, "acme").await;
    stream.send(&accepting("w-1", 2, 0)).await;
    post_jobs(&node, &["o-1", "o-2", "o-3"]).await;
    let claimed = stream.jobs(2).await;
    // Without more credit, the third job stays on the board; the acknowledgement is the next message.
    stream
        .send(&json!({ "results": [succeeded(&claimed[0])], "credit": 0 }))
        .await;
    let acks = stream.receive().await;
    let accepted = json!([{ "job": claimed[0]["job"], "status": "accepted" }]);
    assert_eq!((&acks["results"], &acks["jobs"]), (&accepted, &json!([])));
    assert_eq!(
        status_of(&node, "o-1").await,
        "completed",
        "it was sent when the result was durable"
    );
    let unclaimed = board(&node)
        .await
        .into_iter()
        .filter(|job| job["worker"].is_null());
    assert_eq!(unclaimed.count(), 1);
    // Credit alone is enough: the stream keeps the effects and the name of the worker.
    stream.send(&json!({ "credit": 1 })).await;
    let third = stream.jobs(1).await.remove(0);
    assert_eq!(third["correlation"], "o-3");
    stream
        .send(&json!({
            "results": [succeeded(&claimed[0]), succeeded(&third), { "job": claimed[1]["job"] }],
            "heartbeats": [{ "job": claimed[1]["job"], "claim": claimed[1]["claim"] }],
            "logs": [{ "job": claimed[1]["job"], "claim": claimed[1]["claim"], "log": ["half"] }],
        }))
        .await;
    let acks = stream.receive().await;
    let statuses = |list: &str| {
        let acks = acks[list].as_array().unwrap().iter();
        acks.map(|ack| ack["status"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses("results"), ["duplicate", "accepted", "invalid"]);
    assert_eq!(
        (statuses("heartbeats"), statuses("logs")),
        (vec!["accepted".into()], vec!["accepted".into()])
    );
    assert_eq!(node.end("acme", "o-3").await["status"], "completed");
    let trail = node.get_as("acme", "/v1/audit").await;
    let records = trail["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["status"] == 101);
    assert_eq!(
        records.map(|record| &record["route"]).collect::<Vec<_>>(),
        [&json!("GET /v1/work/exchange")]
    );
    stream.0.close(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_streams_share_the_jobs_of_their_tenant() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let url = node.serve().await;
    let mut first = WorkStream::open(&url, "acme").await;
    let mut second = WorkStream::open(&url, "acme").await;
    let mut other = WorkStream::open(&url, "beta").await;
    for (stream, worker) in [
        (&mut first, "w-1"),
        (&mut second, "w-2"),
        (&mut other, "w-3"),
    ] {
        stream.send(&accepting(worker, 1, 0)).await;
    }
    post_jobs(&node, &["o-1", "o-2", "o-3"]).await;
    let (of_first, of_second) = (
        first.jobs(1).await.remove(0),
        second.jobs(1).await.remove(0),
    );
    assert_ne!(of_first["job"], of_second["job"]);
    // The next message of another tenant is about its own reports.
    other
        .send(&json!({ "results": [succeeded(&of_first)] }))
        .await;
    assert_eq!(other.receive().await["results"][0]["status"], "claim_lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_stream_loses_no_job_and_no_result() {
    let node = Node::start(&[("pay", &worker_config("claim_ttl = \"300ms\""))]).await;
    let url = node.serve().await;
    let mut lost = WorkStream::open(&url, "acme").await;
    lost.send(&accepting("w-1", 1, 0)).await;
    node.pay("acme", "o-1", json!({})).await;
    let job = lost.jobs(1).await.remove(0);
    drop(lost);
    let mut next = WorkStream::open(&url, "acme").await;
    next.send(&accepting("w-2", 1, 0)).await;
    let again = next.jobs(1).await.remove(0);
    assert_eq!(
        (&again["job"], &again["claim_count"]),
        (&job["job"], &json!(2))
    );
    drop(next);
    // The claim does not belong to the stream: another one can report the result.
    let mut stream = WorkStream::open(&url, "acme").await;
    stream
        .send(&json!({ "results": [succeeded(&again)] }))
        .await;
    assert_eq!(stream.receive().await["results"][0]["status"], "accepted");
    assert_eq!(status_of(&node, "o-1").await, "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_message_ends_the_stream_with_a_problem() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let node = dirs
        .start_with(|config| config.http.max_body_size = 4096)
        .await;
    let url = node.serve().await;
    for (message, code, text) in [
        (json!({ "credit": 1 }), "OR0008", "effects"),
        (accepting("w", 1001, 0), "OR0008", "at most 1000"),
        (
            json!({ "worker": "w", "effects": ["other.do"] }),
            "OR0008",
            "upstream",
        ),
        (json!({ "unknown": 1 }), "OR0002", "unknown"),
        (json!({ "worker": "x".repeat(5000) }), "OR0005", "4096"),
    ] {
        let mut stream = WorkStream::open(&url, "acme").await;
        stream.send(&message).await;
        let problem = stream.receive().await["problem"].clone();
        assert_eq!(problem["code"], code, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(text),
            "{problem}"
        );
        assert_eq!(stream.closed().await, (CloseCode::Policy, code.to_owned()));
    }
    let response = node.ask(Method::GET, "acme", PATH, &Value::Null).await;
    assert_eq!(
        (response.0, &response.1["code"]),
        (StatusCode::BAD_REQUEST, &json!("OR0008"))
    );
    assert_eq!(
        rejection(&url, ("x-tenant-id", &"x".repeat(1000))).await,
        400
    );
    assert_eq!(
        rejection(&url, ("origin", "http://evil.com")).await,
        403,
        "a page of another site"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_closes_open_streams() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let server = tokio::spawn(orlog::api::serve(Arc::clone(&node.app), listener, shutdown));
    let mut waiting = WorkStream::open(&url, "acme").await;
    waiting.send(&accepting("w", 1, 0)).await;
    let mut idle = WorkStream::open(&url, "acme").await;
    stop.send(()).unwrap();
    for stream in [&mut waiting, &mut idle] {
        assert_eq!(stream.closed().await.0, CloseCode::Away);
    }
    within("the end of the server", server)
        .await
        .unwrap()
        .unwrap();
    let mut drained = WorkStream::open(&node.serve().await, "acme").await;
    assert!(node.app.drain().await);
    assert_eq!(
        drained.closed().await,
        (CloseCode::Away, "the node is drained".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_stream_is_closed_and_a_responsive_one_stays_open() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let node = dirs
        .start_with(|config| {
            config.http.request_timeout = std::time::Duration::from_millis(400);
            config.http.per_caller.max_long_polls = 2;
        })
        .await;
    let url = node.serve().await;
    let mut responsive = WorkStream::open(&url, "acme").await;
    // This one does not read, so it does not respond to pings.
    let mut silent = WorkStream::open(&url, "acme").await;
    assert_eq!(
        rejection(&url, ("x-tenant-id", "acme")).await,
        429,
        "each stream counts as a long poll"
    );
    let reopened = async {
        loop {
            tokio::select! {
                opened = WorkStream::try_open(&url, ("x-tenant-id", "acme")) => if opened.is_ok() { break },
                _ = responsive.0.next() => {}
            }
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, reopened)
        .await
        .expect("the silent stream has ended");
    assert_eq!(
        silent.closed().await,
        (CloseCode::Away, "no response to a ping".to_owned())
    );
    responsive.send(&json!({ "results": [{}] })).await;
    assert_eq!(
        responsive.receive().await["results"][0]["status"],
        "invalid"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_without_jobs_is_empty_however_short_requests_are() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let node = dirs
        .start_with(|config| {
            config.http.request_timeout = std::time::Duration::from_secs(1);
        })
        .await;

    for path in ["/v1/work/claim", "/v1/work/fetch"] {
        let body = json!({ "worker": "w-1", "effects": ["pay.charge"] });
        let response = node.post(path, &body).await.ok();
        assert_eq!(response["jobs"], json!([]), "{path}");
    }
}

/// Requirements: F5.
#[tokio::test(flavor = "multi_thread")]
async fn stream_receives_jobs_for_the_labels_of_a_later_registration() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let mut stream = WorkStream::open(&node.serve().await, "acme").await;
    stream
        .send(&json!({ "worker": "r-1", "effects": ["job.sal"], "credit": 1 }))
        .await;
    let job = json!({ "id": "a", "type": "sal", "script": "x", "runner": { "labels": { "zone": "eu" } } });
    let flow = json!({ "jobs": [job] });
    node.ask(Method::POST, "acme", "/v1/flows", &flow).await;
    let runner = json!({ "name": "r-1", "types": ["sal"], "labels": { "zone": "eu" } });
    node.ask(Method::POST, "acme", "/v1/runners", &runner).await;
    // The next message, or the next look for jobs.
    stream.send(&json!({})).await;
    let claimed = stream.jobs(1).await.remove(0);
    assert_eq!(claimed["payload"]["job"], "a");
}
