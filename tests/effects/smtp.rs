//! The SMTP provider against a real mail server: words, attachments, headers, replies, encryption, credentials.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mail_parser::{Message, MessageParser, MimeHeaders as _};
use orlog_effect::config::SmtpConfig;
use orlog_effect::{Attempt, Refusal, Reply, Trouble, Upstream};
use orlog_model::{EffectName, Work, WorkItem};
use orlog_testkit::provider_suite::{START, item};
use orlog_testkit::smtp_server::{Handler, Heard, Mail, Manner, Saying, SmtpServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::docs::{block, with};
use crate::http_upstream::Shop;
use crate::node::Folders;

/// Says what `saying` says, else the usual.
fn saying(saying: impl Fn(&Heard) -> Option<&'static str> + Send + Sync + 'static) -> Handler {
    Arc::new(move |heard| {
        let said = saying(&heard).map_or(Saying::Usual, |line| Saying::Line(line.to_owned()));
        Box::pin(std::future::ready(said))
    })
}

async fn open() -> SmtpServer {
    SmtpServer::open(Manner::default(), saying(|_| None)).await
}

fn upstream(server: &SmtpServer, more: &str) -> Upstream {
    let (port, plain) = (server.address.port(), if more.contains("tls = ") { "" } else { "tls = \"none\"" });
    let text = format!(
        "host = \"127.0.0.1\"\nport = {port}\n{plain}\nfrom = \"The Shop <shop@example.org>\"\n{more}"
    );
    let config: SmtpConfig = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    config.upstream("mail", Path::new("/nowhere")).unwrap_or_else(|error| panic!("{error}"))
}

/// An effect whose arguments are the mail.
fn free(server: &SmtpServer, more: &str) -> Upstream {
    upstream(server, &format!("{more}\n[effects.\"mail.send\"]"))
}

fn mail(payload: Value) -> WorkItem {
    let mut item = item(&EffectName::new("mail.send").unwrap(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    item
}

async fn perform(upstream: &Upstream, payload: Value) -> Result<Reply, Refusal> {
    let attempt = Attempt { number: 1, timeout: Duration::from_secs(10), at: START };
    upstream.provider.perform(&mail(payload), attempt).await
}

fn failure(answer: &Result<Reply, Refusal>) -> (String, String) {
    match answer {
        Err(
            Refusal::Final { failure, .. } | Refusal::GaveUp { failure } | Refusal::Transient { failure, .. },
        ) => (failure.code.clone(), failure.message.clone()),
        Ok(reply) => panic!("it was done: {reply:?}"),
    }
}

fn trouble(answer: &Result<Reply, Refusal>) -> Option<Trouble> {
    match answer {
        Err(Refusal::Transient { trouble, .. }) => Some(*trouble),
        Ok(_) | Err(Refusal::Final { .. } | Refusal::GaveUp { .. }) => None,
    }
}

fn read(mail: &Mail) -> Message<'_> {
    MessageParser::default().parse(&mail.bytes).expect("it is a mail")
}

fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certs").join(name).display().to_string()
}

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    format!("file:{}", path.display())
}

