//! Dead letters: visible to their tenant only, discard, redrive.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::{Consumer, MaxInFlight, Message, Subscription};
use orlog_model::{StreamPosition, TenantId};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::api::node::{Node, event};

/// Creates a dead letter: an order without a total, which version 1 of the definition rejects.
async fn dead_letter(node: &Node, tenant: &str, id: &str) -> Value {
    let order = event(
        &format!("placed-{id}"),
        "OrderPlaced",
        &json!({ "orderId": id }),
    );
    node.ask(Method::POST, tenant, "/v1/events", order.to_string())
        .await
        .ok();
    let of = |dead_letters: &Value| {
        dead_letters["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|l| l["correlation"] == id)
            .cloned()
    };
    of(&node
        .until(tenant, "/v1/dead-letters", |dead_letters| {
            of(dead_letters).is_some()
        })
        .await)
    .unwrap()
}

/// Requirements: E9.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_shows_original_and_reason_and_can_be_discarded() {
    let node = Node::start().await;
    let dead_letter = dead_letter(&node, "", "o-1").await;
    assert!(
        dead_letter["message"].as_str().unwrap().contains("total"),
        "{dead_letter}"
    );
    let path = format!("/v1/dead-letters/{}", dead_letter["id"].as_str().unwrap());
    let whole = node.get(&path).await.ok();
    assert_eq!(whole["original"]["event"]["id"], "placed-o-1");
    assert_eq!(
        whole["original"]["event"]["time"],
        "2026-01-02T03:04:05.000Z"
    );
    let deleted = node.ask(Method::DELETE, "", &path, Body::empty()).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    node.get(&path).await.problem("OR0014");
    node.ask(Method::DELETE, "", &path, Body::empty())
        .await
        .problem("OR0014");
    assert_eq!(node.get("/v1/dead-letters").await.ok()["items"], json!([]));
}

