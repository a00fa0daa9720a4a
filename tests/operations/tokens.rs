//! Tokens that are good, tokens that are not, and keys that change.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::issuer::{Jwks, Key, claims, seconds};
use crate::node::Node;

const PATH: &str = "/v1/sagas";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_token_is_said_and_the_token_is_not() {
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
    let good = claims("ada", "viewer", &json!("acme"));
    node.ask(&key.sign(&good), "acme", "GET", PATH).await.ok();
    node.ask(&key.sign(&with("aud", json!(["x", "orlog"]))), "acme", "GET", PATH).await.ok();
    // Within the leeway.
    node.ask(&key.sign(&with("exp", json!(seconds() - 10))), "acme", "GET", PATH).await.ok();
    node.ask(&key.sign(&with("nbf", Value::Null)), "acme", "GET", PATH).await.ok();

    let signed = key.sign(&good);
    let unsigned = format!("{}.", signed.rsplit_once('.').unwrap().0);
    let head = |alg: &str| json!({ "alg": alg, "kid": "a" });
    let crit = json!({ "alg": "EdDSA", "kid": "a", "crit": ["b64"], "b64": false });
    let bad = [
        (key.sign(&with("exp", json!(seconds() - 100))), "the token has expired"),
        (key.sign(&with("nbf", json!(seconds() + 100))), "the token is not valid yet"),
        (key.sign(&with("exp", Value::Null)), "the token has no claim exp"),
        (key.sign(&with("exp", json!("never"))), "the token has no claim exp"),
        (key.sign(&with("iss", json!("https://else.test/"))), "the token was issued by somebody else (iss)"),
        (key.sign(&with("iss", Value::Null)), "the token has no claim iss"),
        (key.sign(&with("aud", json!("shop"))), "the token is for another service (aud)"),
        (key.sign(&with("aud", Value::Null)), "the token has no claim aud"),
        (key.sign(&with("sub", Value::Null)), "the token names nobody: it has no claim sub"),
        (stranger.sign(&good), "the signature of the token does not fit"),
        (unsigned, "the signature of the token does not fit"),
        (key.sign_under(&head("none"), &good), "the token is no signed JWT"),
        (key.sign_under(&head("HS256"), &good), "the token is signed with a key that is not known \"a\""),
        (key.sign_under(&head("RS256"), &good), "the token is signed with a key that is not known \"a\""),
        (key.sign_under(&crit, &good), "the token demands extensions (crit) that are not known here"),
        ("canary".to_owned(), "the token is no signed JWT"),
        ("x".repeat(20_000), "the token is too long"),
    ];
    for (token, expected) in bad {
        let answer = node.ask(&token, "acme", "GET", PATH).await;
        let detail = answer.problem(401, "OR0041");
        assert_eq!(detail, expected);
        assert!(token.len() < 8 || !answer.text.contains(&token), "{answer:?}");
    }
    let basic = [("authorization", "Basic YTpi")];
    let detail = node.send("GET", PATH, &basic, None).await.problem(401, "OR0041");
    assert_eq!(detail, "the header authorization holds no bearer token");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_change_are_found_and_old_ones_are_kept_while_the_issuer_is_away() {
    let (first, second) = (Key::ed("first"), Key::p256("second"));
    let jwks = Jwks::open(&[&first]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.refresh = Duration::from_millis(1);
    })
    .await;
    let [old, new] = [&first, &second].map(|key| key.token("ada", "viewer", &json!("acme")));
    node.ask(&old, "acme", "GET", PATH).await.ok();
    node.ask(&new, "acme", "GET", PATH).await.problem(401, "OR0041");

    jwks.publish(&[&first, &second]);
    node.ask(&new, "acme", "GET", PATH).await.ok();
    node.ask(&old, "acme", "GET", PATH).await.ok();

    jwks.away.store(true, Ordering::SeqCst);
    let before = jwks.asked();
    for token in [&old, &new, &old, &new] {
        node.ask(token, "acme", "GET", PATH).await.ok();
    }
    until(|| async { jwks.asked() > before }).await;
    node.ask(&new, "acme", "GET", PATH).await.ok();

    // Withdrawn keys are not good any more once the issuer is heard again.
    jwks.publish(&[&second]);
    jwks.away.store(false, Ordering::SeqCst);
    until(|| async { node.ask(&old, "acme", "GET", PATH).await.status == 401 }).await;
    node.ask(&new, "acme", "GET", PATH).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_cannot_make_the_node_ask_its_issuer_again_and_again() {
    let (key, stranger) = (Key::ed("a"), Key::ed("b"));
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url = jwks.url.clone();
        config.auth.jwt.refetch_pause = Duration::from_hours(1);
    })
    .await;
    let forged = stranger.token("eve", "admin", &json!("*"));
    let calls = (0..50).map(|_| node.ask(&forged, "", "GET", PATH));
    for answer in futures::future::join_all(calls).await {
        answer.problem(401, "OR0041");
    }
    assert_eq!(jwks.asked(), 1, "it was asked at the start and not again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_heard_its_issuer_says_so_and_goes_on_when_it_does() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    jwks.away.store(true, Ordering::SeqCst);
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let token = key.token("ada", "viewer", &json!("acme"));
    let detail = node.ask(&token, "acme", "GET", PATH).await.problem(503, "OR0020");
    assert!(detail.contains("the keys of the issuer cannot be had"), "{detail}");
    jwks.away.store(false, Ordering::SeqCst);
    until(|| async { node.ask(&token, "acme", "GET", PATH).await.status == 200 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_may_stand_in_a_file_or_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
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
    node.ask(&fixed, "acme", "GET", PATH).await.ok();
    node.ask(&known_token, "acme", "GET", PATH).await.ok();
    node.ask(&later_token, "acme", "GET", PATH).await.problem(401, "OR0041");
    write(&[&known, &later]);
    until(|| async { node.ask(&later_token, "acme", "GET", PATH).await.status == 200 }).await;
    // A file that is being written, or broken, takes no key away.
    std::fs::write(&file, "{").unwrap();
    let stranger = Key::ed("nobody").token("eve", "viewer", &json!("acme"));
    node.ask(&stranger, "acme", "GET", PATH).await;
    node.ask(&known_token, "acme", "GET", PATH).await.ok();
    node.ask(&fixed, "acme", "GET", PATH).await.ok();
}

/// Asks until it is so.
async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let waited = tokio::time::timeout(crate::node::PATIENCE, async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while !is_so().await {
            tick.tick().await;
        }
    });
    waited.await.expect("it becomes so in time");
}
