//! SMTP provider against a real mail server: text, attachments, headers, replies, encryption,
//! credentials.

mod connection;

use std::path::Path;
use std::sync::Arc;

use mail_parser::{Message, MessageParser, MimeHeaders as _};
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::smtp::SmtpConfig;
use orlog_effect::{ProviderError, Reply, TransientCause, Upstream};
use orlog_model::WorkItem;
use orlog_testkit::provider_suite::START;
use orlog_testkit::smtp_server::{
    Handler, ReceivedMail, SmtpCommand, SmtpResponse, SmtpServer, SmtpServerOptions,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::effects::attempts::{execute, failure, request, trouble};
use crate::effects::docs::{block, with};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;
use connection::encrypted;

/// Replies with the result of `saying`, else with the default.
fn replying(
    replying: impl Fn(&SmtpCommand) -> Option<&'static str> + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |received| {
        let message = replying(&received).map_or(SmtpResponse::Default, |line| {
            SmtpResponse::Line(line.to_owned())
        });
        Box::pin(std::future::ready(message))
    })
}

async fn open() -> SmtpServer {
    SmtpServer::open(SmtpServerOptions::default(), replying(|_| None)).await
}

fn upstream(server: &SmtpServer, more: &str) -> Upstream {
    let (port, plaintext) = (
        server.address.port(),
        if more.contains("tls = ") {
            ""
        } else {
            "tls = \"none\""
        },
    );
    let text = format!(
        "host = \"127.0.0.1\"\nport = {port}\n{plaintext}\nfrom = \"The Shop <shop@example.org>\"\n{more}"
    );
    let config: SmtpConfig = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    config
        .upstream(UpstreamSite::new("mail").in_dir(Path::new("/nowhere")))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns an effect whose arguments are the email message.
fn free(server: &SmtpServer, more: &str) -> Upstream {
    upstream(server, &format!("{more}\n[effects.\"mail.send\"]"))
}

fn mail(payload: Value) -> WorkItem {
    request("mail.send", payload)
}

async fn perform(upstream: &Upstream, payload: Value) -> Result<Reply, ProviderError> {
    execute(upstream, &mail(payload), START).await
}

fn read(mail: &ReceivedMail) -> Message<'_> {
    MessageParser::default()
        .parse(&mail.bytes)
        .expect("it is a mail")
}

fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/certs")
        .join(name)
        .display()
        .to_string()
}

fn file(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    format!("file:{}", path.display())
}

#[tokio::test]
async fn every_attempt_sends_identical_bytes_and_message_id() {
    let server = open().await;
    let upstream = free(&server, "domain = \"mail.example.org\"");
    let email = json!({
        "to": ["Ada Lovelace <ada@x.io>", "bob@x.io"], "cc": "Zoë <zoe@x.io>", "bcc": ["eve@x.io", "ada@x.io"],
        "reply_to": "desk@x.io", "subject": "Grüße: 7 ✓", "text": "Hi\n.\nBye", "html": "<p>Hi</p>",
        "attachments": [{"name": "a.txt", "type": "text/plain", "base64": "aGk="}],
    });
    for _ in 0..2 {
        perform(&upstream, email.clone()).await.unwrap();
    }
    let mails = server.mails();
    assert_eq!((&mails[0], server.connections()), (&mails[1], 1));
    assert_eq!(
        mails[0].to,
        ["ada@x.io", "bob@x.io", "zoe@x.io", "eve@x.io"]
    );
    let text = String::from_utf8(mails[0].bytes.clone()).unwrap();
    assert!(
        !text.contains("eve@x.io") && !text.contains("Bcc"),
        "{text}"
    );
    assert!(text.contains("Date: Wed, 01 Jan 2025 00:00:00"), "{text}");
    let read = read(&mails[0]);
    assert_eq!(
        read.message_id().unwrap(),
        format!("{}@mail.example.org", mail(Value::Null).id)
    );
    assert_eq!(
        (
            read.subject().unwrap(),
            read.body_text(0).unwrap().trim_end()
        ),
        ("Grüße: 7 ✓", "Hi\r\n.\r\nBye")
    );
    assert_eq!(
        read.to().unwrap().first().unwrap().name().unwrap(),
        "Ada Lovelace"
    );
    assert_eq!(read.cc().unwrap().first().unwrap().name().unwrap(), "Zoë");
    assert_eq!(
        read.from().unwrap().first().unwrap().address().unwrap(),
        "shop@example.org"
    );
    let enclosed = read.attachment(0).unwrap();
    assert_eq!(
        (enclosed.attachment_name().unwrap(), enclosed.contents()),
        ("a.txt", b"hi".as_slice())
    );
    let reply = perform(&upstream, email).await.unwrap().payload;
    assert_eq!(reply["response"], "250 2.0.0 queued as 7F3A");
    assert_eq!(
        reply["message_id"],
        format!("<{}@mail.example.org>", mail(Value::Null).id)
    );
}

