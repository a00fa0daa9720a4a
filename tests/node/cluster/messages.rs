//! Messages in a cluster: between contexts whose shards belong to different pods, and after a takeover.

use std::os::unix::fs::PermissionsExt as _;

use orlog_signature::SigningKey;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::cluster::pods::Pods;
use crate::cluster::within;

const SENDERS: [&str; 4] = ["t1", "t2", "t3", "big"];
const RECEIVERS: [&str; 4] = ["t4", "t5", "t6", "big"];

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

async fn post(pods: &Pods, pod: &str, tenant: &str, path: &str, body: &Value) {
    let label = format!("{tenant} {path}");
    let posted = until(&label, || async {
        let request = pods
            .ask(pod, "POST", path)
            .header("x-tenant-id", tenant)
            .json(body);
        let response = request.send().await.ok()?;
        let is_success = response.status().is_success();
        (is_success || response.status().is_client_error()).then_some((is_success, response))
    });
    let (is_success, response) = posted.await;
    assert!(
        is_success,
        "{tenant} {path}: {}",
        response.text().await.unwrap()
    );
}

/// Returns the ids of the received messages of a tenant, of all these pods.
async fn inbox(pods: &Pods, names: &[&str], tenant: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for pod in names {
        let page = get(pods, pod, tenant, "/v1/messages")
            .await
            .unwrap_or_default();
        let found = page["items"].as_array().into_iter().flatten();
        ids.extend(found.map(|message| message["id"].as_str().unwrap().to_owned()));
    }
    ids.sort();
    ids.dedup();
    ids
}

/// Requirements: F6, R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_the_pod_of_the_receiver_and_continue_after_a_takeover() {
    let nats = NatsServer::start();
    within("messages of pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        let key = pods.file("key", &SigningKey::generate_pem().unwrap());
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        pods.more = format!("[identity]\nname = \"cluster\"\nkey_file = {key:?}\n");
        pods.start_all(&["a", "b"]).await;
        for from in SENDERS {
            for to in RECEIVERS {
                let message =
                    json!({ "id": format!("to-{to}"), "to": to, "type": "chat", "body": "x" });
                post(&pods, "a", from, "/v1/messages", &message).await;
            }
        }
        let mut received = Vec::new();
        for to in RECEIVERS {
            let label = format!("the messages for {to}");
            let all = until(&label, || async {
                let all = inbox(&pods, &["a", "b"], to).await;
                (all.len() == SENDERS.len()).then_some(all)
            });
            received.push((to, all.await));
        }
        pods.kill("a");
        pods.wait_for_owners(&["b"]).await;
        for (to, ids) in &received {
            assert_eq!(
                inbox(&pods, &["b"], to).await,
                *ids,
                "each message of {to} exists once"
            );
            for id in ids {
                let path = format!("/v1/messages/{id}/process");
                post(&pods, "b", to, &path, &json!({ "result": to })).await;
            }
        }
        for from in SENDERS {
            for to in RECEIVERS {
                let path = format!("/v1/messages/to-{to}");
                let label = format!("the result for {from}");
                let ended = until(&label, || async {
                    get(&pods, "b", from, &path)
                        .await
                        .filter(|message| message["status"] == "processed")
                });
                assert_eq!(ended.await["result"], *to, "{from}");
            }
        }
    })
    .await;
}
