//! HTTP provider against a real server: templates, response mapping, credentials, signatures,
//! redirects, egress.

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::http::HttpConfig;
use orlog_effect::{ProviderError, Reply, TransientCause, Upstream};
use serde_json::{Value, json};

use crate::effects::attempts::{at, charge, failure, perform};
use crate::effects::docs::{block, with};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

fn upstream(config: &str) -> Upstream {
    toml::from_str::<HttpConfig>(config)
        .unwrap()
        .upstream(UpstreamSite::new("pay"))
        .unwrap()
}

#[tokio::test]
async fn templates_fill_method_url_headers_and_body() {
    let shop = HttpUpstream::open().await;
    let upstream = upstream(&format!(
        r#"
        base_url = "{}"
        idempotency_header = "x-request-key"
        [effects."pay.charge"]
        method = "PURGE"
        path = "/orders/{{order.id}}?by={{@tenant}}"
        headers = {{ "x-order" = "o:{{order.id}}", "content-type" = "application/vnd.shop+json" }}
        body = {{ amount = "{{order.total}}", note = "for {{@correlation}}", tags = ["{{order.id}}", "fix"] }}
        "#,
        shop.url
    ));
    perform(&upstream, json!({"order": {"id": "a/b", "total": 12.5}}))
        .await
        .unwrap();
    let received = &shop.received()[0];
    assert_eq!(
        (received.method.as_str(), received.uri.to_string()),
        ("PURGE", "/orders/a%2Fb?by=acme".to_owned())
    );
    assert_eq!(received.header("x-order"), "o:a/b");
    let content_types: Vec<_> = received.headers.get_all("content-type").iter().collect();
    assert_eq!(content_types, ["application/vnd.shop+json"]);
    assert_eq!(
        received.header("x-request-key"),
        charge(Value::Null).id.to_string()
    );
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(
        body,
        json!({"amount": 12.5, "note": "for o-1", "tags": ["a/b", "fix"]})
    );
    let (code, message) =
        failure(&perform(&upstream, json!({"order": {"id": "a\nb", "total": 1}})).await);
    assert!(
        code == "invalid_payload" && message.contains("x-order"),
        "{code}: {message}"
    );
}

/// Requirements: R10.
#[tokio::test]
async fn response_rules_are_applied() {
    let shop = HttpUpstream::open().await;
    let upstream = upstream(&format!(
        r#"
        base_url = "{}"
        [effects."pay.charge"]
        path = "/c"
        [[effects."pay.charge".responses]]
        status = "2xx"
        when = {{ "/status" = "declined" }}
        result = "failed"
        event = "PaymentDeclined"
        code = "/reason/code"
        message = "/reason/text"
        payload = "/reason"
        [[effects."pay.charge".responses]]
        status = "2xx"
        result = "succeeded"
        event = "/type"
        payload = "/data"
        [[effects."pay.charge".responses]]
        status = 409
        result = "throttled"
        "#,
        shop.url
    ));
    shop.script(
        200,
        &[],
        r#"{"status": "declined", "reason": {"code": "funds", "text": "no money"}}"#,
    );
    shop.script(
        201,
        &[],
        r#"{"type": "PaymentTaken", "data": {"receipt": 7}}"#,
    );
    shop.script(409, &[("retry-after", "3")], "");
    shop.script(404, &[], "gone");
    let rejected = perform(&upstream, Value::Null).await;
    assert_eq!(
        failure(&rejected),
        ("funds".to_owned(), "no money".to_owned())
    );
    let Err(ProviderError::Permanent { event, payload, .. }) = rejected else {
        panic!("it is final")
    };
    assert_eq!(
        (event.unwrap().as_str(), payload["code"].as_str()),
        ("PaymentDeclined", Some("funds"))
    );
    let accepted = perform(&upstream, Value::Null).await.unwrap();
    assert_eq!(
        (accepted.event.unwrap().as_str(), accepted.payload),
        ("PaymentTaken", json!({"receipt": 7}))
    );
    let busy = perform(&upstream, Value::Null).await;
    assert!(matches!(
        busy,
        Err(ProviderError::Transient { trouble: TransientCause::Throttled, retry_after: Some(pause), .. }) if pause.as_secs() == 3
    ));
    assert_eq!(
        failure(&perform(&upstream, Value::Null).await).0,
        "http_404"
    );
}