#[tokio::test]
async fn template_values_are_not_interpreted_as_markup() {
    let server = open().await;
    let upstream = upstream(
        &server,
        r#"
        [effects."mail.send"]
        to = "{to}"
        subject = "For {name}"
        markdown = "Dear {name}, **see** [it](https://x.io/{@correlation})."
        "#,
    );
    let name = "<b>A</b> [x](https://evil.io)";
    perform(&upstream, json!({"to": "ada@x.io", "name": name}))
        .await
        .unwrap();
    let mails = server.mails();
    let read = read(&mails[0]);
    let (text, html) = (read.body_text(0).unwrap(), read.body_html(0).unwrap());
    assert_eq!(
        text.trim_end(),
        format!("Dear {name}, see it (https://x.io/o-1).")
    );
    assert!(
        html.contains("<strong>see</strong>") && html.contains("href=\"https://x.io/o-1\""),
        "{html}"
    );
    assert!(
        !html.contains("<b>") && !html.contains("href=\"https://evil.io\""),
        "{html}"
    );
    assert_eq!(read.subject().unwrap(), format!("For {name}"));
}

#[tokio::test]
async fn html_values_are_escaped_unless_whole_field() {
    let server = open().await;
    let html = |template: &str| {
        upstream(
            &server,
            &format!("[effects.\"mail.send\"]\nto = \"a@x.io\"\nhtml = {template:?}"),
        )
    };
    let payload = || json!({ "page": "<i>\"x\"</i> & y" });
    perform(&html("<p>{page}</p>"), payload()).await.unwrap();
    perform(&html("{page}"), payload()).await.unwrap();
    let bodies: Vec<String> = server
        .mails()
        .iter()
        .map(|mail| read(mail).body_html(0).unwrap().trim_end().to_owned())
        .collect();
    assert_eq!(
        bodies,
        [
            "<p>&lt;i&gt;&quot;x&quot;&lt;/i&gt; &amp; y</p>",
            "<i>\"x\"</i> & y"
        ]
    );
}

#[tokio::test]
async fn text_html_and_markdown_are_supported() {
    let server = open().await;
    let upstream = free(&server, "");
    for format in ["text", "html", "md"] {
        let email = json!({ "to": "a@x.io", "format": format, "body": "*hi* <b>you</b>" });
        perform(&upstream, email).await.unwrap();
    }
    let mails = server.mails();
    let [text, html, markdown] = mails.as_slice() else {
        panic!("three were sent")
    };
    assert_eq!(
        (
            read(text).text_body_count(),
            read(text).body_text(0).unwrap().trim_end()
        ),
        (1, "*hi* <b>you</b>")
    );
    assert_eq!(
        read(html).body_html(0).unwrap().trim_end(),
        "*hi* <b>you</b>"
    );
    assert_eq!(
        read(markdown).body_text(0).unwrap().trim_end(),
        "hi <b>you</b>"
    );
    assert!(
        read(markdown)
            .body_html(0)
            .unwrap()
            .contains("<em>hi</em> &lt;b&gt;you")
    );
}

