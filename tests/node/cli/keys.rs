//! `orlog key`: keys of the command line, and the signed requests of all commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use axum::http::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::http::{HttpResponse, client};
use crate::harness::process::{Process, orlog, run};
use crate::signer::{Draft, Signer};

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\ncorrelate: orderId\n\
    steps:\n  - { id: paid, do: { event: OrderPaid } }\n";

/// Directory of a user with keys, and of a node that requires the token of the administrator or a signature.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("definitions")).unwrap();
        std::fs::write(dir.path().join("definitions/order.saga.yaml"), DEFINITION).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = orlog(args);
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    /// Runs a command of the user that succeeds, and returns its JSON.
    async fn json(&self, args: &[&str]) -> Value {
        let (code, output, error) =
            run(self.command(&[args, &["--output", "json"]].concat())).await;
        assert_eq!(code, 0, "{args:?}: {error}");
        serde_json::from_str(&output).unwrap()
    }

    /// Runs a command of the user that fails, and returns its error.
    async fn failure(&self, args: &[&str]) -> String {
        let (code, _, error) = run(self.command(args)).await;
        assert_ne!(code, 0, "{args:?}");
        error
    }

    fn configure(&self, keys: &str) {
        let actor =
            format!("[auth.actors.ada]\nkeys = [{keys}]\nroles = [\"admin\"]\ntenants = [\"*\"]\n");
        // The requests are signed for an address that is not the one of the node.
        let config = format!("[http]\nallowed_hosts = [\"localhost\"]\n{actor}");
        std::fs::write(self.path("orlog.toml"), config).unwrap();
    }

    fn node(&self) -> Process {
        let text = |name: &str| self.path(name).display().to_string();
        let (config, data, definitions) = (text("orlog.toml"), text("data"), text("definitions"));
        Process::start_with_admin_token(&[
            "--config",
            &config,
            "--data-dir",
            &data,
            "--definitions-dir",
            &definitions,
        ])
    }
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
}

async fn send(node: &Process, draft: &Draft) -> HttpResponse {
    let request = client().request(draft.method.clone(), format!("{}{}", node.url, draft.path));
    let request = request
        .headers(draft.headers.clone())
        .body(draft.body.clone());
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    HttpResponse {
        status,
        headers,
        text: response.text().await.unwrap(),
    }
}

