//! Migration: instances continue with another definition as its author defines, or stay with a reason.

use std::collections::BTreeSet;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use orlog_model::Status;
use orlog_store::Reader;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::deploy::node::{Node, file};

/// Returns a definition with a step of a slow effect, a wait for an event with a timeout, and a last
/// step.
fn text(version: u32, [charge, wait, ship]: [&str; 3], timeout: &str, migrates: &str) -> String {
    let data =
        |step: &str| format!("data: {{ order: =vars.orderId, step: {step}, version: {version} }}");
    let wait = match wait {
        "" => String::new(),
        wait => format!(
            "  - id: {wait}\n    do: {{ command: shipping.Ship }}\n    ok: Shipped\n    timeout: {timeout}\n"
        ),
    };
    let (first, last) = (data(charge), data(ship));
    format!(
        "saga: order\nversion: {version}\ncorrelate: orderId\nstart: OrderPlaced\n\
         vars: {{ orderId: =event.orderId }}\nsteps:\n  - id: {charge}\n    do: {{ effect: test.slow, {first} }}\n\
         {wait}  - id: {ship}\n    do: {{ effect: test.ship, {last} }}\n{migrates}"
    )
}

const OLD: [&str; 3] = ["charge", "wait", "ship"];

async fn deploy(node: &Node, text: &str) {
    node.deploy(&[file("order.saga.yaml", text)]).await.unwrap();
}

async fn migrate(node: &Node, body: &Value) -> Value {
    let request =
        Request::post("/v1/definitions/order/migrate").header("content-type", "application/json");
    let router = orlog::api::router(std::sync::Arc::clone(&node.app));
    let response = router
        .oneshot(request.body(Body::from(body.to_string())).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(
        status,
        StatusCode::OK,
        "{}",
        String::from_utf8_lossy(&bytes)
    );
    serde_json::from_slice(&bytes).unwrap()
}

/// Returns correlation id, class, and whether the instance migrated.
fn outcomes(response: &Value) -> BTreeSet<(String, String, bool)> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let items = response["items"].as_array().unwrap().iter();
    items
        .map(|one| {
            (
                text(one, "correlation"),
                text(one, "class"),
                one["migrated"] == true,
            )
        })
        .collect()
}

fn expected(of: &[(&str, &str, bool)]) -> BTreeSet<(String, String, bool)> {
    of.iter()
        .map(|(one, class, done)| ((*one).to_owned(), (*class).to_owned(), *done))
        .collect()
}

fn versions(node: &Node, count: usize) -> Vec<u32> {
    (1..=count)
        .map(|number| node.order(number).unwrap().definition.version)
        .collect()
}

