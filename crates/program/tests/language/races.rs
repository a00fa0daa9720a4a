//! Joins with `any` or `count`: winners, losers and the effect of a failure.

use orlog_model::Status;
use serde_json::json;

use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

pub(super) const RACE: &str = "steps:
  - { id: a1, after: [], do: { effect: e.a1 }, undo: { effect: u.a1 } }
  - { id: a2, do: { effect: e.a2 }, undo: { effect: u.a2 }, timeout: 1h }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, after: [], do: { effect: e.c } }
  - { id: join, after: { any: [a2, b] }, do: { effect: e.join } }
  - { id: last, after: [join, c], do: { effect: e.last } }
";

#[test]
fn race_winner_continues_and_losers_are_compensated_newest_first() {
    let saga = saga(&RACE.replace("[a2, b]", "[a2, b, d]").replace(
        "  - { id: c,",
        "  - { id: d, after: [a1], do: { effect: e.d }, undo: { effect: u.d } }\n  - { id: c,",
    ));
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a1");
    assert_eq!(run.timers(), ["a2"]);
    let requested = run.work().len();
    ok(&mut run, "b");
    assert_eq!(since(&run, requested), ["join", "compensate:a1"]);
    assert_eq!(run.status(), Status::Running);
    assert!(run.timers().is_empty(), "the loser's timer is cancelled");
    assert_eq!(
        (
            step_state(&run, "a2").as_str(),
            step_state(&run, "d").as_str()
        ),
        ("abandoned", "abandoned")
    );
    ok(&mut run, "join");
    ok(&mut run, "d");
    ok(&mut run, "compensate:a1");
    assert_eq!(
        run.compensated(),
        ["compensate:a1", "compensate:d"],
        "a late success of a loser is compensated in order"
    );
    ok(&mut run, "c");
    ok(&mut run, "last");
    assert_eq!(
        run.status(),
        Status::Running,
        "a compensation is in progress"
    );
    ok(&mut run, "compensate:d");
    assert_eq!(run.status(), Status::Completed);
    assert_eq!(step_state(&run, "a1"), "compensated");
}

#[test]
fn late_loser_success_after_completion_is_compensated() {
    let saga = saga(RACE);
    let mut run = start_run(&saga, json!({}));
    for tag in ["b", "join", "c", "last"] {
        ok(&mut run, tag);
    }
    assert_eq!(run.status(), Status::Completed);
    ok(&mut run, "a1");
    assert_eq!(run.status(), Status::Compensating);
    ok(&mut run, "compensate:a1");
    assert_eq!(run.status(), Status::Completed);
    assert_eq!(
        run.labels()
            .iter()
            .filter(|label| *label == "Completed")
            .count(),
        1
    );
}

#[test]
fn race_tolerates_a_failure_and_compensates_its_branch() {
    let saga = saga(RACE);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a1");
    fail(&mut run, "a2");
    assert_eq!(run.status(), Status::Running);
    assert_eq!(run.compensated(), ["compensate:a1"]);
    ok(&mut run, "compensate:a1");
    for tag in ["b", "c", "join", "last"] {
        ok(&mut run, tag);
    }
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn saga_compensates_when_the_last_candidate_fails() {
    let saga = saga(RACE);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "c");
    ok(&mut run, "a1");
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Running);
    fail(&mut run, "a2");
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec!["compensate:a1".to_owned()])
    );
    ok(&mut run, "compensate:a1");
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.state_view()["failure"]["step"], "a2");
}

#[test]
fn failure_outside_the_race_compensates_the_saga() {
    let saga = saga(RACE);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a1");
    ok(&mut run, "b");
    ok(&mut run, "compensate:a1");
    fail(&mut run, "c");
    assert_eq!(
        run.compensated(),
        ["compensate:a1", "compensate:b"],
        "a compensated step is not compensated again"
    );
    ok(&mut run, "compensate:b");
    assert_eq!(run.status(), Status::Failed);
}

pub(super) const QUORUM: &str = "vars: { n: =event.n }
steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, after: [], when: vars.n > 2, do: { effect: e.c }, undo: { effect: u.c } }
  - { id: quorum, after: { count: 2, of: [a, b, c] }, do: { effect: e.q } }
