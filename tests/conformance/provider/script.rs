//! Scripts with real processes: a bash script requests its actions from the suite over a socket.

use std::sync::Arc;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::script::ScriptConfig;
use orlog_model::EffectName;
use orlog_testkit::provider_suite;
use orlog_testkit::provider_suite::{ProviderFixture, UpstreamResponse, UpstreamScript};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Script that waits for input until it is killed and the connection breaks.
const SCRIPT: &str = r#"
read -r input
[[ $input == *'"amount":125'* ]] || exit 65
exec 3<>/dev/tcp/127.0.0.1/$PORT
echo "$ORLOG_ID" >&3
read -r status answer <&3
echo "asked and heard $status" >&2
echo "$answer"
exit "$status"
"#;

async fn respond(socket: TcpStream, script: Arc<UpstreamScript>) {
    let mut socket = BufReader::new(socket);
    let mut key = String::new();
    socket.read_line(&mut key).await.expect("a key");
    let reply = match script.next_response(key.trim()) {
        UpstreamResponse::Done(payload) => format!("0 {payload}\n"),
        UpstreamResponse::Rejected => "65\n".to_owned(),
        UpstreamResponse::Throttled(_) => "75\n".to_owned(),
        UpstreamResponse::Unavailable => "69\n".to_owned(),
        UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
            let mut nothing = String::new();
            tokio::select! {
                () = script.silence() => unreachable!("silence never ends"),
                _ = socket.read_line(&mut nothing) => return,
            }
        }
    };
    socket
        .write_all(reply.as_bytes())
        .await
        .expect("it listens");
}

async fn fixture() -> ProviderFixture {
    let script = Arc::new(UpstreamScript::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let upstreams = Arc::clone(&script);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(respond(socket, Arc::clone(&upstreams)));
        }
    });
    let config = json!({
        "helper": env!("CARGO_BIN_EXE_orlog"), "network": true,
        "effects": {
            "payments.charge": { "interpreter": "bash", "script": SCRIPT, "env": { "PORT": port } },
        },
    });
    let config: ScriptConfig = serde_json::from_value(config).expect("valid");
    let provider = config
        .upstream(UpstreamSite::new("scripts"))
        .expect("valid")
        .provider;
    ProviderFixture {
        provider,
        effect: EffectName::new("payments.charge").expect("valid"),
        script,
    }
}

// A script cannot request a retry delay.
provider_suite!(fixture();
    success_returns_the_upstream_response
    rejection_is_permanent
    unanswered_attempt_times_out
    timed_out_attempt_retries_with_the_same_key
    transient_errors_retry_with_the_same_key
    breaker_opens_probes_and_closes
    redelivery_keeps_the_key
    dropping_cancels_and_releases_the_permit
    crash_between_call_and_result_resumes_with_the_same_key
    unresolvable_doubt_is_not_retried_when_forbidden
);
