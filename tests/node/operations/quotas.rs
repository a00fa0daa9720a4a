//! Tests of the quotas of one caller: another caller is served while one exceeds its quotas.

use std::net::{IpAddr, Ipv4Addr};

use orlog_testkit::WAIT_TIMEOUT;
use reqwest::{Client, Response};
use tempfile::TempDir;

use crate::harness::process::Process;

/// Node with this configuration.
fn node(config: &str) -> (Process, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("orlog.toml");
    std::fs::write(&file, config).unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let args = [
        "--data-dir",
        &path(&dir.path().join("data")),
        "--config",
        &path(&file),
    ];
    (Process::start(&args), dir)
}

/// Client whose requests come from an address of this host.
fn client(last_byte: u8) -> Client {
    let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last_byte));
    orlog_effect::http::client()
        .local_address(address)
        .timeout(WAIT_TIMEOUT)
        .build()
        .unwrap()
}

async fn get(client: &Client, node: &Process, path: &str) -> Response {
    client
        .get(format!("{}{path}", node.url))
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_caller_above_its_rate_is_rejected_and_others_are_served() {
    let (node, _dir) =
        node("http.per_caller.max_requests_per_second = 1\nhttp.per_caller.request_burst = 3\n");
    let (first, second) = (client(1), client(2));
    for _ in 0..3 {
        assert_eq!(get(&first, &node, "/v1/sagas").await.status(), 200);
    }
    let rejected = get(&first, &node, "/v1/sagas").await;
    assert_eq!(
        (
            rejected.status().as_u16(),
            &rejected.headers()["retry-after"]
        ),
        (429, &"1".parse().unwrap())
    );
    let text = rejected.text().await.unwrap();
    assert!(text.contains("\"code\":\"OR0031\""), "{text}");
    assert_eq!(get(&second, &node, "/v1/sagas").await.status(), 200);
    for path in ["/health", "/ready"] {
        assert_eq!(get(&first, &node, path).await.status(), 200, "{path}");
    }
    let metrics = get(&first, &node, "/metrics").await.text().await.unwrap();
    let expected = "orlog_http_quota_rejections_total{quota=\"request_rate\"} 1\n";
    assert!(metrics.contains(expected), "{metrics}");
    node.stop();
}

#[tokio::test]
async fn waiting_workers_of_one_caller_leave_the_others_their_polls() {
    let definition = "kind = \"worker\"\neffects = [\"pack\"]\n";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hands.toml"), definition).unwrap();
    let upstreams = dir.path().to_str().unwrap().to_owned();
    let (node, _data) = node(&format!(
        "upstreams_dir = \"{upstreams}\"\nhttp.per_caller.max_long_polls = 1\n"
    ));
    let claim = |client: &Client, wait: u64| {
        let body = serde_json::json!({ "effects": ["pack"], "worker": "w", "wait_seconds": wait });
        client
            .post(format!("{}/v1/work/claim", node.url))
            .json(&body)
            .send()
    };
    let (first, second) = (client(1), client(2));
    let mut waiting = tokio::spawn(claim(&first, 25));
    // The node serves the waiting request first or this one, which waits for a second. It rejects the waiting
    // request if it comes during this one.
    let rejected = tokio::time::timeout(WAIT_TIMEOUT, async {
        loop {
            if waiting.is_finished() {
                waiting = tokio::spawn(claim(&first, 25));
            }
            let response = claim(&first, 1).await.unwrap();
            if response.status() == 429 {
                break response;
            }
            assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        }
    });
    let text = rejected
        .await
        .expect("the second poll is rejected")
        .text()
        .await
        .unwrap();
    assert!(text.contains("max_long_polls"), "{text}");
    assert_eq!(claim(&second, 1).await.unwrap().status(), 200);
    waiting.abort();
    let free = tokio::time::timeout(WAIT_TIMEOUT, async {
        while claim(&first, 1).await.unwrap().status() != 200 {}
    });
    free.await
        .expect("the place of a client that left is free again");
    node.stop();
}
