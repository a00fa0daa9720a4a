//! The HTTP provider against a real server: templates, what responses mean, credentials, signatures, redirects, egress.

use std::time::Duration;

use orlog_effect::config::HttpConfig;
use orlog_effect::{Attempt, Refusal, Reply, Trouble, Upstream};
use orlog_model::{EffectName, Timestamp, Work, WorkItem};
use orlog_testkit::provider_suite::item;
use serde_json::{Value, json};

use crate::docs::{block, with};
use crate::http_upstream::Shop;
use crate::node::Folders;

fn upstream(config: &str) -> Upstream {
    toml::from_str::<HttpConfig>(config).unwrap().upstream("pay").unwrap()
}

fn charge(payload: Value) -> WorkItem {
    let mut item = item(&EffectName::new("pay.charge").unwrap(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    item
}

async fn at(seconds: i64, upstream: &Upstream, payload: Value) -> Result<Reply, Refusal> {
    let at = Timestamp::from_millis(1_700_000_000_000 + seconds * 1000);
    let attempt = Attempt { number: 1, timeout: Duration::from_secs(10), at };
    upstream.provider.perform(&charge(payload), attempt).await
}

async fn perform(upstream: &Upstream, payload: Value) -> Result<Reply, Refusal> {
    at(0, upstream, payload).await
}

fn failure(answer: &Result<Reply, Refusal>) -> (String, String) {
    match answer {
        Err(
            Refusal::Final { failure, .. } | Refusal::GaveUp { failure } | Refusal::Transient { failure, .. },
        ) => (failure.code.clone(), failure.message.clone()),
        Ok(reply) => panic!("it was done: {reply:?}"),
    }
}

#[tokio::test]
async fn any_method_with_templates_for_address_headers_and_body() {
    let shop = Shop::open().await;
    let upstream = upstream(&format!(
        r#"
        base_url = "{}"
        idempotency_header = "x-request-key"
        [effects."pay.charge"]
        method = "PURGE"
        path = "/orders/{{order.id}}?by={{@tenant}}"
        headers = {{ "x-order" = "o:{{order.id}}" }}
        body = {{ amount = "{{order.total}}", note = "for {{@correlation}}", tags = ["{{order.id}}", "fix"] }}
        "#,
        shop.url
    ));
    perform(&upstream, json!({"order": {"id": "a/b", "total": 12.5}})).await.unwrap();
    let asked = &shop.asked()[0];
    assert_eq!((asked.method.as_str(), asked.uri.to_string()), ("PURGE", "/orders/a%2Fb?by=acme".to_owned()));
    assert_eq!(asked.header("x-order"), "o:a/b");
    assert_eq!(asked.header("x-request-key"), charge(Value::Null).id.to_string());
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(body, json!({"amount": 12.5, "note": "for o-1", "tags": ["a/b", "fix"]}));
    let (code, message) = failure(&perform(&upstream, json!({"order": {"id": "a\nb", "total": 1}})).await);
    assert!(code == "bad_payload" && message.contains("x-order"), "{code}: {message}");
}

#[tokio::test]
async fn rules_say_what_responses_mean() {
    let shop = Shop::open().await;
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
        result = "busy"
        "#,
        shop.url
    ));
    shop.answers(200, &[], r#"{"status": "declined", "reason": {"code": "funds", "text": "no money"}}"#);
    shop.answers(201, &[], r#"{"type": "PaymentTaken", "data": {"receipt": 7}}"#);
    shop.answers(409, &[("retry-after", "3")], "");
    shop.answers(404, &[], "gone");
    let declined = perform(&upstream, Value::Null).await;
    assert_eq!(failure(&declined), ("funds".to_owned(), "no money".to_owned()));
    let Err(Refusal::Final { event, payload, .. }) = declined else { panic!("it is final") };
    assert_eq!((event.unwrap().as_str(), payload["code"].as_str()), ("PaymentDeclined", Some("funds")));
    let taken = perform(&upstream, Value::Null).await.unwrap();
    assert_eq!((taken.event.unwrap().as_str(), taken.payload), ("PaymentTaken", json!({"receipt": 7})));
    let busy = perform(&upstream, Value::Null).await;
    assert!(matches!(
        busy,
        Err(Refusal::Transient { trouble: Trouble::Busy, retry_after: Some(pause), .. }) if pause.as_secs() == 3
    ));
    assert_eq!(failure(&perform(&upstream, Value::Null).await).0, "http_404");
}

#[tokio::test]
async fn a_response_is_read_up_to_its_limit() {
    let shop = Shop::open().await;
    shop.answers(200, &[], &format!("[{}1]", "1,".repeat(1000)));
    let text = "max_response_bytes = 100\n[effects.\"pay.charge\"]\npath = \"/c\"";
    let reply = perform(&upstream(&format!("base_url = {:?}\n{text}", shop.url)), Value::Null).await.unwrap();
    assert_eq!(
        (reply.payload["truncated"].clone(), reply.payload["text"].as_str().unwrap().len()),
        (json!(true), 100)
    );
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let reference = format!("file:{}", path.display());
    (folder, reference)
}

#[tokio::test]
async fn a_token_is_kept_until_shortly_before_it_expires_and_fetched_anew_when_it_is_refused() {
    let (issuer, shop) = (Shop::open().await, Shop::open().await);
    let (_folder, secret) = file("s3cret&more\n");
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
        issuer.answers(200, &[], &format!(r#"{{"access_token": "{token}", "expires_in": 600}}"#));
    }
    at(0, &upstream, Value::Null).await.unwrap();
    at(500, &upstream, Value::Null).await.unwrap();
    at(580, &upstream, Value::Null).await.unwrap();
    shop.answers(401, &[], "expired");
    at(590, &upstream, Value::Null).await.unwrap();
    shop.answers(401, &[], "no");
    issuer.answers(200, &[], r#"{"access_token": "token-four", "expires_in": 600}"#);
    shop.answers(401, &[], "never: token-four");
    let (code, message) = failure(&at(591, &upstream, Value::Null).await);
    assert!(code == "http_401" && message.ends_with("never: [secret]"), "{message}");
    let used: Vec<_> = shop.asked().iter().map(|asked| asked.header("authorization").to_owned()).collect();
    let bearer = |name: &str| format!("Bearer token-{name}");
    let names = ["one", "one", "two", "two", "three", "three", "four"];
    assert_eq!(used, names.map(bearer));
    let fetched = issuer.asked();
    assert_eq!(fetched[0].body, "grant_type=client_credentials&scope=pay%20write");
    assert_eq!(fetched[0].header("authorization"), "Basic b3Jsb2c6czNjcmV0Jm1vcmU=");
    issuer.answers(500, &[], "");
    let lost = at(5000, &upstream, Value::Null).await;
    assert_eq!(failure(&lost).0, "oauth2");
    assert!(matches!(lost, Err(Refusal::Transient { trouble: Trouble::Down, .. })));
}

#[tokio::test]
async fn basic_credentials_and_signatures_are_sent() {
    let shop = Shop::open().await;
    let (_folder, secret) = file("hunter2-is-long");
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
    let asked = &shop.asked()[0];
    assert_eq!(asked.header("authorization"), "Basic b3Jsb2c6aHVudGVyMi1pcy1sb25n");
    assert_eq!(asked.header("webhook-id"), charge(Value::Null).id.to_string());
    assert_eq!(asked.header("webhook-timestamp"), "1700000000");
    assert!(asked.header("webhook-signature").starts_with("v1,"));
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_waited_for() {
    let text = "auth = { bearer = \"env:ORLOG_NOT_SET_7F3A\" }\n[effects.\"pay.charge\"]\npath = \"/c\"";
    let answer = perform(&upstream(&format!("base_url = \"http://127.0.0.1:9\"\n{text}")), Value::Null).await;
    assert_eq!(failure(&answer).0, "secret");
    assert!(matches!(answer, Err(Refusal::Transient { trouble: Trouble::Down, .. })));
}

fn hook(egress: &str) -> Upstream {
    upstream(&format!(
        "redirects = 2\n{egress}\n[effects.\"pay.charge\"]\nurl = \"{{callback}}\"\nmethod = \"GET\""
    ))
}

#[track_caller]
fn check_refused(answer: &Result<Reply, Refusal>, expected: &str) {
    let (code, message) = failure(answer);
    assert!(code == "egress_refused" && message.contains(expected), "{code}: {message}");
    assert!(matches!(answer, Err(Refusal::Final { .. })), "{answer:?}");
}

#[tokio::test]
async fn an_address_from_a_payload_reaches_nothing_private() {
    let shop = Shop::open().await;
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let callback = json!({ "callback": format!("http://{host}:{port}/x") });
        check_refused(&perform(&hook(""), callback).await, "not a public address");
    }
    let metadata = json!({ "callback": "http://169.254.169.254/latest/meta-data/" });
    check_refused(&perform(&hook(""), metadata).await, "169.254.169.254");
    let listed = hook("egress = { allow = [\"*.example.com\"] }");
    check_refused(&perform(&listed, json!({ "callback": shop.url })).await, "not in the allow-list");
    for wrong in ["file:///etc/passwd", "http://user:pass@example.com/", "no url"] {
        assert_eq!(failure(&perform(&hook(""), json!({ "callback": wrong })).await).0, "bad_payload");
    }
    assert!(shop.asked().is_empty());
    let open = hook("egress = { private = true }");
    perform(&open, json!({ "callback": format!("{}/x", shop.url) })).await.unwrap();
    assert_eq!(shop.asked().len(), 1);
}

#[tokio::test]
async fn a_placeholder_in_the_host_is_guarded_and_one_in_the_path_is_not() {
    let shop = Shop::open().await;
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    let at = |url: &str| upstream(&format!("[effects.\"pay.charge\"]\nurl = \"{url}\""));
    let host = at(&format!("http://{{host}}:{port}/x"));
    check_refused(&perform(&host, json!({"host": "localhost"})).await, "not a public address");
    for sly in ["user@localhost", "localhost/", "localhost#", "a b"] {
        assert_eq!(failure(&perform(&host, json!({ "host": sly })).await).0, "bad_payload", "{sly}");
    }
    let path = at(&format!("http://localhost:{port}/x/{{id}}"));
    perform(&path, json!({"id": "../y"})).await.unwrap();
    assert_eq!(shop.asked()[0].uri.path(), "/x/..%2Fy");
}

#[tokio::test]
async fn redirects_are_followed_only_where_allowed_and_take_no_credentials_along() {
    let (shop, other) = (Shop::open().await, Shop::open().await);
    let (_folder, secret) = file("only-for-the-shop");
    let at = |more: &str| {
        upstream(&format!(
            "base_url = {:?}\nauth = {{ bearer = {secret:?} }}\n{more}\n[effects.\"pay.charge\"]\nmethod = \"GET\"\npath = \"/c\"\nheaders = {{ x-own = \"1\" }}",
            shop.url
        ))
    };
    let away = [("location", &*format!("{}/there", other.url))];
    shop.answers(302, &away, "");
    assert_eq!(failure(&perform(&at(""), Value::Null).await).0, "http_302");
    shop.answers(302, &away, "");
    check_refused(&perform(&at("redirects = 3"), Value::Null).await, "not a public address");
    assert!(other.asked().is_empty());
    shop.answers(302, &away, "");
    perform(&at("redirects = 3\negress = { private = true }"), Value::Null).await.unwrap();
    let asked = &other.asked()[0];
    assert_eq!(
        (asked.header("authorization"), asked.header("x-own"), asked.header("x-tenant-id")),
        ("", "", "")
    );
    shop.answers(302, &[("location", "/next")], "");
    perform(&at("redirects = 1"), Value::Null).await.unwrap();
    let last = shop.asked().pop().unwrap();
    assert_eq!((last.uri.path(), last.header("authorization")), ("/next", "Bearer only-for-the-shop"));
    shop.answers(302, &[("location", "http://127.0.0.1:9/")], "");
    let nowhere = perform(&at("redirects = 1\negress = { private = true }"), Value::Null).await;
    assert!(matches!(nowhere, Err(Refusal::Transient { trouble: Trouble::Lost, .. })));
    for _ in 0..2 {
        shop.answers(302, &[("location", "/again")], "");
    }
    assert_eq!(failure(&perform(&at("redirects = 1"), Value::Null).await).0, "http_302");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (more, expected) in [
        (
            "path = \"/c\"\nurl = \"http://h/\"",
            "upstream pay, effect pay.charge: it has a path and a url; keep one",
        ),
        ("", "it has neither path nor url"),
        ("path = \"/c\"\nmethod = \"A B\"", "the method \"A B\" is none"),
        ("path = \"/c\"\nheaders = { x-key = \"env:KEY\" }", "would send a reference"),
        ("path = \"/c\"\nbody = [\"{env:KEY}\"]", "a secret cannot stand in a body"),
        ("path = \"/c/{env:KEY}\"", "a secret cannot stand in a path"),
        ("url = \"ftp://h/\"", "begins with neither"),
        ("path = \"/c\"\nresponses = [{ result = \"failed\", payload = \"a\" }]", "is no JSON pointer"),
        (
            "path = \"/c\"\nresponses = [{ result = \"failed\", event = \"a\\nb\" }]",
            "responses[0]: the event",
        ),
    ] {
        let text = format!("base_url = \"http://h\"\n[effects.\"pay.charge\"]\n{more}");
        let config: HttpConfig = toml::from_str(&text).unwrap();
        let error = config.upstream("pay").err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let literal = toml::from_str::<HttpConfig>("auth = { bearer = \"canary-9\" }").unwrap_err();
    assert!(!literal.message().contains("canary") && literal.message().contains("by reference"), "{literal}");
    let tls = "base_url = \"http://h\"\ntls = { cert = \"file:/c\" }";
    let error = toml::from_str::<HttpConfig>(tls).unwrap().upstream("pay").err().unwrap().to_string();
    assert!(error.contains("tls.cert and tls.key go together"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_not_there_is_waited_for() {
    let upstream = upstream(
        "base_url = \"https://127.0.0.1:9\"\ntls = { cert = \"file:/nowhere/cert.pem\", key = \"file:/nowhere/key.pem\" }\n[effects.\"pay.charge\"]\npath = \"/c\"",
    );
    let (code, message) = failure(&perform(&upstream, Value::Null).await);
    assert!(code == "tls" && message.contains("file:/nowhere/cert.pem"), "{code}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_page_does_what_the_page_says() {
    let shop = Shop::open().await;
    shop.answers(200, &[], r#"{"receipt": "r-1"}"#);
    shop.answers(402, &[], r#"{"error": {"code": "no_funds", "message": "the card is empty"}}"#);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "canary").unwrap();
    let text = block("http.md", "config/effects/payments.toml");
    let text = with(&text, "https://api.payments.example", &shop.url);
    let text = with(&text, "env:PAYMENTS_TOKEN", &format!("file:{}", secret.path().display()));
    let folders = Folders::new(&[("payments", &text)]);
    folders.define("payment", &block("http.md", "definitions/payment.saga.yaml"));
    let node = folders.start().await;
    node.pay("acme", "o/1", json!({ "total": 125 })).await;
    let paid = node.until("acme", "/v1/sagas/payment/o%2F1", |saga| saga["status"] == "completed").await;
    assert_eq!(paid["state"]["vars"]["receipt"], "r-1");
    node.pay("acme", "o-2", json!({ "total": 125 })).await;
    let refused = node.end("acme", "o-2").await;
    assert_eq!(refused["last_error"], json!({ "code": "no_funds", "message": "the card is empty" }));
    let asked = &shop.asked()[0];
    assert_eq!((asked.uri.path(), asked.header("authorization")), ("/orders/o%2F1/charges", "Bearer canary"));
    assert_eq!(
        serde_json::from_slice::<Value>(&asked.body).unwrap(),
        json!({ "amount": 125, "reference": "o/1" })
    );
}
