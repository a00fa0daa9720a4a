//! Webhook provider against a real receiver: signatures, rotation of secrets, responses, configuration.

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::webhook::WebhookConfig;
use orlog_effect::{ProviderError, Reply, TransientCause, Upstream};
use orlog_model::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::effects::attempts::{self, execute};
use crate::effects::docs::{block, with};
use crate::effects::http_upstream::{HttpUpstream, ReceivedRequest};
use crate::webhooks::signature;

fn upstream(config: &str) -> Result<Upstream, String> {
    let config =
        toml::from_str::<WebhookConfig>(config).map_err(|error| error.message().to_owned())?;
    config
        .upstream(UpstreamSite::new("hooks"))
        .map_err(|error| error.to_string())
}

async fn send(upstream: &Upstream, seconds: i64, payload: Value) -> Result<Reply, ProviderError> {
    let at = Timestamp::from_millis((1_700_000_000 + seconds) * 1000);
    execute(upstream, &attempts::request("shop.notify", payload), at).await
}

/// Writes the secrets to files and returns their references as a TOML list.
fn secrets(dir: &TempDir, texts: &[&str]) -> String {
    let references = texts.iter().enumerate().map(|(index, text)| {
        let path = dir.path().join(index.to_string());
        std::fs::write(&path, text).unwrap();
        format!("{:?}", format!("file:{}", path.display()))
    });
    format!("[{}]", references.collect::<Vec<_>>().join(", "))
}

/// Returns the signature that a receiver with this key expects.
fn expected_signature(key: &[u8], request: &ReceivedRequest) -> String {
    signature(
        key,
        request.header("webhook-id"),
        request.header("webhook-timestamp"),
        &request.body,
    )
}

#[tokio::test]
async fn each_attempt_is_signed_with_every_secret() {
    let (shop, dir) = (HttpUpstream::open().await, tempfile::tempdir().unwrap());
    let secrets = secrets(&dir, &["whsec_bmV3IGtleQ==", "old key"]);
    let hooks = upstream(&format!(
        "url = \"{}/hooks\"\nsecrets = {secrets}\n[effects.\"shop.notify\"]",
        shop.url
    ));
    let hooks = hooks.unwrap();
    shop.script(503, &[], "");
    let payload = json!({ "order": "o-1" });
    assert!(send(&hooks, 0, payload.clone()).await.is_err());
    send(&hooks, 7, payload.clone()).await.unwrap();
    let received = shop.received();
    for request in &received {
        assert_eq!(
            (request.method.as_str(), request.uri.path()),
            ("POST", "/hooks")
        );
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(
            request.header("webhook-id"),
            attempts::request("shop.notify", Value::Null).id.to_string()
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&request.body).unwrap(),
            payload
        );
        let expected = [
            expected_signature(b"new key", request),
            expected_signature(b"old key", request),
        ]
        .join(" ");
        assert_eq!(request.header("webhook-signature"), expected);
    }
    let times = received
        .iter()
        .map(|request| request.header("webhook-timestamp"))
        .collect::<Vec<_>>();
    assert_eq!(times, ["1700000000", "1700000007"]);
    assert_ne!(
        received[0].header("webhook-signature"),
        received[1].header("webhook-signature")
    );
}

#[tokio::test]
async fn status_decides_about_a_retry() {
    let (shop, dir) = (HttpUpstream::open().await, tempfile::tempdir().unwrap());
    let secrets = secrets(&dir, &["key"]);
    let hooks = upstream(&format!(
        "url = \"{}\"\nsecrets = {secrets}\n[effects.\"shop.notify\"]",
        shop.url
    ));
    let hooks = hooks.unwrap();
    for (status, expected) in [
        (204, "done"),
        (410, "http_410 permanent"),
        (400, "http_400 permanent"),
        (302, "http_302 permanent"),
        (408, "http_408 ReportedUnavailable"),
        (429, "http_429 Throttled"),
        (503, "http_503 ReportedUnavailable"),
        (500, "http_500 ResponseLost"),
    ] {
        shop.script(status, &[], "");
        let found = match send(&hooks, 0, Value::Null).await {
            Ok(_) => "done".to_owned(),
            Err(ProviderError::Transient {
                failure, trouble, ..
            }) => format!("{} {trouble:?}", failure.code),
            Err(error) => format!("{} permanent", error.failure().code),
        };
        assert_eq!(found, expected);
    }
    let absent = upstream(&format!(
        "url = \"http://127.0.0.1:9/\"\nsecrets = {secrets}\n[effects.\"shop.notify\"]"
    ));
    let unreachable = send(&absent.unwrap(), 0, Value::Null).await.unwrap_err();
    assert!(
        matches!(
            unreachable,
            ProviderError::Transient {
                trouble: TransientCause::Unavailable,
                ..
            }
        ),
        "{unreachable:?}"
    );
}

