//! Reload of the configuration of a running process.

use std::path::PathBuf;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::harness::http::{HttpResponse, client, send};
use crate::harness::process::Process;
use crate::operations::node::ORDER;

struct Reloaded {
    _dir: tempfile::TempDir,
    file: PathBuf,
    node: Process,
}

impl Reloaded {
    fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let file = dir.path().join("orlog.toml");
        std::fs::write(&file, config).unwrap();
        std::fs::create_dir(dir.path().join("definitions")).unwrap();
        std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER).unwrap();
        let flags = ["--config", "--data-dir", "--definitions-dir"];
        let values = [path("orlog.toml"), path("data"), path("definitions")];
        let args: Vec<&str> = flags
            .iter()
            .zip(&values)
            .flat_map(|(flag, value)| [*flag, value])
            .collect();
        let node = Process::start(&args);
        Self {
            _dir: dir,
            file,
            node,
        }
    }

    async fn reload(&self, config: &str) -> HttpResponse {
        std::fs::write(&self.file, config).unwrap();
        self.send("POST", "/admin/reload", &[], None).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> HttpResponse {
        send(
            &client(),
            method,
            format!("{}{path}", self.node.url),
            headers,
            body,
        )
        .await
    }

    async fn upstreams(&self) -> Vec<String> {
        let info = self.send("GET", "/info", &[], None).await.json();
        let upstreams = info["upstreams"].as_array().unwrap();
        upstreams
            .iter()
            .map(|upstream| upstream["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

const UPSTREAM: &str = "[upstreams.pay]\nbase_url = \"http://127.0.0.1:9\"\n[upstreams.pay.effects.\"pay.charge\"]\npath = \"/charges\"\n";

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn reload_applies_upstreams_and_webhooks_and_names_what_requires_a_restart() {
    let node = Reloaded::start("");
    assert!(!node.upstreams().await.contains(&"pay".to_owned()));
    let secret = node.file.with_file_name("secret");
    std::fs::write(&secret, "a shared secret").unwrap();
    let webhook = format!(
        "[webhooks.shop]\nscheme = \"token\"\nsecrets = [\"file:{}\"]\nsignature = {{ header = \"x-shop-token\" }}\n\
         id = \"= body.id\"\ntype = \"OrderPlaced\"\ndata = {{ orderId = \"o-1\" }}\n",
        secret.display()
    );
    let config = format!("[limits]\nmax_group_commit = 7\n{webhook}{UPSTREAM}");
    let response = node.reload(&config).await;
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    let plan = response.json();
    assert_eq!(plan["upstreams"], json!(["pay"]));
    assert_eq!(
        plan["warnings"],
        json!([
            "limits.max_group_commit has changed in the configuration; restart the node to apply it"
        ])
    );
    assert!(node.upstreams().await.contains(&"pay".to_owned()));
    let authentic = [("x-shop-token", "a shared secret")];
    let received = node
        .send(
            "POST",
            "/v1/webhooks/shop",
            &authentic,
            Some(&json!({ "id": "d-1" })),
        )
        .await;
    assert_eq!(received.status, StatusCode::ACCEPTED, "{received:?}");

    let plan = node.reload("[limits]\nmax_group_commit = 7\n").await.json();
    assert_eq!(plan["upstreams"], json!(["pay"]));
    assert!(!node.upstreams().await.contains(&"pay".to_owned()));
    let removed = node
        .send(
            "POST",
            "/v1/webhooks/shop",
            &authentic,
            Some(&json!({ "id": "d-1" })),
        )
        .await;
    assert_eq!(removed.status, StatusCode::NOT_FOUND, "{removed:?}");
    node.node.stop();
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn reload_applies_tenants_and_limits_and_rejects_immutable_keys() {
    let node = Reloaded::start("[tenants]\nmode = \"allowlist\"\nallowed = [\"acme\"]\n");
    let list = async |tenant: &str| {
        let headers = [("x-tenant-id", tenant)];
        node.send("GET", "/v1/sagas", &headers, None).await
    };
    list("acme").await.ok();
    list("beta").await.rejected(403, "OR0007");
    let admitted = "[tenants]\nmode = \"allowlist\"\nallowed = [\"beta\"]\n";
    let config = format!("{admitted}[limits]\nmax_state_size = \"2MiB\"\n");
    let plan = node.reload(&config).await.ok();
    assert_eq!(plan["warnings"], json!([]));
    list("acme").await.rejected(403, "OR0007");
    list("beta").await.ok();
    let info = node.send("GET", "/info", &[], None).await.ok();
    assert_eq!(info["limits"]["max_state_size"], "2MiB");

    for (config, key) in [
        (format!("shards = 2\n{config}"), "shards"),
        (
            format!("{admitted}key_sharded = [\"beta\"]\n"),
            "tenants.key_sharded",
        ),
    ] {
        let response = node.reload(&config).await;
        response.rejected(422, "OR0017");
        let reason = format!(
            "{key} cannot be changed, because it determines in which shard an instance is stored"
        );
        assert!(response.text.contains(&reason), "{response:?}");
    }
    list("beta").await.ok();
    node.node.stop();
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread")]
async fn reload_of_an_invalid_configuration_is_rejected_and_changes_nothing() {
    let node = Reloaded::start(UPSTREAM);
    for (config, expected) in [
        (
            "shards = \"many\"\n[limit]\nx = 1\n",
            ["shards", "limit"].as_slice(),
        ),
        ("shards = \n", &["orlog.toml:1:"]),
        (
            "[webhooks.shop]\nscheme = \"token\"\nsecrets = [\"file:/none\"]\ntype = \"= a +\"\n",
            &["webhooks.shop"],
        ),
        (&UPSTREAM.replace("http://127.0.0.1:9", "ftp://h"), &["pay"]),
    ] {
        let response = node.reload(config).await;
        assert_eq!(
            response.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{config}: {response:?}"
        );
        let problem = response.json().to_string();
        assert!(
            expected.iter().all(|part| problem.contains(part)),
            "{config}: {problem}"
        );
        assert!(
            node.upstreams().await.contains(&"pay".to_owned()),
            "{config}"
        );
    }
    node.node.stop();
}

/// Requirements: F2, R16.
#[tokio::test(flavor = "multi_thread")]
async fn effect_narrows_the_contexts_of_its_upstream_and_a_reload_reports_definitions_that_lose_it()
{
    let upstream = |of_payout: &str| {
        format!(
            "[upstreams.bank]\nbase_url = \"http://127.0.0.1:9\"\ncontexts = [\"acme\", \"beta\"]\n\
             [upstreams.bank.effects.\"bank.charge\"]\npath = \"/charges\"\n\
             [upstreams.bank.effects.\"bank.payout\"]\npath = \"/payouts\"\ncontexts = {of_payout}\n"
        )
    };
    let node = Reloaded::start(&upstream("[\"acme\"]"));
    for context in ["acme", "beta"] {
        let lists = json!({ "admins": ["user:ada"] });
        let created = node
            .send("PUT", &format!("/v1/contexts/{context}"), &[], Some(&lists))
            .await;
        assert_eq!(created.status, StatusCode::OK, "{created:?}");
    }
    let deploy = async |context: &str, effect: &str| {
        let text = format!(
            "saga: pay\nversion: 1\ncorrelate: id\nstart: Asked\nsteps:\n  - {{ id: pay, do: {{ effect: {effect} }} }}\n"
        );
        let bundle = json!({ "files": [{ "name": "pay.saga.yaml", "text": text }] });
        node.send(
            "POST",
            &format!("/v1/contexts/{context}/definitions"),
            &[],
            Some(&bundle),
        )
        .await
    };
    let denied = deploy("beta", "bank.payout").await;
    denied.rejected(422, "OR0017");
    assert!(
        denied
            .text
            .contains("bank.payout for definitions of the context beta"),
        "{denied:?}"
    );
    deploy("beta", "bank.charge").await.ok();
    deploy("acme", "bank.payout").await.ok();

    let invalid = node.reload(&upstream("[\"gamma\"]")).await;
    assert_eq!(
        invalid.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{invalid:?}"
    );
    assert!(invalid.text.contains("contexts lists gamma"), "{invalid:?}");
    let plan = node.reload(&upstream("[]")).await.ok();
    let warnings = plan["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{plan}");
    let warning = warnings[0].as_str().unwrap();
    assert!(
        warning.contains("context acme") && warning.contains("bank.payout"),
        "{warning}"
    );
    // Its instances may need the effect to compensate.
    let active = node
        .send("GET", "/v1/definitions", &[("x-tenant-id", "acme")], None)
        .await
        .ok();
    assert!(active["items"].to_string().contains("\"pay\""), "{active}");
    deploy("acme", "bank.payout").await.rejected(422, "OR0017");
    node.node.stop();
}
