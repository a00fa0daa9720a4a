//! Dead letters: seen by their tenant only, discarded, sent again.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use orlog_bus::subject::{self, Kind};
use orlog_bus::{Consumer, Message, Subscription};
use orlog_model::StreamPosition;
use serde_json::{Value, json};

use crate::node::{Node, PATIENCE, event};

/// An order whose total is missing: version 1 of the definition cannot begin it.
async fn letter(node: &Node, tenant: &str, id: &str) -> Value {
    let order = event(&format!("placed-{id}"), "OrderPlaced", &json!({ "orderId": id }));
    node.ask(Method::POST, tenant, "/v1/events", order.to_string()).await.ok();
    let of = |letters: &Value| {
        letters["items"].as_array().unwrap().iter().find(|l| l["correlation"] == id).cloned()
    };
    of(&node.until(tenant, "/v1/dead-letters", |letters| of(letters).is_some()).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_shows_what_it_was_and_why_and_can_be_discarded() {
    let node = Node::start().await;
    let letter = letter(&node, "", "o-1").await;
    assert!(letter["message"].as_str().unwrap().contains("total"), "{letter}");
    let path = format!("/v1/dead-letters/{}", letter["id"].as_str().unwrap());
    let whole = node.get(&path).await.ok();
    assert_eq!(whole["original"]["event"]["id"], "placed-o-1");
    assert_eq!(whole["original"]["event"]["time"], "2026-01-02T03:04:05.000Z");
    let gone = node.ask(Method::DELETE, "", &path, Body::empty()).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    node.get(&path).await.problem("OR0014");
    node.ask(Method::DELETE, "", &path, Body::empty()).await.problem("OR0014");
    assert_eq!(node.get("/v1/dead-letters").await.ok()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_goes_through_once_its_cause_is_mended() {
    let node = Node::start().await;
    let letter = letter(&node, "", "o-1").await;
    let redrive = format!("/v1/dead-letters/{}/redrive", letter["id"].as_str().unwrap());
    node.post(&redrive, &json!(null)).await.problem("OR0015");
    let file = node.definitions().join("order.saga.yaml");
    let mended = std::fs::read_to_string(&file).unwrap().replace("version: 1", "version: 2");
    std::fs::write(&file, mended.replace("total: =event.total", "total: 7")).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let letters = node.get("/v1/dead-letters").await.ok();
    let redrive = format!("/v1/dead-letters/{}/redrive", letters["items"][0]["id"].as_str().unwrap());
    assert_eq!(node.post(&redrive, &json!(null)).await.ok()["applied"], true);
    assert_eq!(node.get("/v1/dead-letters").await.ok()["items"], json!([]));
    let order = node.until("", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(order["program"]["version"], 2);
    node.post(&redrive, &json!(null)).await.problem("OR0014");
}

/// From now on an order begins where its customer is known; what it costs does not matter any more.
async fn mend(node: &Node) {
    let file = node.definitions().join("order.saga.yaml");
    let mended = std::fs::read_to_string(&file).unwrap().replace("version: 1", "version: 2");
    std::fs::write(&file, mended.replace("total: =event.total", "total: =event.customer.size()")).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
}

/// An order without a total, for this customer.
async fn letter_of(node: &Node, id: &str, customer: &Value) {
    let order =
        event(&format!("placed-{id}"), "OrderPlaced", &json!({ "orderId": id, "customer": customer }));
    node.post("/v1/events", &order).await.ok();
    let is_there =
        |letters: &Value| letters["items"].as_array().unwrap().iter().any(|l| l["correlation"] == id);
    node.until("", "/v1/dead-letters", is_there).await;
}

async fn letters(node: &Node) -> Vec<String> {
    let letters = node.get("/v1/dead-letters").await.ok();
    let of = |letter: &Value| letter["correlation"].as_str().unwrap().to_owned();
    let mut left: Vec<_> = letters["items"].as_array().unwrap().iter().map(of).collect();
    left.sort();
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_follows_a_canary_only_when_that_goes_through() {
    let node = Node::start().await;
    for id in ["o-0", "o-1", "o-2"] {
        letter_of(&node, id, &json!("Ada")).await;
    }
    let path = "/v1/dead-letters/redrive";
    let kind = json!({ "reason": "schema_mismatch", "saga": "order", "canary": 1 });
    // Nothing is mended yet.
    let answer = node.post(path, &kind).await.ok();
    assert_eq!(
        (&answer["matched"], &answer["set_aside"], &answer["left"]),
        (&json!(3), &json!(1), &json!(2)),
        "{answer}"
    );
    assert_eq!(answer["stopped"], "1 of the first 1 failed again");
    assert!(answer["failures"][0]["detail"].as_str().unwrap().contains("total"), "{answer}");
    assert_eq!(letters(&node).await, ["o-0", "o-1", "o-2"]);
    // Another kind is not touched.
    for other in [json!({ "reason": "undecodable" }), json!({ "saga": "trip" })] {
        assert_eq!(node.post(path, &other).await.ok()["matched"], 0, "{other}");
    }
    mend(&node).await;
    let answer = node.post(path, &json!({ "limit": 1 })).await.ok();
    assert_eq!((&answer["taken"], &answer["more"]), (&json!(1), &json!(true)), "{answer}");
    let answer = node.post(path, &kind).await.ok();
    assert_eq!((&answer["taken"], &answer["left"]), (&json!(2), &json!(0)), "{answer}");
    assert_eq!((&answer["stopped"], &answer["more"]), (&Value::Null, &json!(false)), "{answer}");
    assert_eq!(letters(&node).await, Vec::<String>::new());
    for id in ["o-0", "o-1", "o-2"] {
        node.get(&format!("/v1/sagas/order/{id}")).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_canary_that_went_through_one_that_fails_stops_nobody() {
    let node = Node::start().await;
    // Ids of letters follow the time of their events, which is one; so all but one fit, and that one is not the first.
    for id in ["o-0", "o-1", "o-2"] {
        letter_of(&node, id, &json!("Ada")).await;
    }
    let found = node.get("/v1/dead-letters").await.ok();
    let first = found["items"][0]["correlation"].as_str().unwrap().to_owned();
    let last = found["items"][2]["correlation"].as_str().unwrap().to_owned();
    mend(&node).await;
    let file = node.definitions().join("order.saga.yaml");
    let picky = std::fs::read_to_string(&file).unwrap().replace("version: 2", "version: 3");
    let size = "=event.customer.size()";
    let total = format!("'=event.orderId == \"{last}\" ? event.nothing : 7'");
    std::fs::write(&file, picky.replace(size, &total)).unwrap();
    node.post("/admin/reload", &json!(null)).await.ok();
    let answer = node.post("/v1/dead-letters/redrive", &json!({ "canary": 2 })).await.ok();
    let counts = ["matched", "taken", "set_aside", "left"].map(|field| answer[field].as_u64().unwrap());
    assert_eq!((counts, &answer["stopped"]), ([3, 2, 1, 0], &Value::Null), "{answer}");
    node.get(&format!("/v1/sagas/order/{first}")).await.ok();
    assert_eq!(letters(&node).await, [last]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_of_many_says_what_is_wrong_with_it_and_touches_one_tenant_only() {
    let node = Node::start().await;
    letter(&node, "acme", "o-1").await;
    let path = "/v1/dead-letters/redrive";
    let refusal = node.post(path, &json!({ "reason": "bad_luck" })).await.problem("OR0002");
    assert!(refusal.contains("schema_mismatch"), "{refusal}");
    for (field, wrong) in [("canary", json!({ "canary": 0 })), ("limit", json!({ "limit": 0 }))] {
        assert!(node.post(path, &wrong).await.json()["detail"].as_str().unwrap().contains(field));
    }
    assert_eq!(node.post(path, &json!({})).await.ok()["matched"], 0);
    let theirs = node.ask(Method::POST, "acme", path, "{}").await.ok();
    assert_eq!((&theirs["matched"], &theirs["set_aside"]), (&json!(1), &json!(1)), "{theirs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_paged_without_gap_or_repetition() {
    let node = Node::start().await;
    for index in 0..5 {
        letter(&node, "", &format!("o-{index}")).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/dead-letters?limit=2".to_owned());
    loop {
        let page = node.get(&path).await.ok();
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|l| l["correlation"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/dead-letters?limit=2&cursor={next}");
    }
    seen.sort();
    assert_eq!(seen, ["o-0", "o-1", "o-2", "o-3", "o-4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_sees_and_touches_no_letter() {
    let node = Node::start().await;
    let letter = letter(&node, "acme", "o-1").await;
    let path = format!("/v1/dead-letters/{}", letter["id"].as_str().unwrap());
    for tenant in ["", "other", "acm", "acmee"] {
        let list = node.ask(Method::GET, tenant, "/v1/dead-letters", Body::empty()).await.ok();
        assert_eq!(list["items"], json!([]), "{tenant}");
        node.ask(Method::GET, tenant, &path, Body::empty()).await.problem("OR0014");
        node.ask(Method::DELETE, tenant, &path, Body::empty()).await.problem("OR0014");
        node.ask(Method::POST, tenant, &format!("{path}/redrive"), Body::empty()).await.problem("OR0014");
    }
    assert_eq!(node.ask(Method::GET, "acme", &path, Body::empty()).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_redacted_is_seen_nowhere_and_still_there() {
    let fields = json!({ "fields": ["total", "paid", "charge.secret"] });
    let node = Node::start_with(|config| config.redact = serde_json::from_value(fields).unwrap()).await;
    let order = node.order("", "o-1", 437, "running").await;
    assert_eq!(order["state"]["vars"], json!({ "orderId": "o-1", "total": "[redacted]" }));
    let mut wrong =
        event("placed-o-2", "OrderPlaced", &json!({ "orderId": "o-2", "lines": [{ "total": 437 }] }));
    node.post("/v1/events", &wrong).await.ok();
    let found = |letters: &Value| letters["items"].as_array().is_some_and(|items| !items.is_empty());
    let letters = node.until("", "/v1/dead-letters", found).await;
    let letter =
        node.get(&format!("/v1/dead-letters/{}", letters["items"][0]["id"].as_str().unwrap())).await.ok();
    wrong["data"]["lines"][0]["total"] = json!("[redacted]");
    assert_eq!(letter["original"]["event"]["data"], wrong["data"]);
    for table in ["saga", "outbox", "deadletter", "history", "held", "schedule"] {
        let rows = node.get(&format!("/v1/inspect/{table}")).await;
        assert!(!rows.text.contains(":437"), "{table}: {}", rows.text);
    }
    let kept = node.app.runtime.readers().next().unwrap().rows("saga", None, 10).unwrap();
    assert!(kept.iter().any(|row| row.value.to_string().contains(":437")), "{kept:?}");
}

/// The copies of dead letters on the node's bus, from its beginning.
async fn copies(node: &Node) -> Box<dyn Consumer> {
    let bus = &node.app.bus;
    let subscription = Subscription {
        name: "copies".to_owned(),
        filters: subject::filters(None, Kind::DeadLetter, None),
        part: None,
        after: Some(StreamPosition::behind(bus.stream_id(), 0)),
        max_in_flight: usize::MAX,
    };
    bus.subscribe(subscription).await.unwrap()
}

/// The next copy: its message, its headers, its body.
async fn copy(copies: &mut dyn Consumer) -> (Message, BTreeMap<String, String>, Value) {
    let next = tokio::time::timeout(PATIENCE, copies.next(1)).await.expect("a copy comes").unwrap();
    let message = Message::clone(&next[0].message);
    let headers = message.headers.iter().cloned().collect();
    let body = serde_json::from_slice(&message.payload).unwrap();
    (message, headers, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_each_letter_is_published_redacted_and_makes_no_other_letter() {
    let fields = json!({ "fields": ["secret"] });
    let node = Node::start_with(|config| config.redact = serde_json::from_value(fields).unwrap()).await;
    let data = json!({ "orderId": "o-1", "secret": 437 });
    node.ask(Method::POST, "acme", "/v1/events", event("placed-o-1", "OrderPlaced", &data).to_string())
        .await
        .ok();
    let mut copies = copies(&node).await;
    let (message, headers, body) = copy(&mut *copies).await;
    let id = message.id.clone().unwrap();
    assert_eq!(message.subject, format!("tenant.acme.deadletter.schema_mismatch.{id}"));
    assert_eq!((&headers["ce-id"], headers["ce-type"].as_str()), (&id, "orlog.dead_letter"));
    assert_eq!(
        (headers["ce-correlationid"].as_str(), headers["ce-causationid"].as_str()),
        ("o-1", "placed-o-1")
    );
    let path = format!("/v1/dead-letters/{id}");
    let mut shown = node.ask(Method::GET, "acme", &path, Body::empty()).await.ok();
    assert_eq!(shown["original"]["event"]["data"]["secret"], "[redacted]");
    shown["tenant"] = json!("acme");
    assert_eq!(body, shown);
    // What is no event at all: the message as it came. It lies behind the copy, which is long read when it is set aside.
    let no_event = Message {
        subject: "tenant.acme.aggregate.order.o-2".to_owned(),
        id: None,
        headers: vec![("x-from".to_owned(), "there".to_owned())],
        payload: "{\"secret\": 437}".into(),
    };
    node.app.bus.publish(vec![no_event]).await.unwrap();
    let (message, _, body) = copy(&mut *copies).await;
    assert!(message.subject.starts_with("tenant.acme.deadletter.undecodable."), "{}", message.subject);
    let original = &body["original"]["message"];
    assert_eq!(original["headers"], json!({ "x-from": "there" }));
    assert_eq!(
        (original["subject"].as_str(), &original["payload"]),
        (Some("tenant.acme.aggregate.order.o-2"), &json!({ "secret": "[redacted]" }))
    );
    let none_waits = |rows: &Value| rows["rows"].as_array().is_some_and(Vec::is_empty);
    node.until("acme", "/v1/inspect/letter_outbox", none_waits).await;
    let letters = node.ask(Method::GET, "acme", "/v1/dead-letters", Body::empty()).await.ok();
    assert_eq!(letters["items"].as_array().unwrap().len(), 2, "{letters}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_of_a_letter_too_large_for_the_bus_says_where_the_original_is() {
    let node = Node::start().await;
    let quotes = "\"".repeat(600_000);
    let no_event = Message {
        subject: "aggregate.order.o-1".to_owned(),
        id: None,
        headers: Vec::new(),
        payload: quotes.into(),
    };
    node.app.bus.publish(vec![no_event]).await.unwrap();
    let (message, _, body) = copy(&mut *copies(&node).await).await;
    let id = message.id.unwrap();
    assert_eq!((&body["reason"], &body["original"]), (&json!("undecodable"), &Value::Null));
    assert!(body["left_out"].as_str().unwrap().contains(&format!("orlog dlq show {id}")), "{body}");
    assert!(node.get(&format!("/v1/dead-letters/{id}")).await.text.len() > 600_000);
}
