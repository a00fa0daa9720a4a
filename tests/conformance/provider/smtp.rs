//! SMTP provider against a real mail server.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::smtp::SmtpConfig;
use orlog_effect::{Attempt, Provider, ProviderError, Reply};
use orlog_model::{EffectName, WorkItem};
use orlog_testkit::provider_suite;
use orlog_testkit::provider_suite::{ProviderFixture, UpstreamResponse, UpstreamScript};
use orlog_testkit::smtp_server::{Handler, SmtpCommand, SmtpResponse, SmtpServer, SmtpServerOptions};
use serde_json::{Value, json};

/// Returns the reply of the mail server with the receipt, because the rules of the suite read only the
/// reply.
async fn response(script: Arc<UpstreamScript>, command: SmtpCommand) -> SmtpResponse {
    let SmtpCommand::Mail(mail) = command else { return SmtpResponse::Default };
    assert!(String::from_utf8_lossy(&mail.bytes).contains("125 for o-"), "{mail:?}");
    match script.next_response(mail.key()) {
        UpstreamResponse::Done(Value::Null) => SmtpResponse::Default,
        UpstreamResponse::Done(payload) => SmtpResponse::Line(format!("250 2.0.0 {payload}")),
        UpstreamResponse::Rejected => SmtpResponse::Line("550 5.7.1 we do not like it".to_owned()),
        UpstreamResponse::Throttled(Some(pause)) => {
            SmtpResponse::Line(format!("451 4.7.1 Greylisted, try again in {} seconds", pause.as_secs()))
        }
        UpstreamResponse::Throttled(None) => SmtpResponse::Line("452 4.3.1 too much to do".to_owned()),
        UpstreamResponse::Unavailable => SmtpResponse::Line("421 4.3.2 going down".to_owned()),
        UpstreamResponse::NoResponse => {
            script.silence().await;
            unreachable!("silence never ends")
        }
    }
}

/// Uses the server's reply as the payload, the only data that a mail server returns about a message.
struct ReplyAsPayload(Arc<dyn Provider>);

#[async_trait]
impl Provider for ReplyAsPayload {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let reply = self.0.execute(item, attempt).await?;
        assert_eq!(reply.payload["message_id"], format!("<{}@example.org>", item.id));
        let line = reply.payload["response"].as_str().expect("the server's reply").to_owned();
        let response = line.strip_prefix("250 2.0.0 ").expect("the server says so");
        Ok(Reply { payload: serde_json::from_str(response).unwrap_or(Value::Null), ..reply })
    }
}

async fn fixture() -> ProviderFixture {
    let script = Arc::new(UpstreamScript::default());
    let upstream = Arc::clone(&script);
    let handler: Handler = Arc::new(move |command| Box::pin(response(Arc::clone(&upstream), command)));
    let server = SmtpServer::open(SmtpServerOptions::default(), handler).await;
    let config = json!({
        "host": "127.0.0.1", "port": server.address.port(), "tls": "none", "from": "Shop <shop@example.org>",
        "effects": {"mail.receipt": {"to": "ada@example.org", "text": "{amount} for {order.id}"}},
    });
    let config: SmtpConfig = serde_json::from_value(config).expect("valid");
    let provider = config.upstream(UpstreamSite::new("mail").in_dir(Path::new("."))).expect("valid").provider;
    let effect = EffectName::new("mail.receipt").expect("valid");
    ProviderFixture { provider: Arc::new(ReplyAsPayload(provider)), effect, script }
}

provider_suite!(fixture());
