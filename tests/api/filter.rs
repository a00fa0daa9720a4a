//! Instances by what they hold.

use axum::body::Body;
use axum::http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::node::{Node, event};

async fn ask(node: &Node, filter: &str, more: &str) -> crate::node::Answer {
    let filter = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    node.ask(Method::GET, "", &format!("/v1/sagas?filter={filter}{more}"), Body::empty()).await
}

fn names(found: &Value) -> Vec<&str> {
    found["items"].as_array().unwrap().iter().map(|item| item["correlation"].as_str().unwrap()).collect()
}

/// Five orders that go on, with the totals 10 to 50, one of them paused, and one that failed.
async fn orders(change: impl FnOnce(&mut orlog::Config)) -> Node {
    let node = Node::start_with(change).await;
    for number in 1..=5 {
        node.order("", &format!("o-{number}"), number * 10, "running").await;
    }
    node.order("", "declined", 5000, "failed").await;
    node.post("/v1/sagas/order/o-5/pause", &json!({})).await.ok();
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_finds_instances_by_what_they_hold() {
    let node = orders(|_| ()).await;
    let all: [(&str, &[&str]); 12] = [
        ("vars.total > 20 && vars.total < 50", &["o-3", "o-4"]),
        ("paused", &["o-5"]),
        ("reference == 'o-2'", &["o-2"]),
        ("status == 'failed' && last_error.code == 'card_declined'", &["declined"]),
        (
            "waits.exists(w, w.name == 'Shipped' && w.until != null) && version == 2",
            &["o-1", "o-2", "o-3", "o-4"],
        ),
        ("waits.exists(w, w.until != null && timestamp(w.until) < now + duration('10m'))", &[]),
        (
            "waits.exists(w, w.until != null && timestamp(w.until) < now + duration('61m')) && vars.total == 10",
            &["o-1"],
        ),
        ("updated_at < now - duration('1h')", &[]),
        ("created_at <= updated_at && correlation.endsWith('4')", &["o-4"]),
        ("state.steps.exists(s, s.id == 'charge' && s.state == 'failed')", &["declined"]),
        (
            "program.version == 1 && parent == null && tasks.size() == 0 && saga == 'order' && vars.total == 30",
            &["o-3"],
        ),
        ("has(vars.nothing)", &[]),
    ];
    for (filter, expected) in all {
        let found = ask(&node, filter, "&count=true").await.ok();
        assert_eq!(names(&found), expected, "{filter}: {found:#}");
        assert_eq!(found["count"], json!({ "value": expected.len(), "exact": true }), "{filter}");
        assert_eq!((&found["next"], &found["scanned"]), (&Value::Null, &json!(6)), "{filter}");
    }
    let narrowed = ask(&node, "vars.total > 20", "&status=failed").await.ok();
    assert_eq!(names(&narrowed), ["declined"]);
    let counted = node.get("/v1/sagas?count=true&limit=2").await.ok();
    assert_eq!((names(&counted).len(), &counted["count"]["value"]), (2, &json!(6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_condition_is_refused_with_its_place() {
    let node = orders(|_| ()).await;
    let refused = async |filter: &str, expected: &str| {
        let detail = ask(&node, filter, "").await.problem("OR0008");
        assert!(detail.contains(expected), "{filter}: {detail}");
    };
    refused("status == 'x' && stauts == 'y'", "line 1, column 18: `stauts` is not known here").await;
    refused("status", "a condition must be true or false, this is string").await;
    refused("vars.total", "a condition must be true or false, this is int").await;
    refused("version > 'x'", "").await;
    refused("status ==", "ends too early").await;
    let found = ask(&node, "vars.nothing > 1", "").await.ok();
    assert_eq!((names(&found).len(), &found["failed"]), (0, &json!(6)));
    assert!(found["failure"].as_str().unwrap().contains("nothing"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_bounds_lose_nothing() {
    for (scan_limit, limit) in [(1, 1), (2, 1), (3, 2), (100, 1), (100, 2), (100, 6)] {
        let node = orders(|config| {
            config.http.scan_limit = scan_limit;
            config.http.page_limit = scan_limit;
        })
        .await;
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page =
                ask(&node, "vars.total <= 50", &format!("&count=true&limit={limit}{cursor}")).await.ok();
            assert!(page["scanned"].as_u64().unwrap() <= scan_limit as u64);
            assert!(page["count"]["value"].as_u64().unwrap() >= names(&page).len() as u64);
            found.extend(names(&page).into_iter().map(str::to_owned));
            assert_eq!(page["count"]["exact"] == true, cursor.is_empty() && scan_limit == 100, "{page}");
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, ["o-1", "o-2", "o-3", "o-4", "o-5"], "{scan_limit} {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_may_read_cannot_be_asked_about() {
    let node = orders(|config| config.redact.fields = vec!["total".to_owned().try_into().unwrap()]).await;
    let found = ask(&node, "vars.total == 10", "").await.ok();
    assert_eq!(names(&found), [""; 0]);
    let found = ask(&node, "vars.total == '[redacted]'", "").await.ok();
    assert_eq!(names(&found).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_sees_an_instance_as_it_stands() {
    let node = orders(|_| ()).await;
    let dear =
        "[1, 2, 3, 4, 5, 6, 7, 8].all(a, [1, 2, 3, 4, 5, 6, 7, 8].all(b, ('x' + correlation).size() > 0))";
    assert_eq!(names(&ask(&node, dear, "").await.ok()).len(), 6);
    let shipped = event("s-1", "Shipped", &json!({ "orderId": "o-1" }));
    node.post("/v1/events", &shipped).await.ok();
    node.until("", "/v1/sagas/order/o-1", |order| order["status"] == "completed").await;
    assert_eq!(names(&ask(&node, "status == 'completed'", "").await.ok()), ["o-1"]);
}
