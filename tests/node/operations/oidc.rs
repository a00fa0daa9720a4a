//! Log-in by OpenID Connect: a real provider (oidc-provider-mock), and a strict one whose responses can be wrong.
//!
//! Size: a log-in is one dialog with the provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::child_process::ChildProcess;
use orlog_testkit::host::{free_port, missing};
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use crate::harness::http::HttpResponse;
use crate::harness::http::client;
use crate::operations::issuer::{Key, claims};
use crate::operations::node::{Node, placed};

const CLIENT: &str = "orlog-ui";
const SECRET: &str = "client-secret & more";
const SESSION: &str = "__Host-orlog-session";
const LOGIN: &str = "__Host-orlog-login";

/// Starts a node whose users log in at this issuer.
async fn node(issuer: &str, jwks: &str, change: impl FnOnce(&mut orlog::Config)) -> Node {
    Node::with_tokens(|config| {
        jwks.clone_into(&mut config.auth.jwt.jwks_url);
        issuer.clone_into(&mut config.auth.jwt.issuer);
        CLIENT.clone_into(&mut config.auth.oidc.client_id);
        // A browser would be redirected here; these tests send the query to the node themselves.
        "http://127.0.0.1:1/auth/callback".clone_into(&mut config.auth.oidc.redirect_url);
        change(config);
    })
    .await
}

/// Returns the value of a cookie that a response sets, after a check of its attributes.
#[track_caller]
fn set_cookie(headers: &HeaderMap, name: &str, same_site: &str) -> String {
    let mut texts = headers
        .get_all("set-cookie")
        .iter()
        .map(|value| value.to_str().unwrap());
    let text = texts
        .find_map(|text| text.strip_prefix(name)?.strip_prefix('='))
        .expect("it is set");
    let (value, attributes) = text.split_once("; ").unwrap();
    for attribute in [
        "Path=/",
        "Secure",
        "HttpOnly",
        &format!("SameSite={same_site}"),
    ] {
        assert!(
            attributes.split("; ").any(|found| found == attribute),
            "{text}"
        );
    }
    value.to_owned()
}

fn query(url: &str, name: &str) -> String {
    let url = Url::parse(url).unwrap();
    let found = url.query_pairs().find(|(key, _)| key == name);
    found
        .unwrap_or_else(|| panic!("{url} has no {name}"))
        .1
        .into_owned()
}

/// Log-in in progress: the URL of the provider, and the cookie of the browser.
async fn start(node: &Node) -> (String, String) {
    let response = node.send("GET", "/auth/login", &[], None).await;
    assert_eq!(response.status, 303, "{response:?}");
    let cookie = set_cookie(&response.headers, LOGIN, "Lax");
    (
        response.headers["location"].to_str().unwrap().to_owned(),
        format!("{LOGIN}={cookie}"),
    )
}

async fn call_back(node: &Node, query: &str, cookie: &str) -> HttpResponse {
    // A browser comes from the site of the provider.
    let headers = [
        ("cookie", cookie),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
    ];
    node.send("GET", &format!("/auth/callback?{query}"), &headers, None)
        .await
}

/// Provider that checks the requests of a client strictly.
struct Provider {
    issuer: String,
    /// Challenge of the code, and claims of the next ID token.
    next: Arc<Mutex<(String, Value)>>,
}

