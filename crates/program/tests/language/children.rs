//! Child sagas whose parent no longer awaits them: they are stopped, abandoned or awaited.

use std::time::Duration;

use orlog_model::{ParentEndPolicy, Status, WaitKind, Work};
use serde_json::json;

use super::{diagnostics, fail, ok, saga, start_run, step_state};

pub(super) const AWAITED: &str = "steps:
  - { id: first, do: { effect: e.first }, undo: { effect: u.first } }
  - { id: other, after: [first], do: { effect: e.other } }
  - { id: kid, after: [first], do: { saga: equipment, on_parent_end: wait }, undo: { effect: u.kid }, timeout: 1h }
  - { id: last, after: [other, kid], do: { effect: e.last } }
";

fn cancels(work: &[Work]) -> usize {
    work.iter()
        .filter(|work| matches!(work, Work::CancelChild(_)))
        .count()
}

#[test]
fn policy_is_part_of_the_start_request() {
    for (text, policy) in [
        ("", ParentEndPolicy::Stop),
        (", on_parent_end: stop", ParentEndPolicy::Stop),
        (", on_parent_end: abandon", ParentEndPolicy::Abandon),
        (", on_parent_end: wait", ParentEndPolicy::Wait),
    ] {
        let saga = saga(&format!(
            "steps: [{{ id: kid, do: {{ saga: equipment{text} }} }}]\n"
        ));
        let run = start_run(&saga, json!({}));
        let Some(Work::StartChild(start)) = run.work().last() else {
            panic!("a child saga")
        };
        assert_eq!(start.on_parent_end, policy);
    }
    let found =
        diagnostics("steps: [{ id: kid, do: { saga: equipment, on_parent_end: terminate } }]\n");
    assert!(
        found.contains("steps[0].do.on_parent_end: invalid value `terminate`"),
        "{found}"
    );
    let found = diagnostics(
        "steps: [{ id: a, do: { effect: e }, undo: { saga: equipment, on_parent_end: wait } }]\n",
    );
    let expected = "steps[0].undo.on_parent_end: a compensation is never abandoned, so it has no `on_parent_end`";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn compensation_waits_for_the_end_of_the_child_and_compensates_its_success_first() {
    let saga = saga(AWAITED);
    for fails in [true, false] {
        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "first");
        fail(&mut run, "other");
        assert_eq!(
            (run.status(), step_state(&run, "kid").as_str()),
            (Status::Compensating, "child_awaited")
        );
        assert_eq!(
            (cancels(run.work()), run.compensated().len()),
            (0, 0),
            "nothing happens before its end"
        );
        assert_eq!(run.waits(), [(WaitKind::Saga, "kid".to_owned())]);
        assert!(run.timers().is_empty());
        if fails {
            assert_eq!(fail(&mut run, "kid"), "kid: child saga ended");
        } else {
            assert_eq!(ok(&mut run, "kid"), "kid: ok, late");
            assert_eq!(run.compensated(), ["compensate:kid"]);
            ok(&mut run, "compensate:kid");
        }
        assert_eq!(run.compensated().last().unwrap(), "compensate:first");
        ok(&mut run, "compensate:first");
        assert_eq!(
            (run.status(), run.failure().unwrap().code.as_str()),
            (Status::Failed, "broken")
        );
    }
}

#[test]
fn timed_out_and_cancelled_steps_wait_for_the_child() {
    let saga = saga(AWAITED);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "first");
    run.fire("kid", Duration::from_hours(1)).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "kid").as_str()),
        (Status::Compensating, "child_awaited")
    );
    assert_eq!(run.failure().unwrap().code, "timeout");
    ok(&mut run, "kid");
    ok(&mut run, "compensate:kid");
    ok(&mut run, "compensate:first");
    assert_eq!(run.status(), Status::Failed);

    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "first");
    run.cancel("no need").unwrap();
    assert_eq!(
        (run.status(), run.compensated().len()),
        (Status::Compensating, 0)
    );
    fail(&mut run, "kid");
    ok(&mut run, "compensate:first");
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn saga_that_runs_forward_ends_after_the_child_of_a_discarded_branch() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: kid, after: [], do: { saga: equipment, on_parent_end: wait }, undo: { effect: u.kid } }
  - { id: end, after: { any: [a, kid] }, do: { effect: e.end } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "end");
    assert_eq!(
        (run.status(), step_state(&run, "kid").as_str()),
        (Status::Running, "child_awaited")
    );
    ok(&mut run, "kid");
    ok(&mut run, "compensate:kid");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn awaited_child_past_the_pivot_makes_the_saga_stuck_and_does_not_outlast_a_forced_end() {
    let saga = saga(
        "steps:
  - { id: go, pivot: true, do: { effect: e.go } }
  - { id: kid, do: { saga: equipment, on_parent_end: wait }, timeout: 1h }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "go");
    run.fire("kid", Duration::from_hours(1)).unwrap();
    assert_eq!((run.status(), cancels(run.work())), (Status::Stuck, 0));
    run.force_complete().unwrap();
    assert_eq!(run.status(), Status::Completed);
    assert!(run.waits().is_empty());
}

#[test]
fn abandoned_child_continues_and_its_result_is_ignored() {
    let saga = saga(&AWAITED.replace("wait", "abandon"));
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "first");
    fail(&mut run, "other");
    assert_eq!(
        (cancels(run.work()), step_state(&run, "kid").as_str()),
        (0, "abandoned")
    );
    let ignored = run
        .outcome(
            "kid",
            &orlog_testkit::definition_suite::succeeded(json!({})),
        )
        .unwrap_err();
    assert_eq!(ignored, "the child saga was abandoned");
    ok(&mut run, "compensate:first");
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Failed, vec!["compensate:first".to_owned()])
    );
}

#[test]
fn success_before_the_abandonment_is_compensated() {
    let saga = saga(&AWAITED.replace("wait", "abandon"));
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "first");
    ok(&mut run, "kid");
    fail(&mut run, "other");
    assert_eq!(run.compensated(), ["compensate:kid"]);
}

#[test]
fn awaited_child_of_a_past_round_is_awaited() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: kid, after: [], do: { saga: equipment, on_parent_end: wait }, undo: { effect: u.kid } }
  - { id: join, after: { any: [a, kid] }, do: { effect: e.join } }
  - { id: rounds, do: { repeat: [a, kid], while: round < 1, max: 2 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for round in 0..2 {
        ok(&mut run, &format!("a[{round}]"));
        ok(&mut run, &format!("join[{round}]"));
    }
    assert_eq!(run.status(), Status::Running);
    ok(&mut run, "kid[0]");
    ok(&mut run, "compensate:kid[0]");
    fail(&mut run, "kid[1]");
    assert_eq!(run.status(), Status::Completed);
}
