//! Lists of a key-sharded tenant name the pods whose entries they lack.

use orlog_testkit::nats_server::NatsServer;

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