#[tokio::test]
async fn sanitized_mail_has_harmless_html_and_plain_text() {
    let server = open().await;
    let upstream = free(&server, "");
    let html = "<p onclick=x>Hi <b>you</b><img src=https://t.io/x.gif><script>x</script></p>";
    let markdown = "Hi **you** ![](https://t.io/x.gif) <script>x</script>";
    for (format, body) in [("html", html), ("md", markdown), ("text", "Hi <b>you</b>")] {
        let email = json!({ "to": "a@x.io", "format": format, "body": body, "sanitize": true });
        perform(&upstream, email).await.unwrap();
    }
    let mails = server.mails();
    let [of_html, of_markdown, of_text] = [0, 1, 2].map(|index| read(&mails[index]));
    assert_eq!(
        of_html.body_html(0).unwrap().trim_end(),
        "<p>Hi <b>you</b></p>"
    );
    assert_eq!(of_html.body_text(0).unwrap().trim_end(), "Hi you");
    let html = of_markdown.body_html(0).unwrap();
    assert!(
        html.contains("Hi <strong>you</strong>") && html.contains("&lt;script&gt;"),
        "{html}"
    );
    assert!(!html.contains("<img"), "{html}");
    assert!(of_markdown.body_text(0).unwrap().starts_with("Hi you"));
    assert_eq!(of_text.body_text(0).unwrap().trim_end(), "Hi <b>you</b>");
    assert!(!String::from_utf8_lossy(&mails[2].bytes).contains("text/html"));
}

#[tokio::test]
async fn mail_of_a_template_is_sanitized_if_its_arguments_require_it() {
    let server = open().await;
    let effect = "[effects.\"mail.send\"]\nto = \"{to}\"\nsubject = \"Hi\"\nhtml = \"{body}\"";
    let upstream = upstream(&server, effect);
    let mail = |sanitize: Value| {
        let body = "<p>Hi</p><script>x</script>";
        json!({ "to": "a@x.io", "body": body, "sanitize": sanitize })
    };
    for sanitize in [json!(true), json!(false), Value::Null] {
        perform(&upstream, mail(sanitize)).await.unwrap();
    }
    let mails = server.mails();
    let has_script =
        |mail: &ReceivedMail| String::from_utf8_lossy(&mail.bytes).contains("<script>");
    let found: Vec<_> = mails.iter().map(has_script).collect();
    assert_eq!(found, [false, true, true]);
    assert_eq!(read(&mails[0]).body_text(0).unwrap().trim_end(), "Hi");

    let invalid = perform(&upstream, mail(json!("yes"))).await;
    let message = format!("{invalid:?}");
    assert!(
        invalid.is_err() && message.contains("sanitize"),
        "{message}"
    );
}

#[tokio::test]
async fn payload_cannot_inject_headers() {
    let server = open().await;
    let upstream = free(&server, "");
    let email = |name: &str, value: Value| {
        let mut email = json!({ "to": "a@x.io", "text": "hi" });
        email[name] = value;
        email
    };
    let enclosed =
        |name: &str, kind: &str| json!([{ "name": name, "type": kind, "base64": "aGk=" }]);
    for evil in [
        "x\r\nBcc: eve@x.io",
        "x\nBcc: eve@x.io",
        "x\rBcc: eve@x.io",
        "x\0",
        "x\u{2028}\u{85}",
    ] {
        let address = format!("{evil} <b@x.io>");
        for (name, value) in [
            ("to", json!(address)),
            ("cc", json!([address])),
            ("bcc", json!("b@x.io\r\nRCPT TO:<eve@x.io>")),
            ("reply_to", json!(address)),
            ("subject", json!(evil)),
            ("attachments", enclosed(evil, "text/plain")),
            (
                "attachments",
                enclosed("a.txt", &format!("text/plain\r\n{evil}")),
            ),
        ] {
            let result = perform(&upstream, email(name, value)).await;
            assert_eq!(
                (failure(&result).0.as_str(), trouble(&result)),
                ("invalid_payload", None),
                "{name}: {evil:?}"
            );
        }
    }
    for two in [
        "a@x.io, eve@x.io",
        "a@x.io eve@x.io",
        "a@x.io> <eve@x.io",
        "unknown",
        "@x.io",
        "",
    ] {
        let result = perform(&upstream, json!({ "to": two, "text": "hi" })).await;
        assert_eq!(failure(&result).0, "invalid_payload", "{two:?}");
    }
    assert!(server.mails().is_empty() && server.connections() == 0);
    // Line breaks in the text stay part of the text.
    perform(
        &upstream,
        email(
            "text",
            json!("hi\r\n.\r\nMAIL FROM:<eve@x.io>\r\n\r\nBcc: eve@x.io"),
        ),
    )
    .await
    .unwrap();
    let mails = server.mails();
    assert_eq!(
        (mails.len(), mails[0].to.as_slice()),
        (1, ["a@x.io".to_owned()].as_slice())
    );
    assert!(read(&mails[0]).bcc().is_none());
}

