//! Flows in a cluster: every pod serves the stream of the lines of a flow, also over a takeover.

use std::collections::BTreeSet;
use std::time::Duration;

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::pods::Pods;
use crate::cluster::within;

/// Number of flows, which have their instances in all shards.
const FLOWS: usize = 18;
const TENANT: &str = "t1";

async fn post(pods: &Pods, pod: &str, path: &str, body: &Value) -> Option<Value> {
    let request = pods.ask(pod, "POST", path).header("x-tenant-id", TENANT);
    let response = request
        .header("idempotency-key", "f-1")
        .json(body)
        .send()
        .await
        .ok()?;
    let text = if response.status().is_success() {
        response.text().await.ok()?
    } else {
        return None;
    };
    Some(serde_json::from_str(&text).unwrap_or_default())
}

/// Claims the job of the flow, and writes a line.
async fn work(pods: &Pods, pod: &str, line: &str) -> Value {
    let claim = json!({ "effects": ["job.sal"], "worker": "w", "wait_seconds": 1 });
    let claimed = until("the job is claimed", async || {
        post(pods, pod, "/v1/work/claim", &claim).await?["jobs"]
            .as_array()?
            .first()
            .cloned()
    });
    let job = claimed.await;
    write(pods, pod, &job, line).await;
    job
}

/// Writes a line of a claimed job.
async fn write(pods: &Pods, pod: &str, job: &Value, line: &str) {
    let path = format!("/v1/work/jobs/{}/logs", job["job"].as_str().unwrap());
    let body = json!({ "claim": job["claim"], "log": [line] });
    until("the line is accepted", async || {
        post(pods, pod, &path, &body).await
    })
    .await;
}

/// Tenant whose instances are distributed over the shards by their keys.
const KEY_SHARDED: &str = "big";

/// Sends a request of the key-sharded tenant; `None` without a success.
async fn send(
    pods: &Pods,
    pod: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Option<Value> {
    let request = pods
        .ask(pod, method, path)
        .header("x-tenant-id", KEY_SHARDED)
        .timeout(Duration::from_secs(30));
    let request = match body {
        Some(body) => request.json(body),
        None => request,
    };
    let response = request.send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let text = response.text().await.ok()?;
    Some(serde_json::from_str(&text).unwrap_or_default())
}

/// Requirements: F5, R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runner_of_one_pod_executes_the_jobs_of_all_pods() {
    let nats = NatsServer::start();
    within("jobs of all pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b", "c"]).await;
        let runner = json!({ "name": "r", "types": ["sal"], "capacity": 100 });
        send(&pods, "a", "POST", "/v1/runners", Some(&runner))
            .await
            .expect("the runner is registered");
        let listed = send(&pods, "c", "GET", "/v1/runners", None).await.unwrap();
        assert_eq!(listed["items"][0]["name"], "r", "at every pod");

        for number in 0..FLOWS {
            let flow = json!({ "jobs": [{ "id": "j", "type": "sal", "script": "x" }] });
            until("a flow is submitted", async || {
                let request = pods
                    .ask("b", "POST", "/v1/flows")
                    .header("x-tenant-id", KEY_SHARDED)
                    .header("idempotency-key", format!("f-{number}"));
                let response = request.json(&flow).send().await.ok()?;
                response.status().is_success().then_some(())
            })
            .await;
        }

        // The runner asks pod a only, and reports to pod c, as behind a load balancer.
        let claim = json!({ "effects": ["job.sal"], "worker": "r", "max": 1, "wait_seconds": 5 });
        let mut executed = BTreeSet::new();
        let mut extensions = 0;
        while executed.len() < FLOWS {
            let claimed = send(&pods, "a", "POST", "/v1/work/claim", Some(&claim)).await;
            let Some(job) = claimed.and_then(|claimed| claimed["jobs"].get(0).cloned()) else {
                continue;
            };
            let path = format!("/v1/work/jobs/{}", job["job"].as_str().unwrap());
            let heartbeat = format!("{path}/heartbeat");
            let claim = json!({ "claim": job["claim"] });
            let extended = send(&pods, "c", "POST", &heartbeat, Some(&claim)).await;
            extensions += usize::from(extended.is_some());
            let report = json!({ "results": [
                { "job": job["job"], "claim": job["claim"], "result": "succeeded", "payload": 7 },
            ] });
            let status = until("the result is stored, or the claim is lost", async || {
                let acks = send(&pods, "c", "POST", "/v1/work/exchange", Some(&report)).await?;
                let status = acks["results"][0]["status"].as_str()?.to_owned();
                (status != "not_stored").then_some(status)
            })
            .await;
            if status == "claim_lost" {
                // The shard has moved, and its next owner offers the job again.
                continue;
            }
            executed.insert(job["correlation"].as_str().unwrap().to_owned());
        }
        assert!(extensions > 0, "heartbeats reach the pod of their job");
        for number in 0..FLOWS {
            let path = format!("/v1/flows/f-{number}");
            until("the flow has finished", async || {
                let flow = send(&pods, "a", "GET", &path, None).await?;
                (flow["status"] == "finished").then_some(())
            })
            .await;
        }
    })
    .await;
}

