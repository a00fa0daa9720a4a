//! Overview: counts by definition and status, stuck instances, dead letters by reason, recent failed
//! attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::Method;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::api::node::{Node, event};

fn count(overview: &Value, status: &str) -> u64 {
    let groups = overview["counts"]["instances"].as_array().unwrap().iter();
    groups
        .filter(|group| group["status"] == status)
        .map(|group| group["count"].as_u64().unwrap())
        .sum()
}

/// Repeats the request until counts are available.
async fn overview(node: &Node, tenant: &str) -> Value {
    let counted = async {
        loop {
            let overview = node.ask(Method::GET, tenant, "/v1/overview", "").await.ok();
            if !overview["counts"].is_null() {
                return overview;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, counted)
        .await
        .expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_counts_are_isolated_by_tenant() {
    let node = Node::start().await;
    for number in 0..3 {
        node.order("acme", &format!("o-{number}"), 5, "running")
            .await;
    }
    node.order("acme", "o-dear", 5000, "failed").await;
    node.order("zeta", "o-1", 5, "running").await;
    node.refunds.store(false, Ordering::SeqCst);
    let mut not_shipped = event("not-o-0", "NotShipped", &json!({}));
    not_shipped["correlationid"] = json!("o-0");
    node.ask(Method::POST, "acme", "/v1/events", not_shipped.to_string())
        .await
        .ok();
    node.until("acme", "/v1/sagas/order/o-0", |order| {
        order["status"] == "stuck"
    })
    .await;

    let acme = overview(&node, "acme").await;
    assert_eq!(
        (
            count(&acme, "running"),
            count(&acme, "failed"),
            count(&acme, "stuck")
        ),
        (2, 1, 1),
        "{acme:#}"
    );
    assert_eq!(acme["counts"]["complete"], true);
    assert_eq!(acme["counts"]["stuck"][0]["correlation"], "o-0");
    let quiet: Vec<_> = acme["counts"]["longest_unchanged"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["correlation"])
        .collect();
    assert_eq!(quiet, ["o-1", "o-2"]);
    let zeta = overview(&node, "zeta").await;
    assert_eq!(
        (
            count(&zeta, "running"),
            zeta["counts"]["stuck"].as_array().unwrap().len()
        ),
        (1, 0)
    );

    for (name, least) in [
        ("events", 6),
        ("transitions", 10),
        ("commits", 1),
        ("attempts", 6),
    ] {
        assert!(
            zeta["totals"][name].as_u64().unwrap() >= least,
            "{name}: {zeta:#}"
        );
    }
    assert_eq!(
        (&zeta["node"]["accepting"], &zeta["node"]["has_capacity"]),
        (&json!(true), &json!(true))
    );
    assert!(
        zeta["depths"]["next_timer"].is_string(),
        "the shipments have a timeout: {zeta:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_counted_by_cause() {
    let node = Node::start().await;
    for id in ["o-1", "o-2"] {
        let order = event(
            &format!("placed-{id}"),
            "OrderPlaced",
            &json!({ "orderId": id }),
        );
        node.post("/v1/events", &order).await.ok();
    }
    node.until("", "/v1/dead-letters", |dead_letters| {
        dead_letters["items"].as_array().unwrap().len() == 2
    })
    .await;
    let causes = node.get("/v1/dead-letters/causes").await.ok();
    let cause = &causes["items"][0];
    assert_eq!(
        (&cause["count"], &cause["saga"], &causes["complete"]),
        (&json!(2), &json!("order"), &json!(true))
    );
    assert!(
        cause["message"].as_str().unwrap().contains("total"),
        "{causes:#}"
    );
    assert!(cause["oldest"].as_str() <= cause["newest"].as_str());
    let same = json!({ "reason": cause["reason"], "saga": cause["saga"] });
    assert_eq!(
        node.post("/v1/dead-letters/redrive", &same).await.ok()["matched"],
        2
    );
    let other = node
        .ask(Method::GET, "acme", "/v1/dead-letters/causes", "")
        .await
        .ok();
    assert_eq!(other["items"], json!([]));

    let bounded = Node::start_with(|config| config.http.scan_limit = 1).await;
    for id in ["o-1", "o-2"] {
        let order = event(
            &format!("placed-{id}"),
            "OrderPlaced",
            &json!({ "orderId": id }),
        );
        bounded.post("/v1/events", &order).await.ok();
    }
    bounded
        .until("", "/v1/dead-letters", |dead_letters| {
            dead_letters["items"].as_array().unwrap().len() == 2
        })
        .await;
    let causes = bounded.get("/v1/dead-letters/causes").await.ok();
    assert_eq!(
        (&causes["items"][0]["count"], &causes["complete"]),
        (&json!(1), &json!(false)),
        "{causes:#}"
    );
}

const PATIENT: &str = "saga: patient\nversion: 1\nstart: Asked\ncorrelate: id\nvars: { id: =event.id }\n\
    steps:\n  - { id: ask, do: { effect: oracle.ask } }\n";

#[tokio::test(flavor = "multi_thread")]
async fn instance_shows_failed_attempts() {
    let call_count = Arc::new(AtomicU32::new(0));
    let respond = move |_: FunctionCall| {
        let number = call_count.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                Err(ProviderError::unavailable("asleep", "later"))
            } else {
                Ok(json!({}))
            }
        }
    };
    let oracle = FunctionProvider::new()
        .effect("oracle.ask", respond)
        .upstream("oracle", Policy::default());
    let define = |config: &mut orlog::config::Config| {
        let dir = config.definitions_dir.clone().unwrap();
        std::fs::write(dir.join("patient.saga.yaml"), PATIENT).unwrap();
    };
    let node = Node::start_whole(define, Vec::new(), vec![oracle]).await;
    for id in ["p-1", "p-2"] {
        node.post("/v1/events", &event(id, "Asked", &json!({ "id": id })))
            .await
            .ok();
        node.until("", &format!("/v1/sagas/patient/{id}"), |saga| {
            saga["status"] == "completed"
        })
        .await;
    }
    let tried = node.get("/v1/sagas/patient/p-1").await.ok()["attempts"].take();
    let endings: Vec<_> = tried
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["outcome"])
        .collect();
    assert_eq!(endings, ["unavailable", "succeeded"], "{tried:#}");
    assert_eq!(
        (&tried[0]["upstream"], &tried[0]["label"]),
        (&json!("oracle"), &json!("oracle.ask"))
    );
    let smooth = node.get("/v1/sagas/patient/p-2").await.ok();
    assert_eq!(smooth["attempts"], json!([]));
}
