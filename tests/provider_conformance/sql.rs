//! SQL against a real PostgreSQL: a function in the database asks the script what to do.
//!
//! It holds a lock while it runs; whoever gets the lock afterwards knows that it runs no more.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::config::SqlConfig;
use orlog_effect::{Attempt, Upstream};
use orlog_model::EffectName;
use orlog_testkit::provider_suite::{Answer, Rig, START, Script, item};
use orlog_testkit::servers;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const FUNCTION: &str = r#"
CREATE FUNCTION charge(key text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  answer text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext(current_schema()));
  CREATE TEMP TABLE heard (said text) ON COMMIT DROP;
  EXECUTE format('COPY heard FROM PROGRAM %L',
    format('bash -c "exec 3<>/dev/tcp/127.0.0.1/PORT; echo %s >&3; cat <&3"', key));
  SELECT said INTO answer FROM heard;
  IF answer = 'refused' THEN
    RAISE EXCEPTION 'the card was declined' USING ERRCODE = 'check_violation';
  ELSIF answer = 'busy' THEN
    RAISE EXCEPTION 'later, please' USING ERRCODE = 'serialization_failure';
  ELSIF answer = 'ill' THEN
    RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full';
  ELSIF answer = 'silence' THEN
    PERFORM pg_sleep(3600);
  END IF;
  RETURN answer::jsonb;
END $$
"#;

fn upstream(url: &str, effect: &Value) -> Upstream {
    let config = json!({
        "database": "postgres", "url": url, "create_marker": true,
        "effects": { "payments.charge": effect },
    });
    let config: SqlConfig = serde_json::from_value(config).expect("valid");
    config.upstream("bank").expect("valid")
}

async fn run(url: &str, statement: &str) {
    let upstream = upstream(url, &json!({ "statement": statement, "marker": false, "answer": "count" }));
    let item = item(&EffectName::new("payments.charge").expect("valid"), 1);
    let attempt = Attempt { number: 1, timeout: Duration::from_mins(1), at: START };
    upstream.provider.perform(&item, attempt).await.expect("the statement is right");
}

/// Answers the function, and while it is silent waits for its end.
async fn answer(socket: TcpStream, script: Arc<Script>, url: String) {
    let mut socket = BufReader::new(socket);
    let mut key = String::new();
    socket.read_line(&mut key).await.expect("a key");
    let (said, is_silent) = match script.ask(key.trim()) {
        Answer::Done(payload) => (payload.to_string(), false),
        Answer::Refused => ("refused".to_owned(), false),
        Answer::Busy(_) => ("busy".to_owned(), false),
        Answer::Ill => ("ill".to_owned(), false),
        Answer::Silence => ("silence".to_owned(), true),
    };
    socket.write_all(said.as_bytes()).await.expect("it listens");
    drop(socket);
    if is_silent {
        tokio::select! {
            () = script.silence() => unreachable!("silence never ends"),
            () = run(&url, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))::text") => {}
        }
    }
}

async fn rig(marker: bool) -> Option<Rig> {
    let server = servers::postgres()?;
    let script = Arc::new(Script::default());
    let schema = format!("s{}", uuid::Uuid::new_v4().simple());
    let url = format!("postgres://orlog@127.0.0.1:{}/postgres", server.port);
    run(&server.secret(&url), &format!("CREATE SCHEMA {schema}")).await;
    let url = server.secret(&format!("{url}?options[search_path]={schema}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    run(&url, &FUNCTION.replace("PORT", &port.to_string())).await;
    let (upstreams, at) = (Arc::clone(&script), url.clone());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, Arc::clone(&upstreams), at.clone()));
        }
    });
    let effect = json!({
        "statement": "SELECT (charge(:key) ->> 'receipt') AS receipt WHERE :order.id = :correlation AND :amount = 125",
        "params": { "key": "{@id}", "correlation": "{@correlation}" },
        "answer": "row", "marker": marker, "expect": { "rows": 1 },
    });
    let provider = upstream(&url, &effect).provider;
    Some(Rig { provider, effect: EffectName::new("payments.charge").expect("valid"), script })
}

/// A database asks nobody to wait for a time.
mod without_a_marker {
    orlog_testkit::provider_suite!(maybe super::rig(false);
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
}

/// With one there is no doubt that cannot be resolved, and a second delivery is not performed: see `tests/effects/sql`.
mod with_a_marker {
    orlog_testkit::provider_suite!(maybe super::rig(true);
        success_carries_the_answer
        a_refusal_is_final
        a_timed_out_attempt_is_tried_again_under_the_same_key
        troubles_are_tried_again_under_the_same_key
        the_breaker_opens_tries_one_and_closes
        dropping_cancels_and_frees_the_place
        a_crash_between_call_and_result_is_gone_on_with_under_the_same_key
    );
}