#[tokio::test]
async fn receiver_in_the_payload_is_subject_to_egress_rules() {
    let (shop, dir) = (HttpUpstream::open().await, tempfile::tempdir().unwrap());
    let secrets = secrets(&dir, &["key"]);
    let at = |more: &str| {
        upstream(&format!(
            "secrets = {secrets}\n{more}\n[effects.\"shop.notify\"]\nurl = \"{{callback}}\""
        ))
        .unwrap()
    };
    let payload = json!({ "callback": format!("{}/x", shop.url) });
    assert_eq!(
        send(&at(""), 0, payload.clone())
            .await
            .unwrap_err()
            .failure()
            .code,
        "egress_denied"
    );
    assert!(shop.received().is_empty());
    send(&at("egress = { private = true }"), 0, payload)
        .await
        .unwrap();
    assert_eq!(shop.received()[0].uri.path(), "/x");
}

#[tokio::test]
async fn unreadable_secret_is_retried_and_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = secrets(&dir, &["whsec_canary!"]);
    for secrets in [secrets.as_str(), "[\"env:ORLOG_NOT_SET_7F3A\"]"] {
        let hooks = upstream(&format!(
            "url = \"http://127.0.0.1:9/\"\nsecrets = {secrets}\n[effects.\"shop.notify\"]"
        ));
        let error = send(&hooks.unwrap(), 0, Value::Null).await.unwrap_err();
        assert!(
            matches!(error, ProviderError::Transient { .. }),
            "{error:?}"
        );
        assert_eq!(error.failure().code, "secret");
        assert!(!error.failure().message.contains("canary"), "{error:?}");
    }
}

#[test]
fn configuration_errors_name_the_key() {
    for (config, expected) in [
        (
            "url = \"https://h/\"\n[effects.\"shop.notify\"]",
            "upstream hooks: secrets are missing; example: secrets = [\"env:WEBHOOK_SECRET\"]",
        ),
        (
            "url = \"https://h/\"\nsecrets = [\"env:K\"]",
            "upstream hooks: effects are missing",
        ),
        (
            "secrets = [\"env:K\"]\n[effects.\"shop.notify\"]",
            "upstream hooks, effect shop.notify: the url is missing; set it for the effect or the upstream",
        ),
        (
            "url = \"h\"\nsecrets = [\"env:K\"]\n[effects.\"shop.notify\"]",
            "must start with http://, https://",
        ),
        ("secrets = [\"canary-7f3a\"]", "invalid secret reference"),
        (
            "url = \"https://h/\"\nsecrets = [\"env:K\"]\n[effects.\"shop.notify\"]\nheaders = { \"x-tenant-id\" = \"a\" }",
            "is reserved for Orlog",
        ),
        (
            "url = \"https://h/\"\nsecret = \"env:K\"",
            "unknown field `secret`",
        ),
    ] {
        let error = upstream(config)
            .err()
            .expect("the configuration is invalid");
        assert!(
            error.contains(expected) && !error.contains("canary"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn documented_example_works() {
    let (shop, dir) = (HttpUpstream::open().await, tempfile::tempdir().unwrap());
    let text = block("webhook.md", "upstreams/partners.toml");
    let text = with(
        &text,
        "[\"env:PARTNER_SECRET\", \"env:PARTNER_SECRET_OLD\"]",
        &secrets(&dir, &["new", "old"]),
    );
    let hooks = upstream(&with(&text, "https://partner.example", &shop.url)).unwrap();
    send(
        &hooks,
        0,
        json!({ "order": { "id": "o-1", "total": 12.5 } }),
    )
    .await
    .unwrap();
    let received = shop.received().remove(0);
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(
        body,
        json!({ "type": "order.paid", "data": { "order": "o-1", "total": 12.5 } })
    );
    assert!(
        received
            .header("webhook-signature")
            .contains(&expected_signature(b"old", &received))
    );
}
