//! Tests of the audit log.

use serde_json::{Value, json};

use crate::issuer::{Jwks, Key};
use crate::node::{Node, orlog, placed, run};

fn seen(records: &Value) -> Vec<(String, String, String)> {
    let text = |record: &Value, name: &str| record[name].as_str().unwrap_or("-").to_owned();
    let records = records["items"].as_array().unwrap().iter();
    records.map(|record| (text(record, "user"), text(record, "target"), text(record, "outcome"))).collect()
}

fn strings(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    rows.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mutating_call_is_audited() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let ada = key.token("ada", "operator", &json!("acme"));
    let boss = key.token("boss", "admin", &json!("acme"));
    let root = key.token("root", "admin", &json!("*"));

    node.call(&ada, "acme", "POST", "/v1/events", Some(&placed("o-1"))).await.ok();
    node.request(&ada, "acme", "GET", "/v1/sagas").await.ok();
    node.request(&ada, "acme", "POST", "/v1/sagas/order/unknown/pause").await.problem(404, "OR0011");
    node.request(&ada, "beta", "POST", "/v1/sagas/order/o-1/pause").await.problem(403, "OR0043");
    node.request("forged", "acme", "POST", "/v1/sagas/order/o-1/cancel").await.problem(401, "OR0041");
    node.request(&ada, "acme", "POST", "/admin/drain").await.problem(403, "OR0042");
    node.request(&root, "", "POST", "/admin/reload?user=root").await.ok();

    let own = node.request(&boss, "", "GET", "/v1/audit").await.ok();
    let acme = [
        ("-", "/v1/sagas/order/o-1/cancel", "rejected"),
        ("ada", "/v1/sagas/order/unknown/pause", "rejected"),
        ("ada", "/v1/events", "succeeded"),
    ];
    assert_eq!(seen(&own), strings(&acme), "{own:#}");
    let first = &own["items"][1];
    for (name, value) in [
        ("role", json!("operator")),
        ("tenant", json!("acme")),
        ("route", json!("POST /v1/sagas/{saga}/{correlation}/pause")),
        ("status", json!(404)),
        ("code", json!("OR0011")),
        ("source", json!("127.0.0.1")),
        ("forwarded_by", Value::Null),
    ] {
        assert_eq!(first[name], value, "{name}: {first:#}");
    }

    // Records of the node and of other tenants require access to all tenants.
    node.request(&boss, "", "GET", "/v1/audit?all=true").await.problem(403, "OR0043");
    node.request(&ada, "acme", "GET", "/v1/audit").await.problem(403, "OR0042");
    let all = node.request(&root, "", "GET", "/v1/audit?all=true").await.ok();
    let everything = [
        ("root", "/admin/reload?user=root", "succeeded"),
        ("ada", "/admin/drain", "rejected"),
        ("-", "/v1/sagas/order/o-1/cancel", "rejected"),
        ("ada", "/v1/sagas/order/o-1/pause", "rejected"),
        ("ada", "/v1/sagas/order/unknown/pause", "rejected"),
        ("ada", "/v1/events", "succeeded"),
    ];
    assert_eq!(seen(&all), strings(&everything), "{all:#}");
    let admin = node
        .request(&root, "", "GET", "/v1/audit?all=true&route=/admin/&outcome=rejected&limit=1")
        .await
        .ok();
    assert_eq!(seen(&admin), strings(&[("ada", "/admin/drain", "rejected")]));
    node.request(&root, "", "GET", "/v1/audit?cursor=x").await.problem(400, "OR0008");

    let file = std::fs::read_to_string(node.data().join("audit/audit-0000000001.jsonl")).unwrap();
    assert_eq!(file.lines().count(), 6);
    for token in [&ada, &boss, &root] {
        assert!(!file.contains(token.rsplit('.').next().unwrap()), "a token is in the trail");
    }

    let mut command = orlog(&["audit", "--all", "--user", "ada", "--limit", "2", "--url", &node.url]);
    command.env("ORLOG_TOKEN", &root);
    let (code, output, errors) = run(command).await;
    assert_eq!(code, 0, "{errors}");
    assert!(output.contains("POST /admin/drain") && output.contains("rejected OR0042"), "{output}");
    assert_eq!(output.lines().count(), 3, "{output}");
    assert!(errors.contains("raise --limit"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_works_without_auth_and_can_exclude_routes() {
    let node = Node::start(|config| config.audit.exclude_routes = vec!["POST /v1/events".to_owned()]).await;
    node.send("POST", "/v1/events", &[("x-request-id", "r-1")], Some(&placed("o-1"))).await.ok();
    node.send("POST", "/v1/events", &[("x-request-id", "r-2")], Some(&json!({})))
        .await
        .problem(422, "OR0003");
    let records = node.send("GET", "/v1/audit", &[], None).await.ok();
    let records = records["items"].as_array().unwrap();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((&records[0]["user"], &records[0]["request_id"]), (&Value::Null, &json!("r-2")));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_trail_survives_restart() {
    let dir = tempfile::tempdir().unwrap();
    let trail = dir.path().join("trail");
    for expected in 1..=2 {
        let node = Node::start(|config| config.audit.dir = Some(trail.clone())).await;
        node.send("POST", "/admin/collect", &[], None).await.ok();
        let records = node.send("GET", "/v1/audit?all=true", &[], None).await.ok();
        assert_eq!(records["items"].as_array().unwrap().len(), expected);
        node.app.stop().await.unwrap();
    }
}
