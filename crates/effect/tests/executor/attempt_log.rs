//! Record of the attempts of a work item.

use orlog_effect::{Policy, ProbeResult, ProviderError, Reply};
use orlog_model::AttemptOutcome;
use orlog_testkit::provider_suite::item;
use serde_json::json;

use crate::{failure, name, run_with_clock, stage};

#[tokio::test]
async fn attempts_are_recorded_with_their_responses_unless_the_first_succeeds() {
    let response = json!({ "reason": "no rooms", "stack": "x".repeat(600) });
    let policy = Policy {
        max_attempts: Some(12),
        breaker: None,
        ..Policy::default()
    };
    let (clock, executor, _) = stage(policy, ProbeResult::Unknown, move |_| {
        Err(ProviderError::response_lost(
            "http_503",
            "payments: POST /rooms returned HTTP 503: no rooms",
        )
        .with_payload(response.clone()))
    });
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let text = "payments: timed out after 12 attempts; last: POST /rooms returned HTTP 503: no rooms (http_503)";
    assert_eq!(failure(&done), ("timed out", text.to_owned()));
    let log = done.attempt_log.expect("the first attempt failed");
    let numbers: Vec<_> = log.records.iter().map(|record| record.number).collect();
    assert_eq!(
        (numbers, log.omitted),
        (vec![1, 4, 5, 6, 7, 8, 9, 10, 11, 12], 2)
    );
    let last = log.records.last().expect("ten records");
    assert_eq!(
        (last.outcome, last.code.as_str()),
        (AttemptOutcome::ResponseLost, "http_503")
    );
    let quoted = last.response.as_deref().expect("the response is recorded");
    assert!(
        quoted.len() == 512 && quoted.contains("no rooms"),
        "{quoted}"
    );

    let (_, executor, _) = stage(Policy::default(), ProbeResult::Unknown, |_| {
        Ok(Reply::default())
    });
    assert_eq!(executor.execute(&item(&name(), 1)).await.attempt_log, None);
}
