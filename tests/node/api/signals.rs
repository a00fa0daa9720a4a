//! Signals: conditions over HTTP and the bus, later times, business references with parts, and the last error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use orlog::config::Config;
use orlog_bus::Message;
use serde_json::{Value, json};

use crate::api::filter::until_page;
use crate::api::node::{Node, event};

/// Saga that waits twice for the same event.
const REVIEW: &str = "\
saga: review
version: 1
correlate: id
start: Submitted
vars: { id: =event.id, author: =event.author }
reference: { paper: =vars.id, author: =vars.author }
steps:
  - { id: first, do: { event: Approved }, timeout: 1d }
  - { id: second, do: { event: Approved }, timeout: 1d }
completed: { fact: Published, data: { id: =vars.id } }
";

async fn reviews(change: impl FnOnce(&mut Config)) -> Node {
    Node::start_with(|config| {
        change(config);
        let definitions = config.definitions_dir.clone().unwrap();
        std::fs::write(definitions.join("review.saga.yaml"), REVIEW).unwrap();
    })
    .await
}

impl Node {
    /// Starts a review and returns the token of its first wait.
    async fn submitted(&self, id: &str, author: &str) -> String {
        self.post("/v1/sagas/review", &json!({ "id": id, "author": author }))
            .await
            .json();
        self.wait_of(id).await
    }

    /// Returns the token of the current wait of a review.
    async fn wait_of(&self, id: &str) -> String {
        let review = self.get(&format!("/v1/sagas/review/{id}")).await.ok();
        assert_eq!(review["waits"][0]["name"], "Approved", "{review}");
        review["waits"][0]["token"].as_str().unwrap().to_owned()
    }

    async fn review_until(&self, id: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.until("", &format!("/v1/sagas/review/{id}"), condition)
            .await
    }

    /// Publishes a signal to a review, with these extension attributes.
    async fn publish_signal(&self, review: &str, id: &str, extensions: &Value) {
        let mut body = json!({ "specversion": "1.0", "id": id, "type": "Approved", "source": "urn:desk",
            "data": { "by": "ada" } });
        body.as_object_mut()
            .unwrap()
            .extend(extensions.as_object().unwrap().clone());
        let message = Message {
            subject: format!("workflow.review.{review}"),
            id: Some(id.to_owned()),
            headers: vec![("content-type".into(), "application/cloudevents+json".into())],
            payload: body.to_string().into(),
        };
        self.app.bus.publish(vec![Arc::new(message)]).await.unwrap();
    }
}

/// Returns the names of the timers of signals that are not yet delivered.
fn signals_to_come(review: &Value) -> Vec<&str> {
    let timers = review["timers"].as_array().unwrap().iter();
    timers
        .filter(|timer| timer["signal"] == "Approved")
        .map(|timer| timer["name"].as_str().unwrap())
        .collect()
}

fn approved(token: &str) -> Value {
    json!({ "type": "Approved", "data": {}, "wait_token": token })
}

/// Requirements: E2, E3.
#[tokio::test(flavor = "multi_thread")]
async fn signal_for_an_earlier_wait_is_rejected_also_after_a_restart() {
    let node = reviews(|_| ()).await;
    let first = node.submitted("r-1", "ada").await;
    let path = "/v1/sagas/review/r-1/signal";
    assert_eq!(
        node.post(path, &approved(&first)).await.ok()["applied"],
        true
    );
    let second = node.wait_of("r-1").await;
    assert_ne!(second, first);
    let stale = node.post(path, &approved(&first)).await;
    assert_eq!(stale.status, StatusCode::CONFLICT);
    assert!(stale.problem("OR0036").contains(&first));
    node.post(
        "/v1/sagas/review/r-1/cancel",
        &json!({ "wait_token": first }),
    )
    .await
    .problem("OR0036");
    node.post(path, &approved("soon")).await.problem("OR0002");
    let node = node.restart(|_| ()).await;
    assert_eq!(node.wait_of("r-1").await, second);
    node.post(path, &approved(&first)).await.problem("OR0036");
    assert_eq!(
        node.post(path, &approved(&second)).await.ok()["status"],
        "completed"
    );
}