/// Requirements: R5, E9.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_keeps_the_attributes_of_its_event_until_it_is_redriven() {
    let node = Node::start().await;
    let mut order = event("placed-o-1", "OrderPlaced", &json!({ "orderId": "o-1" }));
    order["region"] = json!("eu");
    order["dataschema"] = json!("urn:order");
    node.post("/v1/events", &order).await.ok();
    let is_there = |found: &Value| {
        found["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    };
    let dead_letters = node.until("", "/v1/dead-letters", is_there).await;
    let path = format!(
        "/v1/dead-letters/{}",
        dead_letters["items"][0]["id"].as_str().unwrap()
    );
    let original = &node.get(&path).await.ok()["original"]["event"];
    assert_eq!(
        (&original["region"], &original["dataschema"]),
        (&json!("eu"), &json!("urn:order"))
    );
    let file = node.definitions().join("order.saga.yaml");
    let fixed = std::fs::read_to_string(&file)
        .unwrap()
        .replace("version: 1", "version: 2");
    std::fs::write(
        &file,
        fixed.replace(
            "total: =event.total",
            "total: 7, region: =envelope.extensions.region",
        ),
    )
    .unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    assert_eq!(
        node.post(&format!("{path}/redrive"), &json!(null))
            .await
            .ok()["applied"],
        true
    );
    let order = node.until("", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(order["state"]["vars"]["region"], "eu");
}

/// Requirements: R5.
#[tokio::test(flavor = "multi_thread")]
async fn redrive_of_a_dead_letter_without_an_instance_states_that_it_was_published() {
    let node = Node::start().await;
    let without_key = event("placed-none", "OrderPlaced", &json!({ "total": 7 }));
    node.post("/v1/events", &without_key).await.ok();
    let is_there = |found: &Value| {
        found["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    };
    let dead_letters = node.until("", "/v1/dead-letters", is_there).await;
    let dead_letter = &dead_letters["items"][0];
    assert_eq!(dead_letter["saga"], Value::Null, "{dead_letter}");
    let id = dead_letter["id"].as_str().unwrap();
    let redriven = node
        .post(&format!("/v1/dead-letters/{id}/redrive"), &json!(null))
        .await
        .ok();
    let expected = json!({
        "published": true, "applied": true, "reason": null, "version": null, "status": null, "paused": null,
    });
    assert_eq!(redriven, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn redrive_succeeds_after_the_cause_is_fixed() {
    let node = Node::start().await;
    let dead_letter = dead_letter(&node, "", "o-1").await;
    let redrive = format!(
        "/v1/dead-letters/{}/redrive",
        dead_letter["id"].as_str().unwrap()
    );
    node.post(&redrive, &json!(null)).await.problem("OR0015");
    let file = node.definitions().join("order.saga.yaml");
    let fixed = std::fs::read_to_string(&file)
        .unwrap()
        .replace("version: 1", "version: 2");
    std::fs::write(&file, fixed.replace("total: =event.total", "total: 7")).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let dead_letters = node.get("/v1/dead-letters").await.ok();
    let redrive = format!(
        "/v1/dead-letters/{}/redrive",
        dead_letters["items"][0]["id"].as_str().unwrap()
    );
    assert_eq!(
        node.post(&redrive, &json!(null)).await.ok()["applied"],
        true
    );
    assert_eq!(node.get("/v1/dead-letters").await.ok()["items"], json!([]));
    let order = node.until("", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(order["definition"]["version"], 2);
    node.post(&redrive, &json!(null)).await.problem("OR0014");
}

/// Deploys a version that requires the customer of an order, but no total.
async fn fix_definition(node: &Node) {
    let file = node.definitions().join("order.saga.yaml");
    let fixed = std::fs::read_to_string(&file)
        .unwrap()
        .replace("version: 1", "version: 2");
    std::fs::write(
        &file,
        fixed.replace("total: =event.total", "total: =event.customer.size()"),
    )
    .unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
}

/// Creates a dead letter: an order without a total for this customer.
async fn dead_letter_for(node: &Node, id: &str, customer: &Value) {
    let order = event(
        &format!("placed-{id}"),
        "OrderPlaced",
        &json!({ "orderId": id, "customer": customer }),
    );
    node.post("/v1/events", &order).await.ok();
    let is_there = |dead_letters: &Value| {
        dead_letters["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|l| l["correlation"] == id)
    };
    node.until("", "/v1/dead-letters", is_there).await;
}

async fn dead_letters(node: &Node) -> Vec<String> {
    let dead_letters = node.get("/v1/dead-letters").await.ok();
    let of = |dead_letter: &Value| dead_letter["correlation"].as_str().unwrap().to_owned();
    let mut remaining: Vec<_> = dead_letters["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect();
    remaining.sort();
    remaining
}

#[tokio::test(flavor = "multi_thread")]
async fn redrive_continues_only_when_the_canary_succeeds() {
    let node = Node::start().await;
    for id in ["o-0", "o-1", "o-2"] {
        dead_letter_for(&node, id, &json!("Ada")).await;
    }
    let path = "/v1/dead-letters/redrive";
    let kind = json!({ "reason": "schema_mismatch", "saga": "order", "canary": 1 });
    // The definition is not fixed yet.
    let response = node.post(path, &kind).await.ok();
    assert_eq!(
        (
            &response["matched"],
            &response["dead_lettered"],
            &response["skipped"]
        ),
        (&json!(3), &json!(1), &json!(2)),
        "{response}"
    );
    assert_eq!(response["stopped"], "1 of the first 1 failed again");
    assert!(
        response["failures"][0]["detail"]
            .as_str()
            .unwrap()
            .contains("total"),
        "{response}"
    );
    assert_eq!(dead_letters(&node).await, ["o-0", "o-1", "o-2"]);
    // Dead letters of another kind stay.
    for other in [
        json!({ "reason": "undecodable" }),
        json!({ "saga": "trip" }),
    ] {
        assert_eq!(node.post(path, &other).await.ok()["matched"], 0, "{other}");
    }
    fix_definition(&node).await;
    let response = node.post(path, &json!({ "limit": 1 })).await.ok();
    assert_eq!(
        (&response["applied"], &response["has_more"]),
        (&json!(1), &json!(true)),
        "{response}"
    );
    let response = node.post(path, &kind).await.ok();
    assert_eq!(
        (&response["applied"], &response["skipped"]),
        (&json!(2), &json!(0)),
        "{response}"
    );
    assert_eq!(
        (&response["stopped"], &response["has_more"]),
        (&Value::Null, &json!(false)),
        "{response}"
    );
    assert_eq!(dead_letters(&node).await, Vec::<String>::new());
    for id in ["o-0", "o-1", "o-2"] {
        node.get(&format!("/v1/sagas/order/{id}")).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_redrive_continues_at_its_cursor() {
    let node = Node::start().await;
    for id in ["o-0", "o-1", "o-2"] {
        dead_letter_for(&node, id, &json!("Ada")).await;
    }
    fix_definition(&node).await;

    let path = "/v1/dead-letters/redrive";
    let first = node.post(path, &json!({ "limit": 1 })).await.ok();
    let cursor = &first["next_cursor"];
    assert_eq!(
        (&first["applied"], cursor.is_string()),
        (&json!(1), true),
        "{first}"
    );
    let rest = node.post(path, &json!({ "cursor": cursor })).await.ok();
    assert_eq!(
        (&rest["applied"], &rest["has_more"], &rest["next_cursor"]),
        (&json!(2), &json!(false), &Value::Null),
        "{rest}"
    );
    assert_eq!(dead_letters(&node).await, Vec::<String>::new());
    let invalid = node.post(path, &json!({ "cursor": "x" })).await;
    invalid.problem("OR0002");
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_that_fails_at_the_end_of_a_request_stops_the_redrive() {
    let node = Node::start().await;
    for id in ["o-0", "o-1"] {
        dead_letter_for(&node, id, &json!("Ada")).await;
    }
    // The next request would not receive the failure of this one.
    let selection = json!({ "canary": 2, "limit": 1 });
    let response = node.post("/v1/dead-letters/redrive", &selection).await.ok();
    assert_eq!(
        (&response["dead_lettered"], &response["has_more"]),
        (&json!(1), &json!(true)),
        "{response}"
    );
    assert_eq!(response["stopped"], "1 of the first 1 failed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_after_a_successful_canary_does_not_stop_the_redrive() {
    let node = Node::start().await;
    // Dead letter ids follow the event time, which is equal here; so all but one match, and not the first
    // one.
    for id in ["o-0", "o-1", "o-2"] {
        dead_letter_for(&node, id, &json!("Ada")).await;
    }
    let found = node.get("/v1/dead-letters").await.ok();
    let first = found["items"][0]["correlation"]
        .as_str()
        .unwrap()
        .to_owned();
    let last = found["items"][2]["correlation"]
        .as_str()
        .unwrap()
        .to_owned();
    fix_definition(&node).await;
    let file = node.definitions().join("order.saga.yaml");
    let picky = std::fs::read_to_string(&file)
        .unwrap()
        .replace("version: 2", "version: 3");
    let size = "=event.customer.size()";
    let total = format!("'=event.orderId == \"{last}\" ? event.nothing : 7'");
    std::fs::write(&file, picky.replace(size, &total)).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let response = node
        .post("/v1/dead-letters/redrive", &json!({ "canary": 2 }))
        .await
        .ok();
    let counts = ["matched", "applied", "dead_lettered", "skipped"]
        .map(|field| response[field].as_u64().unwrap());
    assert_eq!(
        (counts, &response["stopped"]),
        ([3, 2, 1, 0], &Value::Null),
        "{response}"
    );
    node.get(&format!("/v1/sagas/order/{first}")).await.ok();
    assert_eq!(dead_letters(&node).await, [last]);
}

/// Saga whose handler fails for an event without `n`.
pub(crate) const COUNT: &str = r"
saga: count
version: 1
start: CountOpened
correlate: countId
vars: { countId: =event.countId, total: '=0' }
on:
  - { event: Counted, save: { total: =vars.total + event.n } }
steps:
  - { id: close, do: { event: CountClosed }, timeout: 1h }
";

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_stays_stored_when_its_instance_rejects_the_redrive() {
    let node = Node::start().await;
    std::fs::write(node.definitions().join("count.saga.yaml"), COUNT).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let opened = event("opened-1", "CountOpened", &json!({ "countId": "c-1" }));
    node.post("/v1/events", &opened).await.ok();
    let count = node.until("", "/v1/sagas/count/c-1", |_| true).await;
    // Requires this version, and its event has no `n`.
    let signal = json!({ "id": "s-1", "type": "Counted", "data": { "countId": "c-1" }, "expected_version": count["version"] });
    node.post("/v1/sagas/count/c-1/signal", &signal)
        .await
        .problem("OR0015");
    let before = node.get("/v1/dead-letters").await.ok();
    let id = before["items"][0]["id"].as_str().unwrap().to_owned();
    let counted = event("counted-1", "Counted", &json!({ "countId": "c-1", "n": 1 }));
    node.post("/v1/events", &counted).await.ok();
    node.until("", "/v1/sagas/count/c-1", |now| {
        now["version"] != count["version"]
    })
    .await;

    node.post(&format!("/v1/dead-letters/{id}/redrive"), &json!(null))
        .await
        .problem("OR0012");
    assert_eq!(
        node.get("/v1/dead-letters").await.ok()["items"],
        before["items"]
    );
    let response = node
        .post("/v1/dead-letters/redrive", &json!({ "saga": "count" }))
        .await
        .ok();
    assert_eq!(
        (&response["matched"], &response["rejected"]),
        (&json!(1), &json!(1)),
        "{response}"
    );
    assert_eq!(
        node.get("/v1/dead-letters").await.ok()["items"],
        before["items"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_of_an_ended_instance_is_no_canary() {
    let node = Node::start().await;
    let file = node.definitions().join("count.saga.yaml");
    std::fs::write(&file, COUNT).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    for (n, id) in ["c-0", "c-1"].into_iter().enumerate() {
        let opened = event(
            &format!("opened-{n}"),
            "CountOpened",
            &json!({ "countId": id }),
        );
        node.post("/v1/events", &opened).await.ok();
        let count = node
            .until("", &format!("/v1/sagas/count/{id}"), |_| true)
            .await;
        // The first signal requires a version that the cancelled instance no longer has.
        let version = (n == 0).then(|| count["version"].clone());
        let signal = json!({ "id": format!("s-{n}"), "type": "Counted", "data": { "countId": id }, "expected_version": version });
        node.post(&format!("/v1/sagas/count/{id}/signal"), &signal)
            .await
            .problem("OR0015");
    }
    node.post("/v1/sagas/count/c-0/cancel", &json!({ "reason": "test" }))
        .await
        .ok();
    node.until("", "/v1/sagas/count/c-0", |count| {
        count["status"] == "cancelled"
    })
    .await;
    let fixed = COUNT
        .replace("version: 1", "version: 2")
        .replace("event.n", "event.?n.orValue(0)");
    std::fs::write(&file, fixed).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    node.post("/v1/definitions/count/migrate", &json!({ "from": "1" }))
        .await
        .ok();

    let response = node
        .post(
            "/v1/dead-letters/redrive",
            &json!({ "saga": "count", "canary": 1 }),
        )
        .await
        .ok();
    let counts = ["matched", "applied", "rejected", "skipped"]
        .map(|field| response[field].as_u64().unwrap());
    assert_eq!(
        (counts, &response["stopped"]),
        ([2, 1, 1, 0], &Value::Null),
        "{response}"
    );
    let detail = response["failures"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("the instance has ended: discard the dead letter"),
        "{detail}"
    );
    assert_eq!(dead_letters(&node).await, ["c-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redrives_wait_for_deployments_and_replays() {
    let node = Node::start().await;
    let dead_letter = dead_letter(&node, "", "o-1").await;
    let single = format!(
        "/v1/dead-letters/{}/redrive",
        dead_letter["id"].as_str().unwrap()
    );
    for (path, body) in [
        (single.as_str(), json!(null)),
        ("/v1/dead-letters/redrive", json!({})),
    ] {
        let deployment = node.app.lock_definitions().await;
        let mut redrive = std::pin::pin!(node.post(path, &body));
        let id = format!("o-{}", path.len());
        let order = node.order("", &id, 5, "running");
        tokio::select! {
            _ = &mut redrive => panic!("{path} did not wait"),
            _ = order => drop(deployment),
        }
        redrive.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_redrive_validates_input_and_stays_within_the_tenant() {
    let node = Node::start().await;
    dead_letter(&node, "acme", "o-1").await;
    let path = "/v1/dead-letters/redrive";
    let rejection = node
        .post(path, &json!({ "reason": "bad_luck" }))
        .await
        .problem("OR0002");
    assert!(rejection.contains("schema_mismatch"), "{rejection}");
    for (field, invalid) in [
        ("canary", json!({ "canary": 0 })),
        ("limit", json!({ "limit": 0 })),
    ] {
        assert!(
            node.post(path, &invalid).await.json()["detail"]
                .as_str()
                .unwrap()
                .contains(field)
        );
    }
    assert_eq!(node.post(path, &json!({})).await.ok()["matched"], 0);
    let theirs = node.ask(Method::POST, "acme", path, "{}").await.ok();
    assert_eq!(
        (&theirs["matched"], &theirs["dead_lettered"]),
        (&json!(1), &json!(1)),
        "{theirs}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_pages_have_no_gaps_or_duplicates() {
    let node = Node::start().await;
    for index in 0..5 {
        dead_letter(&node, "", &format!("o-{index}")).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/dead-letters?limit=2".to_owned());
    loop {
        let page = node.get(&path).await.ok();
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|l| l["correlation"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/dead-letters?limit=2&cursor={next}");
    }
    seen.sort();
    assert_eq!(seen, ["o-0", "o-1", "o-2", "o-3", "o-4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_isolated_by_tenant() {
    let node = Node::start().await;
    let dead_letter = dead_letter(&node, "acme", "o-1").await;
    let path = format!("/v1/dead-letters/{}", dead_letter["id"].as_str().unwrap());
    for tenant in ["", "other", "acm", "acmee"] {
        let list = node
            .ask(Method::GET, tenant, "/v1/dead-letters", Body::empty())
            .await
            .ok();
        assert_eq!(list["items"], json!([]), "{tenant}");
        node.ask(Method::GET, tenant, &path, Body::empty())
            .await
            .problem("OR0014");
        node.ask(Method::DELETE, tenant, &path, Body::empty())
            .await
            .problem("OR0014");
        node.ask(
            Method::POST,
            tenant,
            &format!("{path}/redrive"),
            Body::empty(),
        )
        .await
        .problem("OR0014");
    }
    assert_eq!(
        node.ask(Method::GET, "acme", &path, Body::empty())
            .await
            .status,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_fields_are_hidden_but_stored() {
    let fields = json!({ "fields": ["total", "paid", "charge.secret"] });
    let node =
        Node::start_with(|config| config.redact = serde_json::from_value(fields).unwrap()).await;
    let order = node.order("", "o-1", 437, "running").await;
    assert_eq!(
        order["state"]["vars"],
        json!({ "orderId": "o-1", "total": "[redacted]" })
    );
    let mut invalid = event(
        "placed-o-2",
        "OrderPlaced",
        &json!({ "orderId": "o-2", "lines": [{ "total": 437 }] }),
    );
    node.post("/v1/events", &invalid).await.ok();
    let found = |dead_letters: &Value| {
        dead_letters["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    };
    let dead_letters = node.until("", "/v1/dead-letters", found).await;
    let dead_letter = node
        .get(&format!(
            "/v1/dead-letters/{}",
            dead_letters["items"][0]["id"].as_str().unwrap()
        ))
        .await
        .ok();
    invalid["data"]["lines"][0]["total"] = json!("[redacted]");
    assert_eq!(dead_letter["original"]["event"]["data"], invalid["data"]);
    for table in [
        "saga",
        "outbox",
        "deadletter",
        "history",
        "buffered_input",
        "schedule",
    ] {
        let rows = node.get(&format!("/v1/inspect/{table}")).await;
        assert!(!rows.text.contains(":437"), "{table}: {}", rows.text);
    }
    let stored_rows = node
        .app
        .runtime
        .readers()
        .next()
        .unwrap()
        .inspect_rows("saga", None, 10)
        .unwrap();
    assert!(
        stored_rows
            .iter()
            .any(|row| row.value.to_string().contains(":437")),
        "{stored_rows:?}"
    );
}

/// Returns a consumer of the published dead letters, from the start of the stream.
async fn copies(node: &Node) -> Box<dyn Consumer> {
    let bus = &node.app.bus;
    let subscription = Subscription {
        name: "copies".to_owned(),
        filters: subject::filters(None, SubjectKind::DeadLetter, None),
        partition: None,
        start_after: Some(StreamPosition::after(bus.stream_id(), 0)),
        max_in_flight: MaxInFlight::total(usize::MAX),
    };
    bus.subscribe(subscription).await.unwrap()
}

/// Returns the next published dead letter: message, headers, body.
async fn copy(copies: &mut dyn Consumer) -> (Message, BTreeMap<String, String>, Value) {
    let next = tokio::time::timeout(WAIT_TIMEOUT, copies.next(1))
        .await
        .expect("a copy comes")
        .unwrap();
    let message = Message::clone(&next[0].message);
    let headers = message
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let body = serde_json::from_slice(&message.payload).unwrap();
    (message, headers, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_copy_is_published_redacted_without_recursion() {
    let fields = json!({ "fields": ["secret"] });
    let node =
        Node::start_with(|config| config.redact = serde_json::from_value(fields).unwrap()).await;
    let data = json!({ "orderId": "o-1", "secret": 437 });
    node.ask(
        Method::POST,
        "acme",
        "/v1/events",
        event("placed-o-1", "OrderPlaced", &data).to_string(),
    )
    .await
    .ok();
    let mut copies = copies(&node).await;
    let (message, headers, body) = copy(&mut *copies).await;
    let id = message.id.clone().unwrap();
    assert_eq!(
        message.subject,
        format!("tenant.acme.deadletter.schema_mismatch.{id}")
    );
    assert_eq!(
        (&headers["ce-id"], headers["ce-type"].as_str()),
        (&id, "orlog.dead_letter")
    );
    assert_eq!(
        (
            headers["ce-correlationid"].as_str(),
            headers["ce-causationid"].as_str()
        ),
        ("o-1", "placed-o-1")
    );
    let path = format!("/v1/dead-letters/{id}");
    let mut displayed = node
        .ask(Method::GET, "acme", &path, Body::empty())
        .await
        .ok();
    assert_eq!(
        displayed["original"]["event"]["data"]["secret"],
        "[redacted]"
    );
    displayed["tenant"] = json!("acme");
    assert_eq!(body, displayed);
    // A message that is not an event is published as received. It follows the first copy, which was read
    // long before.
    let no_event = Message {
        subject: "tenant.acme.aggregate.order.o-2".to_owned(),
        id: None,
        headers: vec![("x-from".into(), "there".into())],
        payload: "{\"secret\": 437}".into(),
    };
    node.app.bus.publish(vec![no_event.into()]).await.unwrap();
    let (message, _, body) = copy(&mut *copies).await;
    assert!(
        message
            .subject
            .starts_with("tenant.acme.deadletter.undecodable."),
        "{}",
        message.subject
    );
    let original = &body["original"]["message"];
    assert_eq!(original["headers"], json!({ "x-from": "there" }));
    assert_eq!(
        (original["subject"].as_str(), &original["payload"]),
        (
            Some("tenant.acme.aggregate.order.o-2"),
            &json!({ "secret": "[redacted]" })
        )
    );
    let none_waits = |rows: &Value| rows["rows"].as_array().is_some_and(Vec::is_empty);
    node.until("acme", "/v1/inspect/dead_letter_outbox", none_waits)
        .await;
    let dead_letters = node
        .ask(Method::GET, "acme", "/v1/dead-letters", Body::empty())
        .await
        .ok();
    assert_eq!(
        dead_letters["items"].as_array().unwrap().len(),
        2,
        "{dead_letters}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_dead_letter_copy_references_the_original() {
    let node = Node::start().await;
    let quotes = "\"".repeat(600_000);
    let no_event = Message {
        subject: "aggregate.order.o-1".to_owned(),
        id: None,
        headers: Vec::new(),
        payload: quotes.into(),
    };
    node.app.bus.publish(vec![no_event.into()]).await.unwrap();
    let (message, _, body) = copy(&mut *copies(&node).await).await;
    let id = message.id.unwrap();
    assert_eq!(
        (&body["reason"], &body["original"]),
        (&json!("undecodable"), &Value::Null)
    );
    assert!(
        body["left_out"]
            .as_str()
            .unwrap()
            .contains(&format!("orlog dlq show {id}")),
        "{body}"
    );
    assert!(node.get(&format!("/v1/dead-letters/{id}")).await.text.len() > 600_000);
}

/// Requirements: E9.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_message_to_an_instance_in_any_shard_is_a_dead_letter() {
    let node = Node::start_with(|config| {
        (config.shards, config.tenants.key_sharded) = (3, vec![TenantId::new("acme").unwrap()]);
    })
    .await;
    let no_event = |number: u32| Message {
        subject: format!("tenant.acme.workflow.order.o-{number}"),
        id: None,
        headers: Vec::new(),
        payload: "none".into(),
    };
    node.app
        .bus
        .publish((0..20).map(|number| no_event(number).into()).collect())
        .await
        .unwrap();
    let are_stored = |rows: &Value| {
        rows["items"]
            .as_array()
            .is_some_and(|items| items.len() == 20)
    };
    node.until("acme", "/v1/dead-letters", are_stored).await;
}
