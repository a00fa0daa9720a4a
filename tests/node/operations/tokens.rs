//! Valid and invalid tokens, and key rotation.
//!
//! Size: tables of invalid tokens and their messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::operations::issuer::{Jwks, Key, claims, seconds};
use crate::operations::node::Node;

const PATH: &str = "/v1/sagas";

#[tokio::test(flavor = "multi_thread")]
async fn token_errors_explain_without_echoing_the_token() {
    let (key, stranger) = (Key::ed("a"), Key::ed("a"));
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let with = |name: &str, value: Value| {
        let mut claims = claims("ada", "viewer", &json!("acme"));
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value;
        }
        claims
    };
    let valid_claims = claims("ada", "viewer", &json!("acme"));
    node.request(&key.sign(&valid_claims), "acme", "GET", PATH)
        .await
        .ok();
    node.request(
        &key.sign(&with("aud", json!(["x", "orlog"]))),
        "acme",
        "GET",
        PATH,
    )
    .await
    .ok();
    // Within the leeway.
    node.request(
        &key.sign(&with("exp", json!(seconds() - 10))),
        "acme",
        "GET",
        PATH,
    )
    .await
    .ok();
    node.request(&key.sign(&with("nbf", Value::Null)), "acme", "GET", PATH)
        .await
        .ok();

    let signed = key.sign(&valid_claims);
    let unsigned = format!("{}.", signed.rsplit_once('.').unwrap().0);
    let header = |alg: &str| json!({ "alg": alg, "kid": "a" });
    let crit = json!({ "alg": "EdDSA", "kid": "a", "crit": ["b64"], "b64": false });
    let invalid_tokens = [
        (
            key.sign(&with("exp", json!(seconds() - 100))),
            "the token has expired",
        ),
        (
            key.sign(&with("nbf", json!(seconds() + 100))),
            "the token is not valid yet",
        ),
        (
            key.sign(&with("exp", Value::Null)),
            "the token has no claim exp",
        ),
        (
            key.sign(&with("exp", json!("never"))),
            "the token has no claim exp",
        ),
        (
            key.sign(&with("iss", json!("https://else.test/"))),
            "the token has another issuer (iss)",
        ),
        (
            key.sign(&with("iss", Value::Null)),
            "the token has no claim iss",
        ),
        (
            key.sign(&with("aud", json!("shop"))),
            "the token has another audience (aud)",
        ),
        (
            key.sign(&with("aud", Value::Null)),
            "the token has no claim aud",
        ),
        (
            key.sign(&with("sub", Value::Null)),
            "the token has no claim sub",
        ),
        (
            key.sign(&with("sub", json!("x".repeat(256)))),
            "the claim sub is too long or contains control characters",
        ),
        (
            stranger.sign(&valid_claims),
            "the signature of the token is invalid",
        ),
        (unsigned, "the signature of the token is invalid"),
        (
            key.sign_under(&header("none"), &valid_claims),
            "the token is not a signed JWT",
        ),
        (
            key.sign_under(&header("HS256"), &valid_claims),
            "the token is signed with an unknown key \"a\"",
        ),
        (
            key.sign_under(&header("RS256"), &valid_claims),
            "the token is signed with an unknown key \"a\"",
        ),
        (
            key.sign_under(&crit, &valid_claims),
            "the token requires unknown extensions (crit)",
        ),
        ("canary".to_owned(), "the token is not a signed JWT"),
        ("x".repeat(20_000), "the token is too long"),
    ];
    for (token, expected) in invalid_tokens {
        let response = node.request(&token, "acme", "GET", PATH).await;
        let detail = response.rejected(401, "OR0041");
        assert_eq!(detail, expected);
        assert!(
            token.len() < 8 || !response.text.contains(&token),
            "{response:?}"
        );
    }
    let basic = [("authorization", "Basic YTpi")];
    let detail = node
        .send("GET", PATH, &basic, None)
        .await
        .rejected(401, "OR0041");
    assert_eq!(detail, "the Authorization header contains no bearer token");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_rotation_and_issuer_outage_are_handled() {
    let (first, second) = (Key::ed("first"), Key::p256("second"));
    let jwks = Jwks::open(&[&first]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.refresh_interval = Duration::from_millis(1);
    })
    .await;
    let [old, new] = [&first, &second].map(|key| key.token("ada", "viewer", &json!("acme")));
    node.request(&old, "acme", "GET", PATH).await.ok();
    node.request(&new, "acme", "GET", PATH)
        .await
        .rejected(401, "OR0041");

    jwks.publish(&[&first, &second]);
    node.request(&new, "acme", "GET", PATH).await.ok();
    node.request(&old, "acme", "GET", PATH).await.ok();

    jwks.away.store(true, Ordering::SeqCst);
    let before = jwks.requests();
    for token in [&old, &new, &old, &new] {
        node.request(token, "acme", "GET", PATH).await.ok();
    }
    until("the change is seen", async || {
        (jwks.requests() > before).then_some(())
    })
    .await;
    node.request(&new, "acme", "GET", PATH).await.ok();

    // Withdrawn keys become invalid after the next fetch from the issuer.
    jwks.publish(&[&second]);
    jwks.away.store(false, Ordering::SeqCst);
    until("the change is seen", async || {
        (node.request(&old, "acme", "GET", PATH).await.status == 401).then_some(())
    })
    .await;
    node.request(&new, "acme", "GET", PATH).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn jwks_refetch_is_rate_limited() {
    let (key, stranger) = (Key::ed("a"), Key::ed("b"));
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.min_refresh_interval = Duration::from_hours(1);
    })
    .await;
    let forged = stranger.token("eve", "admin", &json!("*"));
    let calls = (0..50).map(|_| node.request(&forged, "", "GET", PATH));
    for response in futures::future::join_all(calls).await {
        response.rejected(401, "OR0041");
    }
    assert_eq!(
        jwks.requests(),
        1,
        "it was asked at the start and not again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_reports_unreachable_issuer_and_recovers() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    jwks.away.store(true, Ordering::SeqCst);
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let token = key.token("ada", "viewer", &json!("acme"));
    let detail = node
        .request(&token, "acme", "GET", PATH)
        .await
        .rejected(503, "OR0020");
    assert!(
        detail.contains("log") && !detail.contains("http"),
        "callers do not see the URL: {detail}"
    );
    jwks.away.store(false, Ordering::SeqCst);
    until("the change is seen", async || {
        (node.request(&token, "acme", "GET", PATH).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_can_come_from_file_or_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jwks.json");
    let (fixed, known, later) = (Key::p256("fixed"), Key::ed("filed"), Key::ed("later"));
    let write = |keys: &[&Key]| {
        let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        std::fs::write(&file, json!({ "keys": keys }).to_string()).unwrap();
    };
    write(&[&known]);
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_file = Some(file.clone());
        config.auth.jwt.keys = vec![serde_json::from_value(fixed.public()).unwrap()];
    })
    .await;
    let [fixed, known_token, later_token] =
        [&fixed, &known, &later].map(|key| key.token("ada", "viewer", &json!("acme")));
    node.request(&fixed, "acme", "GET", PATH).await.ok();
    node.request(&known_token, "acme", "GET", PATH).await.ok();
    node.request(&later_token, "acme", "GET", PATH)
        .await
        .rejected(401, "OR0041");
    write(&[&known, &later]);
    until("the change is seen", async || {
        (node.request(&later_token, "acme", "GET", PATH).await.status == 200).then_some(())
    })
    .await;
    // An incomplete or invalid file removes no keys.
    std::fs::write(&file, "{").unwrap();
    let stranger = Key::ed("unknown").token("eve", "viewer", &json!("acme"));
    node.request(&stranger, "acme", "GET", PATH).await;
    node.request(&known_token, "acme", "GET", PATH).await.ok();
    node.request(&fixed, "acme", "GET", PATH).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_token_key_and_subject_are_rejected_without_a_restart() {
    let (key, other) = (Key::ed("a"), Key::ed("b"));
    let (jwks, dir) = (
        Jwks::open(&[&key, &other]).await,
        tempfile::tempdir().unwrap(),
    );
    let file = dir.path().join("denied.toml");
    let write = |text: &str| {
        std::fs::write(dir.path().join("next"), text).unwrap();
        std::fs::rename(dir.path().join("next"), &file).unwrap();
    };
    write("");
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.denied_file = Some(file.clone());
    })
    .await;
    let token = |key: &Key, user: &str, id: &str| {
        let mut claims = claims(user, "viewer", &json!("acme"));
        claims["jti"] = json!(id);
        key.sign(&claims)
    };
    let (first, second) = (token(&key, "ada", "t-1"), token(&key, "ada", "t-2"));
    let (bobs, with_other_key) = (token(&key, "bob", "t-3"), token(&other, "cleo", "t-4"));
    let denied = async || {
        let mut denied = Vec::new();
        for (name, token) in [
            ("1", &first),
            ("2", &second),
            ("bob", &bobs),
            ("key", &with_other_key),
        ] {
            let response = node.request(token, "acme", "GET", PATH).await;
            if response.status != 200 {
                assert_eq!(response.rejected(401, "OR0041"), "the token is revoked");
                denied.push(name);
            }
        }
        denied
    };
    assert!(denied().await.is_empty());
    write("jti = [\"t-1\"]");
    assert_eq!(denied().await, ["1"]);
    write("sub = [\"bob\"]\nkid = [\"b\"]");
    assert_eq!(denied().await, ["bob", "key"]);
    // An invalid or missing file changes nothing.
    write("subjects = []");
    assert_eq!(denied().await, ["bob", "key"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(denied().await, ["bob", "key"]);
    write("");
    assert!(denied().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_age_and_type_are_limited() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.max_age = Some(Duration::from_mins(5));
    })
    .await;
    let issued = |at: Value| {
        let mut claims = claims("ada", "viewer", &json!("acme"));
        claims["iat"] = at;
        key.sign(&claims)
    };
    let typed = |kind: &str| {
        let header = json!({ "alg": "EdDSA", "kid": "a", "typ": kind });
        key.sign_under(&header, &claims("ada", "viewer", &json!("acme")))
    };
    let now = seconds();
    let untyped = key.sign_under(
        &json!({ "alg": "EdDSA", "kid": "a" }),
        &claims("ada", "viewer", &json!("acme")),
    );
    // Within the leeway, and types in another case or with the prefix.
    let valid = [
        issued(json!(now + 10)),
        issued(json!(now - 310)),
        typed("at+JWT"),
        typed("application/at+jwt"),
        untyped,
    ];
    for token in valid {
        node.request(&token, "acme", "GET", PATH).await.ok();
    }
    let invalid = [
        (
            issued(json!(now - 400)),
            "the token is older than this node permits",
        ),
        (issued(json!(now + 100)), "the token is not valid yet"),
        (issued(Value::Null), "the token has no claim iat"),
        (issued(json!("now")), "the token has no claim iat"),
        (typed("logout+jwt"), "the token has another type (typ)"),
        (typed("dpop+jwt"), "the token has another type (typ)"),
    ];
    for (token, expected) in invalid {
        assert_eq!(
            node.request(&token, "acme", "GET", PATH)
                .await
                .rejected(401, "OR0041"),
            expected
        );
    }
}
