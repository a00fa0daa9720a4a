//! SMTP provider against a real mail server.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::smtp::SmtpConfig;
use orlog_effect::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply};
use orlog_model::{EffectName, WorkItem};
use orlog_testkit::provider_suite::{
    ProbeResponse, ProviderFixture, UpstreamResponse, UpstreamScript,
};
use orlog_testkit::smtp_server::{
    Handler, SmtpCommand, SmtpResponse, SmtpServer, SmtpServerOptions,
};
use orlog_testkit::{probe_suite, provider_suite};
use serde_json::{Value, json};

/// Returns the reply of the mail server with the receipt, because the rules of the suite read only the
/// reply.
async fn response(script: Arc<UpstreamScript>, command: SmtpCommand) -> SmtpResponse {
    let SmtpCommand::Mail(mail) = command else {
        return SmtpResponse::Default;
    };
    assert!(
        String::from_utf8_lossy(&mail.bytes).contains("125 for o-"),
        "{mail:?}"
    );
    match script.next_response(mail.key()) {
        UpstreamResponse::Done(Value::Null) => SmtpResponse::Default,
        UpstreamResponse::Done(payload) => SmtpResponse::Line(format!("250 2.0.0 {payload}")),
        UpstreamResponse::Rejected => SmtpResponse::Line("550 5.7.1 we do not like it".to_owned()),
        UpstreamResponse::Throttled(Some(pause)) => SmtpResponse::Line(format!(
            "451 4.7.1 Greylisted, try again in {} seconds",
            pause.as_secs()
        )),
        UpstreamResponse::Throttled(None) => {
            SmtpResponse::Line("452 4.3.1 too much to do".to_owned())
        }
        UpstreamResponse::Unavailable => SmtpResponse::Line("421 4.3.2 going down".to_owned()),
        UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
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
        assert_eq!(
            reply.payload["message_id"],
            format!("<{}@example.org>", item.id)
        );
        let line = reply.payload["response"]
            .as_str()
            .expect("the server's reply")
            .to_owned();
        let response = line.strip_prefix("250 2.0.0 ").expect("the server says so");
        Ok(Reply {
            payload: serde_json::from_str(response).unwrap_or(Value::Null),
            ..reply
        })
    }

    async fn probe(&self, item: &WorkItem, probe: Probe) -> ProbeResult {
        self.0.probe(item, probe).await
    }
}

/// HTTP API of the mail server: finds an email by its `Message-ID`.
async fn find(
    State(script): State<Arc<UpstreamScript>>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    assert_eq!(headers["x-mail-api"], "o-1");
    let [(name, id)] = query.as_slice() else {
        panic!("{query:?}")
    };
    assert_eq!(name, "message_id");
    let key = id
        .strip_prefix('<')
        .and_then(|id| id.strip_suffix("@example.org>"))
        .expect("a message id");
    match script.probe(key) {
        ProbeResponse::Executed(result) => {
            Json(json!({"messages": [{"result": result}]})).into_response()
        }
        ProbeResponse::NotExecuted => Json(json!({"messages": []})).into_response(),
        ProbeResponse::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Returns the configuration of the probe of a mail server with this script.
async fn probe(script: &Arc<UpstreamScript>) -> Value {
    let api = Router::new()
        .route("/messages", get(find))
        .with_state(Arc::clone(script));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let base_url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, api).await });
    json!({
        "base_url": base_url,
        "request": {
            "path": "/messages?message_id=%3C{@id}@example.org%3E",
            "headers": {"x-mail-api": "{order.id}"},
            "responses": [
                {"status": 200, "when": {"/messages": []}, "result": "not_executed"},
                {"status": 200, "result": "executed", "payload": "/messages/0/result"},
            ],
        },
    })
}

async fn fixture(probes: bool) -> ProviderFixture {
    let script = Arc::new(UpstreamScript::default());
    let upstream = Arc::clone(&script);
    let handler: Handler =
        Arc::new(move |command| Box::pin(response(Arc::clone(&upstream), command)));
    let server = SmtpServer::open(SmtpServerOptions::default(), handler).await;
    let mut config = json!({
        "host": "127.0.0.1", "port": server.address.port(), "tls": "none", "from": "Shop <shop@example.org>",
        "effects": {"mail.receipt": {"to": "ada@example.org", "text": "{amount} for {order.id}"}},
    });
    if probes {
        config["probe"] = probe(&script).await;
    }
    let config: SmtpConfig = serde_json::from_value(config).expect("valid");
    let provider = config
        .upstream(UpstreamSite::new("mail").in_dir(Path::new(".")))
        .expect("valid")
        .provider;
    let effect = EffectName::new("mail.receipt").expect("valid");
    ProviderFixture {
        provider: Arc::new(ReplyAsPayload(provider)),
        effect,
        script,
    }
}

provider_suite!(fixture(false));

mod with_probe {
    use super::*;
    probe_suite!(fixture(true));
}