/// Creates two orders: the first is charged and waits for its event, the second is being charged.
async fn two_orders(timeout: &str) -> Node {
    let node = Node::start(&[file("order.saga.yaml", &text(1, OLD, timeout, ""))]).await;
    node.open_gate();
    node.place(1).await;
    node.until("the first waits", |node| node.is_waiting(1))
        .await;
    node.close_gate();
    node.place(2).await;
    node.until("the second is charged", |node| {
        node.order(2)
            .is_some_and(|order| !order.pending_work.is_empty())
    })
    .await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_with_unchanged_names_migrates_as_safe() {
    let node = two_orders("1h").await;
    deploy(&node, &text(2, OLD, "1h", "")).await;
    let try_out = json!({ "from": "1", "dry_run": true });
    let plan = migrate(&node, &try_out).await;
    assert_eq!(
        outcomes(&plan),
        expected(&[("o-1", "safe", false), ("o-2", "safe", false)])
    );
    assert_eq!(versions(&node, 2), [1, 1], "a dry run changes nothing");
    let only = json!({ "from": "1", "only": ["o-2"], "user": "alice" });
    assert_eq!(
        outcomes(&migrate(&node, &only).await),
        expected(&[("o-2", "safe", true)])
    );
    assert_eq!(versions(&node, 2), [1, 2]);
    let remaining = migrate(&node, &json!({ "from": "1", "user": "alice" })).await;
    assert_eq!(
        outcomes(&remaining),
        expected(&[("o-1", "safe", true)]),
        "what has moved is left alone"
    );
    node.open_gate();
    node.publish("Shipped", 1).await;
    node.until("the first ends", |node| node.count(Status::Completed) == 1)
        .await;
    node.until("the second waits", |node| node.is_waiting(2))
        .await;
    assert!(
        node.performed()["o-1"].contains(&("ship".to_owned(), 2)),
        "{:?}",
        node.performed()
    );
    // An unused version is dropped, so migration back to it is impossible.
    node.app.services.collector.collect(None).await.unwrap();
    assert!(
        !node.stored().contains(&("order".to_owned(), 1)),
        "{:?}",
        node.stored()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_keeps_timers_and_pending_work_and_records_the_actor() {
    let node = two_orders("1h").await;
    let due = node.order(1).unwrap().timers[0].due;
    let renamed =
        "migrations:\n  - { from: 1, steps: { charge: pay, wait: dispatch }, vars: { paid: 7 } }\n";
    let new = text(2, ["pay", "dispatch", "ship"], "1h", renamed);
    deploy(
        &node,
        &new.replace(
            "vars: { orderId: =event.orderId }",
            "vars: { orderId: =event.orderId, paid: 0 }",
        ),
    )
    .await;
    let response = migrate(&node, &json!({ "from": "1", "user": "alice" })).await;
    assert_eq!(
        outcomes(&response),
        expected(&[("o-1", "mapped", true), ("o-2", "mapped", true)])
    );
    let first = node.order(1).unwrap();
    let timers: Vec<_> = first
        .timers
        .iter()
        .map(|timer| (timer.name.as_str(), timer.due))
        .collect();
    assert_eq!(timers, [("dispatch", due)]);
    let second = node.order(2).unwrap();
    assert_eq!(second.pending_work[0].tag.as_str(), "pay");
    let reader = node.app.runtime.readers().next().unwrap();
    let last_note = |reader: &Reader, number: usize| {
        let last = reader
            .history(&Node::key("order", number), 0, 99)
            .unwrap()
            .pop()
            .unwrap();
        last.note
    };
    assert!(
        last_note(&reader, 1).contains("by alice")
            && last_note(&reader, 1).contains("migrated from 1 to 2")
    );
    // The result of work that was requested under the old step name is delivered under the new one.
    node.open_gate();
    node.until("the second waits", |node| node.is_waiting(2))
        .await;
    let timers: Vec<_> = node
        .order(2)
        .unwrap()
        .timers
        .iter()
        .map(|timer| timer.name.to_string())
        .collect();
    assert_eq!(timers, ["dispatch"]);
    for number in [1, 2] {
        node.publish("Shipped", number).await;
    }
    node.until("both end", |node| node.count(Status::Completed) == 2)
        .await;
    assert_eq!(node.dead_letters(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn timer_armed_before_migration_fires_after_it() {
    let node = two_orders("2s").await;
    deploy(&node, &text(2, OLD, "1h", "")).await;
    let only = json!({ "from": "1", "only": ["o-1"] });
    assert_eq!(
        outcomes(&migrate(&node, &only).await),
        expected(&[("o-1", "safe", true)])
    );
    assert_eq!(node.order(1).unwrap().definition.version, 2);
    node.until("it is out of time", |node| node.count(Status::Failed) == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_work_without_mapping_blocks_migration() {
    let node = two_orders("1h").await;
    let dropped = "migrations:\n  - { from: 1, steps: { charge: pay, wait: null } }\n";
    deploy(&node, &text(2, ["pay", "", "ship"], "1h", dropped)).await;
    let plan = migrate(&node, &json!({ "from": "1", "dry_run": true })).await;
    let classes = expected(&[("o-1", "blocked", false), ("o-2", "mapped", false)]);
    assert_eq!(outcomes(&plan), classes);
    assert!(
        plan["items"]
            .to_string()
            .contains("step `wait` is in progress and dropped"),
        "{plan}"
    );
    let before = node.order(1).unwrap();
    let done = migrate(&node, &json!({ "from": "1" })).await;
    assert_eq!(
        outcomes(&done),
        expected(&[("o-1", "blocked", false), ("o-2", "mapped", true)])
    );
    assert_eq!(node.order(1).unwrap(), before);
    let repeated = migrate(&node, &json!({ "from": "1" })).await;
    assert_eq!(outcomes(&repeated), expected(&[("o-1", "blocked", false)]));
    node.open_gate();
    node.publish("Shipped", 1).await;
    node.until("each ends with its own", |node| {
        node.count(Status::Completed) == 2
    })
    .await;
    assert_eq!(versions(&node, 2), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_pages_and_accepts_a_hash_prefix() {
    const COUNT: usize = 25;
    let node = Node::start(&[file("order.saga.yaml", &text(1, OLD, "1h", ""))]).await;
    for number in 1..=COUNT {
        node.place(number).await;
    }
    node.until("all are there", |node| {
        (1..=COUNT).all(|number| node.order(number).is_some())
    })
    .await;
    let hash = uuid::Uuid::from_bytes(node.order(1).unwrap().definition.hash)
        .simple()
        .to_string();
    deploy(&node, &text(2, OLD, "1h", "")).await;
    let (mut moved, mut pages, mut cursor) = (BTreeSet::new(), 0, Value::Null);
    loop {
        let body = json!({ "from": hash[..12], "to": "2", "limit": 10, "cursor": cursor });
        let page = migrate(&node, &body).await;
        moved.extend(outcomes(&page).into_iter().map(|(one, class, done)| {
            assert!((class.as_str(), done) == ("safe", true), "{page}");
            one
        }));
        pages += 1;
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((moved.len(), pages >= 3), (COUNT, true));
    assert_eq!(versions(&node, COUNT), [2; COUNT]);
}
