//! Tests of the runner with a server that records its requests, and a provider without scripts.

use async_trait::async_trait;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use orlog_effect::EffectObserver as _;
use orlog_model::LogLine;
use orlog_testkit::wait::within;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::cli::client::tests::{client_of, serve};

/// Requests of the runner, and the responses to them.
#[derive(Default)]
struct Requests {
    /// Lines that the server accepted.
    lines: Mutex<Vec<String>>,
    /// Results with the number of lines that the server had accepted before.
    results: Mutex<Vec<RecordedResult>>,
    /// Statuses of the next requests about an action; afterwards, they succeed.
    failures: Mutex<Vec<ScriptedFailure>>,
    /// A heartbeat has arrived.
    heartbeat: Notify,
    /// A claim request has arrived.
    claim: Notify,
}

impl Requests {
    /// Removes the next failure of an action.
    fn next_failure(&self, action: &str) -> Option<ScriptedFailure> {
        let mut failures = self.failures.lock();
        let next = failures.iter().position(|next| next.action == action)?;
        Some(failures.remove(next))
    }
}

struct RecordedResult {
    report: Value,
    lines_before: usize,
}

struct ScriptedFailure {
    action: &'static str,
    status: StatusCode,
}

async fn respond(
    State(requests): State<Arc<Requests>>,
    uri: Uri,
    Json(body): Json<Value>,
) -> Response {
    let action = uri.path().rsplit('/').next().unwrap_or_default();
    if let Some(failure) = requests.next_failure(action) {
        return (failure.status, [(header::RETRY_AFTER, "1")]).into_response();
    }

    match action {
        "heartbeat" => {
            requests.heartbeat.notify_one();
            // A node that does not respond.
            std::future::pending::<()>().await;
        }
        "claim" => requests.claim.notify_one(),
        "logs" => {
            let lines = items(&body, "log").iter().filter_map(Value::as_str);
            requests.lines.lock().extend(lines.map(str::to_owned));
        }
        _ => {
            let lines_before = requests.lines.lock().len();
            requests.results.lock().push(RecordedResult {
                report: body,
                lines_before,
            });
        }
    }
    Json(json!({})).into_response()
}

/// Provider that does the same for each job.
enum TestProvider {
    /// Logs this number of lines and succeeds.
    Log(usize, Arc<UnsentLines>),
    /// Succeeds after this number of heartbeats.
    Heartbeats(usize, Arc<Requests>),
    /// Never ends.
    Endless,
}

#[async_trait]
impl Provider for TestProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        match self {
            Self::Log(count, lines) => {
                let logged: Vec<_> = (0..*count)
                    .map(|number| LogLine {
                        at: attempt.at,
                        text: format!("line {number}"),
                    })
                    .collect();
                lines.job_logged(item, &logged);
            }
            Self::Heartbeats(count, requests) => {
                for _ in 0..*count {
                    requests.heartbeat.notified().await;
                }
            }
            Self::Endless => std::future::pending().await,
        }
        Ok(Reply::from(json!({ "done": true })))
    }
}

/// Returns a runner with this provider, of a server with these requests.
async fn runner_of(
    requests: &Arc<Requests>,
    lines: Arc<UnsentLines>,
    provider: TestProvider,
    timeout: Duration,
) -> Runner {
    let router = Router::new()
        .fallback(respond)
        .with_state(Arc::clone(requests));
    Runner {
        client: client_of(&serve(router).await),
        tenant: TenantId::new("").unwrap(),
        name: "r".to_owned(),
        effects: vec!["job.sh".to_owned()],
        provider: Arc::new(provider),
        timeout,
        lines,
    }
}

fn job() -> Value {
    json!({
        "job": "0190163d-8694-739b-aea5-966c26f8ad91", "claim": "c-1", "claim_count": 1,
        "heartbeat_interval_seconds": 0.01, "effect": "job.sh", "saga": "film",
        "correlation": "f-1", "payload": { "job": "cut" },
    })
}