#[tokio::test]
async fn line_ends_become_crlf() {
    let server = open().await;
    let upstream = free(&server, "");
    for body in ["text", "html", "markdown"] {
        let mut email = json!({ "to": "a@x.io" });
        email[body] = json!("one\rtwo\nthree\r\nfour\r");
        perform(&upstream, email).await.unwrap();
    }

    for mail in server.mails() {
        let text = String::from_utf8(mail.bytes).unwrap();
        assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "{text:?}");
    }
}

#[tokio::test]
async fn international_domain_needs_no_extension_of_the_server() {
    let options = SmtpServerOptions {
        ascii_addresses: true,
        ..SmtpServerOptions::default()
    };
    let server = SmtpServer::open(options, replying(|_| None)).await;
    let upstream = free(&server, "");

    let email = json!({ "to": ["Jo <joe@b\u{fc}cher.example>", "a@x.io"], "text": "hi" });
    perform(&upstream, email).await.unwrap();
    let mails = server.mails();
    assert_eq!(mails[0].to, ["joe@xn--bcher-kva.example", "a@x.io"]);
    let text = String::from_utf8(mails[0].bytes.clone()).unwrap();
    let header = "To: Jo <joe@xn--bcher-kva.example>, a@x.io\r\n";
    assert!(text.contains(header), "{text}");

    let result = perform(&upstream, json!({ "to": "j\u{f6}rg@x.io", "text": "hi" })).await;
    let (code, message) = failure(&result);
    assert_eq!((code.as_str(), trouble(&result)), ("smtp_utf8", None));
    assert!(message.contains("the address j\u{f6}rg@x.io"), "{message}");
}

#[tokio::test]
async fn international_name_is_sent_to_a_server_with_the_extension() {
    let server = open().await;
    let upstream = free(&server, "");
    perform(&upstream, json!({ "to": "j\u{f6}rg@x.io", "text": "hi" }))
        .await
        .unwrap();
    assert_eq!(server.mails()[0].to, ["j\u{f6}rg@x.io"]);
}

#[tokio::test]
async fn quoted_local_parts_and_address_literals_are_recipients() {
    let server = open().await;
    let upstream = free(&server, "");
    let email = json!({
        "to": ["\"a b\"@x.io", "Joe <joe@[192.0.2.1]>", "c@x.io"], "text": "hi",
    });
    perform(&upstream, email).await.unwrap();

    let mails = server.mails();
    assert_eq!(mails[0].to, ["\"a b\"@x.io", "joe@[192.0.2.1]", "c@x.io"]);
    let text = String::from_utf8(mails[0].bytes.clone()).unwrap();
    let header = "To: \"a b\"@x.io, Joe <joe@[192.0.2.1]>, c@x.io\r\n";
    assert!(text.contains(header), "{text}");
}

