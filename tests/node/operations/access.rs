//! Roles and tenants, gateways, and the rejected start of a node without access control.

use orlog::config::AuthMode;
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::json;

use crate::harness::process::{orlog, run};
use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::{Node, placed};

#[tokio::test(flavor = "multi_thread")]
async fn roles_grant_exactly_their_permissions() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let acme = json!("acme");
    let [viewer, operator, admin] =
        ["viewer", "operator", "admin"].map(|role| key.token(&format!("the-{role}"), role, &acme));
    let root = key.token("root", "admin", &json!(["*"]));

    node.request(&viewer, "acme", "GET", "/v1/sagas").await.ok();
    let detail = node
        .call(&viewer, "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .rejected(403, "OR0042");
    assert_eq!(
        detail,
        "this requires the right \"publish\"; roles that grant it: publisher, operator, admin; roles of the-viewer: viewer"
    );
    node.call(
        &operator,
        "acme",
        "POST",
        "/v1/events",
        Some(&placed("o-1")),
    )
    .await
    .ok();
    let migrate = "/v1/definitions/order/migrate";
    node.call(
        &operator,
        "acme",
        "POST",
        migrate,
        Some(&json!({ "from": "1" })),
    )
    .await
    .rejected(403, "OR0042");
    let migrated = node
        .call(
            &admin,
            "acme",
            "POST",
            migrate,
            Some(&json!({ "from": "1", "dry_run": true })),
        )
        .await;
    assert!(
        ![401, 403].contains(&migrated.status.as_u16()),
        "{migrated:?}"
    );

    // Requests about the node require access to all tenants, in every role.
    for (method, path) in [
        ("POST", "/admin/reload"),
        ("POST", "/admin/drain"),
        ("GET", "/info"),
    ] {
        node.request(&admin, "", method, path)
            .await
            .rejected(403, "OR0043");
    }
    node.request(&viewer, "", "POST", "/admin/reload")
        .await
        .rejected(403, "OR0042");
    node.request(&root, "", "POST", "/admin/reload").await.ok();
    node.request(&root, "", "GET", "/info").await.ok();

    // An unknown role grants no access.
    let strange = key.token("eve", "root", &acme);
    let detail = node
        .request(&strange, "acme", "GET", "/v1/sagas")
        .await
        .rejected(403, "OR0042");
    assert_eq!(
        detail,
        "this requires the right \"read\"; roles that grant it: viewer, auditor, operator, admin; roles of eve: none"
    );
    let several = key.sign(&{
        let mut claims = crate::operations::issuer::claims("ada", "", &acme);
        claims["role"] = json!(["viewer", "baker", "operator"]);
        claims
    });
    node.call(&several, "acme", "POST", "/v1/events", Some(&placed("o-2")))
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_requires_the_right_of_its_instruction() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let [viewer, operator, admin] = ["viewer", "operator", "admin"]
        .map(|role| key.token(&format!("the-{role}"), role, &json!("acme")));
    let post = async |token: &str, path: &str, body: serde_json::Value| {
        node.call(token, "acme", "POST", path, Some(&body)).await
    };
    let batch = |id: &str, action: &str| json!({ "id": id, "saga": "order", "action": { "type": action }, "canary": 1 });
    post(&viewer, "/v1/batches", batch("c", "cancel"))
        .await
        .rejected(403, "OR0042");
    let created = post(&operator, "/v1/batches", batch("c", "cancel"))
        .await
        .ok();
    assert_eq!(created["user"], "the-operator");
    let mut other_user = batch("d", "cancel");
    other_user["user"] = json!("bob");
    post(&operator, "/v1/batches", other_user)
        .await
        .rejected(403, "OR0042");
    // A dry run reveals what the instruction would do, so it requires the same right.
    let mut migrate = batch("m", "migrate");
    for dry_run in [true, false] {
        migrate["dry_run"] = json!(dry_run);
        let detail = post(&operator, "/v1/batches", migrate.clone())
            .await
            .rejected(403, "OR0042");
        assert!(detail.contains("right to administer"), "{detail}");
    }
    post(&admin, "/v1/batches", migrate).await.ok();
    for verb in ["pause", "resume", "stop"] {
        post(&operator, &format!("/v1/batches/m/{verb}"), json!({}))
            .await
            .rejected(403, "OR0042");
    }
    post(&viewer, "/v1/batches/c/stop", json!({}))
        .await
        .rejected(403, "OR0042");
    node.request(&viewer, "acme", "GET", "/v1/batches/m")
        .await
        .ok();
    node.request(&viewer, "other", "GET", "/v1/batches/m")
        .await
        .rejected(403, "OR0043");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_tenant_is_rejected() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let one = key.token("ada", "operator", &json!("acme"));
    let two = key.token("bob", "operator", &json!(["acme", "beta"]));
    let nobodys = key.token("eve", "operator", &json!([]));

    // Without a header, the only tenant applies.
    node.call(&one, "", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    let mut seen = false;
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    for _ in 0..500 {
        tick.tick().await;
        seen = node
            .request(&two, "acme", "GET", "/v1/sagas/order/o-1")
            .await
            .status
            == 200;
        if seen {
            break;
        }
    }
    assert!(seen, "the order is acme's");
    node.request(&two, "beta", "GET", "/v1/sagas/order/o-1")
        .await
        .rejected(404, "OR0011");

    // With several tenants, the default tenant applies, and it is not one of them.
    let detail = node
        .request(&two, "", "GET", "/v1/sagas")
        .await
        .rejected(403, "OR0043");
    assert!(detail.contains("default tenant"), "{detail}");
    for token in [&one, &two, &nobodys] {
        node.request(token, "gamma", "GET", "/v1/sagas")
            .await
            .rejected(403, "OR0043");
    }
    node.request(&nobodys, "", "GET", "/v1/sagas")
        .await
        .rejected(403, "OR0043");
    let bearer = format!("Bearer {one}");
    let twice = [
        ("authorization", bearer.as_str()),
        ("x-tenant-id", "acme"),
        ("x-tenant-id", "beta"),
    ];
    node.send("GET", "/v1/sagas", &twice, None)
        .await
        .rejected(403, "OR0043");
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_caller_sees_public_routes_only() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    for path in ["/health", "/ready", "/", "/openapi.json", "/errors/OR0040"] {
        assert_eq!(
            node.send("GET", path, &[], None).await.status,
            200,
            "{path}"
        );
    }
    for path in [
        "/info",
        "/metrics",
        "/v1/sagas",
        "/v1/audit",
        "/v1/inspect/saga",
    ] {
        let response = node.send("GET", path, &[], None).await;
        response.rejected(401, "OR0040");
        assert_eq!(response.headers["www-authenticate"], "Bearer");
    }
    node.send("POST", "/admin/drain", &[], None)
        .await
        .rejected(401, "OR0040");
    assert!(node.app.runtime.health().accepting);
    node.send("GET", "/nothing", &[], None)
        .await
        .rejected(404, "OR0009");
    let open = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.public_routes = vec!["/metrics".to_owned()];
    })
    .await;
    assert_eq!(open.send("GET", "/metrics", &[], None).await.status, 200);
    open.send("GET", "/info", &[], None)
        .await
        .rejected(401, "OR0040");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_headers_require_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "canary-7f3a\n").unwrap();
    let node = Node::start(|config| {
        config.auth.mode = AuthMode::Gateway;
        config.auth.gateway.secret = Some(format!("file:{}", secret.display()).parse().unwrap());
    })
    .await;
    let presented = ("x-orlog-gateway-secret", "canary-7f3a");
    let ada = [
        presented,
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "operator"),
        ("x-orlog-tenants", "acme, beta"),
    ];
    let for_acme: Vec<_> = ada.into_iter().chain([("x-tenant-id", "acme")]).collect();
    node.send("POST", "/v1/events", &for_acme, Some(&placed("o-1")))
        .await
        .ok();
    let for_gamma: Vec<_> = ada.into_iter().chain([("x-tenant-id", "gamma")]).collect();
    node.send("GET", "/v1/sagas", &for_gamma, None)
        .await
        .rejected(403, "OR0043");
    node.send("POST", "/admin/reload", &ada, None)
        .await
        .rejected(403, "OR0042");

    // Without a list of tenants, the caller would select its tenants.
    let bare = [
        presented,
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "admin"),
        ("x-tenant-id", "gamma"),
    ];
    for (method, path) in [("GET", "/v1/sagas"), ("POST", "/admin/reload")] {
        let detail = node
            .send(method, path, &bare, None)
            .await
            .rejected(401, "OR0040");
        assert!(detail.contains("x-orlog-tenants"), "{detail}");
    }
    let default_only = [
        presented,
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "viewer"),
        ("x-orlog-tenants", ""),
    ];
    node.send("GET", "/v1/sagas", &default_only, None)
        .await
        .ok();
    let other: Vec<_> = default_only
        .into_iter()
        .chain([("x-tenant-id", "gamma")])
        .collect();
    node.send("GET", "/v1/sagas", &other, None)
        .await
        .rejected(403, "OR0043");

    node.send("GET", "/v1/sagas", &for_acme[1..], None)
        .await
        .rejected(401, "OR0040");
    let invalid_headers: Vec<_> = [("x-orlog-gateway-secret", "canary-7f3b")]
        .into_iter()
        .chain(for_acme[1..].to_vec())
        .collect();
    let response = node.send("GET", "/v1/sagas", &invalid_headers, None).await;
    response.rejected(401, "OR0041");
    assert!(!response.text.contains("canary"), "{response:?}");
    let twice: Vec<_> = for_acme
        .iter()
        .copied()
        .chain([("x-orlog-role", "admin")])
        .collect();
    node.send("GET", "/v1/sagas", &twice, None)
        .await
        .rejected(401, "OR0041");
    node.send("GET", "/v1/sagas", &[presented], None)
        .await
        .rejected(401, "OR0040");
    // A changed secret is reloaded.
    std::fs::write(&secret, "another-secret").unwrap();
    node.send("GET", "/v1/sagas", &for_acme, None)
        .await
        .rejected(401, "OR0041");
    std::fs::remove_file(&secret).unwrap();
    let detail = node
        .send("GET", "/v1/sagas", &for_acme, None)
        .await
        .rejected(503, "OR0020");
    assert!(
        detail.contains("log") && !detail.contains("secret"),
        "callers do not see the path: {detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_token_permits_every_request_and_nothing_else_does() {
    let node = Node::start(|config| config.auth.mode = AuthMode::Token).await;
    let file = node.data().join("admin-token");
    let token = std::fs::read_to_string(&file).unwrap();
    let token = token.trim();
    for path in ["/health", "/ready", "/"] {
        assert_eq!(
            node.send("GET", path, &[], None).await.status,
            200,
            "{path}"
        );
    }
    for (method, path) in [
        ("GET", "/v1/sagas"),
        ("GET", "/info"),
        ("POST", "/admin/reload"),
        ("POST", "/v1/events"),
    ] {
        let detail = node
            .send(method, path, &[], None)
            .await
            .rejected(401, "OR0040");
        assert!(
            detail.contains("ORLOG_TOKEN_FILE") && !detail.contains(token),
            "{detail}"
        );
        for wrong in [
            "00",
            &token[1..],
            &token.to_uppercase(),
            &format!("{token}0"),
        ] {
            let response = node.request(wrong, "", method, path).await;
            response.rejected(401, "OR0041");
            assert!(!response.text.contains(token), "{response:?}");
        }
    }
    node.call(token, "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    node.request(token, "", "GET", "/info").await.ok();
    node.request(token, "", "POST", "/admin/reload").await.ok();
    let records = node.request(token, "acme", "GET", "/v1/audit").await.ok();
    assert_eq!(records["items"][0]["user"], "admin", "{records}");

    let list = || orlog(&["saga", "list", "--url", &node.url]);
    let (code, _, error) = run(list()).await;
    assert!(code != 0 && error.contains("OR0040"), "{error}");
    let [mut by_file, mut by_value] = [list(), list()];
    by_file.env("ORLOG_TOKEN_FILE", &file);
    by_value.env("ORLOG_TOKEN", token);
    assert_eq!((run(by_file).await.0, run(by_value).await.0), (0, 0));
}

const REVIEW: &str = "
saga: review
version: 1
correlate: reviewId
start: ReviewAsked
steps:
  - { id: clerk, after: [], do: { human: { title: Check it, roles: [clerk] } }, ok: Checked }
  - { id: director, after: [], do: { human: { title: Sign it, roles: [director] } }, ok: Signed }
";

fn with_review(config: &mut orlog::config::Config) {
    std::fs::write(
        config
            .definitions_dir
            .as_ref()
            .unwrap()
            .join("review.saga.yaml"),
        REVIEW,
    )
    .unwrap();
}

/// Requests a review; returns the paths of the tasks of the clerk and of the director.
async fn tasks_of_review(node: &Node, headers: &[(&str, &str)]) -> [String; 2] {
    let event = json!({ "specversion": "1.0", "id": "r-1", "source": "/test", "type": "ReviewAsked", "data": { "reviewId": "r-1" } });
    node.send("POST", "/v1/events", headers, Some(&event))
        .await
        .ok();
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        let tasks = node.send("GET", "/v1/tasks", headers, None).await.ok();
        let of = |role: &str| {
            let tasks = tasks["items"].as_array().unwrap();
            let task = tasks.iter().find(|task| task["roles"] == json!([role]))?;
            Some(format!("/v1/tasks/{}", task["id"].as_str().unwrap()))
        };
        if let (Some(clerk), Some(director)) = (of("clerk"), of("director")) {
            return [clerk, director];
        }
        assert!(std::time::Instant::now() < deadline, "{tasks}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_identity_overrides_the_body() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.groups_claim = "realm.groups".to_owned();
        with_review(config);
    })
    .await;
    let token = |user: &str, role: &str, groups: serde_json::Value| {
        let mut claims = crate::operations::issuer::claims(user, role, &json!("acme"));
        claims["realm"] = json!({ "groups": groups });
        key.sign(&claims)
    };
    let (ada, service) = (
        token("ada", "operator", json!(["clerk"])),
        token("desk", "admin", json!([])),
    );
    let bearer = format!("Bearer {ada}");
    let [clerk, director] = tasks_of_review(&node, &[("authorization", &bearer)]).await;
    let claim = |token: &'static str, task: &str, body: serde_json::Value| {
        let (node, path) = (&node, format!("{task}/claim"));
        let token = if token == "ada" {
            ada.clone()
        } else {
            service.clone()
        };
        async move { node.call(&token, "acme", "POST", &path, Some(&body)).await }
    };
    // Her own claims about her identity are ignored.
    let detail = claim(
        "ada",
        &director,
        json!({ "user": "boss", "roles": ["director"] }),
    )
    .await;
    assert_eq!(
        detail.rejected(403, "OR0042"),
        "roles: ada does not have the role \"director\""
    );
    let detail = claim("ada", &clerk, json!({ "user": "boss" }))
        .await
        .rejected(403, "OR0042");
    assert_eq!(
        detail,
        "user: the caller is ada and cannot act as \"boss\"; omit the field"
    );
    claim("ada", &director, json!({}))
        .await
        .rejected(409, "OR0027");
    claim("ada", &clerk, json!({})).await.ok();
    let task = node.request(&ada, "acme", "GET", &clerk).await.ok();
    assert_eq!(
        (&task["claimed_by"], &task["status"]),
        (&json!("ada"), &json!("claimed")),
        "{task}"
    );
    // A service may act for other users.
    claim(
        "service",
        &director,
        json!({ "user": "boss", "roles": ["director"] }),
    )
    .await
    .ok();
    let task = node.request(&ada, "acme", "GET", &director).await.ok();
    assert_eq!(task["claimed_by"], "boss", "{task}");

    let review = "/v1/sagas/review/r-1";
    let pause = format!("{review}/pause");
    node.call(
        &ada,
        "acme",
        "POST",
        &pause,
        Some(&json!({ "user": "boss" })),
    )
    .await
    .rejected(403, "OR0042");
    node.request(&ada, "acme", "POST", &pause).await.ok();
    let history = node.request(&ada, "acme", "GET", review).await.ok()["history"].clone();
    assert!(history.to_string().contains("paused by ada"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_groups_restrict_tasks() {
    let node = Node::start(|config| {
        config.auth.mode = AuthMode::Gateway;
        config.auth.gateway.sources = vec!["127.0.0.1".to_owned()];
        with_review(config);
    })
    .await;
    let ada = [
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "operator"),
        ("x-orlog-tenants", "acme"),
        ("x-orlog-groups", "clerk, baker"),
    ];
    let [clerk, director] = tasks_of_review(&node, &ada).await;
    let stated = json!({ "roles": ["director"] });
    node.send("POST", &format!("{director}/claim"), &ada, Some(&stated))
        .await
        .rejected(403, "OR0042");
    node.send("POST", &format!("{director}/claim"), &ada, None)
        .await
        .rejected(409, "OR0027");
    node.send("POST", &format!("{clerk}/claim"), &ada, None)
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_headers_require_a_listed_address() {
    let ada = [
        ("x-orlog-user", "ada"),
        ("x-orlog-role", "viewer"),
        ("x-orlog-tenants", "*"),
    ];
    for (source, status) in [
        ("127.0.0.1", 200),
        ("127.0.0.0/8", 200),
        ("10.0.0.0/8", 401),
        ("::1", 401),
    ] {
        let node = Node::start(|config| {
            config.auth.mode = AuthMode::Gateway;
            config.auth.gateway.sources = vec![source.to_owned()];
        })
        .await;
        let response = node.send("GET", "/info", &ada, None).await;
        assert_eq!(response.status, status, "{source}: {response:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_public_listener_prevents_startup() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let args = [
        "run",
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 2, "{errors}");
    assert!(
        errors.contains("auth.mode: 0.0.0.0:0 is reachable without authentication"),
        "{errors}"
    );
    assert!(!data.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_sends_its_token() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let token = key.token("ada", "viewer", &json!("acme"));
    let args = ["saga", "list", "--url", &node.url, "--tenant", "acme"];
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("OR0040"), "{errors}");
    let mut command = orlog(&args);
    command.env("ORLOG_TOKEN", &token);
    let (code, presented, errors) = run(command).await;
    assert_eq!(
        (code, presented.as_str()),
        (0, "no instances\n"),
        "{errors}"
    );
    let file = node.dir.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let with_file = [&args[..], &["--token-file", file.to_str().unwrap()]].concat();
    assert_eq!(run(orlog(&with_file)).await.0, 0);
    std::fs::write(&file, "\n").unwrap();
    let (code, _, errors) = run(orlog(&with_file)).await;
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("holds no token"), "{errors}");
}
