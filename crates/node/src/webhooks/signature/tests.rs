//! Signatures of the published test vectors, and rejected ones.

use http::{HeaderName, HeaderValue};
use orlog_effect::secret::SecretRef;

use super::*;

/// Secret of the vector of GitHub.
const GITHUB_SECRET: &str = concat!("It's a Secret to Every", "body");

/// Webhook with secrets in files.
struct Fixture {
    _dir: tempfile::TempDir,
    config: WebhookConfig,
}

impl Fixture {
    fn new(scheme: &str, secrets: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let references = secrets.iter().enumerate().map(|(index, secret)| {
            let path = dir.path().join(index.to_string());
            std::fs::write(&path, secret).unwrap();
            format!("file:{}", path.display())
                .parse::<SecretRef>()
                .unwrap()
        });
        let secrets = references.collect();
        let text = format!("scheme = \"{scheme}\"\nsecrets = []\ntype = \"A\"\nid = \"= body.id\"");
        Self {
            config: WebhookConfig {
                secrets,
                ..toml::from_str(&text).unwrap()
            },
            _dir: dir,
        }
    }

    fn signature(mut self, text: &str) -> Self {
        self.config.signature = Some(toml::from_str(text).unwrap());
        self
    }

    fn verify(&self, headers: &[(&str, &str)], body: &[u8], now: i64) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::try_from(*value).unwrap());
        }
        let now = Timestamp::from_millis(now * 1000);
        verify(&self.config, &map, body, now).map_err(|error| error.to_string())
    }
}

#[track_caller]
fn rejected(found: &Result<(), String>, reason: &str) {
    assert!(
        found.as_ref().is_err_and(|error| error.contains(reason)),
        "{found:?}"
    );
}

/// Test vector of the documentation of GitHub.
#[test]
fn github_signature_matches_the_published_vector() {
    let github = Fixture::new("github", &[GITHUB_SECRET]);
    let valid = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let verify =
        |value: &str, body: &[u8]| github.verify(&[("x-hub-signature-256", value)], body, 0);
    assert_eq!(verify(valid, b"Hello, World!"), Ok(()));
    rejected(&verify(valid, b"Hello, World"), "no secret matches");
    rejected(
        &verify(&valid["sha256=".len()..], b"Hello, World!"),
        "prefix",
    );
    rejected(&verify("sha256=zz", b"Hello, World!"), "hexadecimal");
    rejected(&verify("sha256=", b"Hello, World!"), "no secret matches");
    rejected(
        &github.verify(&[], b"Hello, World!", 0),
        "x-hub-signature-256 is missing",
    );
    let both = [
        ("x-hub-signature-256", valid),
        ("x-hub-signature-256", "sha256=00"),
    ];
    rejected(&github.verify(&both, b"Hello, World!", 0), "more than once");
}

/// Headers of the vector of Standard Webhooks.
fn headers(signature: &str) -> [(&str, &str); 3] {
    let id = ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    [
        id,
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", signature),
    ]
}