";

#[test]
fn quorum_starts_at_the_second_and_abandons_the_third() {
    let saga = saga(QUORUM);
    let mut run = start_run(&saga, json!({ "n": 3 }));
    ok(&mut run, "c");
    assert_eq!(step_state(&run, "quorum"), "pending");
    ok(&mut run, "a");
    assert_eq!(
        (
            step_state(&run, "quorum").as_str(),
            step_state(&run, "b").as_str()
        ),
        ("running", "abandoned")
    );
    assert!(run.compensated().is_empty());
    fail(&mut run, "quorum");
    ok(&mut run, "compensate:a");
    ok(&mut run, "compensate:c");
    assert_eq!(run.compensated(), ["compensate:a", "compensate:c"]);
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn quorum_ignores_skipped_steps() {
    let saga = saga(QUORUM);
    let mut run = start_run(&saga, json!({ "n": 1 }));
    assert_eq!(step_state(&run, "c"), "skipped");
    ok(&mut run, "a");
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "quorum"), "running");
    let mut run = start_run(&saga, json!({ "n": 1 }));
    fail(&mut run, "a");
    assert_eq!(
        run.status(),
        Status::Failed,
        "two of two are required, one failed"
    );
}

#[test]
fn unsatisfiable_quorum_fails() {
    let saga = saga(
        "vars: { n: =event.n }
steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: c0, after: [], do: { effect: e.c0 } }
  - { id: c, when: vars.n > 2, do: { effect: e.c } }
  - { id: quorum, after: { count: 2, of: [a, b, c] }, do: { effect: e.q } }
",
    );
    let mut run = start_run(&saga, json!({ "n": 1 }));
    ok(&mut run, "a");
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Running, "c can still complete");
    let note = ok(&mut run, "c0");
    assert_eq!(note, "c0: ok, c: skipped, quorum: join_failed");
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec!["compensate:a".to_owned()])
    );
}

#[test]
fn inner_race_tolerates_a_failure_first() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: inner, after: { any: [a, b] }, do: { effect: e.i }, undo: { effect: u.i } }
  - { id: c, after: [], do: { effect: e.c }, undo: { effect: u.c } }
  - { id: outer, after: { any: [inner, c] }, do: { effect: e.o } }
",
    );
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "a");
    assert_eq!(step_state(&run, "b"), "running");
    fail(&mut run, "b");
    assert_eq!(
        (step_state(&run, "inner").as_str(), run.status()),
        ("bypassed", Status::Running)
    );
    ok(&mut run, "c");
    ok(&mut run, "outer");
    assert_eq!(run.status(), Status::Completed);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "inner");
    assert_eq!(
        (
            step_state(&run, "c").as_str(),
            step_state(&run, "b").as_str()
        ),
        ("abandoned", "abandoned")
    );
}

#[test]
fn step_with_other_dependents_is_not_discarded() {
    let saga = saga(
        "steps:
  - { id: shared, after: [], do: { effect: e.s }, undo: { effect: u.s } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: join, after: { any: [shared, b] }, do: { effect: e.j } }
  - { id: other, after: [shared], do: { effect: e.o } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "shared"), "running");
    fail(&mut run, "shared");
    assert_eq!(
        run.status(),
        Status::Failed,
        "another step depends on it, so its failure counts"
    );
}

#[test]
fn loser_compensation_gets_the_cause() {
    let saga = saga(&RACE.replace(
        "undo: { effect: u.a1 }",
        "undo: { effect: u.a1, data: =failure.code }",
    ));
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a1");
    ok(&mut run, "b");
    let Some(orlog_model::Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(compensation.payload, json!("race_lost"));
}

#[test]
fn invalid_joins_are_rejected() {
    assert_eq!(
        diagnostics(
            "steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, after: { count: 2, of: [a] }, do: { effect: e } }"
        ),
        "steps[1].after: 2 of 1 steps can never complete"
    );
    assert!(diagnostics("steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, after: { count: 0, of: [a] }, do: { effect: e } }").contains("steps[1].after"));
}