#[tokio::test]
async fn every_attempt_hands_over_the_same_bytes_under_the_id_of_the_item() {
    let server = open().await;
    let upstream = free(&server, "domain = \"mail.example.org\"");
    let letter = json!({
        "to": ["Ada Lovelace <ada@x.io>", "bob@x.io"], "cc": "Zoë <zoe@x.io>", "bcc": ["eve@x.io", "ada@x.io"],
        "reply_to": "desk@x.io", "subject": "Grüße: 7 ✓", "text": "Hi\n.\nBye", "html": "<p>Hi</p>",
        "attachments": [{"name": "a.txt", "type": "text/plain", "base64": "aGk="}],
    });
    for _ in 0..2 {
        perform(&upstream, letter.clone()).await.unwrap();
    }
    let mails = server.mails();
    assert_eq!((&mails[0], server.connections()), (&mails[1], 1));
    assert_eq!(mails[0].to, ["ada@x.io", "bob@x.io", "zoe@x.io", "eve@x.io"]);
    let text = String::from_utf8(mails[0].bytes.clone()).unwrap();
    assert!(!text.contains("eve@x.io") && !text.contains("Bcc"), "{text}");
    assert!(text.contains("Date: Wed, 01 Jan 2025 00:00:00"), "{text}");
    let read = read(&mails[0]);
    assert_eq!(read.message_id().unwrap(), format!("{}@mail.example.org", mail(Value::Null).id));
    assert_eq!(
        (read.subject().unwrap(), read.body_text(0).unwrap().trim_end()),
        ("Grüße: 7 ✓", "Hi\r\n.\r\nBye")
    );
    assert_eq!(read.to().unwrap().first().unwrap().name().unwrap(), "Ada Lovelace");
    assert_eq!(read.cc().unwrap().first().unwrap().name().unwrap(), "Zoë");
    assert_eq!(read.from().unwrap().first().unwrap().address().unwrap(), "shop@example.org");
    let enclosed = read.attachment(0).unwrap();
    assert_eq!((enclosed.attachment_name().unwrap(), enclosed.contents()), ("a.txt", b"hi".as_slice()));
    let reply = perform(&upstream, letter).await.unwrap().payload;
    assert_eq!(reply["response"], "250 2.0.0 queued as 7F3A");
    assert_eq!(reply["message_id"], format!("<{}@mail.example.org>", mail(Value::Null).id));
}

#[tokio::test]
async fn what_is_filled_into_a_template_is_words_and_nothing_else() {
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
    perform(&upstream, json!({"to": "ada@x.io", "name": name})).await.unwrap();
    let mails = server.mails();
    let read = read(&mails[0]);
    let (text, html) = (read.body_text(0).unwrap(), read.body_html(0).unwrap());
    assert_eq!(text.trim_end(), format!("Dear {name}, see it (https://x.io/o-1)."));
    assert!(html.contains("<strong>see</strong>") && html.contains("href=\"https://x.io/o-1\""), "{html}");
    assert!(!html.contains("<b>") && !html.contains("href=\"https://evil.io\""), "{html}");
    assert_eq!(read.subject().unwrap(), format!("For {name}"));
}

#[tokio::test]
async fn html_is_escaped_unless_it_is_one_field() {
    let server = open().await;
    let html = |template: &str| {
        upstream(&server, &format!("[effects.\"mail.send\"]\nto = \"a@x.io\"\nhtml = {template:?}"))
    };
    let payload = || json!({ "page": "<i>\"x\"</i> & y" });
    perform(&html("<p>{page}</p>"), payload()).await.unwrap();
    perform(&html("{page}"), payload()).await.unwrap();
    let bodies: Vec<String> =
        server.mails().iter().map(|mail| read(mail).body_html(0).unwrap().trim_end().to_owned()).collect();
    assert_eq!(bodies, ["<p>&lt;i&gt;&quot;x&quot;&lt;/i&gt; &amp; y</p>", "<i>\"x\"</i> & y"]);
}

#[tokio::test]
async fn a_message_in_each_format_becomes_a_mail() {
    let server = open().await;
    let upstream = free(&server, "");
    for format in ["text", "html", "md"] {
        let letter = json!({ "to": "a@x.io", "format": format, "body": "*hi* <b>you</b>" });
        perform(&upstream, letter).await.unwrap();
    }
    let mails = server.mails();
    let [text, html, markdown] = mails.as_slice() else { panic!("three were sent") };
    assert_eq!(
        (read(text).text_body_count(), read(text).body_text(0).unwrap().trim_end()),
        (1, "*hi* <b>you</b>")
    );
    assert_eq!(read(html).body_html(0).unwrap().trim_end(), "*hi* <b>you</b>");
    assert_eq!(read(markdown).body_text(0).unwrap().trim_end(), "hi <b>you</b>");
    assert!(read(markdown).body_html(0).unwrap().contains("<em>hi</em> &lt;b&gt;you"));
}

