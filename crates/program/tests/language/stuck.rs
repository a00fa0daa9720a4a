//! Pivots, and operator actions on stuck instances.

use std::time::Duration;

use orlog_model::{Status, TimerChange, WaitKind, Work};
use serde_json::json;

use super::{diagnostics, fail, ok, saga, start_run, step_state};

pub(super) const PIVOT: &str = "timeout: 1d
on: [ { event: Stop, then: cancel } ]
steps:
  - { id: pay, do: { effect: e.pay }, undo: { effect: u.pay } }
  - { id: confirm, pivot: true, do: { effect: e.confirm }, undo: { effect: u.confirm } }
  - { id: a, after: [confirm], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [confirm], do: { command: x.B }, ok: Done, timeout: 2h }
  - { id: end, after: [a, b], do: { effect: e.end } }
";

#[test]
fn no_compensation_after_the_pivot() {
    let saga = saga(PIVOT);
    let mut run = start_run(&saga, json!({}));
    assert_eq!(run.timers(), ["saga"]);
    ok(&mut run, "pay");
    ok(&mut run, "confirm");
    assert_eq!(run.timers(), ["b"], "the saga timeout no longer applies");
    assert_eq!(
        run.cancel("x").unwrap_err(),
        "the instance is past the pivot"
    );
    assert_eq!(
        run.event("Stop", json!({})).unwrap(),
        "Stop, past the pivot"
    );
    assert_eq!(run.status(), Status::Running);
    fail(&mut run, "a");
    assert_eq!(
        (run.status(), step_state(&run, "a").as_str()),
        (Status::Stuck, "blocked")
    );
    assert_eq!(
        run.state_view()["stuck"],
        json!({ "step": "a", "action": "do" })
    );
    assert!(run.waits().contains(&(WaitKind::Operator, "a".to_owned())));
    assert!(run.compensated().is_empty());
}

fn blocked(
    saga: &orlog_program::CompiledDefinition,
) -> orlog_testkit::definition_suite::InstanceDriver<'_> {
    let mut run = start_run(saga, json!({}));
    for tag in ["pay", "confirm"] {
        ok(&mut run, tag);
    }
    run.advance(Duration::from_hours(1)).unwrap();
    fail(&mut run, "a");
    run
}

#[test]
fn stuck_saga_records_results_and_starts_nothing() {
    let saga = saga(PIVOT);
    let mut run = blocked(&saga);
    assert!(run.timers().is_empty(), "the runner deletes them");
    run.event("Done", json!({})).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "b").as_str()),
        (Status::Stuck, "completed")
    );
    run.skip().unwrap();
    assert_eq!(
        (
            step_state(&run, "a").as_str(),
            step_state(&run, "end").as_str()
        ),
        ("skipped", "running")
    );
    ok(&mut run, "end");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn retry_requests_again_and_rearms_timers() {
    let saga = saga(PIVOT);
    let mut run = blocked(&saga);
    run.retry().unwrap();
    assert_eq!(
        (run.status(), run.labels().last().unwrap().as_str()),
        (Status::Running, "e.a")
    );
    assert!(
        run.last_timers()
            .iter()
            .any(|t| matches!(t, TimerChange::Arm { name, .. } if name.as_str() == "b"))
    );
    assert_eq!(run.timers(), ["b"]);
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "b").as_str()),
        (Status::Stuck, "blocked"),
        "with the remaining time"
    );
    ok(&mut run, "a");
    run.event("Done", json!({})).unwrap();
    assert_eq!(
        run.status(),
        Status::Running,
        "the failed step succeeded late"
    );
}

#[test]
fn blocked_steps_are_retried_together_and_skipped_singly() {
    let saga = saga(PIVOT);
    let mut run = blocked(&saga);
    run.outcome("b", &orlog_testkit::definition_suite::failed("no"))
        .unwrap();
    run.retry().unwrap();
    assert_eq!(run.labels()[run.work().len() - 2..], ["e.a", "x.B"]);
    fail(&mut run, "a");
    run.outcome("b", &orlog_testkit::definition_suite::failed("no"))
        .unwrap();
    run.skip().unwrap();
    assert_eq!(
        run.state_view()["stuck"],
        json!({ "step": "b", "action": "do" })
    );
    run.skip().unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "end").as_str()),
        (Status::Running, "running")
    );
}

#[test]
fn force_complete_after_the_pivot_completes() {
    let saga = saga(PIVOT);
    let mut run = blocked(&saga);
    run.force_complete().unwrap();
    assert_eq!(
        (run.status(), run.labels().last().unwrap().as_str()),
        (Status::Completed, "Completed")
    );
    assert!(
        run.event("Done", json!({})).is_err(),
        "the input has no effect"
    );
    assert!(run.waits().is_empty());
}

pub(super) const COMPENSATION: &str = "steps:
  - { id: a, do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, do: { effect: e.c } }
";

