//! Finding 27 of the audit: a step that may have been executed leaves nothing behind. And the rounds of its
//! requests: what may have been executed is requested again under the same key.

use std::time::Duration;

use orlog_model::{Failure, Status, Work, WorkOutcome};
use orlog_testkit::definition_suite::InstanceDriver;
use serde_json::json;

use super::{fail, ok, saga, start_run, step_state};

const TWO: &str = "steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book } }
  - { id: pack, do: { effect: e.pack }, undo: { effect: u.pack }, timeout: 1h }
  - { id: end, do: { effect: e.end } }
";

fn timed_out() -> WorkOutcome {
    let failure = Failure {
        code: "timeout".to_owned(),
        message: "no response".to_owned(),
    };
    WorkOutcome::TimedOut { failure }
}

fn rounds(run: &InstanceDriver<'_>, tag: &str) -> Vec<u64> {
    let of_tag = run
        .work()
        .iter()
        .filter(|work| work.tag().is_some_and(|own| own.as_str() == tag));
    let round = |work: &Work| match work {
        Work::Command(command) => command.round,
        Work::Effect(effect) => effect.round,
        Work::StartChild(start) => start.round,
        Work::Fact(_) | Work::CancelChild(_) | Work::NotifyParent(_) | Work::PublishResult(_) => {
            unreachable!("they have no tag")
        }
    };
    of_tag.map(round).collect()
}

fn requested(run: &InstanceDriver<'_>, tag: &str) -> usize {
    rounds(run, tag).len()
}

#[test]
fn step_that_may_have_been_executed_is_compensated_first() {
    let saga = saga(TWO);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "book");
    run.outcome("pack", &timed_out()).unwrap();
    assert_eq!(
        (
            requested(&run, "compensate:pack"),
            requested(&run, "compensate:book")
        ),
        (1, 0)
    );
    ok(&mut run, "compensate:pack");
    ok(&mut run, "compensate:book");
    assert_eq!(
        (run.status(), step_state(&run, "pack").as_str()),
        (Status::Failed, "compensated")
    );
}

#[test]
fn step_that_was_not_executed_is_not_compensated() {
    let saga = saga(TWO);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "book");
    fail(&mut run, "pack");
    ok(&mut run, "compensate:book");
    assert_eq!(
        (run.status(), requested(&run, "compensate:pack")),
        (Status::Failed, 0)
    );
}

#[test]
fn result_of_an_abandoned_step_decides_even_after_the_end() {
    let saga = saga(TWO);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "book");
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        requested(&run, "compensate:pack"),
        0,
        "the result of the work is still pending"
    );
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Failed);
    run.outcome("pack", &timed_out()).unwrap();
    assert_eq!(
        (run.status(), requested(&run, "compensate:pack")),
        (Status::Compensating, 1)
    );
    ok(&mut run, "compensate:pack");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn command_without_its_event_is_compensated() {
    let saga = saga(
        "steps:
  - { id: reserve, do: { command: s.Reserve }, ok: Reserved, timeout: 1h, undo: { command: s.Release, ok: Released } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        (run.status(), requested(&run, "compensate:reserve")),
        (Status::Compensating, 1)
    );
    run.event("Released", json!({})).unwrap();
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn only_a_definite_failure_begins_a_new_round() {
    let saga = saga(
        "steps:
  - { id: open, do: { command: l.Open }, timeout: 1h, retry: { max_attempts: 4, initial_backoff: 1s }, undo: { command: l.Close } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    run.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(rounds(&run, "open"), [0, 0], "a timeout repeats the key");
    fail(&mut run, "open");
    run.advance(Duration::from_secs(2)).unwrap();
    assert_eq!(
        rounds(&run, "open"),
        [0, 0, 1],
        "a rejection begins a round"
    );
    run.advance(Duration::from_hours(1)).unwrap();
    run.advance(Duration::from_secs(4)).unwrap();
    assert_eq!(rounds(&run, "open"), [0, 0, 1, 1]);
}

#[test]
fn each_event_of_a_handler_is_a_round() {
    let saga = saga(
        "on: [{ event: Note, do: { effect: e.note } }]
steps:
  - { id: end, do: { effect: e.end } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Note", json!({})).unwrap();
    run.event("Note", json!({})).unwrap();
    let rounds = rounds(&run, "on:0");
    assert!(rounds.len() == 2 && rounds[0] != rounds[1], "{rounds:?}");
}

const SAVES: &str = "steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book }, save: { room: =event.room } }
  - { id: end, do: { effect: e.end } }
";

#[test]
fn late_success_whose_result_cannot_be_saved_is_compensated() {
    let saga = saga(SAVES);
    let mut run = start_run(&saga, json!({}));
    run.cancel("no").unwrap();
    assert_eq!(run.status(), Status::Cancelled);
    let note = ok(&mut run, "book");
    assert!(
        note.starts_with("book: ok, late: cannot set vars.room"),
        "{note}"
    );
    assert_eq!(
        (run.status(), requested(&run, "compensate:book")),
        (Status::Compensating, 1)
    );
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn success_that_the_definition_does_not_expect_is_compensated() {
    let saga = saga(
        "steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book }, ok: Booked }
  - { id: end, do: { effect: e.end } }
",
    );
    let surprise = || WorkOutcome::succeeded(Some("Surprise".parse().unwrap()), json!({}));
    let mut run = start_run(&saga, json!({}));
    run.outcome("book", &surprise()).unwrap();
    assert_eq!(
        (run.status(), requested(&run, "compensate:book")),
        (Status::Compensating, 1)
    );
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Failed);

    let mut run = start_run(&saga, json!({}));
    run.cancel("no").unwrap();
    run.outcome("book", &surprise()).unwrap();
    assert_eq!(
        (run.status(), requested(&run, "compensate:book")),
        (Status::Compensating, 1)
    );
}
