//! What people are asked, and what they do about it.

use std::sync::Arc;

use axum::http::StatusCode;
use orlog_testkit::sagas::composite;
use serde_json::{Value, json};

use crate::node::{Node, event};

const OPENED: &str = "HouseholdOpened";

async fn node() -> Node {
    Node::start_with_programs(|_| (), composite::programs().map(|program| Arc::clone(&program)).into()).await
}

/// Opens a household and waits for its errand; the answer is its task.
async fn opened(node: &Node, tenant: &str, id: &str) -> String {
    let mut begun = event(&format!("opened-{id}"), OPENED, &json!({ "n": 0 }));
    begun["correlationid"] = json!(id);
    let path = format!("/v1/sagas/household/{id}");
    let answer = node.ask(axum::http::Method::POST, tenant, "/v1/events", begun.to_string()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let house = node.until(tenant, &path, |house| !house["state"]["brought"].is_null()).await;
    house["tasks"][0]["id"].as_str().unwrap().to_owned()
}

fn person(by: &str) -> Value {
    json!({ "by": by, "roles": ["landlord"] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_claims_and_completes_and_the_saga_goes_on() {
    let node = node().await;
    let task = opened(&node, "", "h-1").await;
    let path = |verb: &str| format!("/v1/tasks/{task}{verb}");
    let stranger = node.post(&path("/claim"), &json!({ "by": "bob" })).await;
    assert!(stranger.problem("OR0027").contains("landlord"));
    node.post(&path("/claim"), &person("alice")).await.ok();
    assert!(node.post(&path("/complete"), &person("bob")).await.problem("OR0027").contains("alice"));
    let wrong = json!({ "by": "alice", "roles": ["landlord"], "outcome": "Maybe" });
    assert!(node.post(&path("/complete"), &wrong).await.problem("OR0027").contains("Approved, Rejected"));
    let stale = json!({ "by": "alice", "roles": ["landlord"], "outcome": "Approved", "expected_version": 1 });
    node.post(&path("/complete"), &stale).await.problem("OR0012");
    let right =
        json!({ "by": "alice", "roles": ["landlord"], "outcome": "Approved", "reason": "they are nice" });
    let answer = node.post(&path("/complete"), &right).await.ok();
    assert_eq!((&answer["applied"], &answer["status"]), (&json!(true), &json!("completed")));
    node.post(&path("/complete"), &right).await.problem("OR0026");
    let shown = node.get(&path("")).await.ok();
    assert_eq!((&shown["status"], &shown["outcome"]), (&json!("completed"), &json!("Approved")));
    let events: Vec<_> = shown["events"].as_array().unwrap().iter().map(|event| &event["what"]).collect();
    assert_eq!(events, ["opened", "claimed", "completed"]);
    assert_eq!(
        (&shown["events"][2]["by"], &shown["events"][2]["reason"]),
        (&json!("alice"), &json!("they are nice"))
    );
    let house = node.get("/v1/sagas/household/h-1").await.ok();
    assert_eq!((&house["tasks"], &house["parent"]), (&json!([]), &Value::Null));
    let notes = house["history"]["items"].as_array().unwrap().iter().map(|record| record["note"].to_string());
    assert!(notes.clone().any(|note| note.contains("complete by alice: they are nice")), "{house}");
    let errand = node.get("/v1/sagas/errand/h-1").await.ok();
    assert_eq!((&errand["parent"]["saga"], &errand["parent"]["depth"]), (&json!("household"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_by_who_may_take_them_and_never_across_tenants() {
    let node = node().await;
    let (mine, other) = (opened(&node, "acme", "h-1").await, opened(&node, "zeta", "h-2").await);
    let second = opened(&node, "acme", "h-3").await;
    let list = async |tenant: &str, query: &str| -> Vec<String> {
        let path = format!("/v1/tasks{query}");
        let found = node.ask(axum::http::Method::GET, tenant, &path, axum::body::Body::empty()).await.ok();
        let items = found["items"].as_array().unwrap().iter();
        items.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("acme", "").await, [mine.clone(), second.clone()]);
    assert_eq!(list("zeta", "?role=landlord&saga=household").await, std::slice::from_ref(&other));
    assert!(list("acme", "?role=gardener").await.is_empty());
    assert!(list("acme", "?status=completed,closed").await.is_empty());
    assert_eq!(list("acme", "?correlation=h-3").await, [second]);
    let assign = json!({ "by": "boss", "assignee": "alice" });
    let path = format!("/v1/tasks/{mine}/assign");
    node.ask(axum::http::Method::POST, "zeta", &path, assign.to_string()).await.problem("OR0026");
    node.ask(axum::http::Method::POST, "acme", &path, assign.to_string()).await.ok();
    assert_eq!(list("acme", "?assignee=alice").await, [mine]);
    node.get("/v1/tasks?status=lost").await.problem("OR0008");
    node.get("/v1/tasks?cursor=x").await.problem("OR0008");
    node.get("/v1/tasks/none").await.problem("OR0008");
    node.get(&format!("/v1/tasks/{other}")).await.problem("OR0026");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_tasks_neither_skip_nor_repeat() {
    let node = node().await;
    let mut all = Vec::new();
    for number in 0..5 {
        all.push(opened(&node, "", &format!("h-{number}")).await);
    }
    all.sort();
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = node.get(&format!("/v1/tasks?limit=2{cursor}")).await.ok();
        let items = page["items"].as_array().unwrap().iter();
        found.extend(items.map(|task| task["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, all);
}
