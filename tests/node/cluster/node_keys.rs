//! Pods of one node with different keys of the node.

use std::os::unix::fs::PermissionsExt as _;

use orlog_signature::SigningKey;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::Value;

use super::pods::Pods;
use super::within;

async fn get(pods: &Pods, pod: &str, path: &str) -> Value {
    pods.ask(pod, "GET", path)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_with_different_node_keys_name_each_other() {
    let nats = NatsServer::start();
    within("pods with different keys", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        let [first, second] = ["first", "second"].map(|name| {
            let key = pods.file(name, &SigningKey::generate_pem().unwrap());
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            format!("[identity]\nname = \"cluster\"\nkey_file = {key:?}\n")
        });
        for (pod, identity) in [("a", &first), ("b", &first), ("c", &second)] {
            pods.more.clone_from(identity);
            pods.start(pod).await;
        }
        for (pod, others) in [("a", "c"), ("b", "c"), ("c", "a, b")] {
            let found = until(pod, async || {
                let checks = get(&pods, pod, "/admin/diagnostics").await;
                let checks = checks["checks"].as_array().unwrap();
                checks
                    .iter()
                    .find(|check| check["name"] == "node key")
                    .cloned()
            });
            let found = found.await;
            let message = found["message"].as_str().unwrap();
            assert!(
                message.contains(&format!("than this pod: {others};")),
                "{pod}: {found}"
            );
            let cluster = get(&pods, pod, "/info").await["cluster"].clone();
            assert!(cluster["other_node_keys"].is_array(), "{cluster}");
        }
        // With the right key, nothing differs.
        pods.kill("c");
        pods.more = first;
        pods.start("c").await;
        for pod in ["a", "b", "c"] {
            until(pod, async || {
                let checks = get(&pods, pod, "/admin/diagnostics").await;
                let checks = checks["checks"].as_array().unwrap();
                checks
                    .iter()
                    .all(|check| check["name"] != "node key")
                    .then_some(())
            })
            .await;
        }
    })
    .await;
}