impl Provider {
    async fn open(key: Arc<Key>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let next: Arc<Mutex<(String, Value)>> = Arc::default();
        let (of_issuer, known, public) = (issuer.clone(), Arc::clone(&next), key.public());
        let configuration = move || {
            let issuer = of_issuer.clone();
            let found = json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize?tenant=x"),
                "token_endpoint": format!("{issuer}/token"),
            });
            async move { Json(found) }
        };
        let token = move |headers: HeaderMap, body: String| {
            let form = Url::parse(&format!("form:x?{body}")).unwrap();
            let field = |name: &str| {
                form.query_pairs()
                    .find(|(key, _)| key == name)
                    .map(|(_, value)| value.into_owned())
                    .unwrap_or_default()
            };
            let (challenge, claims) = known.lock().clone();
            let basic = headers
                .get("authorization")
                .map(|value| value.to_str().unwrap().to_owned());
            let expected = format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD
                    .encode("orlog%2Dui:client%2Dsecret%20%26%20more")
            );
            let is_valid = URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier")))
                == challenge
                && field("grant_type") == "authorization_code"
                && field("code") == "code-1"
                && field("redirect_uri") == "http://127.0.0.1:1/auth/callback"
                && basic
                    .as_deref()
                    .map_or(field("client_id") == CLIENT, |basic| basic == expected);
            let answer = if is_valid {
                json!({ "id_token": key.sign(&claims) })
            } else {
                json!({ "error": "invalid_grant" })
            };
            let status = if is_valid { 200 } else { 400 };
            async move {
                (
                    axum::http::StatusCode::from_u16(status).unwrap(),
                    Json(answer),
                )
            }
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route(
                "/jwks",
                get(move || async move { Json(json!({ "keys": [public] })) }),
            )
            .route("/token", post(token));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { issuer, next }
    }

    /// Logs in with these changes to the claims of a valid ID token.
    async fn log_in(&self, node: &Node, change: impl FnOnce(&mut Value)) -> HttpResponse {
        let (url, cookie) = start(node).await;
        let mut claims = claims("ada", "operator", &json!("*"));
        (claims["iss"], claims["aud"]) = (json!(self.issuer), json!(CLIENT));
        claims["nonce"] = json!(query(&url, "nonce"));
        change(&mut claims);
        *self.next.lock() = (query(&url, "code_challenge"), claims);
        call_back(
            node,
            &format!("code=code-1&state={}", query(&url, "state")),
            &cookie,
        )
        .await
    }
}

