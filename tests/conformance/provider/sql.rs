//! SQL provider against a real PostgreSQL: a function in the database requests its actions from the
//! script.
//!
//! It holds a lock while it runs; the next owner of the lock can conclude that it has ended.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::sql::SqlConfig;
use orlog_effect::{Attempt, Upstream};
use orlog_model::EffectName;
use orlog_testkit::provider_suite::{
    ProviderFixture, START, UpstreamResponse, UpstreamScript, item,
};
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
  IF answer = 'rejected' THEN
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
    config.upstream(UpstreamSite::new("bank")).expect("valid")
}

async fn run(url: &str, statement: &str) {
    let upstream = upstream(
        url,
        &json!({ "statement": statement, "marker": false, "answer": "count" }),
    );
    let item = item(&EffectName::new("payments.charge").expect("valid"), 1);
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_mins(1),
        at: START,
        in_doubt: false,
    };
    upstream
        .provider
        .execute(&item, attempt)
        .await
        .expect("the statement is right");
}

/// Responds to the function; without a response it waits for the end of the function.
async fn respond(socket: TcpStream, script: Arc<UpstreamScript>, url: String) {
    let mut socket = BufReader::new(socket);
    let mut key = String::new();
    socket.read_line(&mut key).await.expect("a key");
    let (reply, is_silent) = match script.next_response(key.trim()) {
        UpstreamResponse::Done(payload) => (payload.to_string(), false),
        UpstreamResponse::Rejected => ("rejected".to_owned(), false),
        UpstreamResponse::Throttled(_) => ("busy".to_owned(), false),
        UpstreamResponse::Unavailable => ("ill".to_owned(), false),
        UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
            ("silence".to_owned(), true)
        }
    };
    socket
        .write_all(reply.as_bytes())
        .await
        .expect("it listens");
    drop(socket);
    if is_silent {
        tokio::select! {
            () = script.silence() => unreachable!("silence never ends"),
            () = run(&url, "SELECT pg_advisory_xact_lock(hashtext(current_schema()))::text") => {}
        }
    }
}

async fn fixture(marker: bool) -> ProviderFixture {
    let server = servers::postgres();
    let script = Arc::new(UpstreamScript::default());
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
            tokio::spawn(respond(socket, Arc::clone(&upstreams), at.clone()));
        }
    });
    let effect = json!({
        "statement": "SELECT (charge(:key) ->> 'receipt') AS receipt WHERE :order.id = :correlation AND :amount = 125",
        "params": { "key": "{@id}", "correlation": "{@correlation}" },
        "answer": "row", "marker": marker, "expect": { "rows": 1 },
    });
    let provider = upstream(&url, &effect).provider;
    ProviderFixture {
        provider,
        effect: EffectName::new("payments.charge").expect("valid"),
        script,
    }
}

/// A database cannot request a retry delay.
mod without_a_marker {
    orlog_testkit::provider_suite!(super::fixture(false);
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
}

/// With a marker every attempt in doubt can be resolved, and a second delivery is not executed: see
/// `tests/node/effects/sql`.
mod with_a_marker {
    orlog_testkit::provider_suite!(super::fixture(true);
        success_returns_the_upstream_response
        rejection_is_permanent
        timed_out_attempt_retries_with_the_same_key
        transient_errors_retry_with_the_same_key
        breaker_opens_probes_and_closes
        dropping_cancels_and_releases_the_permit
        crash_between_call_and_result_resumes_with_the_same_key
    );
}
