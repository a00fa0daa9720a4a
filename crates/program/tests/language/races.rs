//! Joins that do not need all: who wins, who has lost, and what a failure costs.

use orlog_model::Status;
use serde_json::json;

use super::{begun, fail, ok, saga, since, stands, wrong};

pub(super) const RACE: &str = "steps:
  - { id: a1, after: [], do: { effect: e.a1 }, undo: { effect: u.a1 } }
  - { id: a2, do: { effect: e.a2 }, undo: { effect: u.a2 }, timeout: 1h }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, after: [], do: { effect: e.c } }
  - { id: join, after: { any: [a2, b] }, do: { effect: e.join } }
  - { id: last, after: [join, c], do: { effect: e.last } }
";

#[test]
fn the_first_of_several_wins_and_what_the_others_did_is_undone_newest_first_while_it_goes_on() {
    let saga = saga(&RACE.replace("[a2, b]", "[a2, b, d]").replace(
        "  - { id: c,",
        "  - { id: d, after: [a1], do: { effect: e.d }, undo: { effect: u.d } }\n  - { id: c,",
    ));
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a1");
    assert_eq!(life.timers(), ["a2"]);
    let asked = life.work().len();
    ok(&mut life, "b");
    assert_eq!(since(&life, asked), ["join", "undo:a1"]);
    assert_eq!(life.status(), Status::Running);
    assert!(life.timers().is_empty(), "the loser's timer is cancelled");
    assert_eq!((stands(&life, "a2").as_str(), stands(&life, "d").as_str()), ("given_up", "given_up"));
    ok(&mut life, "join");
    ok(&mut life, "d");
    ok(&mut life, "undo:a1");
    assert_eq!(life.undone(), ["undo:a1", "undo:d"], "a late success of a loser is undone in its turn");
    ok(&mut life, "c");
    ok(&mut life, "last");
    assert_eq!(life.status(), Status::Running, "an undo is still under way");
    ok(&mut life, "undo:d");
    assert_eq!(life.status(), Status::Completed);
    assert_eq!(stands(&life, "a1"), "undone");
}

#[test]
fn a_late_success_of_a_loser_after_completion_is_undone_and_the_saga_stays_completed() {
    let saga = saga(RACE);
    let mut life = begun(&saga, json!({}));
    for tag in ["b", "join", "c", "last"] {
        ok(&mut life, tag);
    }
    assert_eq!(life.status(), Status::Completed);
    ok(&mut life, "a1");
    assert_eq!(life.status(), Status::Compensating);
    ok(&mut life, "undo:a1");
    assert_eq!(life.status(), Status::Completed);
    assert_eq!(life.labels().iter().filter(|label| *label == "Completed").count(), 1);
}

#[test]
fn a_failure_is_tolerated_while_another_can_win_and_costs_what_led_there() {
    let saga = saga(RACE);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a1");
    fail(&mut life, "a2");
    assert_eq!(life.status(), Status::Running);
    assert_eq!(life.undone(), ["undo:a1"]);
    ok(&mut life, "undo:a1");
    for tag in ["b", "c", "join", "last"] {
        ok(&mut life, tag);
    }
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn when_the_last_that_could_win_fails_the_saga_turns_back() {
    let saga = saga(RACE);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "c");
    ok(&mut life, "a1");
    fail(&mut life, "b");
    assert_eq!(life.status(), Status::Running);
    fail(&mut life, "a2");
    assert_eq!((life.status(), life.undone()), (Status::Compensating, vec!["undo:a1".to_owned()]));
    ok(&mut life, "undo:a1");
    assert_eq!(life.status(), Status::Failed);
    assert_eq!(life.shown()["failure"]["step"], "a2");
}

#[test]
fn a_failure_outside_the_race_turns_everything_back() {
    let saga = saga(RACE);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a1");
    ok(&mut life, "b");
    ok(&mut life, "undo:a1");
    fail(&mut life, "c");
    assert_eq!(life.undone(), ["undo:a1", "undo:b"], "what was undone is not undone again");
    ok(&mut life, "undo:b");
    assert_eq!(life.status(), Status::Failed);
}

