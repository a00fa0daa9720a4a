//! Upstreams are replaced while effects are under way: nothing is lost, nothing is done twice, what did not change stays.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http_upstream::Shop;
use crate::node::{Folders, Node};

fn payments(base_url: &str, more: &str) -> String {
    format!("base_url = {base_url:?}\n{more}\n[effects.\"pay.charge\"]\npath = \"/charges\"\n")
}

fn upstream<'a>(info: &'a Value, name: &str) -> &'a Value {
    info["upstreams"].as_array().unwrap().iter().find(|upstream| upstream["name"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_an_upstream_that_is_down_goes_on_at_its_new_address_under_the_same_key() {
    let ill = Shop::open().await;
    ill.answers(503, &[], "");
    let pauses = "deadline = \"24h\"\nbackoff = { first = \"1h\", max = \"1h\" }";
    let node = Node::start(&[("pay", &payments(&ill.url, pauses))]).await;
    node.pay("", "o-1", json!({})).await;
    let first = ill.asked_times(1).await;
    let well = Shop::open().await;
    node.folders().describe("pay", &payments(&well.url, pauses));
    let (status, answer) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    let second = well.asked();
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].header("idempotency-key"), first[0].header("idempotency-key"));
    assert_eq!(ill.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_under_way_goes_on_to_its_end_and_is_not_made_again() {
    let (old, new) = (Shop::open().await, Shop::open().await);
    old.permits.forget_permits(1_000_000);
    let node = Node::start(&[("pay", &payments(&old.url, ""))]).await;
    node.pay("", "o-1", json!({})).await;
    old.asked_times(1).await;
    node.folders().describe("pay", &payments(&new.url, ""));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    node.pay("", "o-2", json!({})).await;
    assert_eq!(node.end("", "o-2").await["status"], "completed");
    old.permits.add_permits(1);
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.asked().len(), new.asked().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_did_not_change_keeps_the_state_of_its_breaker() {
    let ill = Shop::open().await;
    ill.answers(503, &[], "");
    let breaker = "breaker = { failures = 1, open_for = \"1h\" }";
    let other = payments("http://127.0.0.1:9", "").replace("pay.charge", "other.do");
    let node = Node::start(&[("pay", &payments(&ill.url, breaker)), ("other", &other)]).await;
    node.pay("", "o-1", json!({})).await;
    ill.asked_times(1).await;
    // The answer opens the breaker a moment after it was given.
    let opened = async {
        while upstream(&node.get("/info").await, "pay")["breaker"] != "open" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::node::PATIENCE, opened).await.expect("the breaker opens");
    node.folders().describe("other", &other.replace(":9", ":10"));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(upstream(&node.get("/info").await, "pay")["breaker"], "open");
    node.folders().describe("pay", &payments(&ill.url, "breaker = { failures = 1, open_for = \"2h\" }"));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!(upstream(&node.get("/info").await, "pay")["breaker"], "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_mistake_everything_stays_as_it_was() {
    let (old, new) = (Shop::open().await, Shop::open().await);
    let node = Node::start(&[("pay", &payments(&old.url, ""))]).await;
    node.folders().describe("pay", &payments(&new.url, ""));
    node.folders().describe("wrong", "base_url = 'http://h'\nconcurency = 3");
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem.to_string().contains("wrong.toml:2:1"), "{problem}");
    std::fs::remove_file(node.folders().path("effects").join("wrong.toml")).unwrap();
    std::fs::remove_file(node.folders().path("effects").join("pay.toml")).unwrap();
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem.to_string().contains("no upstream performs the effect pay.charge"), "{problem}");
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.asked().len(), new.asked().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_folder_of_definitions_the_upstreams_are_renewed_and_what_was_deployed_stays() {
    let (old, new) = (Shop::open().await, Shop::open().await);
    let folders = Folders::new(&[("pay", &payments(&old.url, ""))]);
    let node = folders.start_with(&["effects"]).await;
    node.deploy().await;
    folders.describe("pay", &payments(&new.url, ""));
    let (status, plan) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!((&plan["number"], &plan["upstreams"]), (&json!(1), &json!(["pay"])));
    assert_eq!((&plan["unchanged"][0]["saga"], &plan["retired"]), (&json!("payment"), &json!([])));
    std::fs::remove_file(folders.path("effects").join("pay.toml")).unwrap();
    let (status, problem) = node.reload().await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(problem.to_string().contains("no upstream performs the effect pay.charge"), "{problem}");
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    assert_eq!((old.asked().len(), new.asked().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_and_the_upstream_that_it_needs_come_with_one_reload() {
    let shop = Shop::open().await;
    let folders = Folders::new(&[]);
    let (definition, aside) = (folders.path("definitions/payment.saga.yaml"), folders.path("aside"));
    std::fs::rename(&definition, &aside).unwrap();
    let node = folders.start().await;
    std::fs::rename(&aside, &definition).unwrap();
    assert_eq!(node.reload().await.0, StatusCode::UNPROCESSABLE_ENTITY);
    folders.describe("pay", &payments(&shop.url, ""));
    let (status, plan) = node.reload().await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!((&plan["added"][0]["saga"], &plan["upstreams"]), (&json!("payment"), &json!(["pay"])));
    node.pay("", "o-1", json!({})).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_any_folder_has_nothing_to_reload() {
    let node = Folders::new(&[]).start_with(&[]).await;
    let (status, problem) = node.reload().await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("OR0029")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_an_upstream_of_its_own_never_reaches_that_of_the_others() {
    let (all, acme) = (Shop::open().await, Shop::open().await);
    let own = payments(&acme.url, "tenants = [\"acme\"]");
    let node = Node::start(&[("pay", &payments(&all.url, "")), ("pay-acme", &own)]).await;
    for (tenant, order) in [("acme", "o-1"), ("beta", "o-2"), ("", "o-3")] {
        node.pay(tenant, order, json!({})).await;
        assert_eq!(node.end(tenant, order).await["status"], "completed");
    }
    let tenants = |shop: &Shop| -> Vec<String> {
        shop.asked().iter().map(|asked| asked.header("x-tenant-id").to_owned()).collect()
    };
    assert_eq!(
        (tenants(&acme), tenants(&all)),
        (vec!["acme".to_owned()], vec!["beta".to_owned(), String::new()])
    );
}
