//! In doubt: an answer is lost or the node dies in the middle, and the saga asks a person before anything is done again.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http_upstream::Shop;
use crate::node::{Folders, Node, PATIENCE};

const CAREFUL: &str = r"
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
vars: { order: =event }
steps:
  - id: charge
    do: { effect: pay.charge, data: =vars.order }
    save: { receipt: =event.receipt }
    in_doubt: ask
";

/// Folders of a node whose saga asks, with one upstream.
fn folders(upstream: &str) -> Folders {
    let folders = Folders::new(&[("pay", upstream)]);
    std::fs::write(folders.path("definitions").join("payment.saga.yaml"), CAREFUL).unwrap();
    folders
}

fn http(shop: &Shop) -> String {
    // The upstream itself would try again.
    let policy = "in_doubt = \"retry\"\nbackoff = { first = \"1ms\", max = \"1ms\" }";
    format!("base_url = {:?}\n{policy}\n[effects.\"pay.charge\"]\npath = \"/charges\"\n", shop.url)
}

/// Waits until a person is asked about a payment; the question.
async fn question(node: &Node, tenant: &str, order: &str) -> Value {
    let path = format!("/v1/tasks?correlation={order}");
    let asked = async {
        let mut commits = node.app.runtime.readers().next().unwrap().watch();
        loop {
            let (_, tasks) = node.ask(Method::GET, tenant, &path, &Value::Null).await;
            if let Some(task) = tasks["items"].as_array().and_then(|items| items.first()) {
                return task.clone();
            }
            commits.changed().await.unwrap();
        }
    };
    let task = tokio::time::timeout(PATIENCE, asked).await.expect("a person is asked");
    assert_eq!(task["title"], "Was pay.charge done? (step charge)", "{task}");
    task
}

async fn says(node: &Node, tenant: &str, task: &Value, outcome: &str, data: Value) {
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let answer = json!({ "by": "carl", "outcome": outcome, "data": data });
    let (status, answer) = node.ask(Method::POST, tenant, &path, &answer).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_says_was_done_is_not_done_again() {
    let shop = Shop::open().await;
    shop.answers(500, &[], "the database is gone");
    let node = folders(&http(&shop)).start().await;
    node.pay("", "o-1", json!({ "amount": 7 })).await;
    let task = question(&node, "", "o-1").await;
    let key = shop.asked()[0].header("idempotency-key").to_owned();
    let data = &task["data"];
    assert_eq!((&data["effect"], &data["payload"]["amount"]), (&json!("pay.charge"), &json!(7)), "{task}");
    let failure = &data["failure"];
    assert_eq!(failure["code"], "in_doubt");
    assert!(failure["message"].as_str().unwrap().contains(&key), "what to look for: {failure}");
    let (_, saga) = node.ask(Method::GET, "", "/v1/sagas/payment/o-1", &Value::Null).await;
    assert_eq!((&saga["status"], &saga["state"]["steps"][0]["state"]), (&json!("running"), &json!("asking")));
    says(&node, "", &task, "Done", json!({ "receipt": "r-1" })).await;
    let saga = node.end("", "o-1").await;
    assert_eq!((&saga["status"], &saga["state"]["vars"]["receipt"]), (&json!("completed"), &json!("r-1")));
    assert_eq!(shop.asked().len(), 1, "it was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_says_was_not_done_is_done_under_a_new_key() {
    let shop = Shop::open().await;
    shop.answers(500, &[], "");
    shop.answers(200, &[], r#"{"receipt": "r-2"}"#);
    let node = folders(&http(&shop)).start().await;
    node.pay("", "o-1", json!({})).await;
    let task = question(&node, "", "o-1").await;
    says(&node, "", &task, "NotDone", Value::Null).await;
    let saga = node.end("", "o-1").await;
    assert_eq!((&saga["status"], &saga["state"]["vars"]["receipt"]), (&json!("completed"), &json!("r-2")));
    let asked = shop.asked();
    assert_eq!(asked.len(), 2);
    assert_ne!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_died_while_an_attempt_was_under_way_asks_the_same() {
    let shop = Shop::open().await;
    shop.permits.forget_permits(1_000_000);
    let node = folders(&http(&shop)).start().await;
    node.pay("", "o-1", json!({})).await;
    shop.asked_times(1).await;
    let node = node.stop().await.start().await;
    let task = question(&node, "", "o-1").await;
    let message = task["data"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains("the process died while an attempt was under way"), "{task}");
    // The question outlives the next one.
    let node = node.stop().await.start().await;
    assert_eq!(question(&node, "", "o-1").await["id"], task["id"]);
    says(&node, "", &task, "Done", json!({ "receipt": "r-3" })).await;
    let saga = node.end("", "o-1").await;
    assert_eq!((&saga["status"], &saga["state"]["vars"]["receipt"]), (&json!("completed"), &json!("r-3")));
    assert_eq!(shop.asked().len(), 1, "it was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_goes_silent_leaves_a_question_and_no_other_gets_the_job() {
    let upstream =
        "kind = \"worker\"\neffects = [\"pay.charge\"]\nclaim = \"100ms\"\nbackoff = { first = \"1ms\" }\n";
    let node = folders(upstream).start().await;
    node.pay("acme", "o-1", json!({})).await;
    let claim = |worker: &str, seconds: u32| {
        let ask = json!({ "effects": ["pay.charge"], "worker": worker, "wait_seconds": seconds });
        let node = &node;
        async move { node.ask(Method::POST, "acme", "/v1/work/claim", &ask).await.1 }
    };
    let job = claim("dead", 20).await["jobs"][0].clone();
    assert_eq!(job["number"], 1, "{job}");
    // The other waits for work until the first claim has expired, and longer.
    let (nothing, task) = tokio::join!(claim("alive", 1), question(&node, "acme", "o-1"));
    assert_eq!(nothing, json!({ "jobs": [] }));
    assert!(task["data"]["failure"].to_string().contains("the worker dead took it"), "{task}");
    let late = json!({ "claim": job["claim"], "result": "succeeded" });
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    assert_eq!(node.ask(Method::POST, "acme", &path, &late).await.0, StatusCode::CONFLICT);
    says(&node, "acme", &task, "Done", json!({ "receipt": 1 })).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}