#[tokio::test]
async fn attachments_are_confined_to_their_directory() {
    let (server, dir, other_dir) = (
        open().await,
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    std::fs::create_dir(dir.path().join("in")).unwrap();
    std::fs::write(dir.path().join("in/voice.pdf"), "%PDF").unwrap();
    std::fs::write(other_dir.path().join("secret"), "canary").unwrap();
    std::os::unix::fs::symlink(other_dir.path().join("secret"), dir.path().join("link")).unwrap();
    let upstream = free(
        &server,
        &format!(
            "attachments = {{ dir = {:?} }}\nmax_message_bytes = 4000",
            dir.path()
        ),
    );
    let with =
        |file: &str| json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "file": file }] });
    perform(&upstream, with("in/voice.pdf")).await.unwrap();
    let mails = server.mails();
    let message = read(&mails[0]);
    let enclosed = message.attachment(0).unwrap();
    assert_eq!(
        (enclosed.attachment_name().unwrap(), enclosed.contents()),
        ("voice.pdf", b"%PDF".as_slice())
    );
    let absolute = other_dir.path().join("secret").display().to_string();
    let relative = format!(
        "../{}/secret",
        other_dir.path().file_name().unwrap().to_str().unwrap()
    );
    std::fs::write(dir.path().join("big"), "x".repeat(5000)).unwrap();
    for (file, code) in [
        (absolute.as_str(), "invalid_payload"),
        (relative.as_str(), "invalid_payload"),
        ("in/../../x", "invalid_payload"),
        ("", "invalid_payload"),
        ("big", "invalid_payload"),
        ("link", "attachment"),
        ("in", "attachment"),
        ("absent", "attachment"),
    ] {
        let result = perform(&upstream, with(file)).await;
        assert_eq!(
            (failure(&result).0.as_str(), trouble(&result)),
            (code, None),
            "{file}: {result:?}"
        );
    }
    assert_eq!(
        failure(&perform(&free(&server, ""), with("x")).await).0,
        "invalid_payload"
    );
    let long = json!({ "to": "a@x.io", "text": "x".repeat(5000) });
    assert!(
        failure(&perform(&upstream, long).await)
            .1
            .contains("the limit is 4000")
    );
    let odd =
        json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "file": "a", "base64": "aGk=" }] });
    assert!(
        failure(&perform(&upstream, odd).await)
            .1
            .contains("exactly one")
    );
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn attachment_urls_cannot_reach_private_addresses() {
    let (server, shop) = (open().await, HttpUpstream::open().await);
    let with = |url: &str| json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "name": "x", "url": url }] });
    let upstream = free(&server, "");
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"] {
        let result = perform(&upstream, with(&format!("http://{host}:{port}/x"))).await;
        assert_eq!(
            (failure(&result).0.as_str(), trouble(&result)),
            ("egress_denied", None),
            "{result:?}"
        );
    }
    assert_eq!(
        failure(&perform(&upstream, with("file:///etc/passwd")).await).0,
        "invalid_payload"
    );
    assert!(shop.received().is_empty());
    let open = free(&server, "attachments = { egress = { private = true } }");
    shop.script(200, &[], "from the web");
    perform(&open, with(&format!("{}/x", shop.url)))
        .await
        .unwrap();
    let mails = server.mails();
    assert_eq!(
        read(&mails[0]).attachment(0).unwrap().contents(),
        b"from the web"
    );
    for (status, expected) in [(503, Some(TransientCause::Throttled)), (404, None)] {
        shop.script(status, &[], "");
        let result = perform(&open, with(&format!("{}/x", shop.url))).await;
        assert_eq!(
            (failure(&result).0.as_str(), trouble(&result)),
            ("attachment", expected)
        );
    }
}

#[tokio::test]
async fn smtp_replies_are_classified_at_every_stage() {
    let server = SmtpServer::open(
        SmtpServerOptions::default(),
        replying(|received| match received {
            SmtpCommand::To(to) if to == "gone@x.io" => Some("550 5.1.1 no such user"),
            SmtpCommand::To(to) if to == "grey@x.io" => Some("450 4.2.0 Greylisted"),
            SmtpCommand::To(to) if to == "full@x.io" => Some("452 4.2.2 mailbox full"),
            SmtpCommand::Mail(mail) if String::from_utf8_lossy(&mail.bytes).contains("spam") => {
                Some("554 5.7.1 spam")
            }
            _ => None,
        }),
    )
    .await;
    let upstream = free(&server, "greylist_pause = \"90s\"");
    let to = |to: &str, text: &str| json!({ "to": ["a@x.io", to], "text": text });
    let unknown_recipient = perform(&upstream, to("gone@x.io", "hi")).await;
    assert_eq!(
        (
            failure(&unknown_recipient).0.as_str(),
            trouble(&unknown_recipient)
        ),
        ("smtp_550", None)
    );
    let Err(ProviderError::Permanent { payload, .. }) = unknown_recipient else {
        panic!("it is final")
    };
    assert_eq!(
        (&payload["enhanced"], &payload["recipient"]),
        (&json!("5.1.1"), &json!("gone@x.io"))
    );
    let grey = perform(&upstream, to("grey@x.io", "hi")).await;
    assert!(matches!(
        &grey,
        Err(ProviderError::Transient { trouble: TransientCause::Throttled, retry_after: Some(pause), .. }) if pause.as_secs() == 90
    ));
    let full = perform(&upstream, to("full@x.io", "hi")).await;
    assert_eq!(
        (failure(&full).0.as_str(), trouble(&full)),
        ("smtp_452", Some(TransientCause::Throttled))
    );
    assert_eq!(
        failure(&perform(&upstream, to("b@x.io", "spam")).await).0,
        "smtp_554"
    );
    assert!(server.mails().is_empty());
    perform(&upstream, to("b@x.io", "hi")).await.unwrap();
    assert_eq!((server.mails().len(), server.connections()), (1, 1));
}