#[tokio::test]
async fn no_field_of_any_payload_adds_a_header() {
    let server = open().await;
    let upstream = free(&server, "");
    let letter = |name: &str, value: Value| {
        let mut letter = json!({ "to": "a@x.io", "text": "hi" });
        letter[name] = value;
        letter
    };
    let enclosed = |name: &str, kind: &str| json!([{ "name": name, "type": kind, "base64": "aGk=" }]);
    for evil in ["x\r\nBcc: eve@x.io", "x\nBcc: eve@x.io", "x\rBcc: eve@x.io", "x\0", "x\u{2028}\u{85}"] {
        let address = format!("{evil} <b@x.io>");
        for (name, value) in [
            ("to", json!(address)),
            ("cc", json!([address])),
            ("bcc", json!("b@x.io\r\nRCPT TO:<eve@x.io>")),
            ("reply_to", json!(address)),
            ("subject", json!(evil)),
            ("attachments", enclosed(evil, "text/plain")),
            ("attachments", enclosed("a.txt", &format!("text/plain\r\n{evil}"))),
        ] {
            let answer = perform(&upstream, letter(name, value)).await;
            assert_eq!(
                (failure(&answer).0.as_str(), trouble(&answer)),
                ("bad_payload", None),
                "{name}: {evil:?}"
            );
        }
    }
    for two in ["a@x.io, eve@x.io", "a@x.io eve@x.io", "a@x.io> <eve@x.io", "nobody", "@x.io", ""] {
        let answer = perform(&upstream, json!({ "to": two, "text": "hi" })).await;
        assert_eq!(failure(&answer).0, "bad_payload", "{two:?}");
    }
    assert!(server.mails().is_empty() && server.connections() == 0);
    // In the words line breaks are words.
    perform(&upstream, letter("text", json!("hi\r\n.\r\nMAIL FROM:<eve@x.io>\r\n\r\nBcc: eve@x.io")))
        .await
        .unwrap();
    let mails = server.mails();
    assert_eq!((mails.len(), mails[0].to.as_slice()), (1, ["a@x.io".to_owned()].as_slice()));
    assert!(read(&mails[0]).bcc().is_none());
}

#[tokio::test]
async fn attachments_come_from_below_their_folder_and_from_nowhere_else() {
    let (server, folder, outside) =
        (open().await, tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::fs::write(folder.path().join("in/voice.pdf"), "%PDF").unwrap();
    std::fs::write(outside.path().join("secret"), "canary").unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("link")).unwrap();
    let upstream =
        free(&server, &format!("attachments = {{ folder = {:?} }}\nmax_message_bytes = 4000", folder.path()));
    let with = |file: &str| json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "file": file }] });
    perform(&upstream, with("in/voice.pdf")).await.unwrap();
    let mails = server.mails();
    let message = read(&mails[0]);
    let enclosed = message.attachment(0).unwrap();
    assert_eq!((enclosed.attachment_name().unwrap(), enclosed.contents()), ("voice.pdf", b"%PDF".as_slice()));
    let absolute = outside.path().join("secret").display().to_string();
    let relative = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    std::fs::write(folder.path().join("big"), "x".repeat(5000)).unwrap();
    for (file, code) in [
        (absolute.as_str(), "bad_payload"),
        (relative.as_str(), "bad_payload"),
        ("in/../../x", "bad_payload"),
        ("", "bad_payload"),
        ("big", "bad_payload"),
        ("link", "attachment"),
        ("in", "attachment"),
        ("absent", "attachment"),
    ] {
        let answer = perform(&upstream, with(file)).await;
        assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), (code, None), "{file}: {answer:?}");
    }
    assert_eq!(failure(&perform(&free(&server, ""), with("x")).await).0, "bad_payload");
    let long = json!({ "to": "a@x.io", "text": "x".repeat(5000) });
    assert!(failure(&perform(&upstream, long).await).1.contains("more than 4000"));
    let odd = json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "file": "a", "base64": "aGk=" }] });
    assert!(failure(&perform(&upstream, odd).await).1.contains("exactly one"));
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn an_attachment_from_a_payload_reaches_nothing_private() {
    let (server, shop) = (open().await, Shop::open().await);
    let with =
        |url: &str| json!({ "to": "a@x.io", "text": "hi", "attachments": [{ "name": "x", "url": url }] });
    let upstream = free(&server, "");
    let port = shop.url.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"] {
        let answer = perform(&upstream, with(&format!("http://{host}:{port}/x"))).await;
        assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), ("egress_refused", None), "{answer:?}");
    }
    assert_eq!(failure(&perform(&upstream, with("file:///etc/passwd")).await).0, "bad_payload");
    assert!(shop.asked().is_empty());
    let open = free(&server, "attachments = { egress = { private = true } }");
    shop.answers(200, &[], "from the web");
    perform(&open, with(&format!("{}/x", shop.url))).await.unwrap();
    let mails = server.mails();
    assert_eq!(read(&mails[0]).attachment(0).unwrap().contents(), b"from the web");
    for (status, expected) in [(503, Some(Trouble::Busy)), (404, None)] {
        shop.answers(status, &[], "");
        let answer = perform(&open, with(&format!("{}/x", shop.url))).await;
        assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), ("attachment", expected));
    }
}

