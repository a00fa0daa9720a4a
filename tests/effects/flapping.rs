//! Ten thousand effects at an upstream that comes and goes: nothing is lost, no key serves twice, an outage is not multiplied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::node::Node;

const EFFECTS: usize = 10_000;
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(3);
const PERCENT: usize = 20;
const PER_SECOND: usize = 400;
const SAVED: usize = 100;

/// What the upstream was asked, and what it did.
#[derive(Default)]
struct Book {
    /// The orders that came under each key, once for each time.
    asked: BTreeMap<String, Vec<String>>,
    /// The keys that were done.
    done: BTreeSet<String>,
    requests: usize,
}

/// An upstream that flaps: of each 400 requests 370 go well, then it is ill for 20, then ten times it does what it is asked and
/// is ill before it can say so.
struct Flapping {
    book: Mutex<Book>,
    done: watch::Sender<usize>,
}

impl Flapping {
    async fn open() -> (Arc<Self>, String) {
        let upstream = Arc::new(Self { book: Mutex::default(), done: watch::Sender::new(0) });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/charges", post(charge)).with_state(Arc::clone(&upstream));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (upstream, url)
    }

    fn ask(&self, key: &str, order: &str) -> StatusCode {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.asked.entry(key.to_owned()).or_default().push(order.to_owned());
        let turn = book.requests % 400;
        book.requests += 1;
        if (370..390).contains(&turn) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        book.done.insert(key.to_owned());
        self.done.send_replace(book.done.len());
        if turn < 370 { StatusCode::OK } else { StatusCode::BAD_GATEWAY }
    }
}

async fn charge(
    State(upstream): State<Arc<Flapping>>,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap();
    (upstream.ask(key, body["orderId"].as_str().unwrap()), "{}").into_response()
}

async fn pay(node: &Node, orders: std::ops::Range<usize>) {
    let events = orders.map(|order| {
        json!({
            "specversion": "1.0", "id": format!("asked-{order}"), "source": "urn:test", "type": "PaymentAsked",
            "data": { "orderId": format!("o-{order}") },
        })
    });
    let events = Value::Array(events.collect());
    let (status, answer) = node.ask(Method::POST, "", "/v1/events", &events).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
}

/// How many payments have this status.
async fn count(node: &Node, status: &str) -> usize {
    let (mut found, mut cursor) = (0, String::new());
    loop {
        let page = node.get(&format!("/v1/sagas?saga=payment&status={status}&limit=1000{cursor}")).await;
        found += page["items"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_is_lost_no_key_serves_twice_and_retries_stay_within_the_budget() {
    let (upstream, url) = Flapping::open().await;
    let description = format!(
        "base_url = {url:?}\nconcurrency = 64\ndeadline = \"1h\"\nbackoff = {{ first = \"5ms\", max = \"50ms\" }}\n\
         breaker = {{ failures = 10, open_for = \"2ms\" }}\n\
         retry_budget = {{ percent = {PERCENT}, per_second = {PER_SECOND}, saved = {SAVED} }}\n\
         [effects.\"pay.charge\"]\npath = \"/charges\"\n"
    );
    let node = Node::start(&[("pay", &description)]).await;
    let begun = Instant::now();
    for batch in 0..EFFECTS / 1000 {
        pay(&node, batch * 1000..(batch + 1) * 1000).await;
    }
    let over = async {
        drop(upstream.done.subscribe().wait_for(|done| *done == EFFECTS).await.unwrap());
        let mut commits = node.app.runtime.readers().next().unwrap().watch();
        while count(&node, "running").await > 0 {
            commits.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("all are done");
    let took = usize::try_from(begun.elapsed().as_secs() + 1).unwrap();
    assert_eq!(count(&node, "completed").await, EFFECTS, "none is lost, none is declared failed");

    let book = upstream.book.lock().unwrap_or_else(PoisonError::into_inner);
    let orders: BTreeSet<_> = book.asked.values().flatten().collect();
    assert_eq!((book.asked.len(), orders.len()), (EFFECTS, EFFECTS), "an order has one key for all attempts");
    let reused = book.asked.iter().find(|(_, orders)| orders.iter().any(|order| *order != orders[0]));
    assert_eq!(reused, None, "a key belongs to one order");
    let (retries, allowed) = (book.requests - EFFECTS, PERCENT * EFFECTS / 100 + PER_SECOND * took + SAVED);
    assert!(retries > EFFECTS / 100, "the upstream flapped: {retries} retries");
    assert!(retries <= allowed, "{retries} retries, {allowed} allowed");
    println!("{} requests, {retries} retries of {allowed} allowed, {took} s", book.requests);
}
