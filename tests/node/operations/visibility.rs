//! Data of the node: metrics, totals and sources of definitions, and the callers that receive them.

use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::{Node, placed};

const METRICS_TOKEN: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c";

#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_their_right_for_all_tenants() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    node.send("GET", "/metrics", &[], None)
        .await
        .rejected(401, "OR0040");
    for role in ["viewer", "auditor", "monitor", "admin"] {
        let [of_acme, of_all] =
            [json!("acme"), json!("*")].map(|tenants| key.token("ada", role, &tenants));
        node.request(&of_acme, "acme", "GET", "/metrics")
            .await
            .rejected(403, "OR0043");
        let metrics = node.request(&of_all, "", "GET", "/metrics").await;
        assert!(
            metrics.status == 200 && metrics.text.contains("orlog_build_info"),
            "{metrics:?}"
        );
    }
    let worker = key.token("eve", "worker", &json!("*"));
    node.request(&worker, "", "GET", "/metrics")
        .await
        .rejected(403, "OR0042");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_token_grants_the_metrics_only_and_can_be_replaced() {
    let (key, dir) = (Key::ed("a"), tempfile::tempdir().unwrap());
    let (jwks, file) = (Jwks::open(&[&key]).await, dir.path().join("metrics-token"));
    std::fs::write(&file, format!("{METRICS_TOKEN}\n")).unwrap();
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.metrics_token = Some(format!("file:{}", file.display()).parse().unwrap());
    })
    .await;
    assert_eq!(
        node.request(METRICS_TOKEN, "", "GET", "/metrics")
            .await
            .status,
        200
    );
    for path in ["/info", "/v1/sagas", "/v1/audit", "/admin/log"] {
        let detail = node
            .request(METRICS_TOKEN, "", "GET", path)
            .await
            .rejected(403, "OR0042");
        assert!(detail.ends_with("roles of monitoring: monitor"), "{detail}");
    }
    let user = key.token("ada", "viewer", &json!("*"));
    let next = METRICS_TOKEN.replace('9', "7");
    std::fs::write(dir.path().join("next"), &next).unwrap();
    std::fs::rename(dir.path().join("next"), &file).unwrap();
    node.request(METRICS_TOKEN, "", "GET", "/metrics")
        .await
        .rejected(401, "OR0041");
    assert_eq!(node.request(&next, "", "GET", "/metrics").await.status, 200);
    // Without its file, only this token is rejected.
    std::fs::remove_file(&file).unwrap();
    node.request(&next, "", "GET", "/metrics")
        .await
        .rejected(401, "OR0041");
    assert_eq!(node.request(&user, "", "GET", "/metrics").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_of_one_tenant_receives_no_data_of_the_node() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let [of_acme, of_all] =
        [json!("acme"), json!("*")].map(|tenants| key.token("ada", "admin", &tenants));
    node.call(&of_acme, "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    let get = async |token: &str, path: &str| node.request(token, "acme", "GET", path).await.ok();
    let (own, whole) = (
        get(&of_acme, "/v1/overview").await,
        get(&of_all, "/v1/overview").await,
    );
    assert_eq!(
        (&own["totals"], &own["depths"]),
        (&Value::Null, &Value::Null),
        "{own:#}"
    );
    assert!(
        own["counts"].is_object() && own["destinations"].is_array(),
        "{own:#}"
    );
    assert!(
        whole["totals"]["events"].is_u64() && whole["depths"]["outbox"].is_u64(),
        "{whole:#}"
    );

    let version =
        async |token: &str| get(token, "/v1/definitions/order").await["versions"][0].clone();
    let (own, whole) = (version(&of_acme).await, version(&of_all).await);
    for secret in ["source", "file", "deployed_by"] {
        assert_eq!(own.get(secret), None, "{own:#}");
        assert!(whole[secret].is_string(), "{secret}: {whole:#}");
    }
    assert_eq!(
        get(&of_acme, "/v1/definitions").await["items"][0].get("file"),
        None
    );
    // Counts are those of the tenant of the request.
    let count = async |tenant: &str| {
        let found = node
            .request(&of_all, tenant, "GET", "/v1/definitions?count=true")
            .await
            .ok();
        let counted = &found["items"][0];
        counted["live"].as_u64().unwrap() + counted["ended"].as_u64().unwrap()
    };
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    let applied = tokio::time::timeout(WAIT_TIMEOUT, async {
        while count("acme").await != 1 {
            tick.tick().await;
        }
    });
    applied.await.expect("the order starts");
    assert_eq!(count("beta").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_route_returns_the_rights_and_the_tenants_of_the_caller() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let mut claims = crate::operations::issuer::claims("ada", "approver", &json!(["acme", "beta"]));
    claims["groups"] = json!(["clerk"]);
    let found = node
        .request(&key.sign(&claims), "", "GET", "/auth/caller")
        .await
        .ok();
    let expected = json!({
        "user": "ada", "roles": ["approver"], "rights": ["read tasks", "tasks"], "tenants": ["acme", "beta"],
        "task_roles": ["clerk"], "session": false, "key": null,
    });
    assert_eq!(found, expected);
    let stranger = key.token("eve", "baker", &json!([]));
    let found = node
        .request(&stranger, "", "GET", "/auth/caller")
        .await
        .ok();
    assert_eq!(
        (&found["rights"], &found["tenants"]),
        (&json!([]), &json!([]))
    );
    node.send("GET", "/auth/caller", &[], None)
        .await
        .rejected(401, "OR0040");
    let open = Node::start(|_| {}).await;
    let found = open.send("GET", "/auth/caller", &[], None).await.ok();
    assert_eq!(
        (&found["user"], &found["tenants"]),
        (&Value::Null, &Value::Null),
        "{found}"
    );
}
