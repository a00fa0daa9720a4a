//! Webhook provider against a receiver that checks every signature.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::webhook::WebhookConfig;
use orlog_model::EffectName;
use orlog_testkit::provider_suite;
use orlog_testkit::provider_suite::{ProviderFixture, UpstreamResponse, UpstreamScript};
use serde_json::json;

use crate::webhooks::signature;

const SECRET: &str = "a key of the receiver";

/// File with the key, which all tests use.
static SECRET_FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("webhook-secret");
    std::fs::write(&file, SECRET).expect("written");
    file
});

async fn receive(
    State(script): State<Arc<UpstreamScript>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| headers[name].to_str().expect("ASCII");
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    assert_eq!(
        header("webhook-signature"),
        signature(SECRET.as_bytes(), id, timestamp, &body)
    );
    match script.next_response(id) {
        UpstreamResponse::Done(payload) => axum::Json(payload).into_response(),
        UpstreamResponse::Rejected => (StatusCode::GONE, "the receiver is gone").into_response(),
        UpstreamResponse::Throttled(Some(pause)) => (
            StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", pause.as_secs().to_string())],
        )
            .into_response(),
        UpstreamResponse::Throttled(None) => StatusCode::TOO_MANY_REQUESTS.into_response(),
        UpstreamResponse::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
            script.silence().await;
            unreachable!("silence never ends")
        }
    }
}

async fn fixture() -> ProviderFixture {
    let script = Arc::new(UpstreamScript::default());
    let router = Router::new()
        .route("/hooks", post(receive))
        .with_state(Arc::clone(&script));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let url = format!("http://{}/hooks", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = json!({
        "url": url,
        "secrets": [format!("file:{}", SECRET_FILE.display())],
        "effects": {"payments.charge": {}},
    });
    let config: WebhookConfig = serde_json::from_value(config).expect("valid");
    let provider = config
        .upstream(UpstreamSite::new("hooks"))
        .expect("valid")
        .provider;
    ProviderFixture {
        provider,
        effect: EffectName::new("payments.charge").expect("valid"),
        script,
    }
}

provider_suite!(fixture());
