//! Lists of a key-sharded tenant name the pods whose entries they lack.

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::json;

use crate::cluster::pods::Pods;
use crate::cluster::within;

/// Returns the pods that a list lacks, as its header states them.
async fn missing(pods: &Pods, tenant: &str, path: &str) -> Option<String> {
    let response = pods
        .ask("a", "GET", path)
        .header("x-tenant-id", tenant)
        .send()
        .await
        .unwrap();
    assert!(response.status().is_success(), "{response:?}");
    let header = response.headers().get("x-orlog-missing-pods");
    header.map(|names| names.to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_names_the_pods_whose_entries_are_missing() {
    let nats = NatsServer::start();
    within("lists of pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        for path in [
            "/v1/sagas",
            "/v1/tasks",
            "/v1/dead-letters",
            "/v1/timers",
            "/v1/work",
        ] {
            assert_eq!(
                missing(&pods, "big", path).await.as_deref(),
                Some("b"),
                "{path}"
            );
            assert_eq!(missing(&pods, "t1", path).await, None, "{path}");
        }
        pods.kill("b");
        pods.wait_for_owners(&["a"]).await;
        assert_eq!(missing(&pods, "big", "/v1/sagas").await, None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pod_migrates_the_instances_of_a_tenant_or_names_the_pods_that_have_others() {
    let nats = NatsServer::start();
    within("migrations at each pod", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        // Tenants of several shards, so that each pod owns some of them.
        for tenant in ["t1", "t2", "t3", "t4"] {
            let order = json!({
                "specversion": "1.0", "id": "placed", "source": "urn:test", "type": "OrderPlaced",
                "data": { "orderId": "o-1", "n": 0 },
            });
            until("the order is accepted", async || {
                let request = pods
                    .ask("a", "POST", "/v1/events")
                    .header("content-type", "application/cloudevents+json")
                    .header("x-tenant-id", tenant);
                let response = request.body(order.to_string()).send().await.ok()?;
                (response.status() == 202).then_some(())
            })
            .await;

            // OR0011 at a pod that searched only its own shards.
            let migration = json!({ "from": "1", "only": ["o-1"], "dry_run": true });
            for pod in ["a", "b"] {
                until("the pod finds the instance", async || {
                    let request = pods
                        .ask(pod, "POST", "/v1/definitions/order/migrate")
                        .header("x-tenant-id", tenant);
                    let response = request.json(&migration).send().await.ok()?;
                    response.status().is_success().then_some(())
                })
                .await;
            }
        }

        let response = pods
            .ask("a", "POST", "/v1/definitions/order/migrate")
            .header("x-tenant-id", "big")
            .json(&json!({ "from": "1", "dry_run": true }))
            .send()
            .await
            .unwrap();
        assert!(response.status().is_success(), "{response:?}");
        let header = response.headers().get("x-orlog-missing-pods");
        assert_eq!(header.map(|names| names.to_str().unwrap()), Some("b"));
    })
    .await;
}
