//! External workers: claims, crashes, late and duplicate results; and a worker in Python.

use std::process::Command;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use orlog_model::Timestamp;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};
use crate::harness::process::Killed;

pub(crate) fn worker_config(more: &str) -> String {
    format!("kind = \"worker\"\neffects = [\"pay.charge\"]\n{more}")
}

async fn post(node: &Node, path: &str, body: &Value) -> (StatusCode, Value) {
    node.ask(Method::POST, "acme", path, body).await
}

async fn claim(node: &Node, worker: &str) -> Value {
    let request = json!({ "effects": ["pay.charge"], "worker": worker, "wait_seconds": 20 });
    let (status, response) = post(node, "/v1/work/claim", &request).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    response["jobs"]
        .as_array()
        .unwrap()
        .first()
        .cloned()
        .unwrap_or_default()
}

fn at(job: &Value, action: &str) -> String {
    format!("/v1/work/jobs/{}/{action}", job["job"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_claims_logs_heartbeats_and_completes_once() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    node.pay("acme", "o-1", json!({"amount": 7})).await;
    let job = claim(&node, "w-1").await;
    assert_eq!(
        (
            &job["effect"],
            &job["payload"]["amount"],
            &job["claim_count"]
        ),
        (&json!("pay.charge"), &json!(7), &json!(1))
    );
    let claim = &job["claim"];
    let (status, _) = post(
        &node,
        &at(&job, "logs"),
        &json!({ "claim": claim, "log": ["half way"] }),
    )
    .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(job["heartbeat_interval_seconds"], json!(120.0));
    // A heartbeat extends the claim by its full duration, also when some of it has passed.
    let (claimed_at, full) = (node.app.clock.now(), Duration::from_mins(5));
    loop {
        let now = node.app.clock.now();
        let (status, extended) =
            post(&node, &at(&job, "heartbeat"), &json!({ "claim": claim })).await;
        assert_eq!(status, StatusCode::OK);
        let until = Timestamp::parse(extended["expires_at"].as_str().unwrap()).unwrap();
        assert!(
            until
                >= now
                    .saturating_add(full)
                    .saturating_sub(Duration::from_millis(10)),
            "{until}"
        );
        if now.duration_since(claimed_at) > Duration::from_millis(50) {
            break;
        }
    }
    let (_, seen) = node
        .ask(Method::GET, "acme", "/v1/work", &Value::Null)
        .await;
    assert_eq!(
        (
            &seen["items"][0]["worker"],
            &seen["items"][0]["log"][0]["text"]
        ),
        (&json!("w-1"), &json!("half way"))
    );
    let (_, others) = node
        .ask(Method::GET, "beta", "/v1/work", &Value::Null)
        .await;
    assert_eq!(others, json!({ "items": [], "next_cursor": null }));
    let result = json!({ "claim": claim, "result": "succeeded", "payload": { "receipt": 1 } });
    assert_eq!(
        post(&node, &at(&job, "result"), &result).await,
        (StatusCode::OK, json!({ "duplicate": false }))
    );
    assert_eq!(
        post(&node, &at(&job, "result"), &result).await,
        (StatusCode::OK, json!({ "duplicate": true }))
    );
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Requirements: S3.
#[tokio::test(flavor = "multi_thread")]
async fn expired_claim_is_reassigned_and_late_result_is_rejected() {
    let node = Node::start(&[("pay", &worker_config("claim_ttl = \"300ms\""))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let dead = claim(&node, "dead").await;
    let next = claim(&node, "alive").await;
    assert_eq!(
        (&next["job"], &next["claim_count"]),
        (&dead["job"], &json!(2))
    );
    let late = json!({ "claim": dead["claim"], "result": "failed", "code": "late" });
    let (status, problem) = post(&node, &at(&dead, "result"), &late).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("OR0030"))
    );
    let result = json!({ "claim": next["claim"], "result": "succeeded" });
    assert_eq!(
        post(&node, &at(&next, "result"), &result).await.0,
        StatusCode::OK
    );
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Requirements: S4.
#[tokio::test(flavor = "multi_thread")]
async fn worker_survives_node_restart_and_reload() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let job = claim(&node, "w-1").await;
    node.dirs()
        .describe("pay", &worker_config("claim_ttl = \"9m\""));
    assert_eq!(node.reload().await.0, StatusCode::OK);
    assert_eq!(
        post(
            &node,
            &at(&job, "heartbeat"),
            &json!({ "claim": job["claim"] })
        )
        .await
        .0,
        StatusCode::OK
    );
    let node = node.stop().await.start().await;
    let result = json!({ "claim": job["claim"], "result": "succeeded" });
    let accepted = async {
        while post(&node, &at(&job, "result"), &result).await.0 == StatusCode::CONFLICT {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, accepted)
        .await
        .expect("the job hangs there again");
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread")]
async fn job_that_no_worker_has_claimed_does_not_hold_a_drain() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let timeout = Duration::from_secs(2);
    let node = dirs
        .start_with(|config| config.drain.timeout = timeout)
        .await;
    node.pay("acme", "o-1", json!({})).await;
    // No commit follows the post of a job on its board.
    let posted = async || {
        let (_, page) = node
            .ask(Method::GET, "acme", "/v1/work", &Value::Null)
            .await;
        page["items"][0]["job"].is_string().then_some(())
    };
    until("the job is on the board", posted).await;
    assert!(node.app.drain().await, "the job waits in the store");

    let node = node.stop().await;
    let node = node
        .start_with(|config| config.drain.timeout = timeout)
        .await;
    let job = claim(&node, "w").await;
    assert!(job["job"].is_string(), "the job is offered again");
    assert!(!node.app.drain().await, "a worker executes the job");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_result_is_final_and_retry_keeps_the_key() {
    let node = Node::start(&[("pay", &worker_config("backoff = { initial = \"1ms\" }"))]).await;
    node.pay("acme", "o-1", json!({})).await;
    let first = claim(&node, "w").await;
    let retry =
        json!({ "claim": first["claim"], "result": "retry", "code": "tired", "message": "later" });
    assert_eq!(
        post(&node, &at(&first, "result"), &retry).await.0,
        StatusCode::OK
    );
    let second = claim(&node, "w").await;
    assert_eq!(second["job"], first["job"]);
    let failed = json!({ "claim": second["claim"], "result": "failed", "code": "no_film", "message": "empty" });
    assert_eq!(
        post(&node, &at(&second, "result"), &failed).await.0,
        StatusCode::OK
    );
    let saga = node.end("acme", "o-1").await;
    assert!(
        saga["status"] == "failed" && saga.to_string().contains("no_film"),
        "{saga}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_effect_is_rejected() {
    let node = Node::start(&[("pay", &worker_config("tenants = [\"acme\"]"))]).await;
    let request = |effect: &str| json!({ "effects": [effect], "worker": "w", "wait_seconds": 0 });
    assert_eq!(
        post(&node, "/v1/work/claim", &request("other.do")).await.0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        post(&node, "/v1/work/claim", &request("pay.charge")).await,
        (StatusCode::OK, json!({ "jobs": [] }))
    );
    let (status, _) = node
        .ask(
            Method::POST,
            "beta",
            "/v1/work/claim",
            &request("pay.charge"),
        )
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn python_workers_complete_jobs() {
    for worker in ["worker.py", "stream.py"] {
        run_python(worker).await;
    }
}

async fn run_python(worker: &str) {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let node = dirs.start().await;
    let script = format!(
        "{}/examples/workers/python/{worker}",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut python = Command::new("python3");
    python
        .args([&script, "pay.charge"])
        .env("ORLOG_URL", node.serve().await)
        .env("ORLOG_TENANT", "acme");
    let _running = Killed::start(&mut python);
    for order in ["o-1", "o-2", "o-3"] {
        node.pay("acme", order, json!({})).await;
    }
    for order in ["o-1", "o-2", "o-3"] {
        assert_eq!(node.end("acme", order).await["status"], "completed");
    }
}

/// A node that restarts does not receive a result: the worker sends it again, because the work is
/// done.
#[tokio::test(flavor = "multi_thread")]
async fn python_workers_send_a_result_until_it_is_stored() {
    for worker in [
        "examples/workers/python/worker.py",
        "src/cli/init/jobs/worker.py",
    ] {
        let node = HttpUpstream::open().await;
        let job = json!({
            "job": "j-1", "claim": "c-1", "heartbeat_interval_seconds": 600.0, "payload": {},
            "effect": "video.delete", "saga": "film", "correlation": "f-1",
        });
        node.script(200, &[], &json!({ "jobs": [job] }).to_string());
        if worker.starts_with("examples") {
            // The log line of its job.
            node.script(200, &[], "");
        }
        node.script(503, &[], "the node is stopping");
        node.script(200, &[], "{\"duplicate\": false}");

        let mut python = Command::new("python3");
        python
            .args([
                &*format!("{}/{worker}", env!("CARGO_MANIFEST_DIR")),
                "video.delete",
            ])
            .env("ORLOG_URL", &node.url);
        let _running = Killed::start(&mut python);

        let results = until("the worker sends the result twice", async || {
            let mut received = node.received();
            received.retain(|request| request.uri.path() == "/v1/work/jobs/j-1/result");
            (received.len() >= 2).then_some(received)
        })
        .await;
        assert_eq!(results[0].body, results[1].body, "{worker}");
        let result: Value = serde_json::from_slice(&results[1].body).unwrap();
        assert_eq!(result["result"], "succeeded", "{worker}");
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
async fn worker_facts_are_published_once() {
    let dirs = Dirs::new(&[("pay", &worker_config("facts = [\"PointsEarned\"]"))]);
    std::fs::write(dirs.path("definitions").join("points.saga.yaml"), POINTS).unwrap();
    let node = dirs.start().await;
    node.pay("acme", "o-1", json!({})).await;
    let job = claim(&node, "w-1").await;
    let facts = json!([{ "type": "PointsEarned", "data": { "card": "4711", "points": 3 } }]);
    let result =
        json!({ "claim": job["claim"], "result": "failed", "code": "declined", "facts": facts });
    assert_eq!(
        post(&node, &at(&job, "result"), &result).await.0,
        StatusCode::OK
    );
    post(&node, &at(&job, "result"), &result).await;
    let payment = node.end("acme", "o-1").await;
    assert_eq!(payment["status"], "failed");
    let published = payment["history"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|record| {
            let work = record["work"].as_array().unwrap().iter();
            work.filter(|work| work["label"] == "PointsEarned")
                .map(|work| work["id"].clone())
                .collect::<Vec<_>>()
        });
    assert_eq!(published.count(), 1, "{payment}");
    let points = node
        .until("acme", "/v1/sagas/points/4711", |saga| {
            saga["status"] == "running"
        })
        .await;
    assert_eq!(points["state"]["vars"]["points"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_with_a_fact_that_its_upstream_does_not_declare_is_rejected() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    std::fs::write(dirs.path("definitions").join("points.saga.yaml"), POINTS).unwrap();
    let node = dirs.start().await;
    node.pay("acme", "o-1", json!({})).await;
    let job = claim(&node, "w-1").await;
    let facts = json!([{ "type": "PointsEarned", "data": { "card": "4711", "points": 3 } }]);
    let mut result = json!({ "claim": job["claim"], "result": "succeeded", "facts": facts });
    let (status, problem) = post(&node, &at(&job, "result"), &result).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("add the type to facts"),
        "{problem}"
    );
    result["facts"] = json!([]);
    let (status, _) = post(&node, &at(&job, "result"), &result).await;
    assert_eq!(status, StatusCode::OK, "the worker still has the claim");
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Requirements: S3.
#[tokio::test(flavor = "multi_thread")]
async fn fetched_jobs_are_claimed_by_their_ids() {
    let node = Node::start(&[("pay", &worker_config("max_batch = 2"))]).await;
    let fetch = async || {
        let request = json!({ "effects": ["pay.charge"], "worker": "w-1", "wait_seconds": 20 });
        let (status, response) = post(&node, "/v1/work/fetch", &request).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        response["jobs"].as_array().unwrap().clone()
    };
    for order in ["o-1", "o-2", "o-3"] {
        node.pay("acme", order, json!({ "amount": 7 })).await;
    }
    let all_posted = async || {
        let listed = node.get_as("acme", "/v1/work").await;
        listed["items"]
            .as_array()
            .is_some_and(|jobs| jobs.len() == 3)
            .then_some(listed)
    };
    let listed = orlog_testkit::wait::until("the jobs", all_posted).await;
    let jobs = fetch().await;
    assert_eq!(jobs.len(), 2, "`max_batch` jobs are fetched");
    assert_eq!(
        (&jobs[0]["job"], &jobs[0]["claim_count"]),
        (&listed["items"][0]["job"], &json!(0))
    );
    assert_eq!(
        (&jobs[0]["payload"]["amount"], &jobs[0]["claim"]),
        (&json!(7), &Value::Null)
    );
    assert_eq!(fetch().await, jobs, "a fetch claims nothing");
    let worker = json!({ "worker": "w-1" });
    let (status, second) = post(&node, &at(&jobs[1], "claim"), &worker).await;
    assert_eq!(
        (status, &second["job"]),
        (StatusCode::OK, &jobs[1]["job"]),
        "{second}"
    );
    let (status, problem) = post(&node, &at(&jobs[1], "claim"), &json!({ "worker": "w-2" })).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("OR0030")),
        "{problem}"
    );
    let (status, _) = node
        .ask(Method::POST, "beta", &at(&jobs[0], "claim"), &worker)
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "a job of another tenant");
    assert_eq!(fetch().await[0], jobs[0]);
    let result = json!({ "claim": second["claim"], "result": "succeeded" });
    assert_eq!(
        post(&node, &at(&second, "result"), &result).await.0,
        StatusCode::OK
    );
    let order = second["correlation"].as_str().unwrap();
    assert_eq!(node.end("acme", order).await["status"], "completed");
}

/// Requirements: F4.
#[tokio::test(flavor = "multi_thread")]
async fn job_is_started_when_a_worker_claims_it() {
    const FILM: &str = "saga: film\nversion: 1\ncorrelate: orderId\nstart: PaymentAsked\nsteps:\n\
        \x20 - { id: cut, do: { job: { type: python, script: 'cut()' } } }\n\
        \x20 - { id: send, do: { job: { type: python, script: 'send()', prerequisites: [cut] } } }\n";
    let dirs = Dirs::new(&[("jobs", "kind = \"worker\"\neffects = [\"job.python\"]\n")]);
    dirs.define("payment", FILM);
    let node = dirs.start().await;
    node.pay("acme", "o-1", json!({})).await;
    let flow = async |status: &str, cut: &str| {
        let is_so = |saga: &Value| {
            let flow = &saga["state"]["flow"];
            flow["status"] == status && flow["jobs"]["cut"] == cut
        };
        node.until("acme", "/v1/sagas/film/o-1", is_so).await["state"].clone()
    };
    let state = flow("dispatched", "dispatched").await;
    assert_eq!(state["flow"]["jobs"]["send"], "waiting_for_prerequisites");
    assert_eq!(
        (&state["steps"][0]["state"], &state["steps"][0]["job"]),
        (&json!("running"), &json!("dispatched"))
    );
    let request = json!({ "effects": ["job.python"], "worker": "w-1", "wait_seconds": 20 });
    let (_, response) = post(&node, "/v1/work/claim", &request).await;
    assert_eq!(
        flow("started", "started").await["steps"][0]["job"],
        "started"
    );
    let job = &response["jobs"][0];
    let result = json!({ "claim": job["claim"], "result": "succeeded" });
    assert_eq!(
        post(&node, &at(job, "result"), &result).await.0,
        StatusCode::OK
    );
    assert_eq!(
        flow("started", "finished").await["flow"]["jobs"]["send"],
        "dispatched"
    );
}
