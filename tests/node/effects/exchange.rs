//! Exchanges of workers: batches of reports and jobs in one request, and their acknowledgements.

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use orlog_model::Timestamp;
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::effects::node::{Dirs, Node};
use crate::effects::workers::worker_config;

pub(crate) const PATH: &str = "/v1/work/exchange";

/// Sends an exchange, and returns the response.
async fn exchange(node: &Node, body: &Value) -> Value {
    let (status, response) = node.ask(Method::POST, "acme", PATH, body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    response
}

/// Exchange of a worker that accepts jobs.
pub(crate) fn accepting(worker: &str, credit: usize, wait: u64) -> Value {
    json!({ "worker": worker, "effects": ["pay.charge"], "credit": credit, "wait_seconds": wait })
}

pub(crate) fn succeeded(job: &Value) -> Value {
    json!({ "job": job["job"], "claim": job["claim"], "result": "succeeded", "payload": { "receipt": 1 } })
}

pub(crate) fn jobs(response: &Value) -> Vec<Value> {
    response["jobs"].as_array().unwrap().clone()
}

fn statuses(acks: &Value) -> Vec<&str> {
    acks.as_array()
        .unwrap()
        .iter()
        .map(|ack| ack["status"].as_str().unwrap())
        .collect()
}

/// Starts payments one after another: the board has their jobs in this order.
pub(crate) async fn post_jobs(node: &Node, orders: &[&str]) {
    for order in orders {
        let before = board(node).await.len();
        node.pay("acme", order, json!({})).await;
        let posted = async {
            while board(node).await.len() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, posted)
            .await
            .expect("the job is on the board");
    }
}

/// Returns the jobs on the board.
pub(crate) async fn board(node: &Node) -> Vec<Value> {
    let (_, board) = node
        .ask(Method::GET, "acme", "/v1/work", &Value::Null)
        .await;
    board["items"].as_array().unwrap().clone()
}

/// Returns the status of a payment at this moment.
pub(crate) async fn status_of(node: &Node, order: &str) -> Value {
    let path = format!("/v1/sagas/payment/{order}");
    node.ask(Method::GET, "acme", &path, &Value::Null).await.1["status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_carries_reports_and_jobs_within_the_credit() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    post_jobs(&node, &["o-1", "o-2", "o-3", "o-4"]).await;
    let claimed = jobs(&exchange(&node, &accepting("w-1", 3, 0)).await);
    let orders: Vec<_> = claimed
        .iter()
        .map(|job| job["correlation"].as_str().unwrap())
        .collect();
    assert_eq!(
        orders,
        ["o-1", "o-2", "o-3"],
        "the oldest first, and no more than the credit"
    );
    let mut body = accepting("w-1", 5, 0);
    body["results"] = json!([succeeded(&claimed[0]), succeeded(&claimed[1])]);
    body["heartbeats"] = json!([{ "job": claimed[2]["job"], "claim": claimed[2]["claim"] }]);
    // The lines are applied before the result of the same job.
    body["logs"] =
        json!([{ "job": claimed[0]["job"], "claim": claimed[0]["claim"], "log": ["a", "b"] }]);
    let response = exchange(&node, &body).await;
    assert_eq!(
        response["results"],
        json!([
            { "job": claimed[0]["job"], "status": "accepted" },
            { "job": claimed[1]["job"], "status": "accepted" },
        ])
    );
    // The response was sent when the results were durable.
    for order in ["o-1", "o-2"] {
        assert_eq!(status_of(&node, order).await, "completed", "{order}");
    }
    let extended = &response["heartbeats"][0];
    assert_eq!(extended["status"], "accepted");
    // Not compared with the expiry of the claim: both are converted to wall clock time, a millisecond apart.
    let until = Timestamp::parse(extended["expires_at"].as_str().unwrap()).unwrap();
    assert!(until > node.app.clock.now(), "{extended}");
    assert_eq!(statuses(&response["logs"]), ["accepted"]);
    let logs = node.get_as("acme", "/v1/sagas/payment/o-1/job-logs").await;
    let lines = logs["items"][0]["log"].as_array().unwrap();
    assert_eq!(
        lines.iter().map(|line| &line["text"]).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(jobs(&response).len(), 1);
    assert_eq!(jobs(&response)[0]["correlation"], "o-4");
    assert_eq!(
        exchange(&node, &json!({})).await["jobs"],
        json!([]),
        "without credit there are no jobs"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_report_has_its_own_status() {
    let node = Node::start(&[("pay", &worker_config("claim_ttl = \"300ms\""))]).await;
    post_jobs(&node, &["o-1"]).await;
    let dead = jobs(&exchange(&node, &accepting("dead", 1, 0)).await).remove(0);
    // The claim expires, and the request that waits receives the job.
    let alive = jobs(&exchange(&node, &accepting("alive", 1, 20)).await).remove(0);
    assert_eq!(
        (&alive["job"], &alive["claim_count"]),
        (&dead["job"], &json!(2))
    );
    let mut misspelled = succeeded(&alive);
    misspelled["paylod"] = json!(1);
    let results = [
        succeeded(&dead),
        succeeded(
            &json!({ "job": "0190f3a0-0000-7000-8000-000000000000", "claim": alive["claim"] }),
        ),
        misspelled,
        json!({ "claim": alive["claim"], "result": "succeeded" }),
        json!("text"),
        json!([alive["claim"], "succeeded"]),
        json!({ "job": alive["job"], "claim": alive["claim"], "result": "done" }),
        succeeded(&alive),
        succeeded(&alive),
    ];
    let body = json!({
        "results": results,
        "heartbeats": [{ "job": dead["job"], "claim": dead["claim"] }],
        "logs": [{ "job": dead["job"], "claim": dead["claim"], "log": [] }],
    });
    let response = exchange(&node, &body).await;
    let expected = [
        "claim_lost",
        "claim_lost",
        "invalid",
        "invalid",
        "invalid",
        "invalid",
        "invalid",
        "accepted",
        "duplicate",
    ];
    assert_eq!(statuses(&response["results"]), expected, "{response}");
    let problem = |index: usize| &response["results"][index]["problem"];
    assert_eq!(
        (&problem(0)["code"], &problem(2)["code"]),
        (&json!("OR0030"), &json!("OR0002"))
    );
    assert!(
        problem(2)["detail"].as_str().unwrap().contains("paylod"),
        "{response}"
    );
    assert!(
        problem(3)["detail"].as_str().unwrap().contains("/job"),
        "{response}"
    );
    assert!(
        problem(6)["detail"].as_str().unwrap().contains("/result"),
        "{response}"
    );
    assert_eq!(statuses(&response["heartbeats"]), ["claim_lost"]);
    assert_eq!(statuses(&response["logs"]), ["claim_lost"]);
    let again = exchange(&node, &json!({ "results": [succeeded(&alive)] })).await;
    assert_eq!(statuses(&again["results"]), ["duplicate"]);
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
}

/// Requirements: S3.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_keep_a_claim_from_expiring() {
    let node = Node::start(&[("pay", &worker_config("claim_ttl = \"400ms\""))]).await;
    post_jobs(&node, &["o-1"]).await;
    let job = jobs(&exchange(&node, &accepting("w-1", 1, 0)).await).remove(0);
    let beat = json!({ "heartbeats": [{ "job": job["job"], "claim": job["claim"] }] });
    let claimed_at = node.app.clock.now();
    while node.app.clock.now().duration_since(claimed_at).as_millis() < 1000 {
        assert_eq!(
            statuses(&exchange(&node, &beat).await["heartbeats"]),
            ["accepted"]
        );
        assert_eq!(
            exchange(&node, &accepting("w-2", 1, 0)).await["jobs"],
            json!([])
        );
    }
    // Without heartbeats, the other worker receives the job.
    let next = jobs(&exchange(&node, &accepting("w-2", 1, 20)).await).remove(0);
    assert_eq!(
        (&next["job"], &next["claim_count"]),
        (&job["job"], &json!(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_exchange_wakes_on_a_new_job() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let body = accepting("w-1", 10, 25);
    let waiting = exchange(&node, &body);
    let (response, ()) = tokio::join!(waiting, node.pay("acme", "o-1", json!({})));
    assert_eq!(jobs(&response).len(), 1);
    // A retry is no durable result: the job comes back under its id.
    let job = &jobs(&response)[0];
    let mut body = accepting("w-1", 1, 25);
    body["results"] = json!([{ "job": job["job"], "claim": job["claim"], "result": "retry" }]);
    let response = exchange(&node, &body).await;
    assert_eq!(statuses(&response["results"]), ["accepted"]);
    assert_eq!(jobs(&response)[0]["job"], job["job"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workers_receive_each_job_once() {
    const ORDERS: usize = 30;
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    let orders: Vec<String> = (0..ORDERS).map(|number| format!("o-{number}")).collect();
    let work = async |worker: &str| {
        let (mut seen, mut body) = (Vec::new(), accepting(worker, 3, 1));
        while status_of(&node, &orders[ORDERS - 1]).await != "completed"
            || !board(&node).await.is_empty()
        {
            let claimed = jobs(&exchange(&node, &body).await);
            assert!(claimed.len() <= 3);
            body["results"] = claimed.iter().map(succeeded).collect();
            seen.extend(claimed.iter().map(|job| job["job"].to_string()));
        }
        exchange(&node, &body).await;
        seen
    };
    let pay = async {
        for order in &orders {
            node.pay("acme", order, json!({})).await;
        }
    };
    let (first, second, ()) = tokio::join!(work("w-1"), work("w-2"), pay);
    for order in &orders {
        assert_eq!(node.end("acme", order).await["status"], "completed");
    }
    let all: BTreeSet<_> = first.iter().chain(&second).collect();
    assert_eq!((all.len(), first.len() + second.len()), (ORDERS, ORDERS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_leaves_its_jobs_to_others() {
    let dirs = Dirs::new(&[("pay", &worker_config(""))]);
    let node = dirs
        .start_with(|config| config.http.per_caller.max_long_polls = 1)
        .await;
    let url = format!("{}{PATH}", node.serve().await);
    let client = crate::harness::http::client();
    let poll = move |wait: u64| {
        let request = client
            .post(&url)
            .header("x-tenant-id", "acme")
            .json(&accepting("w", 1, wait));
        async { request.send().await.unwrap().status() }
    };
    let first = poll.clone();
    // A poll below may have the only place for a moment.
    let waiting =
        tokio::spawn(async move { while first(25).await == StatusCode::TOO_MANY_REQUESTS {} });
    let is_waiting = async { while poll(1).await != StatusCode::TOO_MANY_REQUESTS {} };
    tokio::time::timeout(WAIT_TIMEOUT, is_waiting)
        .await
        .expect("the first client waits");
    waiting.abort();
    assert!(waiting.await.is_err());
    let has_left = async { while poll(1).await != StatusCode::OK {} };
    tokio::time::timeout(WAIT_TIMEOUT, has_left)
        .await
        .expect("the request of the first client has ended");
    node.pay("acme", "o-1", json!({})).await;
    let job = jobs(&exchange(&node, &accepting("w-2", 1, 25)).await).remove(0);
    assert_eq!(
        job["claim_count"], 1,
        "the client that left did not receive it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_separated_in_exchanges() {
    let node = Node::start(&[("pay", &worker_config(""))]).await;
    post_jobs(&node, &["o-1"]).await;
    let (_, response) = node
        .ask(Method::POST, "beta", PATH, &accepting("w", 9, 0))
        .await;
    assert_eq!(response["jobs"], json!([]));
    let job = jobs(&exchange(&node, &accepting("w", 9, 0)).await).remove(0);
    let body = json!({ "results": [succeeded(&job)] });
    let (_, stolen) = node.ask(Method::POST, "beta", PATH, &body).await;
    assert_eq!(statuses(&stolen["results"]), ["claim_lost"]);
    assert_eq!(
        statuses(&exchange(&node, &body).await["results"]),
        ["accepted"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_exchanges_are_rejected_as_a_whole() {
    let node = Node::start(&[("pay", &worker_config("tenants = [\"acme\"]"))]).await;
    post_jobs(&node, &["o-1"]).await;
    let job = jobs(&exchange(&node, &accepting("w", 1, 0)).await).remove(0);
    let lines = vec!["line"; 600];
    let log = json!({ "job": job["job"], "claim": job["claim"], "log": lines });
    for (body, code, text) in [
        (accepting("w", 1001, 0), "OR0008", "at most 1000"),
        (accepting("", 1, 0), "OR0008", "worker name"),
        (json!({ "credit": 1 }), "OR0008", "effects"),
        (
            json!({ "worker": "w", "effects": ["other.do"], "credit": 1 }),
            "OR0008",
            "upstream",
        ),
        (
            json!({ "results": vec![succeeded(&job); 1001] }),
            "OR0008",
            "at most 1000 reports",
        ),
        (json!({ "logs": [log, log] }), "OR0008", "lines"),
        (json!([null, null]), "OR0002", "an object"),
        (json!({ "credits": 1 }), "OR0002", "credits"),
        (json!({ "results": 1 }), "OR0002", "/results"),
    ] {
        let (status, problem) = node.ask(Method::POST, "acme", PATH, &body).await;
        assert!(
            status.is_client_error() && problem["code"] == code,
            "{body}: {problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(text),
            "{problem}"
        );
    }
    let (status, _) = node
        .ask(Method::POST, "beta", PATH, &accepting("w", 1, 0))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(status_of(&node, "o-1").await, "running");
}
