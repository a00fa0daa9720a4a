//! Human tasks and their actions.

use std::sync::Arc;

use axum::http::StatusCode;
use orlog_testkit::sagas::composite;
use serde_json::{Value, json};

use crate::api::node::{Node, event};

const OPENED: &str = "CompositeOpened";

async fn node() -> Node {
    Node::start_with_programs(
        |_| (),
        composite::programs()
            .map(|program| Arc::clone(&program))
            .into(),
    )
    .await
}

/// Starts a composite saga and waits for its child saga; returns its task.
async fn opened(node: &Node, tenant: &str, id: &str) -> String {
    let mut start_event = event(&format!("opened-{id}"), OPENED, &json!({ "n": 0 }));
    start_event["correlationid"] = json!(id);
    let path = format!("/v1/sagas/composite/{id}");
    let response = node
        .ask(
            axum::http::Method::POST,
            tenant,
            "/v1/events",
            start_event.to_string(),
        )
        .await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    let saga = node
        .until(tenant, &path, |saga| !saga["state"]["brought"].is_null())
        .await;
    saga["tasks"][0]["id"].as_str().unwrap().to_owned()
}

fn user(by: &str) -> Value {
    json!({ "user": by, "roles": ["landlord"] })
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_a_claimed_task_resumes_the_saga() {
    let node = node().await;
    let task = opened(&node, "", "h-1").await;
    let path = |verb: &str| format!("/v1/tasks/{task}{verb}");
    let stranger = node.post(&path("/claim"), &json!({ "user": "bob" })).await;
    assert!(stranger.problem("OR0027").contains("landlord"));
    node.post(&path("/claim"), &user("alice")).await.ok();
    assert!(
        node.post(&path("/complete"), &user("bob"))
            .await
            .problem("OR0027")
            .contains("alice")
    );
    let invalid = json!({ "user": "alice", "roles": ["landlord"], "outcome": "Maybe" });
    assert!(
        node.post(&path("/complete"), &invalid)
            .await
            .problem("OR0027")
            .contains("Approved, Rejected")
    );
    let stale = json!({ "user": "alice", "roles": ["landlord"], "outcome": "Approved", "expected_version": 1 });
    node.post(&path("/complete"), &stale)
        .await
        .problem("OR0012");
    let right = json!({ "user": "alice", "roles": ["landlord"], "outcome": "Approved", "reason": "they are nice" });
    let response = node.post(&path("/complete"), &right).await.ok();
    assert_eq!(
        (&response["applied"], &response["status"]),
        (&json!(true), &json!("completed"))
    );
    node.post(&path("/complete"), &right)
        .await
        .problem("OR0026");
    let displayed = node.get(&path("")).await.ok();
    assert_eq!(
        (&displayed["status"], &displayed["outcome"]),
        (&json!("completed"), &json!("Approved"))
    );
    let events: Vec<_> = displayed["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["kind"])
        .collect();
    assert_eq!(events, ["opened", "claimed", "completed"]);
    assert_eq!(
        (
            &displayed["events"][2]["user"],
            &displayed["events"][2]["reason"]
        ),
        (&json!("alice"), &json!("they are nice"))
    );
    let saga = node.get("/v1/sagas/composite/h-1").await.ok();
    assert_eq!(
        (&saga["tasks"], &saga["parent"]),
        (&json!([]), &Value::Null)
    );
    let notes = saga["history"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["note"].to_string());
    assert!(
        notes
            .clone()
            .any(|note| note.contains("complete by alice: they are nice")),
        "{saga}"
    );
    let child = node.get("/v1/sagas/child/h-1").await.ok();
    assert_eq!(
        (&child["parent"]["saga"], &child["parent"]["depth"]),
        (&json!("composite"), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_filtered_by_role_and_isolated_by_tenant() {
    let node = node().await;
    let (mine, other) = (
        opened(&node, "acme", "h-1").await,
        opened(&node, "zeta", "h-2").await,
    );
    let second = opened(&node, "acme", "h-3").await;
    let list = async |tenant: &str, query: &str| -> Vec<String> {
        let path = format!("/v1/tasks{query}");
        let found = node
            .ask(
                axum::http::Method::GET,
                tenant,
                &path,
                axum::body::Body::empty(),
            )
            .await
            .ok();
        let items = found["items"].as_array().unwrap().iter();
        items
            .map(|task| task["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(list("acme", "").await, [mine.clone(), second.clone()]);
    assert_eq!(
        list("zeta", "?role=landlord&saga=composite").await,
        std::slice::from_ref(&other)
    );
    assert!(list("acme", "?role=gardener").await.is_empty());
    assert!(list("acme", "?status=completed,closed").await.is_empty());
    assert_eq!(list("acme", "?correlation=h-3").await, [second]);
    let assign = json!({ "user": "boss", "assignee": "alice" });
    let path = format!("/v1/tasks/{mine}/assign");
    node.ask(axum::http::Method::POST, "zeta", &path, assign.to_string())
        .await
        .problem("OR0026");
    node.ask(axum::http::Method::POST, "acme", &path, assign.to_string())
        .await
        .ok();
    assert_eq!(list("acme", "?assignee=alice").await, [mine]);
    node.get("/v1/tasks?status=lost").await.problem("OR0008");
    node.get("/v1/tasks?cursor=x").await.problem("OR0008");
    node.get("/v1/tasks/none").await.problem("OR0008");
    node.get(&format!("/v1/tasks/{other}"))
        .await
        .problem("OR0026");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_pages_have_no_gaps_or_duplicates() {
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
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, all);
}