/// Requirements: E3, E9.
#[tokio::test(flavor = "multi_thread")]
async fn stale_signal_of_the_bus_becomes_a_dead_letter() {
    let node = reviews(|_| ()).await;
    let first = node.submitted("r-1", "ada").await;
    node.publish_signal(
        "r-1",
        "s-1",
        &json!({ "orlogwaittoken": first, "orlogexpectedversion": 1 }),
    )
    .await;
    node.review_until("r-1", |review| review["version"] == 2)
        .await;
    node.publish_signal("r-1", "s-2", &json!({ "orlogwaittoken": first }))
        .await;
    node.publish_signal("r-1", "s-3", &json!({ "orlogexpectedversion": 1 }))
        .await;
    node.publish_signal("missing", "s-4", &json!({ "orlogexpectedversion": "1" }))
        .await;
    let rejected = |dead_letters: &Value| dead_letters["items"].as_array().unwrap().len() == 3;
    let dead_letters = node.until("", "/v1/dead-letters", rejected).await;
    for letter in dead_letters["items"].as_array().unwrap() {
        assert_eq!(
            (&letter["reason"], &letter["label"]),
            (&json!("signal_rejected"), &json!("Approved"))
        );
    }
    let review = node.get("/v1/sagas/review/r-1").await.ok();
    assert_eq!(
        (&review["version"], &review["status"]),
        (&json!(2), &json!("running"))
    );
    let letters = review["dead_letters"].as_array().unwrap();
    let messages: Vec<_> = letters
        .iter()
        .map(|letter| letter["message"].as_str().unwrap())
        .collect();
    assert!(
        messages.iter().any(|text| text.contains(&first)),
        "{messages:?}"
    );
    assert!(
        messages.contains(&"instance version is 2, expected 1"),
        "{messages:?}"
    );
    // The caller of a redrive receives the rejection, and the dead letter stays.
    let redrive = format!(
        "/v1/dead-letters/{}/redrive",
        letters[0]["id"].as_str().unwrap()
    );
    assert_eq!(
        node.post(&redrive, &json!(null)).await.status,
        StatusCode::CONFLICT
    );
    assert!(rejected(&node.get("/v1/dead-letters").await.ok()));
}

/// Requirements: E3.
#[tokio::test(flavor = "multi_thread")]
async fn later_signals_are_delivered_once_after_a_restart() {
    let node = reviews(|_| ()).await;
    let token = node.submitted("r-1", "ada").await;
    let far = json!({ "id": "far", "type": "Approved", "due_at": "2999-01-01T00:00:00Z" });
    assert_eq!(
        node.post("/v1/sagas/review/r-1/signal", &far).await.ok()["applied"],
        true
    );
    assert_eq!(
        node.post("/v1/sagas/review/r-1/signal", &far).await.ok()["applied"],
        false
    );

    let soon = node.app.clock.now().saturating_add(Duration::from_hours(1));
    let extensions = json!({ "orlogdueat": soon.to_string(), "orlogwaittoken": token });
    node.publish_signal("r-1", "soon", &extensions).await;
    node.publish_signal("r-1", "late", &extensions).await;
    node.review_until("r-1", |review| signals_to_come(review).len() == 3)
        .await;

    // Both are due when the node starts again, for the same wait.
    let wall_clock = node.wall_clock.clone();
    let node = node.restart(|_| wall_clock.set_offset(7_200_000)).await;
    let is_over = |review: &Value| {
        let history = review["history"]["items"].as_array().unwrap();
        history
            .iter()
            .any(|entry| entry["note"] == "Approved: stale signal, its wait has ended")
    };
    let review = node.review_until("r-1", is_over).await;
    assert_eq!(
        review["state"]["steps"][0]["state"], "completed",
        "{review}"
    );
    assert_eq!(
        review["state"]["steps"][1]["state"], "running",
        "the other signal was for the first wait"
    );
    assert_eq!(signals_to_come(&review), ["signal:far"]);

    let invalid = json!({ "type": "Approved", "due_at": "tomorrow" });
    assert!(
        node.post("/v1/sagas/review/r-1/signal", &invalid)
            .await
            .problem("OR0002")
            .contains("due_at")
    );
    node.post("/v1/sagas/review/r-1/cancel", &json!({}))
        .await
        .ok();
    let review = node
        .review_until("r-1", |review| review["status"] == "cancelled")
        .await;
    assert_eq!(
        review["timers"],
        json!([]),
        "the end of the instance cancels its signals"
    );
    assert_eq!(node.get("/v1/timers").await.ok()["items"], json!([]));
}