pub(super) const QUORUM: &str = "vars: { n: =event.n }
steps:
  - { id: a, after: [], do: { effect: e.a }, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: c, after: [], when: vars.n > 2, do: { effect: e.c }, undo: { effect: u.c } }
  - { id: quorum, after: { count: 2, of: [a, b, c] }, do: { effect: e.q } }
";

#[test]
fn a_quorum_of_two_begins_with_the_second_and_gives_the_third_up() {
    let saga = saga(QUORUM);
    let mut life = begun(&saga, json!({ "n": 3 }));
    ok(&mut life, "c");
    assert_eq!(stands(&life, "quorum"), "pending");
    ok(&mut life, "a");
    assert_eq!((stands(&life, "quorum").as_str(), stands(&life, "b").as_str()), ("running", "given_up"));
    assert!(life.undone().is_empty());
    fail(&mut life, "quorum");
    ok(&mut life, "undo:a");
    ok(&mut life, "undo:c");
    assert_eq!(life.undone(), ["undo:a", "undo:c"]);
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn a_quorum_counts_at_most_those_that_are_not_skipped() {
    let saga = saga(QUORUM);
    let mut life = begun(&saga, json!({ "n": 1 }));
    assert_eq!(stands(&life, "c"), "skipped");
    ok(&mut life, "a");
    ok(&mut life, "b");
    assert_eq!(stands(&life, "quorum"), "running");
    let mut life = begun(&saga, json!({ "n": 1 }));
    fail(&mut life, "a");
    assert_eq!(life.status(), Status::Failed, "two of two are needed, one failed");
}

#[test]
fn a_quorum_that_becomes_impossible_later_fails_by_itself() {
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
    let mut life = begun(&saga, json!({ "n": 1 }));
    ok(&mut life, "a");
    fail(&mut life, "b");
    assert_eq!(life.status(), Status::Running, "c may still be done");
    let note = ok(&mut life, "c0");
    assert_eq!(note, "c0: ok, c: skipped, quorum: join_failed");
    assert_eq!((life.status(), life.undone()), (Status::Compensating, vec!["undo:a".to_owned()]));
}

#[test]
fn a_race_within_a_race_is_tolerated_by_the_inner_one_first() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: inner, after: { any: [a, b] }, do: { effect: e.i }, undo: { effect: u.i } }
  - { id: c, after: [], do: { effect: e.c }, undo: { effect: u.c } }
  - { id: outer, after: { any: [inner, c] }, do: { effect: e.o } }
",
    );
    let mut life = begun(&saga, json!({}));
    fail(&mut life, "a");
    assert_eq!(stands(&life, "b"), "running");
    fail(&mut life, "b");
    assert_eq!((stands(&life, "inner").as_str(), life.status()), ("bypassed", Status::Running));
    ok(&mut life, "c");
    ok(&mut life, "outer");
    assert_eq!(life.status(), Status::Completed);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    ok(&mut life, "inner");
    assert_eq!((stands(&life, "c").as_str(), stands(&life, "b").as_str()), ("given_up", "given_up"));
}

#[test]
fn a_step_that_leads_elsewhere_too_is_not_lost_with_the_race() {
    let saga = saga(
        "steps:
  - { id: shared, after: [], do: { effect: e.s }, undo: { effect: u.s } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: join, after: { any: [shared, b] }, do: { effect: e.j } }
  - { id: other, after: [shared], do: { effect: e.o } }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "b");
    assert_eq!(stands(&life, "shared"), "running");
    fail(&mut life, "shared");
    assert_eq!(life.status(), Status::Failed, "the other way needs it, so its failure counts");
}

#[test]
fn the_undo_of_a_loser_knows_why() {
    let saga = saga(&RACE.replace("undo: { effect: u.a1 }", "undo: { effect: u.a1, data: =failure.code }"));
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a1");
    ok(&mut life, "b");
    let Some(orlog_model::Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!(undo.payload, json!("lost"));
}

#[test]
fn joins_that_cannot_be_are_refused() {
    assert_eq!(
        wrong(
            "steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, after: { count: 2, of: [a] }, do: { effect: e } }"
        ),
        "steps[1].after: 2 of 1 steps can never be done"
    );
    assert!(wrong("steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, after: { count: 0, of: [a] }, do: { effect: e } }").contains("steps[1].after"));
}
