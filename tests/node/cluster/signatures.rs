//! Signed requests across pods: accepted once by all pods together, and forwarded by a grant.

use axum::http::Method;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use super::pods::Pods;
use super::within;
use crate::signer::{Draft, Signer};

async fn send(pods: &Pods, pod: &str, draft: &Draft) -> (u16, String) {
    let request = pods
        .ask(pod, draft.method.as_str(), &draft.path)
        .headers(draft.headers.clone());
    let response = request.body(draft.body.clone()).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn check(pods: &Pods, pod: &str, draft: &Draft, status: u16, part: &str) -> String {
    let (found, text) = send(pods, pod, draft).await;
    assert!(
        found == status && text.contains(part),
        "{pod} {} {}: {found} {text}",
        draft.method,
        draft.path
    );
    text
}

/// Requirements: F1, R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_request_is_accepted_once_by_all_pods_and_forwarded_to_the_owner() {
    let nats = NatsServer::start();
    within("signed requests across pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        let (ada, secret) = (Signer::new(), pods.file("secret", "knock-knock"));
        pods.more = format!(
            "[http]\nallowed_hosts = [\"localhost\"]\n[auth]\nmode = \"gateway\"\npublic_routes = [\"/info\"]\n[auth.gateway]\nsecret = \"file:{}\"\n\
             [auth.actors.ada]\nkeys = [\"{}\"]\nroles = [\"admin\"]\ntenants = [\"*\"]\n",
            secret.display(),
            ada.key.public_key()
        );
        pods.start_all(&["a", "b"]).await;
        let other = |pod: &str| if pod == "a" { "b" } else { "a" };
        let tenants = ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"];
        // One of the pods owns the tenant, and the other one forwards.
        for (tenant, pod) in tenants.into_iter().flat_map(|tenant| [(tenant, "a"), (tenant, "b")]) {
            let list = ada.sign(Draft::new(Method::GET, tenant, "/v1/sagas?limit=5", ""));
            check(&pods, pod, &list, 200, "items").await;
            let pause = ada.sign(Draft::new(Method::POST, tenant, "/v1/sagas/order/none/pause", "{}"));
            check(&pods, pod, &pause, 404, "OR0011").await;
            for repeated in [&list, &pause] {
                check(&pods, pod, repeated, 401, "OR0075").await;
                check(&pods, other(pod), repeated, 401, "OR0075").await;
                // A client cannot pretend that a pod has verified the signature.
                let forwarded = repeated.clone().header("x-orlog-forwarded-by", "a");
                check(&pods, other(pod), &forwarded, 401, "OR0075").await;
                let forged = forwarded.header("x-orlog-grant", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
                check(&pods, other(pod), &forged, 401, "OR0073").await;
            }
        }
        // The handler finds the owner of a new instance, and the forwarded target differs from the signed one.
        for number in 0..8 {
            let pod = ["a", "b"][number % 2];
            let body = json!({ "orderId": format!("s-{number}") }).to_string();
            let start = Draft::new(Method::POST, "big", "/v1/sagas/order?wait=1ms", body);
            let text = check(&pods, pod, &ada.sign(start), 202, "correlation").await;
            let started: Value = serde_json::from_str(&text).unwrap();
            let show = format!("/v1/sagas/order/{}", started["correlation"].as_str().unwrap());
            for pod in ["a", "b"] {
                check(&pods, pod, &ada.sign(Draft::new(Method::GET, "big", &show, "")), 200, "order").await;
            }
        }
        // A deployment reaches all pods.
        let file = "saga: other\nversion: 1\nstart: Asked\ncorrelate: id\nsteps:\n  - { id: a, do: { event: Done } }\n";
        let body = json!({ "files": [{ "name": "other.saga.yaml", "text": file }] }).to_string();
        let deploy = Draft::new(Method::POST, "", "/admin/deploy?keep_others=true", body);
        let text = check(&pods, "a", &ada.sign(deploy), 200, "other").await;
        let plan: Value = serde_json::from_str(&text).unwrap();
        let warnings = plan["warnings"].as_array().unwrap();
        assert!(!warnings.iter().any(|warning| warning.to_string().contains("pod ")), "{plan}");
        for pod in ["a", "b"] {
            let definitions = Draft::new(Method::GET, "t1", "/v1/definitions", "");
            check(&pods, pod, &ada.sign(definitions), 200, "\"other\"").await;
        }
        // Both pods record the actor and the key of a forwarded request.
        for pod in ["a", "b"] {
            let audit = ada.sign(Draft::new(Method::GET, "t1", "/v1/audit?limit=100", ""));
            let trail: Value = serde_json::from_str(&check(&pods, pod, &audit, 200, "items").await).unwrap();
            let records = trail["items"].as_array().unwrap();
            let is_pause = |record: &&Value| record["target"] == "/v1/sagas/order/none/pause";
            assert!(records.iter().any(|record| is_pause(&record)), "{trail}");
            for record in records.iter().filter(is_pause) {
                assert_eq!(record["user"], "ada", "{record}");
                assert_eq!(record["key"], ada.key.key_id().to_string(), "{record}");
            }
        }
    })
    .await;
}