#[tokio::test]
async fn replies_at_every_stage_mean_what_the_table_says() {
    let server = SmtpServer::open(
        Manner::default(),
        saying(|heard| match heard {
            Heard::To(to) if to == "gone@x.io" => Some("550 5.1.1 no such user"),
            Heard::To(to) if to == "grey@x.io" => Some("450 4.2.0 Greylisted"),
            Heard::To(to) if to == "full@x.io" => Some("452 4.2.2 mailbox full"),
            Heard::Mail(mail) if String::from_utf8_lossy(&mail.bytes).contains("spam") => {
                Some("554 5.7.1 spam")
            }
            _ => None,
        }),
    )
    .await;
    let upstream = free(&server, "greylist_pause = \"90s\"");
    let to = |to: &str, text: &str| json!({ "to": ["a@x.io", to], "text": text });
    let gone = perform(&upstream, to("gone@x.io", "hi")).await;
    assert_eq!((failure(&gone).0.as_str(), trouble(&gone)), ("smtp_550", None));
    let Err(Refusal::Final { payload, .. }) = gone else { panic!("it is final") };
    assert_eq!((&payload["enhanced"], &payload["recipient"]), (&json!("5.1.1"), &json!("gone@x.io")));
    let grey = perform(&upstream, to("grey@x.io", "hi")).await;
    assert!(matches!(
        &grey,
        Err(Refusal::Transient { trouble: Trouble::Busy, retry_after: Some(pause), .. }) if pause.as_secs() == 90
    ));
    let full = perform(&upstream, to("full@x.io", "hi")).await;
    assert_eq!((failure(&full).0.as_str(), trouble(&full)), ("smtp_452", Some(Trouble::Busy)));
    assert_eq!(failure(&perform(&upstream, to("b@x.io", "spam")).await).0, "smtp_554");
    assert!(server.mails().is_empty());
    perform(&upstream, to("b@x.io", "hi")).await.unwrap();
    assert_eq!((server.mails().len(), server.connections()), (1, 1));
}

/// Closes the connection where `hang` says so.
fn hanging(hang: impl Fn(&Heard) -> bool + Send + Sync + 'static) -> Handler {
    Arc::new(move |heard| {
        let said = if hang(&heard) { Saying::Hang } else { Saying::Usual };
        Box::pin(std::future::ready(said))
    })
}

#[tokio::test]
async fn a_connection_lost_before_the_mail_is_not_done_and_after_it_leaves_doubt() {
    let letter = || json!({ "to": "a@x.io", "text": "hi" });
    for (place, expected) in [
        (0, ("unreachable", Some(Trouble::Down))),
        (1, ("transport", Some(Trouble::Down))),
        (2, ("transport", Some(Trouble::Down))),
        (3, ("transport", Some(Trouble::Lost))),
    ] {
        let hang = hanging(move |heard| match heard {
            Heard::Connection => place == 0,
            Heard::From(_) => place == 1,
            Heard::Data => place == 2,
            Heard::Mail(_) => place == 3,
            Heard::To(_) | Heard::Auth { .. } => false,
        });
        let server = SmtpServer::open(Manner::default(), hang).await;
        let answer = perform(&free(&server, ""), letter()).await;
        assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), expected, "{place}: {answer:?}");
    }
    let absent = "host = \"127.0.0.1\"\nport = 9\ntls = \"none\"\nfrom = \"a@x.io\"\n[effects.\"mail.send\"]";
    let absent: SmtpConfig = toml::from_str(absent).unwrap();
    let answer = perform(&absent.upstream("mail", Path::new("/")).unwrap(), letter()).await;
    assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), ("unreachable", Some(Trouble::Down)));
}