/// Test vector of the Standard Webhooks libraries.
#[test]
fn standard_webhooks_signature_matches_the_published_vector() {
    let webhook = Fixture::new(
        "standard-webhooks",
        &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    );
    let (body, now) = (br#"{"test": 2432232314}"#, 1_614_265_330);
    let valid = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let verify = |signature: &str| webhook.verify(&headers(signature), body, now);
    assert_eq!(verify(valid), Ok(()));
    let several = format!(
        "v1a,{} v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= {valid}",
        &valid[3..]
    );
    assert_eq!(verify(&several), Ok(()), "any valid signature counts");
    rejected(&verify(&valid.replace("v1,", "v2,")), "no secret matches");
    rejected(&verify(""), "no secret matches");
    let mut other_id = headers(valid);
    other_id[0].1 = "msg_other";
    rejected(&webhook.verify(&other_id, body, now), "no secret matches");
    assert_eq!(webhook.verify(&headers(valid), body, now + 300), Ok(()));
    assert_eq!(webhook.verify(&headers(valid), body, now - 300), Ok(()));
    rejected(
        &webhook.verify(&headers(valid), body, now + 301),
        "301s away from the clock",
    );
    rejected(
        &webhook.verify(&headers(valid), body, now - 301),
        "replay_window",
    );
}

/// The names of many senders, such as Clerk and Resend.
#[test]
fn standard_webhooks_may_have_the_header_names_of_svix() {
    let webhook = Fixture::new(
        "standard-webhooks",
        &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    );
    let (body, now) = (br#"{"test": 2432232314}"#, 1_614_265_330);
    let valid = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let renamed = |names: [&'static str; 3]| {
        let mut headers = headers(valid);
        for (header, name) in headers.iter_mut().zip(names) {
            header.0 = name;
        }
        headers
    };
    let svix = renamed(["svix-id", "svix-timestamp", "svix-signature"]);
    assert_eq!(webhook.verify(&svix, body, now), Ok(()));

    let mixed = renamed(["webhook-id", "svix-timestamp", "svix-signature"]);
    rejected(&webhook.verify(&mixed, body, now), "webhook-timestamp");
    let mixed = renamed(["svix-id", "webhook-timestamp", "svix-signature"]);
    rejected(&webhook.verify(&mixed, body, now), "svix-timestamp");
}

/// Stripe publishes the scheme without a vector; the signature is from `openssl dgst -sha256 -hmac`, over the secret and
/// the body of the tests of its libraries.
#[test]
fn stripe_signature_matches_that_of_openssl() {
    let stripe = Fixture::new("stripe", &["whsec_test_secret"]);
    let (body, now) = (
        br#"{"id":"evt_test_webhook","object":"event"}"#,
        1_495_999_758,
    );
    let tag = "bd9584a798a9bd54c579fb7780e70d915eb8f35bcacc651f9a06a3cce74be871";
    let verify = |value: &str, now| stripe.verify(&[("stripe-signature", value)], body, now);
    assert_eq!(verify(&format!("t=1495999758,v1={tag}"), now), Ok(()));
    assert_eq!(
        verify(
            &format!("t=1495999758,v1={},v1={tag},v0=00", "00".repeat(32)),
            now
        ),
        Ok(())
    );
    rejected(
        &verify(&format!("t=1495999758,v0={tag}"), now),
        "no secret matches",
    );
    rejected(
        &verify(&format!("t=1495999759,v1={tag}"), now),
        "no secret matches",
    );
    rejected(
        &verify(&format!("t=1495999758,v1={tag}"), now + 301),
        "replay_window",
    );
    rejected(&verify(&format!("v1={tag}"), now), "no timestamp");
    rejected(
        &verify(&format!("t=now,v1={tag}"), now),
        "number of seconds",
    );
}

/// Test vector of the documentation of Slack.
#[test]
fn configured_signature_matches_the_vector_of_slack() {
    let slack = Fixture::new("hmac-sha256", &["8f742231b10e8888abcd99yyyzzz85a5"]).signature(
        "header = \"x-slack-signature\"\nprefix = \"v0=\"\n\
         timestamp_header = \"x-slack-request-timestamp\"\npayload = \"v0:{timestamp}:{body}\"",
    );
    let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
        channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
        response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
        trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let headers = [
        ("x-slack-request-timestamp", "1531420618"),
        (
            "x-slack-signature",
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        ),
    ];
    assert_eq!(slack.verify(&headers, body, 1_531_420_618), Ok(()));
    rejected(
        &slack.verify(&headers, body, 1_531_420_618 + 301),
        "replay_window",
    );
    rejected(
        &slack.verify(&headers[1..], body, 1_531_420_618),
        "x-slack-request-timestamp is missing",
    );
}

#[test]
fn base64_signature_without_timestamp_is_accepted() {
    let shop = Fixture::new("hmac-sha256", &["key"])
        .signature("header = \"x-shop-hmac-sha256\"\nencoding = \"base64\"");
    // The HMAC-SHA256 test vector of Wikipedia.
    let body = b"The quick brown fox jumps over the lazy dog";
    let valid = "97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg=";
    assert_eq!(
        shop.verify(&[("x-shop-hmac-sha256", valid)], body, 0),
        Ok(())
    );
    rejected(
        &shop.verify(&[("x-shop-hmac-sha256", "f7bc83f4")], body, 0),
        "no secret matches",
    );
}

#[test]
fn token_is_compared_with_every_secret() {
    let gitlab =
        Fixture::new("token", &["old-token", "new-token"]).signature("header = \"x-gitlab-token\"");
    let verify = |token: &str| gitlab.verify(&[("x-gitlab-token", token)], b"{}", 0);
    assert_eq!((verify("old-token"), verify("new-token")), (Ok(()), Ok(())));
    rejected(&verify("old"), "no secret matches");
    rejected(&verify(""), "no secret matches");
}

#[test]
fn unreadable_secret_is_no_mismatch() {
    let mut github = Fixture::new("github", &[GITHUB_SECRET]);
    github
        .config
        .secrets
        .insert(0, "file:/nowhere/secret".parse().unwrap());
    let valid = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(
        github.verify(&[("x-hub-signature-256", valid)], b"Hello, World!", 0),
        Ok(())
    );
    let found = github.verify(&[("x-hub-signature-256", valid)], b"Hello", 0);
    rejected(&found, "cannot read secret file:/nowhere/secret");
}
