//! Schedules in a cluster: another pod continues them, without a gap and without a repetition.

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::cluster::pods::Pods;
use crate::cluster::within;

/// Tenants whose shards belong to both pods.
const TENANTS: [&str; 4] = ["t1", "t2", "t3", "t4"];

async fn get(pods: &Pods, pod: &str, tenant: &str, path: &str) -> Option<Value> {
    let response = pods
        .ask(pod, "GET", path)
        .header("x-tenant-id", tenant)
        .send()
        .await
        .ok()?;
    if response.status().is_success() {
        response.json().await.ok()
    } else {
        None
    }
}

/// Waits until the schedule of each tenant has started this number of runs.
async fn until_started(pods: &Pods, pod: &str, runs: u64) {
    for tenant in TENANTS {
        let has_started = |schedule: &Value| schedule["started"].as_u64() >= Some(runs);
        let look = async || {
            get(pods, pod, tenant, "/v1/schedules/s")
                .await
                .filter(has_started)
        };
        drop(until(&format!("{runs} runs of {tenant}"), look).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_due_time_starts_once_over_a_takeover() {
    let nats = NatsServer::start();
    within("schedules of pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let send = async |pod: &str, method: &str, tenant: &str, path: &str, body: &Value| {
            let request = pods
                .ask(pod, method, path)
                .header("x-tenant-id", tenant)
                .json(body);
            assert_eq!(
                request.send().await.unwrap().status(),
                StatusCode::OK,
                "{tenant} {path}"
            );
        };
        let data = json!({ "orderId": "=schedule.correlation" });
        let spec = json!({ "saga": "order", "data": data, "every": "1s", "overlap": "allow" });
        for tenant in TENANTS {
            send("a", "PUT", tenant, "/v1/schedules/s", &spec).await;
        }
        until_started(&pods, "b", 2).await;
        pods.kill("a");
        pods.wait_for_owners(&["b"]).await;
        let before = get(&pods, "b", TENANTS[0], "/v1/schedules/s")
            .await
            .unwrap()["started"]
            .as_u64()
            .unwrap();
        until_started(&pods, "b", before + 5).await;
        for tenant in TENANTS {
            let request = pods
                .ask("b", "POST", "/v1/schedules/s/pause")
                .header("x-tenant-id", tenant);
            let paused: Value = request.send().await.unwrap().json().await.unwrap();
            let started = paused["started"].as_u64().unwrap();
            let orders = "/v1/sagas?saga=order&limit=1000";
            let look = async || {
                let page = get(&pods, "b", tenant, orders).await?;
                let items = page["items"].as_array()?.clone();
                (items.len() as u64 >= started).then_some(items)
            };
            let mut due: Vec<_> = until(&format!("the orders of {tenant}"), look)
                .await
                .iter()
                .map(|order| {
                    order["correlation"]
                        .as_str()
                        .unwrap()
                        .trim_start_matches("s-")
                        .to_owned()
                })
                .map(|time| time.parse::<jiff::Timestamp>().unwrap().as_second())
                .collect();
            due.sort_unstable();
            let expected: Vec<_> = (due[0]..).take(due.len()).collect();
            assert_eq!(
                (due.len() as u64, &due),
                (started, &expected),
                "{tenant}: one order for each second"
            );
        }
    })
    .await;
}
