//! Ten thousand effects at a flapping upstream: no effect is lost, no key is reused, an outage is not
//! amplified.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use orlog_testkit::WAIT_TIMEOUT;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::effects::node::Node;

const EFFECTS: usize = 10_000;
/// Timeout of a test run.
const RUN: Duration = WAIT_TIMEOUT.saturating_mul(3);
const PERCENT: usize = 20;
const PER_SECOND: usize = 400;
const SAVED: usize = 100;

/// Record of received and executed calls.
#[derive(Default)]
struct UpstreamRecord {
    /// Orders by key, once per call.
    orders_by_key: BTreeMap<String, Vec<String>>,
    /// Executed keys.
    done: BTreeSet<String>,
    requests: usize,
}

/// Flapping upstream: of each 400 requests 370 succeed, 20 fail without execution, and 10 are executed
/// but their response is lost.
struct FlappingUpstream {
    record: Mutex<UpstreamRecord>,
    done: watch::Sender<usize>,
}

impl FlappingUpstream {
    async fn open() -> (Arc<Self>, String) {
        let upstream = Arc::new(Self {
            record: Mutex::default(),
            done: watch::Sender::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state(Arc::clone(&upstream));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (upstream, url)
    }

    fn request(&self, key: &str, order: &str) -> StatusCode {
        let mut record = self.record.lock();
        record
            .orders_by_key
            .entry(key.to_owned())
            .or_default()
            .push(order.to_owned());
        let turn = record.requests % 400;
        record.requests += 1;
        if (370..390).contains(&turn) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        record.done.insert(key.to_owned());
        self.done.send_replace(record.done.len());
        if turn < 370 {
            StatusCode::OK
        } else {
            StatusCode::BAD_GATEWAY
        }
    }
}

async fn charge(
    State(upstream): State<Arc<FlappingUpstream>>,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap();
    (
        upstream.request(key, body["orderId"].as_str().unwrap()),
        "{}",
    )
        .into_response()
}

async fn pay(node: &Node, orders: std::ops::Range<usize>) {
    let events = orders.map(|order| {
        json!({
            "specversion": "1.0", "id": format!("asked-{order}"), "source": "urn:test", "type": "PaymentAsked",
            "data": { "orderId": format!("o-{order}") },
        })
    });
    let events = Value::Array(events.collect());
    let (status, response) = node.ask(Method::POST, "", "/v1/events", &events).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{response}");
}

/// Returns the number of payments with this status.
async fn count(node: &Node, status: &str) -> usize {
    let (mut found, mut cursor) = (0, String::new());
    loop {
        let page = node
            .get(&format!(
                "/v1/sagas?saga=payment&status={status}&limit=1000{cursor}"
            ))
            .await;
        found += page["items"].as_array().unwrap().len();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn flapping_upstream_loses_nothing_and_respects_the_retry_budget() {
    let (upstream, url) = FlappingUpstream::open().await;
    let description = format!(
        "base_url = {url:?}\nmax_concurrency = 64\ndeadline = \"1h\"\nbackoff = {{ initial = \"5ms\", max = \"50ms\" }}\n\
         breaker = {{ failure_threshold = 10, open_duration = \"2ms\" }}\n\
         retry_budget = {{ percent = {PERCENT}, min_per_second = {PER_SECOND}, max_saved = {SAVED} }}\n\
         [effects.\"pay.charge\"]\npath = \"/charges\"\n"
    );
    let node = Node::start(&[("pay", &description)]).await;
    let started = Instant::now();
    for batch in 0..EFFECTS / 1000 {
        pay(&node, batch * 1000..(batch + 1) * 1000).await;
    }
    let over = async {
        drop(
            upstream
                .done
                .subscribe()
                .wait_for(|done| *done == EFFECTS)
                .await
                .unwrap(),
        );
        let mut commits = node.app.runtime.readers().next().unwrap().watch();
        while count(&node, "running").await > 0 {
            commits.changed().await.unwrap();
        }
    };
    tokio::time::timeout(RUN, over).await.expect("all are done");
    let took = usize::try_from(started.elapsed().as_secs() + 1).unwrap();
    assert_eq!(
        count(&node, "completed").await,
        EFFECTS,
        "none is lost, none is declared failed"
    );

    let record = upstream.record.lock();
    let orders: BTreeSet<_> = record.orders_by_key.values().flatten().collect();
    assert_eq!(
        (record.orders_by_key.len(), orders.len()),
        (EFFECTS, EFFECTS),
        "an order has one key for all attempts"
    );
    let reused = record
        .orders_by_key
        .iter()
        .find(|(_, orders)| orders.iter().any(|order| *order != orders[0]));
    assert_eq!(reused, None, "a key belongs to one order");
    let (retries, allowed) = (
        record.requests - EFFECTS,
        PERCENT * EFFECTS / 100 + PER_SECOND * took + SAVED,
    );
    assert!(
        retries > EFFECTS / 100,
        "the upstream flapped: {retries} retries"
    );
    assert!(retries <= allowed, "{retries} retries, {allowed} allowed");
    println!(
        "{} requests, {retries} retries of {allowed} allowed, {took} s",
        record.requests
    );
}
