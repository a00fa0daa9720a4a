//! Reload of upstreams with effects in flight: no loss, no duplicates, unchanged upstreams stay.

use axum::http::{Method, StatusCode};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::effects::exchange::{PATH, post_jobs, succeeded};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};
use crate::effects::workers::worker_config;

fn payments(base_url: &str, more: &str) -> String {
    format!("base_url = {base_url:?}\n{more}\n[effects.\"pay.charge\"]\npath = \"/charges\"\n")
}

fn upstream<'a>(info: &'a Value, name: &str) -> &'a Value {
    info["upstreams"]
        .as_array()
        .unwrap()
        .iter()
        .find(|upstream| upstream["name"] == name)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_work_moves_to_the_new_address_with_the_same_key() {
    let unhealthy = HttpUpstream::open().await;
    unhealthy.script(503, &[], "");
    let pauses = "deadline = \"24h\"\nbackoff = { initial = \"1h\", max = \"1h\" }";
    let node = Node::start(&[("pay", &payments(&unhealthy.url, pauses))]).await;
    node.pay("", "o-1", json!({})).await;
    let first = unhealthy.wait_for_requests(1).await;
    let well = HttpUpstream::open().await;
    node.dirs().describe("pay", &payments(&well.url, pauses));
    let (status, response) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{response}");
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    let second = well.received();
    assert_eq!(second.len(), 1);
    assert_eq!(
        second[0].header("idempotency-key"),
        first[0].header("idempotency-key")
    );
    assert_eq!(unhealthy.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_flight_attempt_survives_reload_and_is_not_repeated() {
    let (old, new) = (HttpUpstream::open().await, HttpUpstream::open().await);
    old.permits.forget_permits(1_000_000);
    let node = Node::start(&[("pay", &payments(&old.url, ""))]).await;
    node.pay("", "o-1", json!({})).await;
    old.wait_for_requests(1).await;
    node.dirs().describe("pay", &payments(&new.url, ""));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    node.pay("", "o-2", json!({})).await;
    assert_eq!(node.end("", "o-2").await["status"], "completed");
    old.permits.add_permits(1);
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.received().len(), new.received().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_upstream_keeps_its_breaker_state() {
    let unhealthy = HttpUpstream::open().await;
    unhealthy.script(503, &[], "");
    let breaker = "breaker = { failure_threshold = 1, open_duration = \"1h\" }";
    let other = payments("http://127.0.0.1:9", "").replace("pay.charge", "other.do");
    let node = Node::start(&[
        ("pay", &payments(&unhealthy.url, breaker)),
        ("other", &other),
    ])
    .await;
    node.pay("", "o-1", json!({})).await;
    unhealthy.wait_for_requests(1).await;
    // The breaker opens a moment after the response.
    let opened = async {
        while upstream(&node.get("/info").await, "pay")["breaker"] != "open" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, opened)
        .await
        .expect("the breaker opens");
    node.dirs().describe("other", &other.replace(":9", ":10"));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(upstream(&node.get("/info").await, "pay")["breaker"], "open");
    node.dirs().describe(
        "pay",
        &payments(
            &unhealthy.url,
            "breaker = { failure_threshold = 1, open_duration = \"2h\" }",
        ),
    );
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!(
        upstream(&node.get("/info").await, "pay")["breaker"],
        "closed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_with_an_error_changes_nothing() {
    let (old, new) = (HttpUpstream::open().await, HttpUpstream::open().await);
    let node = Node::start(&[("pay", &payments(&old.url, ""))]).await;
    node.dirs().describe("pay", &payments(&new.url, ""));
    node.dirs()
        .describe("wrong", "base_url = 'http://h'\nconcurency = 3");
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem.to_string().contains("wrong.toml:2:1"), "{problem}");
    std::fs::remove_file(node.dirs().path("effects").join("wrong.toml")).unwrap();
    std::fs::remove_file(node.dirs().path("effects").join("pay.toml")).unwrap();
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(
        problem
            .to_string()
            .contains("no upstream executes the effect pay.charge"),
        "{problem}"
    );
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.received().len(), new.received().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_without_definitions_dir_updates_upstreams_only() {
    let (old, new) = (HttpUpstream::open().await, HttpUpstream::open().await);
    let dirs = Dirs::new(&[("pay", &payments(&old.url, ""))]);
    let node = dirs
        .start_with(|config| config.definitions_dir = None)
        .await;
    node.deploy().await;
    dirs.describe("pay", &payments(&new.url, ""));
    let (status, plan) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!(
        (&plan["number"], &plan["upstreams"]),
        (&json!(1), &json!(["pay"]))
    );
    assert_eq!(
        (&plan["unchanged"][0]["saga"], &plan["retired"]),
        (&json!("payment"), &json!([]))
    );
    std::fs::remove_file(dirs.path("effects").join("pay.toml")).unwrap();
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(
        problem
            .to_string()
            .contains("no upstream executes the effect pay.charge"),
        "{problem}"
    );
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.received().len(), new.received().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reload_applies_definition_and_upstream() {
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let (definition, moved) = (
        dirs.path("definitions/payment.saga.yaml"),
        dirs.path("aside"),
    );
    std::fs::rename(&definition, &moved).unwrap();
    let node = dirs.start().await;
    std::fs::rename(&moved, &definition).unwrap();
    assert_eq!(node.reload().await.0, StatusCode::UNPROCESSABLE_ENTITY);
    dirs.describe("pay", &payments(&shop.url, ""));
    let (status, plan) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!(
        (&plan["added"][0]["saga"], &plan["upstreams"]),
        (&json!("payment"), &json!(["pay"]))
    );
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_without_directorys_is_rejected() {
    let node = Dirs::new(&[])
        .start_with(|config| (config.definitions_dir, config.upstreams_dir) = (None, None))
        .await;
    let (status, problem) = node.reload().await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("OR0029"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_specific_upstream_is_isolated() {
    let (all, acme) = (HttpUpstream::open().await, HttpUpstream::open().await);
    let own = payments(&acme.url, "tenants = [\"acme\"]");
    let node = Node::start(&[("pay", &payments(&all.url, "")), ("pay-acme", &own)]).await;
    for (tenant, order) in [("acme", "o-1"), ("beta", "o-2"), ("", "o-3")] {
        node.pay(tenant, order, json!({})).await;
        assert_eq!(node.end(tenant, order).await["status"], "completed");
    }
    let tenants = |shop: &HttpUpstream| -> Vec<String> {
        shop.received()
            .iter()
            .map(|received| received.header("x-tenant-id").to_owned())
            .collect()
    };
    assert_eq!(
        (tenants(&acme), tenants(&all)),
        (
            vec!["acme".to_owned()],
            vec!["beta".to_owned(), String::new()]
        )
    );
}

/// Claims the only job of a tenant.
async fn claim(node: &Node, tenant: &str) -> Value {
    let request = json!({ "effects": ["pay.charge"], "worker": "w", "wait_seconds": 20 });
    let (status, response) = node
        .ask(Method::POST, tenant, "/v1/work/claim", &request)
        .await;
    assert_eq!(
        (status, response["jobs"].as_array().map(Vec::len)),
        (StatusCode::OK, Some(1)),
        "{response}"
    );
    response["jobs"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_receives_the_jobs_of_an_upstream_that_names_its_tenant() {
    let of_acme = worker_config("tenants = [\"acme\"]");
    let node = Node::start(&[("a", &worker_config("")), ("b", &of_acme)]).await;
    for tenant in ["acme", "beta"] {
        node.pay(tenant, "o-1", json!({})).await;
        assert_eq!(claim(&node, tenant).await["correlation"], "o-1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_job_is_claimed_after_its_effect_moves_to_another_worker_upstream() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    post_jobs(&node, &["o-1"]).await;
    node.dirs()
        .describe("pay", "kind = \"worker\"\neffects = [\"pay.other\"]");
    node.dirs().describe("charge", &worker_config(""));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    post_jobs(&node, &["o-2"]).await;
    for order in ["o-1", "o-2"] {
        let job = claim(&node, "acme").await;
        assert_eq!(job["correlation"], order);
        let exchange = json!({ "results": [succeeded(&job)] });
        assert_eq!(
            node.ask(Method::POST, "acme", PATH, &exchange).await.0,
            StatusCode::OK
        );
        assert_eq!(node.end("acme", order).await["status"], "completed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_job_is_claimed_after_another_worker_upstream_takes_precedence() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    post_jobs(&node, &["o-1"]).await;
    node.dirs()
        .describe("acme", &worker_config("tenants = [\"acme\"]"));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    post_jobs(&node, &["o-2"]).await;
    for order in ["o-1", "o-2"] {
        assert_eq!(claim(&node, "acme").await["correlation"], order);
    }
}
