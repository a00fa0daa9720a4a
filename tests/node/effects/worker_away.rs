//! Workers that are away for an hour: their jobs wait, nothing else happens, and they drain the
//! queue when they return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use orlog::Config;
use orlog_model::Timestamp;
use orlog_testkit::SimClock;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::effects::node::{Dirs, Node, PAYMENT};
use crate::effects::workers::worker_config;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const TENANT: &str = "acme";
/// Events of one request, and jobs of one claim.
const BATCH: usize = 100;
const WORKERS: usize = 4;

/// Counters that a storm of retries or timeouts would raise.
#[derive(Debug, PartialEq)]
struct Activity {
    transitions: u64,
    dispatched: u64,
    timers_fired: u64,
    dead_letters: u64,
}

impl Activity {
    fn of(metrics: &str) -> Self {
        Self {
            transitions: sum(metrics, "orlog_transitions_committed_total"),
            dispatched: sum(metrics, "orlog_work_dispatched_total"),
            timers_fired: sum(metrics, "orlog_timers_fired_total"),
            dead_letters: sum(metrics, "orlog_dead_letters_created_total"),
        }
    }
}

/// Returns the sum of the series of a metric.
fn sum(metrics: &str, name: &str) -> u64 {
    metrics
        .lines()
        .filter(|line| line.starts_with(name))
        .map(|line| {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<u64>().expect("a count")
        })
        .sum()
}

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1024
}

async fn metrics(node: &Node) -> String {
    node.0.get("/metrics").await.text
}

async fn publish(node: &Node, from: usize, to: usize) {
    let events: Vec<Value> = (from..to)
        .map(|number| {
            let order = format!("o-{number}");
            json!({
                "specversion": "1.0", "id": order, "source": "urn:test", "type": "PaymentAsked",
                "data": { "orderId": order, "amount": 7 }
            })
        })
        .collect();
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/events")
        .header("content-type", "application/cloudevents-batch+json")
        .header("x-tenant-id", TENANT)
        .body(Body::from(json!(events).to_string()))
        .unwrap();
    let response = node.0.send(request).await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
}

async fn completed(node: &Node) -> u64 {
    sum(
        &metrics(node).await,
        "orlog_effects_completed_total{upstream=\"pay\",outcome=\"succeeded\"",
    )
}

/// Claims jobs and completes them until there is none for a second.
async fn work(node: Arc<Node>, name: String) -> Vec<String> {
    let mut executed = Vec::new();
    loop {
        let claim = json!({
            "effects": ["pay.charge"], "worker": name, "max": BATCH, "wait_seconds": 1
        });
        let (status, claimed) = node
            .ask(Method::POST, TENANT, "/v1/work/claim", &claim)
            .await;
        assert_eq!(status, StatusCode::OK, "{claimed}");
        let jobs = claimed["jobs"].as_array().unwrap();
        if jobs.is_empty() {
            return executed;
        }

        for job in jobs {
            assert_eq!(job["claim_count"], 1, "{job}");
            let id = job["job"].as_str().unwrap();
            let result = json!({ "claim": job["claim"], "result": "succeeded" });
            let path = format!("/v1/work/jobs/{id}/result");
            let (status, response) = node.ask(Method::POST, TENANT, &path, &result).await;
            assert_eq!(status, StatusCode::OK, "{response}");
            executed.push(id.to_owned());
        }
    }
}

/// Lets the simulated time pass as fast as the real one.
async fn tick(clock: Arc<SimClock>) {
    let step = Duration::from_millis(10);
    let mut steps = tokio::time::interval(step);
    loop {
        steps.tick().await;
        clock.advance(step);
    }
}

/// Lets an hour pass in steps of a second, each of which the node sees.
async fn pass_an_hour(clock: &SimClock) {
    for _ in 0..3600 {
        clock.advance(Duration::from_secs(1));
        // The woken tasks run before the next second.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

async fn jobs_wait_for_an_hour(jobs: usize) {
    let clock = SimClock::new(START);
    let dirs = Dirs::new(&[("pay", &worker_config(&format!("max_batch = {BATCH}")))]);
    // The step outlives the absence.
    dirs.define("payment", &format!("{PAYMENT}    timeout: 2h\n"));
    let wall = Arc::clone(&clock);
    let builder = dirs
        .builder(|_| {})
        .overrides(|overrides| overrides.clock = Some(wall));
    let node = Arc::new(Node(builder.start().await));
    let ticking = tokio::spawn(tick(Arc::clone(&clock)));

    for from in (0..jobs).step_by(BATCH) {
        publish(&node, from, jobs.min(from + BATCH)).await;
    }
    until("all jobs wait", async || {
        let text = metrics(&node).await;
        let waiting = sum(&text, "orlog_timers_armed");
        (waiting == jobs as u64).then_some(())
    })
    .await;

    // The board has room for one window of them; the others wait in the outbox.
    let window = Config::default().limits.max_in_flight_per_window;
    until("the board is filled", async || {
        let activity = Activity::of(&metrics(&node).await);
        (activity.dispatched == jobs.min(window) as u64).then_some(())
    })
    .await;
    let before = Activity::of(&metrics(&node).await);
    assert!(before.transitions >= jobs as u64, "{before:?}");
    let memory_before = resident_mib();
    pass_an_hour(&clock).await;
    let memory_after = resident_mib();
    assert_eq!(Activity::of(&metrics(&node).await), before);

    let returned = Instant::now();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(tokio::spawn(work(
            Arc::clone(&node),
            format!("worker-{number}"),
        )));
    }
    let mut executed = Vec::new();
    for worker in workers {
        executed.extend(worker.await.unwrap());
    }
    until("all results are applied", async || {
        (completed(&node).await == jobs as u64).then_some(())
    })
    .await;
    let drained = returned.elapsed();
    ticking.abort();

    executed.sort_unstable();
    executed.dedup();
    assert_eq!(executed.len(), jobs, "each job is executed once");
    let after = Activity::of(&metrics(&node).await);
    assert_eq!((after.timers_fired, after.dead_letters), (0, 0));
    println!(
        "{jobs} jobs waited an hour; resident {memory_before} MiB before, {memory_after} MiB \
         after, {} MiB after the drain of {:.1} s",
        resident_mib(),
        drained.as_secs_f64()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_an_absent_worker_wait_without_any_activity() {
    jobs_wait_for_an_hour(500).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long; make stress"]
async fn twenty_thousand_jobs_wait_for_an_absent_worker() {
    jobs_wait_for_an_hour(20_000).await;
}
