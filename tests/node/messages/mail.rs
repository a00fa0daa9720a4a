//! Messages of the type `mail` that the node of the receiver also sends by SMTP.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::Method;
use mail_parser::MessageParser;
use orlog_effect::Upstream;
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::smtp::SmtpConfig;
use orlog_testkit::smtp_server::{SmtpCommand, SmtpResponse, SmtpServer, SmtpServerOptions};
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::{change, chat, context, received, send};
use crate::harness::node::{Node, NodeBuilder};

/// Mail server that can be closed, and the number of connections that it rejected.
struct MailServer {
    server: SmtpServer,
    is_closed: Arc<AtomicBool>,
    rejected: Arc<AtomicUsize>,
}

impl MailServer {
    async fn open() -> Self {
        let (is_closed, rejected) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (closed, count) = (Arc::clone(&is_closed), Arc::clone(&rejected));
        let handler = move |command: SmtpCommand| {
            let is_rejected = command == SmtpCommand::Connection && closed.load(Ordering::Acquire);
            let response = if is_rejected {
                count.fetch_add(1, Ordering::AcqRel);
                SmtpResponse::Line("421 4.3.2 later".to_owned())
            } else {
                SmtpResponse::Default
            };
            Box::pin(std::future::ready(response)) as _
        };
        let server = SmtpServer::open(SmtpServerOptions::default(), Arc::new(handler)).await;
        Self {
            server,
            is_closed,
            rejected,
        }
    }

    fn upstream(&self) -> Upstream {
        let port = self.server.address.port();
        let text = format!(
            "host = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\nfrom = \"node@example.org\"\n[effects.\"mail.send\"]"
        );
        let config: SmtpConfig = toml::from_str(&text).unwrap();
        config
            .upstream(UpstreamSite::new("mail").in_dir(Path::new("/nowhere")))
            .unwrap()
    }

    /// Starts a node that sends mail by this server.
    async fn node(&self, builder: NodeBuilder) -> Node {
        let builder = builder.upstream(self.upstream()).config(|config| {
            "one".clone_into(&mut config.node_name);
            config.messages.mail_effect = Some("mail.send".parse().unwrap());
        });
        builder.start().await
    }
}

async fn actor(node: &Node, id: &str, addresses: &[&str]) {
    node.post(
        "/v1/actors",
        &json!({ "id": id, "keys": [], "addresses": addresses }),
    )
    .await
    .ok();
}

fn mail(to: &str) -> Value {
    let body = "Hi **you** <script>x</script>\n\nBcc: eve@x.io";
    json!({ "to": to, "type": "mail", "format": "md", "subject": "Hello", "body": body })
}

async fn until_line(node: &Node, tenant: &str, id: &str, line: &str) -> Value {
    node.until(tenant, &format!("/v1/messages/{id}"), |message| {
        message["lines"][0]["text"] == line
    })
    .await
}

/// Returns the instance of a received message.
async fn inbox(node: &Node, tenant: &str, id: &Value) -> Value {
    let path = format!("/v1/sagas/orlog.inbox/{}", id.as_str().unwrap());
    node.ask(Method::GET, tenant, &path, "").await.ok()
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn mail_reaches_the_actors_of_the_context_once_over_restarts() {
    let mail_server = MailServer::open().await;
    mail_server.is_closed.store(true, Ordering::Release);
    let node = mail_server.node(NodeBuilder::new()).await;
    actor(
        &node,
        "ada",
        &[
            "mailto:ada@x.io",
            "https://x.io/ada",
            "mailto:a@x.io?bcc=eve@x.io",
        ],
    )
    .await;
    actor(&node, "bob", &["mailto:bob@x.io"]).await;
    actor(&node, "eve", &["mailto:eve@x.io"]).await;
    context(
        &node,
        "b",
        &["context:a@one", "actor:ada", "group:g", "user:u"],
        &["actor:bob"],
    )
    .await;
    send(&node, "a", "m-1", &mail("b")).await.ok();
    until("an attempt is rejected", || async {
        (mail_server.rejected.load(Ordering::Acquire) > 0).then_some(())
    })
    .await;
    let waiting = received(&node, "b").await;
    assert_eq!(
        waiting["status"], "dispatched",
        "the message does not wait for its mail"
    );
    let dir = node.stop().await;
    mail_server.is_closed.store(false, Ordering::Release);
    let node = mail_server.node(NodeBuilder::on(dir)).await;
    until_line(&node, "a", "m-1", "mail sent").await;
    let dir = node.stop().await;
    let node = mail_server.node(NodeBuilder::on(dir)).await;
    send(&node, "a", "m-1", &mail("b")).await.ok();
    assert_eq!(
        inbox(&node, "b", &waiting["id"]).await["pending_work"],
        json!([]),
        "no second mail"
    );
    let mails = mail_server.server.mails();
    let [sent] = mails.as_slice() else {
        panic!("one mail is sent: {mails:?}")
    };
    assert_eq!(
        (sent.from.as_str(), sent.to.as_slice()),
        (
            "node@example.org",
            ["ada@x.io", "bob@x.io"].map(str::to_owned).as_slice()
        )
    );
    let parsed = MessageParser::default().parse(&sent.bytes).unwrap();
    assert_eq!(
        parsed.subject(),
        Some("a@one: Hello"),
        "the sender is part of the subject"
    );
    let (html, text) = (parsed.body_html(0).unwrap(), parsed.body_text(0).unwrap());
    assert!(
        html.contains("Hi <strong>you</strong>") && !html.contains("<script"),
        "{html}"
    );
    assert!(
        text.starts_with("Hi you") && parsed.bcc().is_none(),
        "{text}"
    );
    change(
        &node,
        "b",
        &waiting["id"],
        "process",
        &json!({ "result": "read" }),
    )
    .await
    .ok();
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn chat_and_message_without_recipients_send_no_mail() {
    let mail_server = MailServer::open().await;
    let node = mail_server.node(NodeBuilder::new()).await;
    actor(&node, "ada", &["mailto:ada@x.io"]).await;
    context(&node, "b", &["context:a@one", "actor:ada"], &[]).await;
    context(&node, "c", &["context:a@one"], &[]).await;
    send(&node, "a", "m-1", &chat("b", "t", "x")).await.ok();
    let chat = received(&node, "b").await;
    let instance = inbox(&node, "b", &chat["id"]).await;
    assert_eq!(
        (&instance["pending_work"], &instance["version"]),
        (&json!([]), &json!(1))
    );
    send(&node, "a", "m-2", &mail("c")).await.ok();
    let line = "mail not sent: no actor of the context has a mail address";
    let sent = until_line(&node, "a", "m-2", line).await;
    assert_eq!(sent["status"], "dispatched");
    assert_eq!(mail_server.server.mails().len(), 0);
    node.stop().await;
}