#[tokio::test]
async fn an_idle_connection_that_died_costs_nothing() {
    let count = Mutex::new(0);
    let hang = hanging(move |heard| {
        let mut count = count.lock().unwrap();
        let is_from = matches!(heard, Heard::From(_));
        *count += usize::from(is_from);
        is_from && *count == 2
    });
    let server = SmtpServer::open(Manner::default(), hang).await;
    let upstream = free(&server, "");
    for _ in 0..2 {
        perform(&upstream, json!({ "to": "a@x.io", "text": "hi" })).await.unwrap();
    }
    assert_eq!((server.mails().len(), server.connections()), (2, 2));
}

fn encrypted(wrapped: bool, auth: bool) -> Manner {
    let pem = |name: &str| std::fs::read(certificate(name)).unwrap();
    Manner { certificate: Some((pem("server.pem"), pem("server.key"))), wrapped, auth }
}

#[tokio::test]
async fn passwords_go_only_over_tls_and_mails_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (user, password) = (file(&folder, "user", "orlog"), file(&folder, "password", "canary-77aa\n"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heard);
    let listening = saying(move |said| {
        if let Heard::Auth { user, password } = said {
            kept.lock().unwrap().push(format!("{user}:{password}"));
        }
        None
    });
    let letter = || json!({ "to": "a@x.io", "text": "hi" });
    let ca = format!("certificates = {{ ca = \"file:{}\" }}", certificate("ca.pem"));
    let login = format!("user = {user:?}\npassword = {password:?}");
    for (wrapped, mode) in [(false, "required"), (true, "wrapper"), (false, "opportunistic")] {
        let server = SmtpServer::open(encrypted(wrapped, true), Arc::clone(&listening)).await;
        perform(&free(&server, &format!("tls = {mode:?}\n{ca}\n{login}")), letter()).await.unwrap();
        let mails = server.mails();
        assert_eq!((mails[0].encrypted, mails[0].user.as_deref()), (true, Some("orlog")), "{mode}");
        let stranger = perform(&free(&server, &format!("tls = {mode:?}")), letter()).await;
        assert_eq!(
            (failure(&stranger).0.as_str(), trouble(&stranger)),
            ("tls", Some(Trouble::Down)),
            "{stranger:?}"
        );
    }
    assert_eq!(*heard.lock().unwrap(), ["orlog:canary-77aa"; 3]);
    let plain = open().await;
    let waiting = perform(&free(&plain, &format!("tls = \"required\"\n{ca}")), letter()).await;
    assert_eq!((failure(&waiting).0.as_str(), trouble(&waiting)), ("tls", Some(Trouble::Down)));
    assert!(failure(&waiting).1.contains("it offers no STARTTLS"), "{waiting:?}");
    perform(&free(&plain, "tls = \"opportunistic\""), letter()).await.unwrap();
    assert_eq!(plain.mails().len(), 1);
}