/// Requirements: E2, R18.
#[tokio::test(flavor = "multi_thread")]
async fn instances_are_found_by_a_part_of_their_reference() {
    let node = reviews(|_| ()).await;
    for (id, author) in [("r-1", "ada"), ("r-2", "bob"), ("r-3", "ada \"l\"")] {
        node.submitted(id, author).await;
    }
    node.order("", "o-1", 5, "running").await;
    let found = async |query: &str| {
        let page = node.get(&format!("/v1/sagas?{query}")).await.ok();
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|item| item["correlation"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("saga=review&reference=author%3Dada").await, ["r-1"]);
    assert_eq!(found("reference=paper%3Dr-2").await, ["r-2"]);
    assert_eq!(
        found("saga=review&reference=author%3Dada%20%22l%22").await,
        ["r-3"]
    );
    assert_eq!(
        found("saga=review&filter=reference.author%20%3D%3D%20%27bob%27").await,
        ["r-2"]
    );
    assert_eq!(found("reference=o-1").await, ["o-1"]);
    assert!(
        found("saga=review&reference=author%3Dada&filter=version%20%3E%205")
            .await
            .is_empty()
    );
    let review = node.get("/v1/sagas/review/r-1").await.ok();
    assert_eq!(
        review["reference"],
        json!({ "author": "ada", "paper": "r-1" })
    );
    let path = "/v1/sagas?saga=review&reference=author%3Dbob";
    until_page(&node, path, |page| page["scanned"] == 1).await;
}

/// The number of instances that an index finds would reveal a redacted value.
#[tokio::test(flavor = "multi_thread")]
async fn redacted_parts_are_not_found_by_index() {
    let node =
        reviews(|config| config.redact.fields = vec!["author".to_owned().try_into().unwrap()])
            .await;
    for id in ["r-1", "r-2"] {
        node.submitted(id, id).await;
    }
    // Two rows of each instance, and one for each part.
    let rows = |page: &Value| page["rows"].as_array().unwrap().len();
    until_page(&node, "/v1/inspect/index?limit=99", |page| rows(page) == 8).await;
    let found = node
        .get("/v1/sagas?saga=review&reference=author%3Dr-1")
        .await
        .ok();
    assert_eq!(
        (&found["items"], &found["scanned"]),
        (&json!([]), &json!(2))
    );
    // The rows may still be in memory, too.
    until_page(
        &node,
        "/v1/sagas?saga=review&reference=paper%3Dr-1",
        |page| page["scanned"] == 1,
    )
    .await;
}

/// Requirements: E2.
#[tokio::test(flavor = "multi_thread")]
async fn last_error_keeps_the_cause_of_the_compensation() {
    let node = Node::start().await;
    node.refunds.store(false, Ordering::SeqCst);
    node.order("", "o-1", 5, "running").await;
    let failed = event(
        "n-1",
        "NotShipped",
        &json!({ "orderId": "o-1", "reason": "no truck" }),
    );
    node.post("/v1/events", &failed).await.ok();
    let stuck = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["status"] == "stuck"
        })
        .await;
    let error = &stuck["last_error"];
    let of = |error: &Value| {
        (
            error["code"].clone(),
            error["step"].clone(),
            error["attempts"].clone(),
        )
    };
    assert_eq!(
        of(error),
        (json!("bank_closed"), json!("charge"), json!(1)),
        "{error}"
    );
    assert_eq!(
        of(&error["cause"]),
        (json!("NotShipped"), json!("ship"), Value::Null),
        "{error}"
    );
    assert!(
        error["cause"]["at"].as_str() <= error["at"].as_str(),
        "{error}"
    );
    let filter = "filter=last_error.cause.code%20%3D%3D%20%27NotShipped%27";
    assert_eq!(
        node.get(&format!("/v1/sagas?{filter}")).await.ok()["items"][0]["correlation"],
        "o-1"
    );
}