/// Returns the URL of another address of a node, as of a port that a container maps.
async fn mapped(node: &Process) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let node = node.url.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut node = TcpStream::connect(&node).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut node).await });
        }
    });
    url
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_mapped_address_are_signed_for_the_name_of_the_node() {
    let user = Fixture::new();
    let key = user.json(&["key", "new", "--name", "laptop"]).await;
    user.configure(&format!("\"{}\"", key["public_key"].as_str().unwrap()));
    let node = user.node();
    let url = mapped(&node).await;
    let list = ["saga", "list", "--url", &url, "--key", "laptop"];
    let error = user.failure(&list).await;
    assert!(
        error.contains("OR0073") && error.contains("x-orlog-node"),
        "{error}"
    );

    let document = client()
        .get(format!("{}/.well-known/orlog-node", node.url))
        .send();
    let document: Value = document.await.unwrap().json().await.unwrap();
    let name = document["name"].as_str().unwrap();
    user.json(&[&list[..], &["--node-name", name]].concat())
        .await;
    let error = user
        .failure(&[&list[..], &["--node-name", "another"]].concat())
        .await;
    assert!(error.contains("OR0073"), "{error}");

    let mut by_variable = user.command(&list);
    by_variable.env("ORLOG_NODE", name);
    let (code, _, error) = run(by_variable).await;
    assert_eq!(code, 0, "{error}");
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn commands_sign_their_requests_with_the_selected_key_until_it_is_revoked() {
    let user = Fixture::new();
    let key = user.json(&["key", "new", "--name", "laptop"]).await;
    let public = key["public_key"].as_str().unwrap();
    assert_eq!(mode(&user.path("config/orlog/keys/laptop.key")), 0o600);
    user.configure(&format!("\"{public}\""));
    let node = user.node();
    let list = ["saga", "list", "--url", &node.url];
    assert!(user.failure(&list).await.contains("OR0040"));
    user.json(&[&list[..], &["--key", "laptop"]].concat()).await;
    assert_eq!(run(user.command(&["key", "use", "laptop"])).await.0, 0);
    user.json(&list).await;
    let shown = user.json(&["key", "show"]).await;
    assert_eq!(
        (&shown[0]["id"], &shown[0]["used"]),
        (&key["id"], &Value::from(true))
    );

    // Requests with a body, a query, a tenant, an idempotency key and a percent-encoded path.
    let event = r#"{"specversion":"1.0","id":"e-1","source":"urn:shop","type":"OrderPlaced","data":{"orderId":"o 1/ü"}}"#;
    std::fs::write(user.path("events.jsonl"), event).unwrap();
    let events = user.path("events.jsonl").display().to_string();
    let url = ["--url", &*node.url, "--tenant", "acme"];
    user.json(&[&["publish", &*events][..], &url].concat())
        .await;
    let start = [
        "saga",
        "start",
        "order",
        "--id",
        "o-2",
        "--data",
        r#"{"orderId":"o-2"}"#,
        "--idempotency-key",
        "k",
    ];
    user.json(&[&start[..], &url].concat()).await;
    user.json(
        &[
            &["saga", "cancel", "order", "o-2", "--reason", "test"][..],
            &url,
        ]
        .concat(),
    )
    .await;
    user.json(
        &[
            &[
                "saga",
                "list",
                "--saga",
                "order",
                "--filter",
                "created_at != null",
            ][..],
            &url,
        ]
        .concat(),
    )
    .await;
    let backup = user.path("backup").display().to_string();
    user.json(&["backup", "--to", &backup, "--url", &node.url])
        .await;
    let trail = user
        .json(&[&["audit", "--all"][..], &url[..2]].concat())
        .await;
    let records = trail["items"].as_array().unwrap();
    assert!(records.len() >= 4, "{trail}");
    for record in records {
        assert_eq!(
            (&record["user"], &record["key"]),
            (&Value::from("ada"), &key["id"]),
            "{record}"
        );
    }

    // A reload revokes the key; the administrator token still applies, and has precedence over a selected key.
    user.configure(&format!("{{ public = \"{public}\", revoked = true }}"));
    user.json(&["reload", "--url", &node.url]).await;
    let error = user.failure(&list).await;
    assert!(
        error.contains("OR0076") && error.contains("revoked"),
        "{error}"
    );
    let mut with_token = user.command(&list);
    with_token.env("ORLOG_TOKEN_FILE", user.path("data/admin-token"));
    assert_eq!(run(with_token).await.0, 0);
    assert_eq!(run(user.command(&["key", "use", "--none"])).await.0, 0);
    assert!(user.failure(&list).await.contains("OR0040"));
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_is_rejected_also_after_kill() {
    let (user, ada) = (Fixture::new(), Signer::new());
    user.configure(&format!("\"{}\"", ada.key.public_key()));
    let node = user.node();
    let pause = || {
        ada.sign(Draft::new(
            Method::POST,
            "acme",
            "/v1/sagas/order/none/pause",
            "{}",
        ))
    };
    let recorded = [pause(), pause(), pause()];
    for draft in &recorded {
        send(&node, draft).await.rejected(404, "OR0011");
    }
    node.kill();
    let node = user.node();
    for draft in &recorded {
        send(&node, draft).await.rejected(401, "OR0075");
    }
    send(&node, &pause()).await.rejected(404, "OR0011");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_errors_name_the_remedy() {
    let user = Fixture::new();
    assert!(
        user.failure(&["key", "show", "laptop"])
            .await
            .contains("there are none; `orlog key new` creates one")
    );
    user.json(&["key", "new"]).await;
    assert!(
        user.failure(&["key", "new"])
            .await
            .contains("choose another --name")
    );
    assert!(
        user.failure(&["key", "new", "--name", "../x"])
            .await
            .contains("invalid name")
    );
    assert!(
        user.failure(&["key", "use", "other"])
            .await
            .contains("keys: default")
    );
    let file = user.path("config/orlog/keys/default.key");
    let path = file.display().to_string();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    // A node may run at the default address.
    let by_file = ["timers", "--key", &path, "--url", "http://127.0.0.1:1"];
    assert!(
        user.failure(&by_file)
            .await
            .contains(&format!("run `chmod 600 {path}`"))
    );
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(user.failure(&by_file).await.contains("no response from"));
    std::fs::write(&file, "secret").unwrap();
    let error = user.failure(&by_file).await;
    assert!(
        error.contains("PKCS#8") && !error.contains("secret"),
        "{error}"
    );
    // The variable applies as the option, also with a key of OpenSSL.
    let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n\
               -----END PRIVATE KEY-----\n";
    std::fs::write(&file, pem).unwrap();
    let mut command = user.command(&["timers", "--url", "http://127.0.0.1:1"]);
    command.env("ORLOG_KEY_FILE", &path);
    assert!(run(command).await.2.contains("no response from"));
    let shown = user.json(&["key", "show", "default"]).await;
    assert_eq!(
        shown[0]["public_key"],
        "ed25519:JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"
    );
}
