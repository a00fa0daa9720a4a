//! In doubt: after a lost response or a crash of the node, the saga asks an operator before it repeats
//! an effect.

use axum::http::{Method, StatusCode};
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

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

/// Returns the directories of a node with one upstream, whose saga uses the policy `ask`.
fn dirs(upstream: &str) -> Dirs {
    let dirs = Dirs::new(&[("pay", upstream)]);
    std::fs::write(dirs.path("definitions").join("payment.saga.yaml"), CAREFUL).unwrap();
    dirs
}

fn http(shop: &HttpUpstream) -> String {
    // The upstream default would retry.
    let policy = "in_doubt = \"retry\"\nbackoff = { initial = \"1ms\", max = \"1ms\" }";
    format!(
        "base_url = {:?}\n{policy}\n[effects.\"pay.charge\"]\npath = \"/charges\"\n",
        shop.url
    )
}

/// Waits for the task about a payment in doubt and returns it.
async fn question(node: &Node, tenant: &str, order: &str) -> Value {
    let path = format!("/v1/tasks?correlation={order}");
    let task = until("a person is asked", async || {
        let (_, tasks) = node.ask(Method::GET, tenant, &path, &Value::Null).await;
        tasks["items"].as_array()?.first().cloned()
    })
    .await;
    assert_eq!(
        task["title"], "Was pay.charge done? (step charge)",
        "{task}"
    );
    task
}