/// Executes one job with this provider, against a server with these failures.
async fn execute_job(
    requests: &Arc<Requests>,
    lines: Arc<UnsentLines>,
    provider: TestProvider,
    timeout: Duration,
) {
    let runner = runner_of(requests, lines, provider, timeout).await;
    within("the job", runner.work(&job())).await;

    // A claim that is still open would keep the late lines of its script for ever.
    let item = runner.read(&job()).unwrap().item;
    let late = LogLine {
        at: SystemClock.now(),
        text: "late".to_owned(),
    };
    runner.lines.job_logged(&item, &[late]);
    assert_eq!(runner.lines.close(&item.causation), 0);
}

/// Executes a job that succeeds without lines, against a server with these failures of results;
/// returns the accepted reports.
async fn reports_after(statuses: &[StatusCode]) -> Vec<Value> {
    let requests = Arc::new(Requests::default());
    let failures = statuses.iter().map(|status| ScriptedFailure {
        action: "result",
        status: *status,
    });
    requests.failures.lock().extend(failures);
    let provider = TestProvider::Log(0, Arc::default());
    execute_job(&requests, Arc::default(), provider, LONG).await;

    let results = std::mem::take(&mut *requests.results.lock());
    results.into_iter().map(|result| result.report).collect()
}

const LONG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn all_lines_are_sent_before_the_result_and_none_twice() {
    let requests = Arc::new(Requests::default());
    requests.failures.lock().push(ScriptedFailure {
        action: "logs",
        status: StatusCode::SERVICE_UNAVAILABLE,
    });
    let lines = Arc::new(UnsentLines::default());
    let provider = TestProvider::Log(2500, Arc::clone(&lines));
    execute_job(&requests, lines, provider, LONG).await;

    let expected: Vec<_> = (0..2500).map(|number| format!("line {number}")).collect();
    assert_eq!(*requests.lines.lock(), expected);
    assert_eq!(requests.results.lock()[0].lines_before, expected.len());
}

#[tokio::test]
async fn execution_continues_while_the_node_does_not_respond() {
    let requests = Arc::new(Requests::default());
    let provider = TestProvider::Heartbeats(1, Arc::clone(&requests));
    execute_job(&requests, Arc::default(), provider, LONG).await;
    assert_eq!(requests.results.lock()[0].report["result"], "succeeded");
}

#[tokio::test]
async fn heartbeat_without_a_response_does_not_delay_the_next_one() {
    let requests = Arc::new(Requests::default());
    let provider = TestProvider::Heartbeats(3, Arc::clone(&requests));
    execute_job(&requests, Arc::default(), provider, LONG).await;
    assert_eq!(requests.results.lock()[0].report["result"], "succeeded");
}

#[tokio::test]
async fn lines_that_the_node_rejects_are_counted() {
    let requests = Arc::new(Requests::default());
    requests.failures.lock().push(ScriptedFailure {
        action: "logs",
        status: StatusCode::UNPROCESSABLE_ENTITY,
    });
    let lines = Arc::new(UnsentLines::default());
    let provider = TestProvider::Log(1500, Arc::clone(&lines));
    let runner = runner_of(&requests, lines, provider, LONG).await;
    let job = runner.read(&job()).unwrap();
    let unsent = within("the job", runner.execute_with_lines(&job)).await;
    assert_eq!(unsent, 1500);
}

#[tokio::test]
async fn claims_without_jobs_are_not_repeated_at_once() {
    let requests = Arc::new(Requests::default());
    let runner = runner_of(&requests, Arc::default(), TestProvider::Endless, LONG).await;
    let (_stop, stopping) = watch::channel(false);
    // The server responds without the wait of the request, as a draining node does.
    let started = Instant::now();
    tokio::select! {
        () = Arc::new(runner).slot(stopping) => {}
        () = async {
            for _ in 0..2 {
                within("a claim", requests.claim.notified()).await;
            }
        } => {}
    }
    assert!(started.elapsed() >= RETRY_DELAY);
}

#[tokio::test]
async fn result_is_sent_again_after_a_busy_node() {
    let reports = reports_after(&[StatusCode::TOO_MANY_REQUESTS]).await;
    assert_eq!(reports[0]["result"], "succeeded");
}

