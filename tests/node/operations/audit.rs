//! Tests of the audit log.

use std::os::unix::fs::symlink;

use orlog::config::{AuthMode, TenantMode};
use orlog_model::TenantId;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::harness::process::Process;
use crate::harness::process::{orlog, run};
use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::{Node, placed};

fn seen(records: &Value) -> Vec<(String, String, String)> {
    let text = |record: &Value, name: &str| record[name].as_str().unwrap_or("-").to_owned();
    let records = records["items"].as_array().unwrap().iter();
    records
        .map(|record| {
            (
                text(record, "user"),
                text(record, "target"),
                text(record, "outcome"),
            )
        })
        .collect()
}

fn strings(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    rows.iter()
        .map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mutating_call_is_audited() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let ada = key.token("ada", "operator", &json!("acme"));
    let boss = key.token("boss", "admin", &json!("acme"));
    let root = key.token("root", "admin", &json!("*"));

    node.call(&ada, "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    node.request(&ada, "acme", "GET", "/v1/sagas").await.ok();
    node.request(&ada, "acme", "POST", "/v1/sagas/order/unknown/pause")
        .await
        .rejected(404, "OR0011");
    node.request(&ada, "beta", "POST", "/v1/sagas/order/o-1/pause")
        .await
        .rejected(403, "OR0043");
    node.request("forged", "acme", "POST", "/v1/sagas/order/o-1/cancel")
        .await
        .rejected(401, "OR0041");
    node.request(&ada, "acme", "POST", "/admin/drain")
        .await
        .rejected(403, "OR0042");
    node.request(&root, "", "POST", "/admin/reload?user=root")
        .await
        .ok();

    let own = node.request(&boss, "", "GET", "/v1/audit").await.ok();
    let acme = [
        ("ada", "/v1/sagas/order/unknown/pause", "rejected"),
        ("ada", "/v1/events", "succeeded"),
    ];
    assert_eq!(seen(&own), strings(&acme), "{own:#}");
    let first = &own["items"][0];
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
    node.request(&boss, "", "GET", "/v1/audit?all=true")
        .await
        .rejected(403, "OR0043");
    node.request(&ada, "acme", "GET", "/v1/audit")
        .await
        .rejected(403, "OR0042");
    let all = node
        .request(&root, "", "GET", "/v1/audit?all=true")
        .await
        .ok();
    let everything = [
        ("boss", "/v1/audit?all=true", "rejected"),
        ("boss", "/v1/audit", "succeeded"),
        ("root", "/admin/reload?user=root", "succeeded"),
        ("ada", "/v1/sagas/order/unknown/pause", "rejected"),
        ("ada", "/v1/events", "succeeded"),
    ];
    assert_eq!(seen(&all), strings(&everything), "{all:#}");
    let path = "/v1/audit?all=true&route=/pause&outcome=rejected&limit=1";
    let paused = node.request(&root, "", "GET", path).await.ok();
    assert_eq!(
        seen(&paused),
        strings(&[("ada", "/v1/sagas/order/unknown/pause", "rejected")])
    );
    node.request(&root, "", "GET", "/v1/audit?cursor=x")
        .await
        .rejected(400, "OR0008");

    // Three changes and five reads of the trail. The record of a read is written after its response.
    let path = node.data().join("audit/audit-0000000001.jsonl");
    let file = until("the trail is complete", async || {
        Some(std::fs::read_to_string(&path).unwrap()).filter(|file| file.lines().count() == 8)
    })
    .await;
    for token in [&ada, &boss, &root] {
        assert!(
            !file.contains(token.rsplit('.').next().unwrap()),
            "a token is in the trail"
        );
    }

    let mut command = orlog(&[
        "audit", "--all", "--user", "ada", "--limit", "2", "--url", &node.url,
    ]);
    command.env("ORLOG_TOKEN", &root);
    let (code, output, errors) = run(command).await;
    assert_eq!(code, 0, "{errors}");
    assert!(
        output.contains("/order/unknown/pause") && output.contains("rejected OR0011"),
        "{output}"
    );
    assert_eq!(output.lines().count(), 3, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn named_user_is_audited_beside_the_caller() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let [ada, boss] = ["operator", "admin"].map(|role| key.token(role, role, &json!("acme")));
    let for_bob = json!({ "user": "bob", "reason": "holiday" });
    let path = "/v1/sagas/order/other/pause";
    node.call(&boss, "acme", "POST", path, Some(&for_bob))
        .await
        .rejected(404, "OR0011");
    node.call(&ada, "acme", "POST", path, Some(&for_bob))
        .await
        .rejected(403, "OR0042");
    node.request(&ada, "acme", "POST", path)
        .await
        .rejected(404, "OR0011");
    let records = node.request(&boss, "", "GET", "/v1/audit").await.ok();
    let users = records["items"].as_array().unwrap().iter();
    let users: Vec<_> = users
        .map(|record| (&record["user"], &record["named_user"]))
        .collect();
    let (bob, operator, admin) = (json!("bob"), json!("operator"), json!("admin"));
    assert_eq!(
        users,
        [(&operator, &Value::Null), (&operator, &bob), (&admin, &bob)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_works_without_auth_and_can_exclude_routes() {
    let node =
        Node::start(|config| config.audit.exclude_routes = vec!["POST /v1/events".to_owned()])
            .await;
    node.send(
        "POST",
        "/v1/events",
        &[("x-request-id", "r-1")],
        Some(&placed("o-1")),
    )
    .await
    .ok();
    node.send(
        "POST",
        "/v1/events",
        &[("x-request-id", "r-2")],
        Some(&json!({})),
    )
    .await
    .rejected(422, "OR0003");
    let records = node.send("GET", "/v1/audit", &[], None).await.ok();
    let records = records["items"].as_array().unwrap();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(
        (&records[0]["user"], &records[0]["request_id"]),
        (&Value::Null, &json!("r-2"))
    );
    let by_carol = json!({ "user": "carol" });
    node.send("POST", "/v1/sagas/order/none/pause", &[], Some(&by_carol))
        .await
        .rejected(404, "OR0011");
    let records = node.send("GET", "/v1/audit?limit=1", &[], None).await.ok();
    assert_eq!(records["items"][0]["named_user"], "carol", "{records:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_trail_survives_restart() {
    let dir = tempfile::tempdir().unwrap();
    let trail = dir.path().join("trail");
    // Each run leaves a change and a read.
    for expected in [1, 3] {
        let node = Node::start(|config| config.audit.dir = Some(trail.clone())).await;
        node.send("POST", "/admin/collect", &[], None).await.ok();
        let records = node.send("GET", "/v1/audit?all=true", &[], None).await.ok();
        assert_eq!(records["items"].as_array().unwrap().len(), expected);
        node.app.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_requests_do_not_remove_records_of_changes() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.audit.max_file_size = 4096;
    })
    .await;
    let root = key.token("root", "admin", &json!("*"));
    node.request(&root, "", "POST", "/admin/reload").await.ok();
    for number in 0..1000 {
        let path = format!("/v1/sagas/order/o-{number}/cancel");
        node.request("forged", "acme", "POST", &path)
            .await
            .rejected(401, "OR0041");
    }
    let found = node
        .request(&root, "", "GET", "/v1/audit?all=true&route=/admin/reload")
        .await
        .ok();
    assert_eq!(
        seen(&found),
        strings(&[("root", "/admin/reload", "succeeded")]),
        "{found:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_are_counted_by_source_route_and_user() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let root = key.token("root", "admin", &json!("*"));
    let boss = key.token("boss", "admin", &json!("acme"));
    let ada = key.token("ada", "operator", &json!("acme"));
    for path in ["/v1/sagas/order/a/cancel", "/v1/sagas/order/b/cancel"] {
        node.request("forged", "acme", "POST", path)
            .await
            .rejected(401, "OR0041");
    }
    node.send("GET", "/v1/sagas", &[], None)
        .await
        .rejected(401, "OR0040");
    node.request(&ada, "acme", "POST", "/admin/drain")
        .await
        .rejected(403, "OR0042");
    node.request(&ada, "beta", "POST", "/v1/events")
        .await
        .rejected(403, "OR0043");

    node.request(&boss, "", "GET", "/v1/audit?denials=true")
        .await
        .rejected(403, "OR0043");
    let found = node
        .request(&root, "", "GET", "/v1/audit?denials=true")
        .await
        .ok();
    let mut rows: Vec<_> = found["items"].as_array().unwrap().iter().collect();
    rows.sort_by_key(|row| row["route"].to_string() + &row["code"].to_string());
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!([
                row["route"],
                row["status"],
                row["code"],
                row["user"],
                row["count"],
                row["source"]
            ])
        })
        .collect();
    let here = "127.0.0.1";
    let expected = json!([
        ["GET /v1/sagas", 401, "OR0040", null, 1, here],
        ["POST /admin/drain", 403, "OR0042", "ada", 1, here],
        ["POST /v1/events", 403, "OR0043", "ada", 1, here],
        [
            "POST /v1/sagas/{saga}/{correlation}/cancel",
            401,
            "OR0041",
            null,
            2,
            here
        ],
    ]);
    assert_eq!(Value::from(rows), expected, "{found:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn authentic_webhook_is_audited_and_needs_no_token() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "the secret of the shop").unwrap();
    let webhook = format!(
        "scheme = \"token\"\nsecrets = [\"file:{}\"]\nsignature = {{ header = \"x-shop-token\" }}\n\
         tenant = \"acme\"\ntype = \"OrderPlaced\"\nid = \"= body.id\"\ndata = \"= headers\"\n\
         correlation = \"= body.order\"",
        secret.path().display()
    );
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.audit.required = true;
        config
            .webhooks
            .insert("shop".to_owned(), toml::from_str(&webhook).unwrap());
    })
    .await;
    let root = key.token("root", "admin", &json!("*"));
    let deliver = async |token: &str, body: Value| {
        let headers = [("x-shop-token", token), ("x-tenant-id", "beta")];
        node.send("POST", "/v1/webhooks/shop", &headers, Some(&body))
            .await
    };
    deliver("the secret of the shop", json!({ "id": 7, "order": "o-1" }))
        .await
        .ok();
    deliver("the secret of the shop", json!({ "id": 8 }))
        .await
        .rejected(400, "OR0072");
    for _ in 0..3 {
        deliver("another secret", json!({ "id": 9 }))
            .await
            .rejected(401, "OR0071");
    }
    node.send("POST", "/v1/webhooks/none", &[], None)
        .await
        .rejected(404, "OR0070");

    let found = node
        .request(&root, "acme", "GET", "/v1/audit?route=/v1/webhooks")
        .await
        .ok();
    let ended: Vec<_> = seen(&found)
        .into_iter()
        .filter(|(.., outcome)| outcome != "started")
        .collect();
    let expected =
        ["rejected", "succeeded"].map(|outcome| ("webhook:shop", "/v1/webhooks/shop", outcome));
    assert_eq!(ended, strings(&expected), "{found:#}");
    let all = node
        .request(&root, "", "GET", "/v1/audit?all=true&route=/v1/webhooks")
        .await
        .ok();
    assert_eq!(
        all["items"].as_array().unwrap().len(),
        4,
        "two started, two ended: {all:#}"
    );
    let denied = node
        .request(&root, "", "GET", "/v1/audit?denials=true")
        .await
        .ok();
    let row = &denied["items"][0];
    assert_eq!(
        json!([
            row["route"],
            row["status"],
            row["code"],
            row["user"],
            row["count"]
        ]),
        json!(["POST /v1/webhooks/{name}", 401, "OR0071", null, 3]),
        "{denied:#}"
    );
    let text = format!("{found}{all}{denied}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn record_has_the_resolved_tenant() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.tenants.mode = TenantMode::Allowlist;
        config.tenants.allowed = vec![TenantId::new("acme").unwrap()];
    })
    .await;
    let ada = key.token("ada", "operator", &json!("acme"));
    let root = key.token("root", "admin", &json!("*"));
    // Without a header, the only tenant of the caller applies.
    node.call(&ada, "", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    node.call(&root, "unknown", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .rejected(403, "OR0007");
    let found = node
        .request(&root, "", "GET", "/v1/audit?all=true&route=/v1/events")
        .await
        .ok();
    let tenants: Vec<&Value> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["tenant"])
        .collect();
    assert_eq!(tenants, [&Value::Null, &json!("acme")], "{found:#}");
    let own = node.request(&root, "acme", "GET", "/v1/audit").await.ok();
    assert_eq!(seen(&own), strings(&[("ada", "/v1/events", "succeeded")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_exports_backups_and_the_trail_are_recorded() {
    let node = Node::start(|config| config.export.enabled = true).await;
    let backup = node.send("POST", "/admin/backup", &[], None).await.ok();
    let file = format!(
        "/admin/backup/{}/files/manifest.json",
        backup["id"].as_str().unwrap()
    );
    node.send("GET", &file, &[], None).await;
    node.send("HEAD", &file, &[], None).await;
    assert_eq!(node.send("GET", "/v1/export", &[], None).await.status, 200);
    node.send("GET", "/v1/sagas", &[], None).await.ok();
    node.send("GET", "/v1/audit", &[], None).await.ok();
    let found = node.send("GET", "/v1/audit?all=true", &[], None).await.ok();
    let routes: Vec<&str> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["route"].as_str().unwrap())
        .collect();
    let expected = [
        "GET /v1/audit",
        "GET /v1/export",
        "HEAD /admin/backup/{id}/files/{path}",
        "GET /admin/backup/{id}/files/{path}",
        "POST /admin/backup",
    ];
    assert_eq!(routes, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarding_headers_of_clients_are_recorded_only_behind_the_gateway() {
    let headers = [
        (
            "x-forwarded-for",
            "203.0.113.9, not-an-address, 198.51.100.4",
        ),
        ("x-orlog-forwarded-by", "pod"),
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "admin"),
        ("x-orlog-tenants", "*"),
    ];
    for (mode, address, pod) in [
        (AuthMode::Off, Value::Null, Value::Null),
        (AuthMode::Gateway, json!("198.51.100.4"), Value::Null),
    ] {
        let node = Node::start(|config| {
            config.auth.mode = mode;
            config.auth.gateway.sources = vec!["127.0.0.1".to_owned()];
        })
        .await;
        node.send("POST", "/admin/collect", &headers, None)
            .await
            .ok();
        let found = node
            .send("GET", "/v1/audit?all=true", &headers, None)
            .await
            .ok();
        let record = &found["items"][0];
        assert_eq!(
            (&record["forwarded_for"], &record["forwarded_by"]),
            (&address, &pod),
            "{mode:?}"
        );
        assert_eq!(record["source"], "127.0.0.1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_records_are_bounded() {
    let node = Node::start(|_| {}).await;
    let long = "x".repeat(6000);
    let path = format!("/v1/sagas/order/{long}/cancel?{long}");
    let headers = [
        ("x-forwarded-for", long.as_str()),
        ("x-orlog-forwarded-by", &long),
        ("x-tenant-id", &long),
    ];
    assert_eq!(node.send("POST", &path, &headers, None).await.status, 400);
    let unknown = "Y".repeat(200);
    assert_eq!(
        node.send(&unknown, "/v1/events", &headers, None)
            .await
            .status,
        405
    );
    let found = node.send("GET", "/v1/audit?all=true", &[], None).await.ok();
    let records = found["items"].as_array().unwrap();
    assert_eq!(
        (records.len(), &records[0]["route"]),
        (2, &json!("OTHER /v1/events"))
    );
    assert!(
        records.iter().all(|record| record.to_string().len() < 2000),
        "{found:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_rejected_if_its_record_is_required_and_cannot_be_written() {
    let node = Node::start(|config| config.audit.required = true).await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1")))
        .await
        .ok();
    let found = node.send("GET", "/v1/audit", &[], None).await.ok();
    let records = found["items"].as_array().unwrap();
    let outcomes: Vec<&Value> = records.iter().map(|record| &record["outcome"]).collect();
    assert_eq!(outcomes, ["succeeded", "started"], "{found:#}");
    assert_eq!(records[0]["id"], records[1]["id"]);
    node.app.stop().await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit-0000000001.jsonl");
    symlink("/dev/full", &file).unwrap();
    let node = Node::start(|config| {
        (config.audit.required, config.audit.dir) = (true, Some(dir.path().to_owned()));
        config.audit.exclude_routes = vec!["POST /admin/collect".to_owned()];
    })
    .await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1")))
        .await
        .rejected(503, "OR0049");
    // Reads and excluded routes need no record.
    node.send("GET", "/v1/sagas", &[], None).await.ok();
    node.send("POST", "/admin/collect", &[], None).await.ok();
    let metrics = node.send("GET", "/metrics", &[], None).await.text;
    assert!(
        metrics
            .lines()
            .any(|line| line == "orlog_audit_writes_failed_total 1"),
        "{metrics}"
    );
    std::fs::remove_file(&file).unwrap();
    let accepted = node
        .send("POST", "/v1/events", &[], Some(&placed("o-1")))
        .await
        .ok();
    assert_eq!(
        accepted["accepted"][0]["duplicate"], false,
        "the rejected request had no effect"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_command_names_the_first_changed_record() {
    let node = Node::start(|_| {}).await;
    for _ in 0..3 {
        node.send("POST", "/admin/collect", &[], None).await.ok();
    }
    node.send("GET", "/v1/audit", &[], None).await.ok();
    let dir = node.data().join("audit");
    let verify = async |more: &[&str]| {
        run(orlog(
            &[&["audit", "verify", dir.to_str().unwrap()], more].concat(),
        ))
        .await
    };
    let (code, output, errors) = verify(&["--output", "json"]).await;
    assert_eq!(code, 0, "{errors}");
    let found: Value = serde_json::from_str(&output).unwrap();
    let (last, hash) = (
        found["records"]["last"].as_u64().unwrap(),
        found["records"]["hash"].as_str().unwrap(),
    );
    assert!(last >= 3, "{output}");
    let expected = format!("{last}:{hash}");
    assert_eq!(verify(&["--expect", &expected]).await.0, 0);

    let file = dir.join("audit-0000000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.split_inclusive('\n').take(2).collect::<String>(),
    )
    .unwrap();
    assert_eq!(verify(&[]).await.0, 0);
    let (code, _, errors) = verify(&["--expect", &expected]).await;
    assert!(
        code == 1 && errors.contains("records were removed or replaced"),
        "{code} {errors}"
    );
    std::fs::write(&file, text.replacen("/admin/collect", "/admin/collecT", 1)).unwrap();
    let (code, _, errors) = verify(&[]).await;
    assert!(
        code == 1 && errors.contains("jsonl:2: record 2 does not contain the hash"),
        "{code} {errors}"
    );
    let found = node.send("GET", "/v1/audit?all=true", &[], None).await.ok();
    assert_eq!(found["broken_at"], 2);
    let (_, _, errors) = run(orlog(&["audit", "--all", "--url", &node.url])).await;
    assert!(errors.contains("record 2 "), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_by_signal_creates_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    let file = definitions.join("order.saga.yaml");
    std::fs::write(&file, crate::operations::node::ORDER).unwrap();
    let (data, definitions) = (
        dir.path().join("data"),
        definitions.to_str().unwrap().to_owned(),
    );
    let node = Process::start(&[
        "--data-dir",
        data.to_str().unwrap(),
        "--definitions-dir",
        &definitions,
    ]);
    let http = orlog_effect::http::client().build().unwrap();
    let url = format!("{}/v1/audit?all=true", node.url);
    for (text, expected) in [
        (crate::operations::node::ORDER, "succeeded"),
        ("saga: [", "rejected"),
    ] {
        std::fs::write(&file, text).unwrap();
        node.signal("HUP");
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
        let recorded = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                tick.tick().await;
                let found: Value = http.get(&url).send().await.unwrap().json().await.unwrap();
                let is_it =
                    |record: &&Value| record["route"] == "SIGHUP" && record["outcome"] == expected;
                if let Some(record) = found["items"].as_array().unwrap().iter().find(is_it) {
                    return record.clone();
                }
            }
        });
        let record = recorded
            .await
            .unwrap_or_else(|_| panic!("no record: {expected}"));
        assert_eq!(
            (&record["user"], &record["status"]),
            (&Value::Null, &json!(0)),
            "{record}"
        );
    }
    node.stop();
}
