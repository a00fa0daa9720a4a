//! Scripts against real processes: one in bash asks the suite over a socket what to do.

use std::sync::Arc;

use orlog_effect::config::ScriptConfig;
use orlog_model::EffectName;
use orlog_testkit::provider_suite;
use orlog_testkit::provider_suite::{Answer, Rig, Script};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// While nothing is said it waits, until it is killed and the line breaks.
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

async fn answer(socket: TcpStream, script: Arc<Script>) {
    let mut socket = BufReader::new(socket);
    let mut key = String::new();
    socket.read_line(&mut key).await.expect("a key");
    let said = match script.ask(key.trim()) {
        Answer::Done(payload) => format!("0 {payload}\n"),
        Answer::Refused => "65\n".to_owned(),
        Answer::Busy(_) => "75\n".to_owned(),
        Answer::Ill => "69\n".to_owned(),
        Answer::Silence => {
            let mut nothing = String::new();
            tokio::select! {
                () = script.silence() => unreachable!("silence never ends"),
                _ = socket.read_line(&mut nothing) => return,
            }
        }
    };
    socket.write_all(said.as_bytes()).await.expect("it listens");
}

async fn rig() -> Rig {
    let script = Arc::new(Script::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let upstreams = Arc::clone(&script);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, Arc::clone(&upstreams)));
        }
    });
    let config = json!({
        "helper": env!("CARGO_BIN_EXE_orlog"), "network": true,
        "effects": {
            "payments.charge": { "interpreter": "bash", "script": SCRIPT, "env": { "PORT": port } },
        },
    });
    let config: ScriptConfig = serde_json::from_value(config).expect("valid");
    let provider = config.upstream("scripts").expect("valid").provider;
    Rig { provider, effect: EffectName::new("payments.charge").expect("valid"), script }
}

// A script cannot say how long to wait.
provider_suite!(rig();
    success_carries_the_answer
    a_refusal_is_final
    an_unanswered_attempt_times_out
    a_timed_out_attempt_is_tried_again_under_the_same_key
    troubles_are_tried_again_under_the_same_key
    the_breaker_opens_tries_one_and_closes
    a_second_delivery_carries_the_same_key
    dropping_cancels_and_frees_the_place
    a_crash_between_call_and_result_is_gone_on_with_under_the_same_key
    a_doubt_that_nobody_can_resolve_is_not_tried_again_where_the_policy_forbids_it
);
