//! The SMTP provider against a real mail server.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orlog_effect::config::SmtpConfig;
use orlog_effect::{Attempt, Provider, Refusal, Reply};
use orlog_model::{EffectName, WorkItem};
use orlog_testkit::provider_suite;
use orlog_testkit::provider_suite::{Answer, Rig, Script};
use orlog_testkit::smtp_server::{Handler, Heard, Manner, Saying, SmtpServer};
use serde_json::{Value, json};

/// The answer of a mail server is its own, so the receipt comes back in it: rules of the suite read nothing else.
async fn answer(script: Arc<Script>, heard: Heard) -> Saying {
    let Heard::Mail(mail) = heard else { return Saying::Usual };
    assert!(String::from_utf8_lossy(&mail.bytes).contains("125 for o-"), "{mail:?}");
    match script.ask(mail.key()) {
        Answer::Done(Value::Null) => Saying::Usual,
        Answer::Done(payload) => Saying::Line(format!("250 2.0.0 {payload}")),
        Answer::Refused => Saying::Line("550 5.7.1 we do not like it".to_owned()),
        Answer::Busy(Some(pause)) => {
            Saying::Line(format!("451 4.7.1 Greylisted, try again in {} seconds", pause.as_secs()))
        }
        Answer::Busy(None) => Saying::Line("452 4.3.1 too much to do".to_owned()),
        Answer::Ill => Saying::Line("421 4.3.2 going down".to_owned()),
        Answer::Silence => {
            script.silence().await;
            unreachable!("silence never ends")
        }
    }
}

/// Takes the server's own words for the answer, which is all that a mail server says about a mail.
struct Words(Arc<dyn Provider>);

#[async_trait]
impl Provider for Words {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let reply = self.0.perform(item, attempt).await?;
        assert_eq!(reply.payload["message_id"], format!("<{}@example.org>", item.id));
        let words = reply.payload["response"].as_str().expect("the server's reply").to_owned();
        let answer = words.strip_prefix("250 2.0.0 ").expect("the server says so");
        Ok(Reply { payload: serde_json::from_str(answer).unwrap_or(Value::Null), ..reply })
    }
}

async fn rig() -> Rig {
    let script = Arc::new(Script::default());
    let upstream = Arc::clone(&script);
    let handler: Handler = Arc::new(move |heard| Box::pin(answer(Arc::clone(&upstream), heard)));
    let server = SmtpServer::open(Manner::default(), handler).await;
    let config = json!({
        "host": "127.0.0.1", "port": server.address.port(), "tls": "none", "from": "Shop <shop@example.org>",
        "effects": {"mail.receipt": {"to": "ada@example.org", "text": "{amount} for {order.id}"}},
    });
    let config: SmtpConfig = serde_json::from_value(config).expect("valid");
    let provider = config.upstream("mail", Path::new(".")).expect("valid").provider;
    let effect = EffectName::new("mail.receipt").expect("valid");
    Rig { provider: Arc::new(Words(provider)), effect, script }
}

provider_suite!(rig());