async fn complete_task(node: &Node, tenant: &str, task: &Value, outcome: &str, data: Value) {
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let body = json!({ "user": "carl", "outcome": outcome, "data": data });
    let (status, body) = node.ask(Method::POST, tenant, &path, &body).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_effect_confirmed_as_done_is_not_repeated() {
    let shop = HttpUpstream::open().await;
    shop.script(500, &[], "the database is gone");
    let node = dirs(&http(&shop)).start().await;
    node.pay("", "o-1", json!({ "amount": 7 })).await;
    let task = question(&node, "", "o-1").await;
    let key = shop.received()[0].header("idempotency-key").to_owned();
    let data = &task["data"];
    assert_eq!(
        (&data["effect"], &data["payload"]["amount"]),
        (&json!("pay.charge"), &json!(7)),
        "{task}"
    );
    let failure = &data["failure"];
    assert_eq!(failure["code"], "in_doubt");
    assert!(
        failure["message"].as_str().unwrap().contains(&key),
        "what to look for: {failure}"
    );
    let (_, saga) = node
        .ask(Method::GET, "", "/v1/sagas/payment/o-1", &Value::Null)
        .await;
    assert_eq!(
        (&saga["status"], &saga["state"]["steps"][0]["state"]),
        (&json!("running"), &json!("in_doubt"))
    );
    complete_task(&node, "", &task, "Executed", json!({ "receipt": "r-1" })).await;
    let saga = node.end("", "o-1").await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-1"))
    );
    assert_eq!(shop.received().len(), 1, "it was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_doubt_effect_reported_as_not_done_runs_under_a_new_key() {
    let shop = HttpUpstream::open().await;
    shop.script(500, &[], "");
    shop.script(200, &[], r#"{"receipt": "r-2"}"#);
    let node = dirs(&http(&shop)).start().await;
    node.pay("", "o-1", json!({})).await;
    let task = question(&node, "", "o-1").await;
    complete_task(&node, "", &task, "NotExecuted", Value::Null).await;
    let saga = node.end("", "o-1").await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-2"))
    );
    let received = shop.received();
    assert_eq!(received.len(), 2);
    assert_ne!(
        received[0].header("idempotency-key"),
        received[1].header("idempotency-key")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_during_an_attempt_opens_an_in_doubt_task() {
    let shop = HttpUpstream::open().await;
    shop.permits.forget_permits(1_000_000);
    let node = dirs(&http(&shop)).start().await;
    node.pay("", "o-1", json!({})).await;
    shop.wait_for_requests(1).await;
    let node = node.stop().await.start().await;
    let task = question(&node, "", "o-1").await;
    let message = task["data"]["failure"]["message"].as_str().unwrap();
    assert!(
        message.contains("the process stopped while an attempt was in flight"),
        "{task}"
    );
    // The task survives the next restart.
    let node = node.stop().await.start().await;
    assert_eq!(question(&node, "", "o-1").await["id"], task["id"]);
    complete_task(&node, "", &task, "Executed", json!({ "receipt": "r-3" })).await;
    let saga = node.end("", "o-1").await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-3"))
    );
    assert_eq!(shop.received().len(), 1, "it was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_worker_opens_an_in_doubt_task_and_the_job_is_not_reassigned() {
    let upstream = "kind = \"worker\"\neffects = [\"pay.charge\"]\nclaim_ttl = \"100ms\"\nbackoff = { initial = \"1ms\" }\n";
    let node = dirs(upstream).start().await;
    node.pay("acme", "o-1", json!({})).await;
    let claim = |worker: &str, seconds: u32| {
        let request =
            json!({ "effects": ["pay.charge"], "worker": worker, "wait_seconds": seconds });
        let node = &node;
        async move {
            node.ask(Method::POST, "acme", "/v1/work/claim", &request)
                .await
                .1
        }
    };
    let job = claim("dead", 20).await["jobs"][0].clone();
    assert_eq!(job["claim_count"], 1, "{job}");
    // The other claim waits for work until the first claim has expired, and longer.
    let (nothing, task) = tokio::join!(claim("alive", 1), question(&node, "acme", "o-1"));
    assert_eq!(nothing, json!({ "jobs": [] }));
    assert!(
        task["data"]["failure"]
            .to_string()
            .contains("worker dead claimed it and sent"),
        "{task}"
    );
    let late = json!({ "claim": job["claim"], "result": "succeeded" });
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    assert_eq!(
        node.ask(Method::POST, "acme", &path, &late).await.0,
        StatusCode::CONFLICT
    );
    complete_task(&node, "acme", &task, "Executed", json!({ "receipt": 1 })).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Returns an upstream whose effect has a probe, and forbids a retry in doubt.
fn probed(shop: &HttpUpstream) -> String {
    format!(
        "{}[effects.\"pay.charge\".probe]\npath = \"/charges/{{@id}}\"\nresponses = [\n\
         {{ status = 200, result = \"executed\" }},\n{{ status = 404, result = \"not_executed\" }},\n]\n",
        http(shop)
    )
}

/// The node stops while the upstream holds the response to an attempt, and starts again. Returns the requests in their
/// order, without those of the first attempt.
async fn crash_with_probe(responses: &[(u16, &str)]) -> (Value, Vec<String>) {
    let shop = HttpUpstream::open().await;
    shop.permits.forget_permits(1_000_000);
    shop.script(200, &[], r#"{"receipt": "lost"}"#);
    let node = dirs(&probed(&shop)).start().await;
    node.pay("", "o-1", json!({})).await;
    let key = shop.wait_for_requests(1).await[0]
        .header("idempotency-key")
        .to_owned();
    let dirs = node.stop().await;
    for (status, body) in responses {
        shop.script(*status, &[], body);
    }
    shop.permits.add_permits(1_000);
    let node = dirs.start().await;
    let saga = node.end("", "o-1").await;
    let requests = shop.received().into_iter().skip(1);
    let requests = requests.map(|received| {
        assert!(
            !received.uri.path().ends_with("/charges") || received.header("idempotency-key") == key
        );
        format!(
            "{} {}",
            received.method,
            received.uri.path().replace(&key, "{key}")
        )
    });
    (saga, requests.collect())
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn executed_attempt_is_found_after_a_crash_and_asks_no_one() {
    let (saga, requests) = crash_with_probe(&[(200, r#"{"receipt": "r-7"}"#)]).await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-7"))
    );
    assert_eq!(requests, ["GET /charges/{key}"]);
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn unexecuted_attempt_is_repeated_after_a_crash_and_asks_no_one() {
    let responses = [
        (503, "wait"),
        (404, "no such charge"),
        (200, r#"{"receipt": "r-8"}"#),
    ];
    let (saga, requests) = crash_with_probe(&responses).await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-8"))
    );
    assert_eq!(
        requests,
        ["GET /charges/{key}", "GET /charges/{key}", "POST /charges"]
    );
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn worker_that_probes_resolves_a_job_in_doubt_after_a_crash() {
    let upstream = "kind = \"worker\"\neffects = [\"pay.charge\"]\nprobes = true\nclaim_ttl = \"1s\"\nbackoff = { initial = \"1ms\" }\n";
    let node = dirs(upstream).start().await;
    let claim = async |node: &Node, probes: bool, seconds: u32| {
        let request = json!({ "effects": ["pay.charge"], "worker": "w", "wait_seconds": seconds, "probes": probes });
        node.ask(Method::POST, "acme", "/v1/work/claim", &request)
            .await
            .1["jobs"][0]
            .clone()
    };
    let report = async |node: &Node, job: &Value, result: Value| {
        let mut body = result;
        body["claim"] = job["claim"].clone();
        let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
        node.ask(Method::POST, "acme", &path, &body).await
    };
    for order in ["o-1", "o-2"] {
        node.pay("acme", order, json!({})).await;
        let first = claim(&node, false, 20).await;
        assert_eq!(
            (&first["correlation"], &first["in_doubt"]),
            (&json!(order), &json!(false))
        );
    }
    let node = node.stop().await.start().await;
    assert_eq!(
        claim(&node, false, 0).await,
        Value::Null,
        "a worker that does not probe receives no job in doubt"
    );
    let found = claim(&node, true, 20).await;
    assert_eq!(found["in_doubt"], true, "{found}");
    report(
        &node,
        &found,
        json!({ "result": "succeeded", "payload": { "receipt": "r-9" } }),
    )
    .await;
    let order = found["correlation"].as_str().unwrap();
    let saga = node.end("acme", order).await;
    assert_eq!(
        (&saga["status"], &saga["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-9"))
    );
    let unclear = claim(&node, true, 20).await;
    let other = unclear["correlation"].as_str().unwrap();
    assert_ne!(other, order);
    report(
        &node,
        &unclear,
        json!({ "result": "unknown", "code": "ledger", "message": "the ledger is gone" }),
    )
    .await;
    let task = question(&node, "acme", other).await;
    assert!(
        task["data"]["failure"]
            .to_string()
            .contains("the ledger is gone"),
        "{task}"
    );
}