#[tokio::test]
async fn response_size_limit_is_enforced() {
    let shop = HttpUpstream::open().await;
    shop.script(200, &[], &format!("[{}1]", "1,".repeat(1000)));
    let text = "max_response_bytes = 100\n[effects.\"pay.charge\"]\npath = \"/c\"";
    let reply = perform(
        &upstream(&format!("base_url = {:?}\n{text}", shop.url)),
        Value::Null,
    )
    .await
    .unwrap();
    assert_eq!(
        (
            reply.payload["truncated"].clone(),
            reply.payload["text"].as_str().unwrap().len()
        ),
        (json!(true), 100)
    );
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let reference = format!("file:{}", path.display());
    (dir, reference)
}

#[tokio::test]
async fn oauth_token_is_cached_until_expiry_or_rejection() {
    let (issuer, shop) = (HttpUpstream::open().await, HttpUpstream::open().await);
    let (_dir, secret) = file("s3cret&more\n");
    let upstream = upstream(&format!(
        r#"
        base_url = "{}"
        auth = {{ oauth2 = {{ token_url = "{}/token", client_id = "orlog", client_secret = "{secret}", scope = "pay write" }} }}
        [effects."pay.charge"]
        path = "/c"
        "#,
        shop.url, issuer.url
    ));
    for token in ["token-one", "token-two", "token-three"] {
        issuer.script(
            200,
            &[],
            &format!(r#"{{"access_token": "{token}", "expires_in": 600}}"#),
        );
    }
    at(0, &upstream, Value::Null).await.unwrap();
    at(500, &upstream, Value::Null).await.unwrap();
    at(580, &upstream, Value::Null).await.unwrap();
    shop.script(401, &[], "expired");
    at(590, &upstream, Value::Null).await.unwrap();
    shop.script(401, &[], "no");
    issuer.script(
        200,
        &[],
        r#"{"access_token": "token-four", "expires_in": 600}"#,
    );
    shop.script(401, &[], "never: token-four");
    let (code, message) = failure(&at(591, &upstream, Value::Null).await);
    assert!(
        code == "http_401" && message.ends_with("never: [secret]"),
        "{message}"
    );
    let used: Vec<_> = shop
        .received()
        .iter()
        .map(|received| received.header("authorization").to_owned())
        .collect();
    let bearer = |name: &str| format!("Bearer token-{name}");
    let names = ["one", "one", "two", "two", "three", "three", "four"];
    assert_eq!(used, names.map(bearer));
    let fetched = issuer.received();
    assert_eq!(
        fetched[0].body,
        "grant_type=client_credentials&scope=pay%20write"
    );
    assert_eq!(
        fetched[0].header("authorization"),
        "Basic b3Jsb2c6czNjcmV0JTI2bW9yZQ=="
    );
    issuer.script(500, &[], "");
    let lost = at(5000, &upstream, Value::Null).await;
    assert_eq!(failure(&lost).0, "oauth2");
    assert!(matches!(
        lost,
        Err(ProviderError::Transient {
            trouble: TransientCause::Unavailable,
            ..
        })
    ));
}

#[tokio::test]
async fn basic_credentials_and_signatures_are_sent() {
    let shop = HttpUpstream::open().await;
    let (_dir, secret) = file("hunter2-is-long");
    let upstream = upstream(&format!(
        r#"
        base_url = "{}"
        auth = {{ basic = {{ user = "orlog", password = "{secret}" }} }}
        signature = {{ secret = "{secret}" }}
        [effects."pay.charge"]
        path = "/c"
        "#,
        shop.url
    ));
    perform(&upstream, json!({"a": 1})).await.unwrap();
    let received = &shop.received()[0];
    assert_eq!(
        received.header("authorization"),
        "Basic b3Jsb2c6aHVudGVyMi1pcy1sb25n"
    );
    assert_eq!(
        received.header("webhook-id"),
        charge(Value::Null).id.to_string()
    );
    assert_eq!(received.header("webhook-timestamp"), "1700000000");
    assert!(received.header("webhook-signature").starts_with("v1,"));
}

#[tokio::test]
async fn missing_secret_is_retried() {
    let text =
        "auth = { bearer = \"env:ORLOG_NOT_SET_7F3A\" }\n[effects.\"pay.charge\"]\npath = \"/c\"";
    let result = perform(
        &upstream(&format!("base_url = \"http://127.0.0.1:9\"\n{text}")),
        Value::Null,
    )
    .await;
    assert_eq!(failure(&result).0, "secret");
    assert!(
        !failure(&result).1.contains("ORLOG_NOT_SET"),
        "viewers do not see the reference: {result:?}"
    );
    assert!(matches!(
        result,
        Err(ProviderError::Transient {
            trouble: TransientCause::Unavailable,
            ..
        })
    ));
}

fn hook(egress: &str) -> Upstream {
    upstream(&format!(
        "redirects = 2\n{egress}\n[effects.\"pay.charge\"]\nurl = \"{{callback}}\"\nmethod = \"GET\""
    ))
}

#[track_caller]
fn check_rejected(result: &Result<Reply, ProviderError>, expected: &str) {
    let (code, message) = failure(result);
    assert!(
        code == "egress_denied" && message.contains(expected),
        "{code}: {message}"
    );
    assert!(
        matches!(result, Err(ProviderError::Permanent { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn payload_urls_cannot_reach_private_addresses() {
    let shop = HttpUpstream::open().await;
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ] {
        let callback = json!({ "callback": format!("http://{host}:{port}/x") });
        check_rejected(&perform(&hook(""), callback).await, "not a public address");
    }
    let metadata = json!({ "callback": "http://169.254.169.254/latest/meta-data/" });
    check_rejected(&perform(&hook(""), metadata).await, "169.254.169.254");
    let listed = hook("egress = { allow = [\"*.example.com\"] }");
    check_rejected(
        &perform(&listed, json!({ "callback": shop.url })).await,
        "is not allowed; add it to egress.allow",
    );
    for invalid in [
        "file:///etc/passwd",
        "http://user:pass@example.com/",
        "no url",
    ] {
        assert_eq!(
            failure(&perform(&hook(""), json!({ "callback": invalid })).await).0,
            "invalid_payload"
        );
    }
    assert!(shop.received().is_empty());
    let open = hook("egress = { private = true }");
    perform(&open, json!({ "callback": format!("{}/x", shop.url) }))
        .await
        .unwrap();
    assert_eq!(shop.received().len(), 1);
}

#[tokio::test]
async fn host_placeholders_are_subject_to_egress_rules() {
    let shop = HttpUpstream::open().await;
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    let at = |url: &str| upstream(&format!("[effects.\"pay.charge\"]\nurl = \"{url}\""));
    let host = at(&format!("http://{{host}}:{port}/x"));
    check_rejected(
        &perform(&host, json!({"host": "localhost"})).await,
        "not a public address",
    );
    for sly in ["user@localhost", "localhost/", "localhost#", "a b"] {
        assert_eq!(
            failure(&perform(&host, json!({ "host": sly })).await).0,
            "invalid_payload",
            "{sly}"
        );
    }
    let path = at(&format!("http://localhost:{port}/x/{{id}}"));
    perform(&path, json!({"id": "../y"})).await.unwrap();
    assert_eq!(shop.received()[0].uri.path(), "/x/..%2Fy");
}

#[tokio::test]
async fn a_field_in_a_url_cannot_change_its_path() {
    let shop = HttpUpstream::open().await;
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    let at = |url: &str| {
        upstream(&format!(
            "egress = {{ private = true }}\n[effects.\"pay.charge\"]\nurl = \"{url}\""
        ))
    };
    for url in [
        format!("http://localhost:{port}/tenants/{{id}}/charges"),
        format!("http://{{host}}:{port}/tenants/{{id}}/charges"),
        "{base}/tenants/{id}/charges?x={id}".to_owned(),
    ] {
        for id in ["..", ".", ""] {
            let payload = json!({ "id": id, "host": "localhost", "base": shop.url });
            let (code, message) = failure(&perform(&at(&url), payload).await);
            assert_eq!(code, "invalid_payload", "{url} {id:?}: {message}");
        }
        let payload = json!({ "id": "a?b/..", "host": "localhost", "base": shop.url });
        perform(&at(&url), payload).await.unwrap();
        assert_eq!(
            shop.received().pop().unwrap().uri.path(),
            "/tenants/a%3Fb%2F../charges",
            "{url}"
        );
    }
    let query = at(&format!("http://localhost:{port}?q={{id}}&r={{none?}}"));
    perform(&query, json!({ "id": ".." })).await.unwrap();
    assert_eq!(
        shop.received()
            .pop()
            .unwrap()
            .uri
            .path_and_query()
            .unwrap()
            .as_str(),
        "/?q=..&r="
    );
}

#[tokio::test]
async fn credentials_go_only_to_hosts_that_the_configuration_names() {
    let (shop, secret) = (HttpUpstream::open().await, file("only-for-listed-hosts"));
    let reference = &secret.1;
    let config = |more: &str, effect: &str| -> HttpConfig {
        let text = format!("{more}\n[effects.\"pay.charge\"]\n{effect}");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let auth = format!("auth = {{ bearer = {reference:?} }}");
    let tls = format!("tls = {{ cert = {reference:?}, key = {reference:?} }}");
    let header = format!("\nheaders = {{ x-key = \"{{{reference}}}\" }}");
    for url in [
        "url = \"{callback}\"",
        "url = \"https://{host}/x\"",
        "url = \"https://{host}.example.com/x\"",
    ] {
        let of_tenants = format!(
            "{auth}\negress = {{ tenants = {{ acme = [\"localhost\"] }}, private = true }}"
        );
        for (more, effect) in [
            (auth.as_str(), url.to_owned()),
            (tls.as_str(), url.to_owned()),
            (of_tenants.as_str(), url.to_owned()),
            ("", format!("{url}{header}")),
        ] {
            let error = config(more, &effect)
                .upstream(UpstreamSite::new("pay"))
                .err()
                .expect("any host would receive the secret");
            assert!(error.to_string().contains("egress.allow"), "{error}");
        }
        config("", url).upstream(UpstreamSite::new("pay")).unwrap();
    }
    let listed = format!("{auth}\negress = {{ allow = [\"127.0.0.1\"], private = true }}");
    let listed = config(&listed, "url = \"{callback}\"")
        .upstream(UpstreamSite::new("pay"))
        .unwrap();
    perform(&listed, json!({ "callback": format!("{}/x", shop.url) }))
        .await
        .unwrap();
    assert_eq!(
        shop.received()[0].header("authorization"),
        "Bearer only-for-listed-hosts"
    );
    let other = perform(
        &listed,
        json!({ "callback": shop.url.replace("127.0.0.1", "localhost") }),
    )
    .await;
    check_rejected(&other, "is not allowed; add it to egress.allow");
    assert_eq!(shop.received().len(), 1);
}

#[tokio::test]
async fn redirects_require_opt_in_and_drop_credentials() {
    let (shop, other) = (HttpUpstream::open().await, HttpUpstream::open().await);
    let (_dir, secret) = file("only-for-the-shop");
    let at = |more: &str| {
        upstream(&format!(
            "base_url = {:?}\nauth = {{ bearer = {secret:?} }}\n{more}\n[effects.\"pay.charge\"]\nmethod = \"GET\"\npath = \"/c\"\nheaders = {{ x-own = \"1\" }}",
            shop.url
        ))
    };
    let away = [("location", &*format!("{}/there", other.url))];
    shop.script(302, &away, "");
    assert_eq!(failure(&perform(&at(""), Value::Null).await).0, "http_302");
    shop.script(302, &away, "");
    check_rejected(
        &perform(&at("redirects = 3"), Value::Null).await,
        "not a public address",
    );
    assert!(other.received().is_empty());
    shop.script(302, &away, "");
    perform(
        &at("redirects = 3\negress = { private = true }"),
        Value::Null,
    )
    .await
    .unwrap();
    let received = &other.received()[0];
    assert_eq!(
        (
            received.header("authorization"),
            received.header("x-own"),
            received.header("x-tenant-id")
        ),
        ("", "", "")
    );
    shop.script(302, &[("location", "/next")], "");
    perform(&at("redirects = 1"), Value::Null).await.unwrap();
    let last = shop.received().pop().unwrap();
    assert_eq!(
        (last.uri.path(), last.header("authorization")),
        ("/next", "Bearer only-for-the-shop")
    );
    shop.script(302, &[("location", "http://127.0.0.1:9/")], "");
    let nowhere = perform(
        &at("redirects = 1\negress = { private = true }"),
        Value::Null,
    )
    .await;
    assert!(matches!(
        nowhere,
        Err(ProviderError::Transient {
            trouble: TransientCause::ResponseLost,
            ..
        })
    ));
    for _ in 0..2 {
        shop.script(302, &[("location", "/again")], "");
    }
    assert_eq!(
        failure(&perform(&at("redirects = 1"), Value::Null).await).0,
        "http_302"
    );
}

#[tokio::test]
async fn request_that_is_answered_with_303_was_executed() {
    let shop = HttpUpstream::open().await;
    let (_dir, secret) = file("token");
    let upstream = upstream(&format!(
        "base_url = {:?}\nauth = {{ bearer = {secret:?} }}\nredirects = 1\n[effects.\"pay.charge\"]\npath = \"/c\"",
        shop.url
    ));
    let elsewhere = [("location", "/result")];
    for status in [401, 404, 503] {
        shop.script(303, &elsewhere, "");
        shop.script(status, &[], "");
        let result = perform(&upstream, Value::Null).await;
        let is_in_doubt = matches!(
            &result,
            Err(ProviderError::Transient {
                trouble: TransientCause::ResponseLost,
                ..
            })
        );
        assert!(
            is_in_doubt && failure(&result).0 == format!("http_{status}"),
            "{status}: {result:?}"
        );
    }
    shop.script(303, &[("location", "http://127.0.0.1:9/")], "");
    let denied = perform(&upstream, Value::Null).await;
    assert!(matches!(
        denied,
        Err(ProviderError::Transient {
            trouble: TransientCause::ResponseLost,
            ..
        })
    ));
    shop.script(303, &elsewhere, "");
    perform(&upstream, Value::Null).await.unwrap();
    let methods: Vec<_> = shop
        .received()
        .iter()
        .map(|it| it.method.to_string())
        .collect();
    assert_eq!(
        methods,
        [
            "POST", "GET", "POST", "GET", "POST", "GET", "POST", "POST", "GET"
        ]
    );
}

#[test]
fn configuration_errors_name_the_key() {
    for (more, expected) in [
        (
            "path = \"/c\"\nurl = \"http://h/\"",
            "upstream pay, effect pay.charge: path and url are mutually exclusive; remove one",
        ),
        ("", "path or url is required"),
        (
            "path = \"/c\"\nmethod = \"A B\"",
            "invalid method \"A B\"; example: POST",
        ),
        (
            "path = \"/c\"\nheaders = { x-key = \"env:KEY\" }",
            "would send the reference itself",
        ),
        (
            "path = \"/c\"\nbody = [\"{env:KEY}\"]",
            "a secret is not allowed in a body; send it in a header",
        ),
        (
            "path = \"/c/{env:KEY}\"",
            "a secret is not allowed in a path; send it in a header",
        ),
        (
            "url = \"ftp://h/\"",
            "must start with http://, https:// or a placeholder",
        ),
        (
            "path = \"/c\"\nresponses = [{ result = \"failed\", payload = \"a\" }]",
            "is not a valid JSON pointer; example: /error/code",
        ),
        (
            "path = \"/c\"\nresponses = [{ result = \"failed\", event = \"a\\nb\" }]",
            "responses[0]: invalid event",
        ),
    ] {
        let text = format!("base_url = \"http://h\"\n[effects.\"pay.charge\"]\n{more}");
        let config: HttpConfig = toml::from_str(&text).unwrap();
        let error = config
            .upstream(UpstreamSite::new("pay"))
            .err()
            .expect("the configuration is invalid")
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let literal = toml::from_str::<HttpConfig>("auth = { bearer = \"canary-9\" }").unwrap_err();
    assert!(
        !literal.message().contains("canary")
            && literal.message().contains("invalid secret reference"),
        "{literal}"
    );
    let tls = "base_url = \"http://h\"\ntls = { cert = \"file:/c\" }";
    let error = toml::from_str::<HttpConfig>(tls)
        .unwrap()
        .upstream(UpstreamSite::new("pay"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("tls.cert and tls.key require each other"),
        "{error}"
    );
}

#[tokio::test]
async fn missing_certificate_is_retried() {
    let upstream = upstream(
        "base_url = \"https://127.0.0.1:9\"\ntls = { cert = \"file:/nowhere/cert.pem\", key = \"file:/nowhere/key.pem\" }\n[effects.\"pay.charge\"]\npath = \"/c\"",
    );
    let (code, message) = failure(&perform(&upstream, Value::Null).await);
    assert!(
        code == "tls" && !message.contains("/nowhere"),
        "{code}: {message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let shop = HttpUpstream::open().await;
    shop.script(200, &[], r#"{"receipt": "r-1"}"#);
    shop.script(
        402,
        &[],
        r#"{"error": {"code": "no_funds", "message": "the card is empty"}}"#,
    );
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "canary").unwrap();
    let text = block("http.md", "upstreams/payments.toml");
    let text = with(&text, "https://api.payments.example", &shop.url);
    let text = with(
        &text,
        "env:PAYMENTS_TOKEN",
        &format!("file:{}", secret.path().display()),
    );
    let dirs = Dirs::new(&[("payments", &text)]);
    dirs.define(
        "payment",
        &block("http.md", "definitions/payment.saga.yaml"),
    );
    let node = dirs.start().await;
    node.pay("acme", "o/1", json!({ "total": 125 })).await;
    let paid = node
        .until("acme", "/v1/sagas/payment/o%2F1", |saga| {
            saga["status"] == "completed"
        })
        .await;
    assert_eq!(paid["state"]["vars"]["receipt"], "r-1");
    node.pay("acme", "o-2", json!({ "total": 125 })).await;
    let rejected = node.end("acme", "o-2").await;
    let error = &rejected["last_error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("no_funds"), &json!("the card is empty"))
    );
    let received = &shop.received()[0];
    assert_eq!(
        (received.uri.path(), received.header("authorization")),
        ("/orders/o%2F1/charges", "Bearer canary")
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&received.body).unwrap(),
        json!({ "amount": 125, "reference": "o/1" })
    );
}
