//! The point of no return, and what a person can do about what is stuck.

use std::time::Duration;

use orlog_model::{Status, TimerChange, WaitKind, Work};
use serde_json::json;

use super::{begun, fail, ok, saga, stands, wrong};

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
fn past_the_pivot_nothing_turns_back() {
    let saga = saga(PIVOT);
    let mut life = begun(&saga, json!({}));
    assert_eq!(life.timers(), ["saga"]);
    ok(&mut life, "pay");
    ok(&mut life, "confirm");
    assert_eq!(life.timers(), ["b"], "the time of the whole saga no longer counts");
    assert_eq!(life.cancel("x").unwrap_err(), "it is past the point of no return");
    assert_eq!(life.event("Stop", json!({})).unwrap(), "Stop, past the point of no return");
    assert_eq!(life.status(), Status::Running);
    fail(&mut life, "a");
    assert_eq!((life.status(), stands(&life, "a").as_str()), (Status::Stuck, "blocked"));
    assert_eq!(life.shown()["stuck"], json!({ "step": "a", "what": "do" }));
    assert!(life.waits().contains(&(WaitKind::Operator, "a".to_owned())));
    assert!(life.undone().is_empty());
}

fn blocked(saga: &orlog_program::Compiled) -> orlog_testkit::definition_suite::Life<'_> {
    let mut life = begun(saga, json!({}));
    for tag in ["pay", "confirm"] {
        ok(&mut life, tag);
    }
    life.advance(Duration::from_hours(1)).unwrap();
    fail(&mut life, "a");
    life
}

#[test]
fn while_it_is_stuck_answers_are_recorded_and_nothing_begins() {
    let saga = saga(PIVOT);
    let mut life = blocked(&saga);
    assert!(life.timers().is_empty(), "the runner drops them");
    life.event("Done", json!({})).unwrap();
    assert_eq!((life.status(), stands(&life, "b").as_str()), (Status::Stuck, "done"));
    life.skip().unwrap();
    assert_eq!((stands(&life, "a").as_str(), stands(&life, "end").as_str()), ("skipped", "running"));
    ok(&mut life, "end");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn retrying_asks_again_and_arms_the_timers_of_what_is_under_way() {
    let saga = saga(PIVOT);
    let mut life = blocked(&saga);
    life.retry().unwrap();
    assert_eq!((life.status(), life.labels().last().unwrap().as_str()), (Status::Running, "e.a"));
    assert!(
        life.last_timers().iter().any(|t| matches!(t, TimerChange::Arm { name, .. } if name.as_str() == "b"))
    );
    assert_eq!(life.timers(), ["b"]);
    life.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(
        (life.status(), stands(&life, "b").as_str()),
        (Status::Stuck, "blocked"),
        "with what was left"
    );
    ok(&mut life, "a");
    life.event("Done", json!({})).unwrap();
    assert_eq!(life.status(), Status::Running, "what failed has succeeded after all");
}

#[test]
fn several_that_are_blocked_are_retried_together_and_skipped_one_by_one() {
    let saga = saga(PIVOT);
    let mut life = blocked(&saga);
    life.outcome("b", &orlog_testkit::definition_suite::failed("no")).unwrap();
    life.retry().unwrap();
    assert_eq!(life.labels()[life.work().len() - 2..], ["e.a", "x.B"]);
    fail(&mut life, "a");
    life.outcome("b", &orlog_testkit::definition_suite::failed("no")).unwrap();
    life.skip().unwrap();
    assert_eq!(life.shown()["stuck"], json!({ "step": "b", "what": "do" }));
    life.skip().unwrap();
    assert_eq!((life.status(), stands(&life, "end").as_str()), (Status::Running, "running"));
}

#[test]
fn ending_by_force_past_the_pivot_completes() {
    let saga = saga(PIVOT);
    let mut life = blocked(&saga);
    life.force_complete().unwrap();
    assert_eq!((life.status(), life.labels().last().unwrap().as_str()), (Status::Completed, "Completed"));
    assert!(life.event("Done", json!({})).is_err(), "nothing more happens");
    assert!(life.waits().is_empty());
}

pub(super) const UNDO: &str = "steps:
  - { id: a, do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, do: { effect: e.c } }
";

fn undo_failed(saga: &orlog_program::Compiled) -> orlog_testkit::definition_suite::Life<'_> {
    let mut life = begun(saga, json!({}));
    ok(&mut life, "a");
    ok(&mut life, "b");
    fail(&mut life, "c");
    fail(&mut life, "undo:b");
    assert_eq!(life.shown()["stuck"], json!({ "step": "b", "what": "undo" }));
    life
}