/// Requirements: F4, R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_lines_continues_over_a_takeover_without_gap_and_repetition() {
    let nats = NatsServer::start();
    within("lines of a flow", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let flow = json!({ "jobs": [{ "id": "j", "type": "sal", "script": "x" }] });
        until("the flow is submitted", async || {
            post(&pods, "a", "/v1/flows", &flow).await
        })
        .await;
        // A stream is not forwarded: only the owner of the shard asks for the rest of the
        // handshake.
        let owns_shard = async |pod: &str| {
            let request = pods
                .ask(pod, "GET", "/v1/work/exchange")
                .header("x-tenant-id", TENANT)
                .header("connection", "upgrade")
                .header("upgrade", "websocket");
            request.send().await.unwrap().status() != 503
        };
        let (owner, other) = if owns_shard("a").await {
            ("a", "b")
        } else {
            ("b", "a")
        };
        assert!(!owns_shard(other).await);
        // A client cannot pretend that another pod has forwarded its request.
        let pretended = pods
            .ask(other, "GET", "/v1/flows/f-1/lines")
            .header("x-tenant-id", TENANT)
            .header("x-orlog-forwarded-by", owner)
            .send();
        assert!(pretended.await.unwrap().status().is_success());
        let request = pods
            .ask(other, "GET", "/v1/flows/f-1/lines")
            .header("x-tenant-id", TENANT);
        let followed = request
            .timeout(Duration::from_mins(2))
            .header("accept", "text/event-stream");
        let mut response = followed.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let (received, mut text) = watch::channel(String::new());
        let reading = tokio::spawn(async move {
            while let Ok(Some(piece)) = response.chunk().await {
                received.send_modify(|text| text.push_str(&String::from_utf8_lossy(&piece)));
            }
        });
        let job = work(&pods, other, "before").await;
        // The claim is valid on the next owner of the shard.
        until("the claim is stored", async || {
            let request = pods
                .ask(other, "GET", "/v1/inspect/job_claim")
                .header("x-tenant-id", TENANT);
            let rows = request.send().await.ok()?.text().await.ok()?;
            rows.contains("job_claim:").then_some(())
        })
        .await;
        drop(text.wait_for(|text| text.contains("before")).await.unwrap());
        pods.kill(owner);
        pods.wait_for_owners(&[other]).await;
        write(&pods, other, &job, "after").await;
        drop(text.wait_for(|text| text.contains("after")).await.unwrap());
        let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
        let result = json!({ "claim": job["claim"], "result": "succeeded" });
        post(&pods, other, &path, &result)
            .await
            .expect("the result is accepted");
        reading.await.unwrap();
        let text = text.borrow().clone();
        let events: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("event: ") || line.starts_with("id: "))
            .collect();
        assert_eq!(
            events,
            ["event: line", "id: 1", "event: line", "id: 2", "event: end"],
            "{text}"
        );
    })
    .await;
}
