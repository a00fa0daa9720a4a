//! Batches in a cluster: they reach the shards of all pods, and continue on another pod.

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::cluster::pods::Pods;
use crate::cluster::within;

const ORDERS: usize = 60;
/// Two tenants in one shard each, and a key-sharded one.
const TENANTS: [&str; 3] = ["t1", "t2", "big"];

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

/// Waits until the batch of each tenant matches.
async fn until_batches(pods: &Pods, pod: &str, fits: impl Fn(&Value) -> bool) {
    for tenant in TENANTS {
        let look = async || {
            get(pods, pod, tenant, "/v1/batches/b")
                .await
                .filter(|batch| fits(batch))
        };
        drop(until(&format!("the batch of {tenant}"), look).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_reaches_all_pods_and_continues_after_a_takeover() {
    let nats = NatsServer::start();
    within("batches of pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let post = async |tenant: &str, path: &str, body: &Value| {
            let request = pods
                .ask("a", "POST", path)
                .header("x-tenant-id", tenant)
                .json(body);
            let response = request.send().await.unwrap();
            let (status, text) = (response.status(), response.text().await.unwrap());
            assert!(status.is_success(), "{tenant} {path}: {status} {text}");
        };
        let note = json!({ "type": "signal", "signal": "Noted", "data": { "n": 7 } });
        for tenant in TENANTS {
            for number in 0..ORDERS {
                post(
                    tenant,
                    "/v1/sagas/order",
                    &json!({ "orderId": format!("o-{number}") }),
                )
                .await;
            }
            let body = json!({ "id": "b", "saga": "order", "action": note, "rate": 15 });
            post(tenant, "/v1/batches", &body).await;
        }
        until_batches(&pods, "b", |batch| batch["done"].as_u64() >= Some(15)).await;
        pods.kill("a");
        pods.wait_for_owners(&["b"]).await;
        until_batches(&pods, "b", |batch| batch["status"] == "completed").await;
        for tenant in TENANTS {
            let batch = get(&pods, "b", tenant, "/v1/batches/b").await.unwrap();
            assert_eq!(
                (&batch["matched"], &batch["done"]),
                (&json!(ORDERS), &json!(ORDERS)),
                "{tenant} {batch}"
            );
            let noted = "/v1/sagas?saga=order&limit=1000&filter=vars.notes==%5B7%5D";
            let noted = get(&pods, "b", tenant, noted).await.unwrap();
            assert_eq!(
                noted["items"].as_array().unwrap().len(),
                ORDERS,
                "{tenant}: each order once"
            );
        }
    })
    .await;
}