#[test]
fn a_skipped_undo_counts_as_undone() {
    let saga = saga(UNDO);
    let mut life = undo_failed(&saga);
    assert_eq!(life.skip().unwrap(), "b: undo skipped");
    assert_eq!(life.status(), Status::Compensating);
    ok(&mut life, "undo:a");
    assert_eq!((life.status(), life.labels().last().unwrap().as_str()), (Status::Failed, "Failed"));
    assert!(life.skip().is_err() && life.force_complete().is_err());
}

#[test]
fn ending_by_force_while_turning_back_fails_with_its_fact_and_undoes_nothing_more() {
    let saga = saga(UNDO);
    let mut life = undo_failed(&saga);
    life.force_complete().unwrap();
    assert_eq!(life.status(), Status::Failed);
    let Some(Work::Fact(fact)) = life.work().last() else { panic!("a fact") };
    assert_eq!(fact.data["code"], "broken");
    assert_eq!(life.undone(), ["undo:b"]);
    assert!(life.outcome("undo:b", &orlog_testkit::definition_suite::succeeded(json!({}))).is_err());
}

#[test]
fn ending_a_cancelled_one_by_force_cancels_it() {
    let saga = saga(UNDO);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    life.cancel("no more").unwrap();
    fail(&mut life, "undo:a");
    life.force_complete().unwrap();
    assert_eq!(life.status(), Status::Cancelled);
}

#[test]
fn an_undo_that_fails_while_the_saga_goes_on_makes_it_stuck_and_then_it_goes_on() {
    let saga = saga(
        "timeout: 1d
steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: a2, do: { effect: e.a2 } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: end, after: { any: [a2, b] }, do: { effect: e.end }, timeout: 5h }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    ok(&mut life, "b");
    fail(&mut life, "undo:a");
    assert_eq!(life.status(), Status::Stuck);
    ok(&mut life, "end");
    assert_eq!(life.status(), Status::Stuck, "the end is recorded, but an undo is open");
    life.retry().unwrap();
    assert_eq!((life.status(), life.timers()), (Status::Running, vec!["saga"]));
    ok(&mut life, "undo:a");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn a_failure_while_stuck_turns_back_when_the_person_has_decided() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: a2, do: { effect: e.a2 } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: end, after: { any: [a2, b] }, do: { effect: e.end } }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    ok(&mut life, "b");
    fail(&mut life, "undo:a");
    fail(&mut life, "end");
    assert_eq!((life.status(), life.undone().len()), (Status::Stuck, 1));
    life.skip().unwrap();
    assert_eq!((life.status(), life.undone().last().unwrap().as_str()), (Status::Compensating, "undo:b"));
}

#[test]
fn a_race_past_the_pivot_still_tolerates_a_failure() {
    let saga = saga(
        "steps:
  - { id: p, pivot: true, do: { effect: e.p } }
  - { id: a, after: [p], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [p], do: { effect: e.b } }
  - { id: end, after: { any: [a, b] }, do: { effect: e.end } }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "p");
    fail(&mut life, "b");
    assert_eq!(life.status(), Status::Running);
    fail(&mut life, "a");
    assert_eq!((life.status(), stands(&life, "a").as_str()), (Status::Stuck, "blocked"));
}

#[test]
fn a_decision_that_cannot_be_made_past_the_pivot_is_made_again_on_retry() {
    let saga = saga(
        "vars: { way: null }
on: [ { event: Set, save: { way: =event.way } } ]
steps:
  - { id: p, pivot: true, do: { effect: e.p } }
  - { id: s, do: { switch: [ { when: vars.way == 'a', then: a } ] } }
  - { id: a, do: { effect: e.a } }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "p");
    assert_eq!((life.status(), stands(&life, "s").as_str()), (Status::Stuck, "blocked"));
    life.retry().unwrap();
    assert_eq!(life.status(), Status::Stuck);
    life.skip().unwrap();
    assert_eq!((stands(&life, "s").as_str(), stands(&life, "a").as_str()), ("skipped", "bypassed"));
    assert_eq!(life.status(), Status::Completed, "a decision that is skipped takes no way");
}

#[test]
fn what_may_run_beside_the_pivot_is_refused() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: p, after: [], pivot: true, do: { effect: e.p } }
";
    assert_eq!(wrong(steps), "steps[1].pivot: step `a` may run beside the point of no return `p`");
    let race = "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: p, after: { any: [a, b] }, pivot: true, do: { effect: e.p } }
";
    saga(race);
}
