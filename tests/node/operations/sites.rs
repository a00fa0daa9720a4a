//! Requests of web pages of other sites, and the session token of a development node.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::harness::process::Process;
use crate::harness::process::{orlog, run};
use crate::operations::node::Node;

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_command_no_node() {
    let node = Node::start(|config| {
        config.http.allowed_hosts = vec!["orlog.example.com".parse().unwrap()];
    })
    .await;
    let http = orlog_effect::http::client().build().unwrap();
    let changes = [
        "/admin/drain",
        "/admin/deploy",
        "/v1/replays",
        "/v1/work/claim",
        "/v1/dead-letters/redrive",
    ];
    for path in changes {
        // What a form or a script of another site can send without the consent of the node.
        for form in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
        ] {
            let response = node
                .send("POST", path, &[("content-type", form)], None)
                .await;
            response.rejected(415, "OR0004");
        }
        let bare = http
            .post(format!("{}{path}", node.url))
            .send()
            .await
            .unwrap();
        assert_eq!(bare.status(), 415, "{path}");
        for site in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
        ] {
            node.send("POST", path, &[site], None)
                .await
                .rejected(403, "OR0046");
        }
    }
    for path in ["/info", "/v1/sagas", "/"] {
        let detail = node
            .send("GET", path, &[("host", "rebound.evil.example")], None)
            .await
            .rejected(403, "OR0045");
        assert!(
            detail.contains("rebound.evil.example") && detail.contains("http.allowed_hosts"),
            "{detail}"
        );
        let own = node
            .send("GET", path, &[("host", "orlog.example.com")], None)
            .await;
        assert_eq!(own.status, 200, "{path}");
    }
    for path in ["/health", "/ready", "/metrics"] {
        let probe = node
            .send("GET", path, &[("host", "orlog.default.svc")], None)
            .await;
        assert_eq!(probe.status, 200, "{path}");
    }
    assert!(
        node.app.runtime.health().accepting,
        "no rejected request had an effect"
    );
    node.send("POST", "/admin/drain", &[], None).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn development_node_requires_the_token_of_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Process::start_with_session(&["--data-dir", data.to_str().unwrap()]);
    let file = data.join("session-token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let http = orlog_effect::http::client().build().unwrap();
    let get = async |path: &str, token: Option<&str>| {
        let mut request = http.get(format!("{}{path}", node.url));
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        request.send().await.unwrap().status().as_u16()
    };
    for path in ["/info", "/v1/sagas", "/v1/inspect/instance"] {
        assert_eq!(get(path, None).await, 401, "{path}");
        assert_eq!(get(path, Some("Bearer 00")).await, 401, "{path}");
        assert_eq!(get(path, Some(&bearer)).await, 200, "{path}");
    }
    for path in ["/", "/ui/app.js", "/health", "/ready"] {
        assert_eq!(get(path, None).await, 200, "{path}");
    }
    let list = || orlog(&["saga", "list", "--url", &node.url]);
    let (code, _, error) = run(list()).await;
    assert!(code != 0 && error.contains("ORLOG_TOKEN_FILE"), "{error}");
    let mut with_token = list();
    with_token.env("ORLOG_TOKEN_FILE", &file);
    assert_eq!(run(with_token).await.0, 0);
    node.stop();
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_token_outlasts_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let file = data.join("admin-token");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let node = Process::start_with_admin_token(&["--data-dir", data.to_str().unwrap()]);
        tokens.push(std::fs::read_to_string(&file).unwrap());
        let list = || orlog(&["saga", "list", "--url", &node.url]);
        let (code, _, error) = run(list()).await;
        assert!(
            code != 0 && error.contains("administrator token"),
            "{error}"
        );
        let mut with_token = list();
        with_token.env("ORLOG_TOKEN_FILE", &file);
        assert_eq!(run(with_token).await.0, 0);
        node.stop();
    }
    assert_eq!(tokens[0], tokens[1]);
    std::fs::write(&file, "short").unwrap();
    let mut command = orlog(&[
        "run",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    command.env("ORLOG_AUTH__MODE", "token");
    let (code, _, error) = run(command).await;
    assert!(
        code != 0 && error.contains("admin-token: no token of at least 32"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_host_patterns_are_reported() {
    for text in [
        "https://orlog.example.com",
        "orlog:7070",
        "a/b",
        "",
        "*.",
        "a.*",
    ] {
        let error = text.parse::<orlog::config::HostPattern>().unwrap_err();
        assert!(error.contains("without scheme and port"), "{error}");
    }
    assert_eq!(
        json!(
            "*.example.com"
                .parse::<orlog::config::HostPattern>()
                .unwrap()
        ),
        "*.example.com"
    );
}