/// Closes the connection if `hang` returns `true`.
fn hanging(hang: impl Fn(&SmtpCommand) -> bool + Send + Sync + 'static) -> Handler {
    Arc::new(move |received| {
        let message = if hang(&received) {
            SmtpResponse::Hang
        } else {
            SmtpResponse::Default
        };
        Box::pin(std::future::ready(message))
    })
}

#[tokio::test]
async fn connection_loss_after_data_is_in_doubt() {
    let email = || json!({ "to": "a@x.io", "text": "hi" });
    for (stage, expected) in [
        (0, ("unreachable", Some(TransientCause::Unavailable))),
        (1, ("transport", Some(TransientCause::Unavailable))),
        (2, ("transport", Some(TransientCause::Unavailable))),
        (3, ("transport", Some(TransientCause::ResponseLost))),
    ] {
        let hang = hanging(move |received| match received {
            SmtpCommand::Connection => stage == 0,
            SmtpCommand::From(_) => stage == 1,
            SmtpCommand::Data => stage == 2,
            SmtpCommand::Mail(_) => stage == 3,
            SmtpCommand::To(_) | SmtpCommand::Auth { .. } => false,
        });
        let server = SmtpServer::open(SmtpServerOptions::default(), hang).await;
        let result = perform(&free(&server, ""), email()).await;
        assert_eq!(
            (failure(&result).0.as_str(), trouble(&result)),
            expected,
            "{stage}: {result:?}"
        );
    }
    let absent = "host = \"127.0.0.1\"\nport = 9\ntls = \"none\"\nfrom = \"a@x.io\"\n[effects.\"mail.send\"]";
    let absent: SmtpConfig = toml::from_str(absent).unwrap();
    let result = perform(
        &absent
            .upstream(UpstreamSite::new("mail").in_dir(Path::new("/")))
            .unwrap(),
        email(),
    )
    .await;
    assert_eq!(
        (failure(&result).0.as_str(), trouble(&result)),
        ("unreachable", Some(TransientCause::Unavailable))
    );
}

#[tokio::test]
async fn dead_idle_connection_is_replaced() {
    let count = Mutex::new(0);
    let hang = hanging(move |received| {
        let mut count = count.lock();
        let is_from = matches!(received, SmtpCommand::From(_));
        *count += usize::from(is_from);
        is_from && *count == 2
    });
    let server = SmtpServer::open(SmtpServerOptions::default(), hang).await;
    let upstream = free(&server, "");
    for _ in 0..2 {
        perform(&upstream, json!({ "to": "a@x.io", "text": "hi" }))
            .await
            .unwrap();
    }
    assert_eq!((server.mails().len(), server.connections()), (2, 2));
}

