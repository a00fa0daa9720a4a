//! Retries of commands.

use std::time::Duration;

use orlog_model::{Status, WorkOutcome};
use orlog_testkit::definition_suite::failed;
use serde_json::json;

use super::{ok, saga, start_run, step_state};

pub(super) const BOOKING: &str = "steps:
  - { id: one, do: { effect: e.one }, undo: { effect: u.one } }
  - id: book
    do: { command: hotels.Book }
    ok: Booked
    fail: Rejected
    timeout: 10s
    retry: { max_attempts: 3, initial_backoff: 2s }
    undo: { command: hotels.Cancel, ok: Cancelled, fail: NotCancelled, retry: { max_attempts: 2, initial_backoff: 1s }, timeout: 1h }
  - { id: end, do: { effect: e.end } }
";

fn request_count(run: &orlog_testkit::definition_suite::InstanceDriver<'_>, label: &str) -> usize {
    run.labels().iter().filter(|l| *l == label).count()
}

#[test]
fn command_is_retried_with_exponential_backoff() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "one");
    assert_eq!(
        run.event("Rejected", json!({})).unwrap(),
        "book: Rejected, retry in 2s"
    );
    assert_eq!(
        (run.timers(), step_state(&run, "book").as_str()),
        (vec!["retry:book"], "retrying")
    );
    run.advance(Duration::from_secs(2)).unwrap();
    assert_eq!(
        (request_count(&run, "hotels.Book"), run.timers()),
        (2, vec!["book"])
    );
    assert_eq!(run.state_view()["steps"][1]["attempts"], 2);
    run.advance(Duration::from_secs(10)).unwrap();
    assert_eq!(
        run.timers(),
        ["retry:book"],
        "a timeout counts as a failure"
    );
    run.advance(Duration::from_secs(3)).unwrap();
    assert_eq!(
        request_count(&run, "hotels.Book"),
        2,
        "the second delay is twice as long"
    );
    run.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(request_count(&run, "hotels.Book"), 3);
    assert_eq!(
        run.outcome("book", &failed("http_500")).unwrap(),
        "book: http_500"
    );
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec!["compensate:one".to_owned()])
    );
    assert!(run.timers().is_empty());
}

#[test]
fn success_during_backoff_counts() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "one");
    run.event("Rejected", json!({})).unwrap();
    assert!(
        run.event("Rejected", json!({})).is_err(),
        "a second failure during the delay has no effect"
    );
    assert_eq!(run.event("Booked", json!({})).unwrap(), "book: ok");
    assert!(run.timers().is_empty(), "the delay has ended");
    assert_eq!(step_state(&run, "end"), "running");
}

#[test]
fn compensation_during_backoff_abandons_the_step() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "one");
    run.event("Rejected", json!({})).unwrap();
    run.cancel("no more").unwrap();
    assert!(run.timers().is_empty());
    run.event("Booked", json!({})).unwrap();
    ok(&mut run, "compensate:one");
    assert_eq!(run.compensated(), ["compensate:one", "compensate:book"]);
    run.event("Cancelled", json!({})).unwrap();
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn compensation_is_retried_before_it_is_stuck() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "one");
    run.event("Booked", json!({})).unwrap();
    run.outcome("end", &failed("no")).unwrap();
    assert_eq!(
        run.event("NotCancelled", json!({})).unwrap(),
        "book: NotCancelled, retry in 1s"
    );
    assert_eq!(
        (run.status(), step_state(&run, "book").as_str()),
        (Status::Compensating, "compensation_retrying")
    );
    run.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(
        (request_count(&run, "hotels.Cancel"), run.timers()),
        (2, vec!["compensate:book"])
    );
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(run.status(), Status::Stuck);
    run.event("Cancelled", json!({})).unwrap();
    assert_eq!(
        (run.status(), run.compensated().last().unwrap().as_str()),
        (Status::Compensating, "compensate:one")
    );
}

#[test]
fn backoff_is_capped_at_one_hour() {
    let saga = saga(
        "steps:\n  - { id: a, do: { command: x.A }, retry: { max_attempts: 60, initial_backoff: 10m }, undo: { command: x.B } }",
    );
    let mut run = start_run(&saga, json!({}));
    let mut notes = Vec::new();
    for _ in 0..40 {
        notes.push(run.outcome("a", &failed("no")).unwrap());
        run.advance(Duration::from_hours(1)).unwrap();
    }
    assert_eq!(
        notes[..4],
        ["10m", "20m", "40m", "60m"].map(|p| {
            format!(
                "a: no, retry in {:?}",
                Duration::from_secs(60 * p.trim_end_matches('m').parse::<u64>().unwrap())
            )
        })
    );
    assert_eq!(notes[39], notes[3]);
    run.outcome("a", &WorkOutcome::Accepted).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn effect_attempts_belong_to_the_provider() {
    let saga = saga("steps:\n  - { id: a, do: { effect: e.a }, retry: { max_attempts: 3 } }");
    let mut run = start_run(&saga, json!({}));
    run.outcome("a", &failed("no")).unwrap();
    assert_eq!(run.status(), Status::Failed);
}
