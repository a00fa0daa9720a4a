//! Workers outside the process: they claim, die, come late, come twice; and one written in Python does the work.

use std::process::{Child, Command, Stdio};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::node::{Folders, Node, PATIENCE};

fn board(more: &str) -> String {
    format!("kind = \"worker\"\neffects = [\"pay.charge\"]\n{more}")
}

async fn say(node: &Node, path: &str, body: &Value) -> (StatusCode, Value) {
    node.ask(Method::POST, "acme", path, body).await
}

async fn claim(node: &Node, worker: &str) -> Value {
    let ask = json!({ "effects": ["pay.charge"], "worker": worker, "wait_seconds": 20 });
    let (status, answer) = say(node, "/v1/work/claim", &ask).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["jobs"].as_array().unwrap().first().cloned().unwrap_or_default()
}

fn at(job: &Value, what: &str) -> String {
    format!("/v1/work/jobs/{}/{what}", job["job"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_claims_writes_lives_and_brings_a_result_that_counts_once() {
    let node = Node::start(&[("pay", &board(""))]).await;
    node.pay("acme", "o-1", json!({"amount": 7})).await;
    let job = claim(&node, "w-1").await;
    assert_eq!(
        (&job["effect"], &job["payload"]["amount"], &job["number"]),
        (&json!("pay.charge"), &json!(7), &json!(1))
    );
    let claim = &job["claim"];
    let (status, _) = say(&node, &at(&job, "lines"), &json!({ "claim": claim, "lines": ["half way"] })).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(say(&node, &at(&job, "heartbeat"), &json!({ "claim": claim })).await.0, StatusCode::OK);
    let (_, seen) = node.ask(Method::GET, "acme", "/v1/work", &Value::Null).await;
    assert_eq!(
        (&seen["items"][0]["worker"], &seen["items"][0]["lines"][0]["text"]),
        (&json!("w-1"), &json!("half way"))
    );
    let (_, others) = node.ask(Method::GET, "beta", "/v1/work", &Value::Null).await;
    assert_eq!(others, json!({ "items": [] }));
    let result = json!({ "claim": claim, "result": "succeeded", "payload": { "receipt": 1 } });
    assert_eq!(
        say(&node, &at(&job, "result"), &result).await,
        (StatusCode::OK, json!({ "duplicate": false }))
    );
    assert_eq!(
        say(&node, &at(&job, "result"), &result).await,
        (StatusCode::OK, json!({ "duplicate": true }))
    );
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_crashed_worker_goes_to_another_and_the_late_result_is_refused() {
    let node = Node::start(&[("pay", &board("claim = \"300ms\""))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let dead = claim(&node, "dead").await;
    let next = claim(&node, "alive").await;
    assert_eq!((&next["job"], &next["number"]), (&dead["job"], &json!(2)));
    let late = json!({ "claim": dead["claim"], "result": "failed", "code": "late" });
    let (status, problem) = say(&node, &at(&dead, "result"), &late).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("OR0030")));
    let result = json!({ "claim": next["claim"], "result": "succeeded" });
    assert_eq!(say(&node, &at(&next, "result"), &result).await.0, StatusCode::OK);
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_outlives_a_restart_and_a_reload_of_the_node() {
    let node = Node::start(&[("pay", &board(""))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let job = claim(&node, "w-1").await;
    node.folders().describe("pay", &board("claim = \"9m\""));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(say(&node, &at(&job, "heartbeat"), &json!({ "claim": job["claim"] })).await.0, StatusCode::OK);
    let node = node.stop().await.start().await;
    let result = json!({ "claim": job["claim"], "result": "succeeded" });
    let taken = async {
        while say(&node, &at(&job, "result"), &result).await.0 == StatusCode::CONFLICT {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("the job hangs there again");
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_fails_and_a_retry_comes_again_under_the_same_key() {
    let node = Node::start(&[("pay", &board("backoff = { first = \"1ms\" }"))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let first = claim(&node, "w").await;
    let retry = json!({ "claim": first["claim"], "result": "retry", "code": "tired", "message": "later" });
    assert_eq!(say(&node, &at(&first, "result"), &retry).await.0, StatusCode::OK);
    let second = claim(&node, "w").await;
    assert_eq!(second["job"], first["job"]);
    let failed =
        json!({ "claim": second["claim"], "result": "failed", "code": "no_film", "message": "empty" });
    assert_eq!(say(&node, &at(&second, "result"), &failed).await.0, StatusCode::OK);
    let saga = node.end("acme", "o-1").await;
    assert!(saga["status"] == "failed" && saga.to_string().contains("no_film"), "{saga}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_worker_performs_cannot_be_asked_for() {
    let node = Node::start(&[("pay", &board("tenants = [\"acme\"]"))]).await;
    let ask = |effect: &str| json!({ "effects": [effect], "worker": "w", "wait_seconds": 0 });
    assert_eq!(say(&node, "/v1/work/claim", &ask("other.do")).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(
        say(&node, "/v1/work/claim", &ask("pay.charge")).await,
        (StatusCode::OK, json!({ "jobs": [] }))
    );
    let (status, _) = node.ask(Method::POST, "beta", "/v1/work/claim", &ask("pay.charge")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_in_python_does_the_work() {
    let folders = Folders::new(&[("pay", &board(""))]);
    let node = folders.start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = node.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/workers/python/worker.py");
    let mut python = Command::new("python3");
    python
        .args([script, "pay.charge"])
        .env("ORLOG_URL", url)
        .env("ORLOG_TENANT", "acme")
        .stdin(Stdio::null());
    let _running = Running(python.spawn().expect("python3 is installed"));
    for order in ["o-1", "o-2", "o-3"] {
        node.pay("acme", order, json!({})).await;
    }
    for order in ["o-1", "o-2", "o-3"] {
        assert_eq!(node.end("acme", order).await["status"], "completed");
    }
}

const POINTS: &str = r"
saga: points
version: 1
correlate: card
start: PointsEarned
vars: { points: =event.points }
steps:
  - id: rest
    do: { wait: 1h }
";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_tells_besides_is_an_event_for_everybody_and_goes_out_once() {
    let folders = Folders::new(&[("pay", &board(""))]);
    std::fs::write(folders.path("definitions").join("points.saga.yaml"), POINTS).unwrap();
    let node = folders.start().await;
    node.pay("acme", "o-1", json!({})).await;
    let job = claim(&node, "w-1").await;
    let facts = json!([{ "type": "PointsEarned", "data": { "card": "4711", "points": 3 } }]);
    let result = json!({ "claim": job["claim"], "result": "failed", "code": "declined", "facts": facts });
    assert_eq!(say(&node, &at(&job, "result"), &result).await.0, StatusCode::OK);
    say(&node, &at(&job, "result"), &result).await;
    let payment = node.end("acme", "o-1").await;
    assert_eq!(payment["status"], "failed");
    let told = payment["history"]["items"].as_array().unwrap().iter().flat_map(|record| {
        let work = record["work"].as_array().unwrap().iter();
        work.filter(|work| work["label"] == "PointsEarned").map(|work| work["id"].clone()).collect::<Vec<_>>()
    });
    assert_eq!(told.count(), 1, "{payment}");
    let points = node.until("acme", "/v1/sagas/points/4711", |saga| saga["status"] == "running").await;
    assert_eq!(points["state"]["vars"]["points"], 3);
}