fn compensation_failed(
    saga: &orlog_program::CompiledDefinition,
) -> orlog_testkit::definition_suite::InstanceDriver<'_> {
    let mut run = start_run(saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "b");
    fail(&mut run, "c");
    fail(&mut run, "compensate:b");
    assert_eq!(
        run.state_view()["stuck"],
        json!({ "step": "b", "action": "compensate" })
    );
    run
}

#[test]
fn skipped_compensation_counts_as_compensated() {
    let saga = saga(COMPENSATION);
    let mut run = compensation_failed(&saga);
    assert_eq!(run.skip().unwrap(), "b: compensation skipped");
    assert_eq!(run.status(), Status::Compensating);
    ok(&mut run, "compensate:a");
    assert_eq!(
        (run.status(), run.labels().last().unwrap().as_str()),
        (Status::Failed, "Failed")
    );
    assert!(run.skip().is_err() && run.force_complete().is_err());
}

#[test]
fn force_complete_while_compensating_fails_without_further_compensation() {
    let saga = saga(COMPENSATION);
    let mut run = compensation_failed(&saga);
    run.force_complete().unwrap();
    assert_eq!(run.status(), Status::Failed);
    let Some(Work::Fact(fact)) = run.work().last() else {
        panic!("a fact")
    };
    assert_eq!(fact.data["code"], "broken");
    assert_eq!(run.compensated(), ["compensate:b"]);
    assert!(
        run.outcome(
            "compensate:b",
            &orlog_testkit::definition_suite::succeeded(json!({}))
        )
        .is_err()
    );
}

#[test]
fn force_complete_of_a_cancelling_saga_cancels_it() {
    let saga = saga(COMPENSATION);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    run.cancel("no more").unwrap();
    fail(&mut run, "compensate:a");
    run.force_complete().unwrap();
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn failed_compensation_of_a_loser_is_stuck_then_resumes() {
    let saga = saga(
        "timeout: 1d
steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: a2, do: { effect: e.a2 } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: end, after: { any: [a2, b] }, do: { effect: e.end }, timeout: 5h }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "b");
    fail(&mut run, "compensate:a");
    assert_eq!(run.status(), Status::Stuck);
    ok(&mut run, "end");
    assert_eq!(
        run.status(),
        Status::Stuck,
        "the result is recorded, but a compensation is pending"
    );
    run.retry().unwrap();
    assert_eq!(
        (run.status(), run.timers()),
        (Status::Running, vec!["saga"])
    );
    ok(&mut run, "compensate:a");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn failure_while_stuck_compensates_after_resolution() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: a2, do: { effect: e.a2 } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: end, after: { any: [a2, b] }, do: { effect: e.end } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "b");
    fail(&mut run, "compensate:a");
    fail(&mut run, "end");
    assert_eq!((run.status(), run.compensated().len()), (Status::Stuck, 1));
    run.skip().unwrap();
    assert_eq!(
        (run.status(), run.compensated().last().unwrap().as_str()),
        (Status::Compensating, "compensate:b")
    );
}

#[test]
fn race_after_the_pivot_tolerates_a_failure() {
    let saga = saga(
        "steps:
  - { id: p, pivot: true, do: { effect: e.p } }
  - { id: a, after: [p], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [p], do: { effect: e.b } }
  - { id: end, after: { any: [a, b] }, do: { effect: e.end } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "p");
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Running);
    fail(&mut run, "a");
    assert_eq!(
        (run.status(), step_state(&run, "a").as_str()),
        (Status::Stuck, "blocked")
    );
}

#[test]
fn failed_switch_after_the_pivot_is_retried() {
    let saga = saga(
        "vars: { branch: null }
on: [ { event: Set, save: { branch: =event.branch } } ]
steps:
  - { id: p, pivot: true, do: { effect: e.p } }
  - { id: s, do: { switch: [ { when: vars.branch == 'a', then: a } ] } }
  - { id: a, do: { effect: e.a } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "p");
    assert_eq!(
        (run.status(), step_state(&run, "s").as_str()),
        (Status::Stuck, "blocked")
    );
    run.retry().unwrap();
    assert_eq!(run.status(), Status::Stuck);
    run.skip().unwrap();
    assert_eq!(
        (
            step_state(&run, "s").as_str(),
            step_state(&run, "a").as_str()
        ),
        ("skipped", "bypassed")
    );
    assert_eq!(
        run.status(),
        Status::Completed,
        "a skipped switch selects no case"
    );
}

#[test]
fn concurrent_steps_beside_the_pivot_are_rejected() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: p, after: [], pivot: true, do: { effect: e.p } }
";
    assert_eq!(
        diagnostics(steps),
        "steps[1].pivot: step `a` may run concurrently with the pivot `p`"
    );
    let race = "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: p, after: { any: [a, b] }, pivot: true, do: { effect: e.p } }
";
    saga(race);
}