async fn with_strict_provider() -> (Arc<Key>, Provider, Node, tempfile::TempDir) {
    let key = Arc::new(Key::ed("a"));
    let provider = Provider::open(Arc::clone(&key)).await;
    let dir = tempfile::tempdir().unwrap();
    let (secret, denied) = (dir.path().join("secret"), dir.path().join("denied.toml"));
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::write(&denied, "").unwrap();
    let node = node(
        &provider.issuer,
        &format!("{}/jwks", provider.issuer),
        |config| {
            config.auth.oidc.client_secret =
                Some(format!("file:{}", secret.display()).parse().unwrap());
            config.auth.jwt.denied_file = Some(denied);
        },
    )
    .await;
    (key, provider, node, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn log_in_creates_a_session_that_authenticates_until_the_log_out() {
    let (_key, provider, node, dir) = with_strict_provider().await;
    let (url, _) = start(&node).await;
    assert!(
        url.starts_with(&format!(
            "{}/authorize?tenant=x&response_type=code&client_id=orlog-ui",
            provider.issuer
        )),
        "{url}"
    );
    assert_eq!(
        (query(&url, "code_challenge_method"), query(&url, "scope")),
        ("S256".into(), "openid profile".into())
    );
    let denied = node.send("GET", "/v1/sagas", &[], None).await;
    denied.rejected(401, "OR0040");
    assert_eq!(denied.headers["x-orlog-login"], "/auth/login");

    let response = provider.log_in(&node, |_| {}).await;
    assert_eq!(
        (response.status.as_u16(), &response.headers["location"]),
        (303, &"/".parse().unwrap()),
        "{response:?}"
    );
    let session = format!(
        "{SESSION}={}",
        set_cookie(&response.headers, SESSION, "Strict")
    );
    let found = node
        .send("GET", "/auth/caller", &[("cookie", &session)], None)
        .await
        .ok();
    assert_eq!(
        (&found["user"], &found["roles"], &found["session"]),
        (&json!("ada"), &json!(["operator"]), &json!(true))
    );

    // A change requires the header that every browser sends.
    let event = placed("o-1");
    let origin = node.url.clone();
    let post = async |headers: &[(&str, &str)]| {
        node.send("POST", "/v1/events", headers, Some(&event)).await
    };
    post(&[("cookie", &session)]).await.rejected(403, "OR0046");
    post(&[("cookie", &session), ("origin", "https://evil.example")])
        .await
        .rejected(403, "OR0046");
    post(&[("cookie", &session), ("origin", &origin)])
        .await
        .ok();
    let cross = [
        ("cookie", session.as_str()),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "no-cors"),
    ];
    node.send("GET", "/v1/sagas", &cross, None)
        .await
        .rejected(403, "OR0046");

    let audit = node
        .send("GET", "/v1/audit?all=true", &[("cookie", &session)], None)
        .await;
    audit.rejected(403, "OR0042");
    let mut text = String::new();
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    while !text.contains("/auth/callback") {
        assert!(
            std::time::Instant::now() < deadline,
            "the log-in creates a record: {text}"
        );
        let files = std::fs::read_dir(node.data().join("audit"))
            .unwrap()
            .map(|file| file.unwrap().path());
        text = files
            .map(|file| std::fs::read_to_string(file).unwrap_or_default())
            .collect();
        tokio::task::yield_now().await;
    }
    let line = text
        .lines()
        .find(|line| line.contains("GET /auth/callback"))
        .unwrap();
    assert!(
        line.contains("\"user\":\"ada\"") && !line.contains("code-1"),
        "{line}"
    );

    // A denied subject ends the session.
    let other = provider
        .log_in(&node, |claims| claims["sub"] = json!("bob"))
        .await;
    let bobs = format!(
        "{SESSION}={}",
        set_cookie(&other.headers, SESSION, "Strict")
    );
    node.send("GET", "/v1/sagas", &[("cookie", &bobs)], None)
        .await
        .ok();
    std::fs::write(dir.path().join("next"), "sub = [\"bob\"]").unwrap();
    std::fs::rename(dir.path().join("next"), dir.path().join("denied.toml")).unwrap();
    let detail = node
        .send("GET", "/v1/sagas", &[("cookie", &bobs)], None)
        .await
        .rejected(401, "OR0041");
    assert_eq!(detail, "the session has ended; log in again");

    node.send("GET", "/v1/sagas", &[("cookie", &session)], None)
        .await
        .ok();
    let out = node
        .send(
            "POST",
            "/auth/logout",
            &[("cookie", &session), ("origin", &origin)],
            None,
        )
        .await;
    assert_eq!(
        (
            out.status.as_u16(),
            set_cookie(&out.headers, SESSION, "Strict")
        ),
        (204, String::new())
    );
    node.send("GET", "/v1/sagas", &[("cookie", &session)], None)
        .await
        .rejected(401, "OR0041");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_log_ins_are_rejected_without_a_reason() {
    let (_key, provider, node, _dir) = with_strict_provider().await;
    let rejected = |response: &HttpResponse| {
        let detail = response.rejected(401, "OR0047");
        assert!(detail.contains("start it again at /auth/login"), "{detail}");
        assert!(response.headers.get("set-cookie").is_none());
    };
    rejected(
        &provider
            .log_in(&node, |claims| claims["nonce"] = json!("other"))
            .await,
    );
    rejected(
        &provider
            .log_in(&node, |claims| claims["nonce"] = Value::Null)
            .await,
    );
    rejected(
        &provider
            .log_in(&node, |claims| claims["aud"] = json!("orlog"))
            .await,
    );
    rejected(
        &provider
            .log_in(&node, |claims| claims["iss"] = json!("https://else.test/"))
            .await,
    );
    rejected(
        &provider
            .log_in(&node, |claims| claims["exp"] = json!(1))
            .await,
    );
    rejected(
        &provider
            .log_in(&node, |claims| claims["azp"] = json!("another-client"))
            .await,
    );
    // Two log-ins: the code of one with the cookie of the other, and with no cookie.
    let ((one, _), (_, other)) = (start(&node).await, start(&node).await);
    let state = query(&one, "state");
    for cookie in [other.as_str(), "", &format!("{LOGIN}={state}")] {
        rejected(&call_back(&node, &format!("code=code-1&state={state}"), cookie).await);
    }
    // The provider rejects a verifier that belongs to another challenge.
    let (url, cookie) = start(&node).await;
    rejected(
        &call_back(
            &node,
            &format!("code=code-1&state={}", query(&url, "state")),
            &cookie,
        )
        .await,
    );
    rejected(&call_back(&node, "error=access_denied&state=x", &cookie).await);
    let forged = format!("{SESSION}={}", "0".repeat(64));
    node.send("GET", "/v1/sagas", &[("cookie", &forged)], None)
        .await
        .rejected(401, "OR0041");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_at_its_maximum_age_and_a_node_without_log_in_has_no_routes_for_it() {
    let key = Arc::new(Key::ed("a"));
    let provider = Provider::open(Arc::clone(&key)).await;
    // A public client: PKCE replaces the secret.
    let short = node(
        &provider.issuer,
        &format!("{}/jwks", provider.issuer),
        |config| {
            config.auth.oidc.session_max_age = Duration::from_millis(300);
        },
    )
    .await;
    let response = provider.log_in(&short, |_| {}).await;
    let session = format!(
        "{SESSION}={}",
        set_cookie(&response.headers, SESSION, "Strict")
    );
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let ended = tokio::time::timeout(WAIT_TIMEOUT, async {
        while short
            .send("GET", "/v1/sagas", &[("cookie", &session)], None)
            .await
            .status
            == 200
        {
            tick.tick().await;
        }
    });
    ended.await.expect("the session ends");
    short
        .send("GET", "/v1/sagas", &[("cookie", &session)], None)
        .await
        .rejected(401, "OR0041");
    let without = Node::start(|_| {}).await;
    without
        .send("GET", "/auth/login", &[], None)
        .await
        .rejected(404, "OR0009");
    without
        .send("GET", "/auth/callback?code=x&state=y", &[], None)
        .await
        .rejected(404, "OR0009");
}

/// Returns the directory of the packages that `make test-tools` installs.
fn packages() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/oidc-provider");
    if !path.join("oidc_provider_mock").is_dir() {
        missing("oidc-provider-mock", "test-tools");
    }
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn user_logs_in_at_a_real_provider() {
    let packages = packages();
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let user = json!({ "sub": "ada", "role": ["operator"], "tenant": "*", "groups": ["clerk"] })
        .to_string();
    let port_text = port.to_string();
    let arguments = [
        "-m",
        "oidc_provider_mock",
        "-p",
        &port_text,
        "--user-claims",
        &user,
    ];
    let variables = [("PYTHONPATH".to_owned(), packages)];
    let log = dir.path().join("log");
    let _provider = ChildProcess::start(
        Path::new("/usr/bin/env"),
        &[&["python3"][..], &arguments].concat(),
        &variables,
        &log,
    );
    let issuer = format!("http://127.0.0.1:{port}");
    let http = client();
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let ready = tokio::time::timeout(WAIT_TIMEOUT, async {
        while http.get(format!("{issuer}/jwks")).send().await.is_err() {
            tick.tick().await;
        }
    });
    ready
        .await
        .unwrap_or_else(|_| panic!("{}", std::fs::read_to_string(&log).unwrap_or_default()));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let node = node(&issuer, &format!("{issuer}/jwks"), |config| {
        config.auth.oidc.client_secret =
            Some(format!("file:{}", secret.display()).parse().unwrap());
    })
    .await;
    let (url, cookie) = start(&node).await;
    let form = http
        .post(&url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body("sub=ada");
    let response = form.send().await.unwrap();
    let location = response
        .headers()
        .get("location")
        .expect("the provider redirects")
        .to_str()
        .unwrap();
    assert!(
        location.starts_with("http://127.0.0.1:1/auth/callback?"),
        "{location}"
    );
    let found = Url::parse(location).unwrap();
    let response = call_back(&node, found.query().unwrap(), &cookie).await;
    assert_eq!(
        response.status,
        303,
        "{response:?}\n{}",
        std::fs::read_to_string(&log).unwrap()
    );
    let session = format!(
        "{SESSION}={}",
        set_cookie(&response.headers, SESSION, "Strict")
    );
    let found = node
        .send("GET", "/auth/caller", &[("cookie", &session)], None)
        .await
        .ok();
    let expected = (
        json!("ada"),
        json!(["operator"]),
        Value::Null,
        json!(["clerk"]),
    );
    assert_eq!(
        (
            &found["user"],
            &found["roles"],
            &found["tenants"],
            &found["task_roles"]
        ),
        (&expected.0, &expected.1, &expected.2, &expected.3)
    );
    // The provider gives each code once.
    let again = call_back(
        &node,
        Url::parse(location).unwrap().query().unwrap(),
        &cookie,
    )
    .await;
    again.rejected(401, "OR0047");
}