#[test]
fn configuration_errors_name_the_key() {
    let prefix = "host = \"mail.x.io\"\nfrom = \"a@x.io\"";
    let effect = |keys: &str| format!("{prefix}\n[effects.\"mail.send\"]\n{keys}");
    for (text, expected) in [
        (
            "host = \"mail.x.io\"\nfrom = \"unknown\"".to_owned(),
            "upstream mail: from: \"unknown\" is not a valid email address",
        ),
        (
            "host = \"mail.x.io\"\nfrom = \"a@[192.0.2.1]\"".to_owned(),
            "an address literal, which only recipients can have",
        ),
        (
            "host = \"a b\"\nfrom = \"a@x.io\"".to_owned(),
            "example: smtp.example.com",
        ),
        (
            format!("{prefix}\ntls = \"maybe\""),
            "unknown variant `maybe`",
        ),
        (
            format!("{prefix}\nuser = \"env:U\""),
            "user and password require each other",
        ),
        (
            format!("{prefix}\nuser = \"env:U\"\npassword = \"hunter2\""),
            "invalid secret reference",
        ),
        (
            format!("{prefix}\nuser = \"env:U\"\npassword = \"env:P\"\ntls = \"none\""),
            "a password requires TLS; set tls = \"required\" or \"wrapper\"",
        ),
        (
            format!("{prefix}\ncertificates = {{ cert = \"file:/c\" }}"),
            "certificates.cert and certificates.key require each other",
        ),
        (
            format!("{prefix}\ndomain = \"x>y\""),
            "invalid domain \"x>y\"; example: example.com",
        ),
        (
            effect("to = \"a@x.io\""),
            "upstream mail, effect mail.send: body is missing",
        ),
        (effect("text = \"x\""), "recipient is missing"),
        (
            effect("to = \"a@x.io\"\nhtml = \"x\"\nmarkdown = \"x\""),
            "remove one",
        ),
        (effect("to = \"{\"\ntext = \"x\""), "to: a { has no }"),
        (
            effect("to = \"a@x.io\"\ntext = \"{env:KEY}\""),
            "text: a secret is not allowed in an email",
        ),
    ] {
        let read = toml::from_str::<SmtpConfig>(&text).map_err(|error| error.to_string());
        let made = read.and_then(|config| {
            config
                .upstream(UpstreamSite::new("mail").in_dir(Path::new("/")))
                .map_err(|error| error.to_string())
        });
        let error = made
            .err()
            .unwrap_or_else(|| panic!("the configuration is invalid: {text}"));
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let server = SmtpServer::open(encrypted(false, true), replying(|_| None)).await;
    let (secrets, invoices) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(invoices.path().join("invoice-7.pdf"), "%PDF").unwrap();
    let text = block("smtp.md", "upstreams/mail.toml");
    let text = with(&text, "\"smtp.example.com\"", "\"127.0.0.1\"");
    let text = with(
        &text,
        "port = 587",
        &format!("port = {}", server.address.port()),
    );
    let text = with(
        &text,
        "/srv/invoices",
        &invoices.path().display().to_string(),
    );
    let text = with(&text, "env:SMTP_USER", &file(&secrets, "user", "orlog"));
    let text = with(
        &text,
        "env:SMTP_PASSWORD",
        &file(&secrets, "password", "canary"),
    );
    let ca = format!(
        "certificates = {{ ca = \"file:{}\" }}\ntls = \"required\"",
        certificate("ca.pem")
    );
    let dirs = Dirs::new(&[("mail", &with(&text, "tls = \"required\"", &ca))]);
    dirs.define(
        "payment",
        &block("smtp.md", "definitions/welcome.saga.yaml"),
    );
    let node = dirs.start().await;
    let customer = json!({ "name": "Ada", "email": "ada@x.io" });
    node.pay("acme", "o-1", json!({ "customer": customer }))
        .await;
    let done = node.end("acme", "o-1").await;
    assert_eq!(done["status"], "completed", "{done}");
    let mails = server.mails();
    let [welcome, report] = mails.as_slice() else {
        panic!("two were sent: {mails:?}")
    };
    assert_eq!(
        done["state"]["vars"]["mail"],
        format!("<{}@example.com>", welcome.key()),
        "{done}"
    );
    let welcome = read(welcome);
    assert_eq!(
        (welcome.subject().unwrap(), welcome.attachment_count()),
        ("Welcome, Ada", 1)
    );
    assert!(
        welcome
            .body_text(0)
            .unwrap()
            .contains("(https://shop.example/orders/o-1)")
    );
    assert_eq!(
        (report.to.as_slice(), report.encrypted),
        (["desk@example.com".to_owned()].as_slice(), true)
    );
    assert_eq!(read(report).body_text(0).unwrap().trim_end(), "From Ada");
}