#[tokio::test]
async fn result_is_sent_again_while_access_is_denied() {
    let reports = reports_after(&[StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]).await;
    assert_eq!(
        (reports.len(), &reports[0]["result"]),
        (1, &json!("succeeded"))
    );
}

#[tokio::test]
async fn denied_result_of_a_lost_claim_is_not_sent_again() {
    let requests = Arc::new(Requests::default());
    let denied = (0..1000).map(|_| ScriptedFailure {
        action: "result",
        status: StatusCode::FORBIDDEN,
    });
    requests.failures.lock().extend(denied);
    requests.failures.lock().push(ScriptedFailure {
        action: "heartbeat",
        status: StatusCode::CONFLICT,
    });
    let provider = TestProvider::Log(0, Arc::default());
    execute_job(&requests, Arc::default(), provider, LONG).await;
    assert!(requests.results.lock().is_empty());
}

#[tokio::test]
async fn job_whose_result_is_rejected_is_reported_as_failed() {
    for status in [
        StatusCode::BAD_REQUEST,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ] {
        let reports = reports_after(&[status]).await;
        let message = format!("the node returned HTTP status {}", status.as_u16());
        let expected = json!({
            "claim": "c-1", "result": "failed", "code": "result_rejected", "message": message,
        });
        assert_eq!(reports, [expected]);
    }
}

#[tokio::test]
async fn rejection_of_the_failure_ends_the_job() {
    let reports = reports_after(&[StatusCode::UNPROCESSABLE_ENTITY; 2]).await;
    assert_eq!(reports, [Value::Null; 0]);
}

#[tokio::test]
async fn result_of_a_job_that_the_node_lacks_is_not_reported_as_failed() {
    for status in [StatusCode::NOT_FOUND, StatusCode::CONFLICT] {
        assert_eq!(reports_after(&[status]).await, [Value::Null; 0]);
    }
}

#[tokio::test]
async fn attempt_timeout_is_in_doubt() {
    let requests = Arc::new(Requests::default());
    let timeout = Duration::from_millis(1);
    execute_job(&requests, Arc::default(), TestProvider::Endless, timeout).await;
    let results = requests.results.lock();
    assert_eq!(
        (&results[0].report["result"], &results[0].report["code"]),
        (&json!("unknown"), &json!("timeout"))
    );
}

#[test]
fn unknown_outcome_of_a_script_is_reported_as_unknown_and_not_as_retry() {
    let result = |error| report_of(Err(error))["result"].clone();
    for (error, expected) in [
        (ProviderError::permanent("exit_65", ""), "failed"),
        (ProviderError::throttled("exit_1", ""), "retry"),
        (ProviderError::unavailable("not_begun", ""), "retry"),
        (ProviderError::reported_unavailable("503", ""), "unknown"),
        (
            ProviderError::response_lost("supervisor_lost", ""),
            "unknown",
        ),
        (ProviderError::undetermined("in_doubt", ""), "unknown"),
    ] {
        assert_eq!(result(error), expected);
    }
}

#[test]
fn busy_or_unreachable_node_is_asked_again() {
    let problem = |status, seconds: Option<u64>| ClientError::Problem {
        status,
        body: Value::Null,
        retry_after: seconds.map(Duration::from_secs),
    };
    for status in [302, 401, 403, 408, 425, 429, 500, 502, 503, 507] {
        assert_eq!(retry_delay(&problem(status, None)), Some(RETRY_DELAY));
        let requested = Some(Duration::from_secs(7));
        assert_eq!(retry_delay(&problem(status, Some(7))), requested);
    }
    let long = retry_delay(&problem(429, Some(86_400)));
    assert_eq!(long, Some(MAX_RETRY_DELAY));

    for status in [400, 404, 409, 413, 422] {
        assert_eq!(retry_delay(&problem(status, Some(7))), None);
    }
    let unreachable = ClientError::NoResponse(String::new());
    assert_eq!(retry_delay(&unreachable), Some(RETRY_DELAY));
}