#[tokio::test]
async fn what_a_server_repeats_of_credentials_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (user, password) = (file(&folder, "user", "orlog"), file(&folder, "password", "canary-77aa"));
    let server = SmtpServer::open(
        Manner { auth: true, ..Manner::default() },
        saying(|heard| match heard {
            Heard::Auth { .. } => Some("535 5.7.8 canary-77aa and AG9ybG9nAGNhbmFyeS03N2Fh are wrong"),
            _ => None,
        }),
    )
    .await;
    let upstream = free(&server, &format!("user = {user:?}\npassword = {password:?}"));
    let answer = perform(&upstream, json!({ "to": "a@x.io", "text": "hi" })).await;
    assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), ("smtp_auth", Some(Trouble::Down)));
    assert!(failure(&answer).1.ends_with("535 5.7.8 [secret] and [secret] are wrong"), "{answer:?}");
    let absent = free(&server, "user = \"env:ORLOG_NOT_SET_7F3A\"\npassword = \"env:ORLOG_NOT_SET_7F3A\"");
    assert_eq!(failure(&perform(&absent, json!({ "to": "a@x.io", "text": "hi" })).await).0, "secret");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let head = "host = \"mail.x.io\"\nfrom = \"a@x.io\"";
    let effect = |keys: &str| format!("{head}\n[effects.\"mail.send\"]\n{keys}");
    for (text, expected) in [
        (
            "host = \"mail.x.io\"\nfrom = \"nobody\"".to_owned(),
            "upstream mail: from: \"nobody\" is no mail address",
        ),
        ("host = \"a b\"\nfrom = \"a@x.io\"".to_owned(), "write for example smtp.example.com"),
        (format!("{head}\ntls = \"maybe\""), "unknown variant `maybe`"),
        (format!("{head}\nuser = \"env:U\""), "user and password go together"),
        (format!("{head}\nuser = \"env:U\"\npassword = \"hunter2\""), "by reference"),
        (
            format!("{head}\nuser = \"env:U\"\npassword = \"env:P\"\ntls = \"none\""),
            "a password is sent only over TLS",
        ),
        (
            format!("{head}\ncertificates = {{ cert = \"file:/c\" }}"),
            "certificates.cert and certificates.key go together",
        ),
        (format!("{head}\ndomain = \"x>y\""), "the domain \"x>y\" is none"),
        (effect("to = \"a@x.io\""), "upstream mail, effect mail.send: it has no words"),
        (effect("text = \"x\""), "it has no receiver"),
        (effect("to = \"a@x.io\"\nhtml = \"x\"\nmarkdown = \"x\""), "keep one"),
        (effect("to = \"{\"\ntext = \"x\""), "to: a { has no }"),
        (effect("to = \"a@x.io\"\ntext = \"{env:KEY}\""), "text: a secret cannot stand in a mail"),
    ] {
        let read = toml::from_str::<SmtpConfig>(&text).map_err(|error| error.to_string());
        let made = read
            .and_then(|config| config.upstream("mail", Path::new("/")).map_err(|error| error.to_string()));
        let error = made.err().unwrap_or_else(|| panic!("it is refused: {text}"));
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_page_does_what_the_page_says() {
    let server = SmtpServer::open(encrypted(false, true), saying(|_| None)).await;
    let (secrets, invoices) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(invoices.path().join("invoice-7.pdf"), "%PDF").unwrap();
    let text = block("smtp.md", "config/effects/mail.toml");
    let text = with(&text, "\"smtp.example.com\"", "\"127.0.0.1\"");
    let text = with(&text, "port = 587", &format!("port = {}", server.address.port()));
    let text = with(&text, "/srv/invoices", &invoices.path().display().to_string());
    let text = with(&text, "env:SMTP_USER", &file(&secrets, "user", "orlog"));
    let text = with(&text, "env:SMTP_PASSWORD", &file(&secrets, "password", "canary"));
    let ca = format!("certificates = {{ ca = \"file:{}\" }}\ntls = \"required\"", certificate("ca.pem"));
    let folders = Folders::new(&[("mail", &with(&text, "tls = \"required\"", &ca))]);
    folders.define("payment", &block("smtp.md", "definitions/welcome.saga.yaml"));
    let node = folders.start().await;
    let customer = json!({ "name": "Ada", "email": "ada@x.io" });
    node.pay("acme", "o-1", json!({ "customer": customer })).await;
    let done = node.end("acme", "o-1").await;
    assert_eq!(done["status"], "completed", "{done}");
    let mails = server.mails();
    let [welcome, report] = mails.as_slice() else { panic!("two were sent: {mails:?}") };
    assert_eq!(done["state"]["vars"]["mail"], format!("<{}@example.com>", welcome.key()), "{done}");
    let welcome = read(welcome);
    assert_eq!((welcome.subject().unwrap(), welcome.attachment_count()), ("Welcome, Ada", 1));
    assert!(welcome.body_text(0).unwrap().contains("(https://shop.example/orders/o-1)"));
    assert_eq!((report.to.as_slice(), report.encrypted), (["desk@example.com".to_owned()].as_slice(), true));
    assert_eq!(read(report).body_text(0).unwrap().trim_end(), "From Ada");
}
