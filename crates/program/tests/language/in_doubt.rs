//! In doubt: nobody knows whether an effect was done, and a person is asked.

use std::time::Duration;

use orlog_model::{InDoubt, Status, Verdict, WaitKind, Work};
use orlog_program::doubt::{DONE, NOT_DONE};
use orlog_program::{Definition, Do};
use orlog_testkit::definition_suite::{Life, answer_doubt, in_doubt};
use serde_json::{Value, json};

use super::{begun, fail, ok, saga, since, stands, wrong};

pub(super) const PAY: &str = "vars: { total: =event.total }
steps:
  - { id: book, do: { effect: e.book }, undo: { effect: u.book } }
  - id: pay
    do: { effect: e.pay, data: { amount: =vars.total } }
    in_doubt: ask
    timeout: 1h
    save: { receipt: =event.receipt }
    undo: { effect: u.pay, data: =vars.receipt, in_doubt: ask }
  - { id: end, do: { effect: e.end } }
";

pub(super) const EACH: &str = "vars: { items: =event.items }
steps:
  - id: pay
    foreach: { in: =vars.items, as: item, limit: 2 }
    do: { effect: e.pay, data: =item }
    in_doubt: ask
    undo: { effect: u.pay, data: =item }
  - { id: end, do: { effect: e.end } }
";

fn doubted(saga: &orlog_program::Compiled) -> Life<'_> {
    let mut life = begun(saga, json!({ "total": 7 }));
    ok(&mut life, "book");
    let note = life.outcome("pay", &in_doubt()).unwrap();
    assert_eq!(note, "pay: in doubt");
    life
}

#[track_caller]
fn says(life: &mut Life<'_>, tag: &str, word: &str, data: Value) -> String {
    answer_doubt(life, tag, word, data).unwrap_or_else(|why| panic!("{tag}: {why}"))
}

#[test]
fn a_person_is_asked_and_no_time_runs_out_meanwhile() {
    let saga = saga(PAY);
    let mut life = doubted(&saga);
    assert_eq!((life.status(), stands(&life, "pay").as_str()), (Status::Running, "asking"));
    assert_eq!(life.waits(), [(WaitKind::Task, "pay".to_owned())]);
    assert!(life.timers().is_empty(), "{:?}", life.timers());
    assert_eq!(life.failure(), None);
    let [task] = life.tasks() else { panic!("one task: {:?}", life.tasks()) };
    assert_eq!((task.tag.as_str(), task.title.as_str()), ("pay", "Was e.pay done? (step pay)"));
    assert_eq!(
        task.outcomes.iter().map(orlog_model::EventType::as_str).collect::<Vec<_>>(),
        [DONE, NOT_DONE]
    );
    let failure = json!({ "code": "in_doubt", "message": "nobody knows whether it was done" });
    assert_eq!(task.data, json!({ "effect": "e.pay", "payload": { "amount": 7 }, "failure": failure }));
    assert_eq!(life.outcome("pay", &in_doubt()).unwrap_err(), "a person is asked already");
    let word = Some("Perhaps".parse().unwrap());
    life.outcome("pay", &Verdict::Succeeded { event: word, payload: Value::Null }).unwrap_err();
}

#[test]
fn what_was_done_counts_as_if_the_effect_had_said_so() {
    let saga = saga(PAY);
    let mut life = doubted(&saga);
    let from = life.work().len();
    assert_eq!(says(&mut life, "pay", DONE, json!({ "receipt": "r1" })), "pay: ok");
    assert_eq!((since(&life, from), &life.shown()["vars"]["receipt"]), (vec!["end"], &json!("r1")));
    assert!(life.tasks().is_empty());
    answer_doubt(&mut life, "pay", NOT_DONE, Value::Null).unwrap_err();
    fail(&mut life, "end");
    let Some(Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!((undo.name.as_str(), &undo.payload), ("u.pay", &json!("r1")));
}

#[test]
fn what_was_not_done_is_asked_for_anew_with_its_time() {
    let saga = saga(PAY);
    let mut life = doubted(&saga);
    let from = life.work().len();
    assert_eq!(says(&mut life, "pay", NOT_DONE, Value::Null), "pay: not done, again");
    assert_eq!((since(&life, from), life.timers()), (vec!["pay"], vec!["pay"]));
    assert_eq!(
        (stands(&life, "pay").as_str(), &life.shown()["steps"][1]["attempts"]),
        ("running", &json!(2))
    );
    life.outcome("pay", &in_doubt()).unwrap();
    says(&mut life, "pay", NOT_DONE, Value::Null);
    life.outcome("pay", &orlog_testkit::definition_suite::succeeded(json!({ "receipt": "r" }))).unwrap();
    ok(&mut life, "end");
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn the_answer_must_be_one_that_the_effect_could_have_given() {
    let named = saga(
        "steps:\n  - { id: pay, do: { effect: e.pay }, in_doubt: ask, ok: { event: Paid, when: event.cents > 0 }, fail: { event: Refused, when: event.cents == 0 }, undo: { effect: u.pay } }\n",
    );
    let mut life = begun(&named, json!({}));
    life.outcome("pay", &in_doubt()).unwrap();
    let refused = "the data is not what the step takes as its answer";
    assert_eq!(answer_doubt(&mut life, "pay", DONE, json!({})).unwrap_err(), refused);
    assert_eq!(answer_doubt(&mut life, "pay", DONE, json!({ "cents": -1 })).unwrap_err(), refused);
    assert_eq!(stands(&life, "pay"), "asking");
    says(&mut life, "pay", DONE, json!({ "cents": 5 }));
    assert_eq!(
        (life.status(), &life.labels()[1..]),
        (Status::Completed, &["Paid", "Completed"].map(str::to_owned)[..])
    );

    let mut life = begun(&named, json!({}));
    life.outcome("pay", &in_doubt()).unwrap();
    says(&mut life, "pay", DONE, json!({ "cents": 0 }));
    assert_eq!((life.status(), life.failure().unwrap().code.as_str()), (Status::Failed, "Refused"));
}

#[test]
fn a_saga_that_turned_back_does_not_end_before_the_answer() {
    let saga = saga(PAY);
    for (word, ends) in [(DONE, vec!["undo:pay"]), (NOT_DONE, vec![])] {
        let mut life = doubted(&saga);
        life.cancel("x").unwrap();
        ok(&mut life, "undo:book");
        assert_eq!((life.status(), stands(&life, "pay").as_str()), (Status::Compensating, "asking_late"));
        assert_eq!(life.waits(), [(WaitKind::Task, "pay".to_owned())]);
        assert_eq!(life.tasks().len(), 1);
        let from = life.work().len();
        says(&mut life, "pay", word, json!({ "receipt": "r" }));
        assert_eq!(since(&life, from), ends, "{word}");
        for undo in ends {
            ok(&mut life, undo);
        }
        assert_eq!(life.status(), Status::Cancelled, "{word}");
        assert!(life.tasks().is_empty());
    }
}

#[test]
fn a_doubt_that_comes_after_its_step_was_given_up_is_asked_about_too() {
    let saga = saga(PAY);
    let mut life = begun(&saga, json!({ "total": 7 }));
    ok(&mut life, "book");
    life.advance(Duration::from_hours(1)).unwrap();
    ok(&mut life, "undo:book");
    assert_eq!(life.status(), Status::Failed);
    life.outcome("pay", &in_doubt()).unwrap();
    assert_eq!((life.status(), stands(&life, "pay").as_str()), (Status::Compensating, "asking_late"));
    says(&mut life, "pay", DONE, json!({ "receipt": "r" }));
    ok(&mut life, "undo:pay");
    assert_eq!(life.status(), Status::Failed);
    assert_eq!(life.labels().iter().filter(|label| *label == "Failed").count(), 1, "it is told once");
}

#[test]
fn a_join_that_can_do_without_it_goes_on_and_the_saga_waits_for_the_answer() {
    let race = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, in_doubt: ask, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: end, after: { any: [a, b] }, do: { effect: e.end } }
",
    );
    for (word, undoes) in [(DONE, true), (NOT_DONE, false)] {
        let mut life = begun(&race, json!({}));
        life.outcome("a", &in_doubt()).unwrap();
        ok(&mut life, "b");
        ok(&mut life, "end");
        assert_eq!((life.status(), stands(&life, "a").as_str()), (Status::Running, "asking_late"));
        says(&mut life, "a", word, json!({}));
        if undoes {
            ok(&mut life, "undo:a");
        }
        assert_eq!((life.status(), life.undone().len()), (Status::Completed, usize::from(undoes)), "{word}");
    }
}

#[test]
fn elements_are_asked_about_one_by_one() {
    let saga = saga(EACH);
    let mut life = begun(&saga, json!({ "items": [1, 2, 3] }));
    life.outcome("pay[0]", &in_doubt()).unwrap();
    ok(&mut life, "pay[1]");
    assert_eq!(
        (stands(&life, "pay").as_str(), life.asked().len()),
        ("asking", 3),
        "two at once, one is in doubt"
    );
    assert_eq!(life.tasks()[0].data["payload"], json!(1));
    life.outcome("pay[2]", &in_doubt()).unwrap();
    says(&mut life, "pay[0]", NOT_DONE, Value::Null);
    fail(&mut life, "pay[0]");
    ok(&mut life, "undo:pay[1]");
    assert_eq!((life.status(), stands(&life, "pay").as_str()), (Status::Compensating, "asking_late"));
    says(&mut life, "pay[2]", DONE, json!({}));
    ok(&mut life, "undo:pay[2]");
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn while_it_is_stuck_what_was_not_done_waits_and_ending_by_force_closes_the_question() {
    let saga = saga(
        "steps:
  - { id: confirm, pivot: true, do: { effect: e.confirm } }
  - { id: a, after: [confirm], do: { effect: e.a } }
  - { id: b, after: [confirm], do: { effect: e.b }, in_doubt: ask }
",
    );
    let stuck = || {
        let mut life = begun(&saga, json!({}));
        ok(&mut life, "confirm");
        life.outcome("b", &in_doubt()).unwrap();
        fail(&mut life, "a");
        assert_eq!((life.status(), life.tasks().len()), (Status::Stuck, 1));
        assert!(life.waits().contains(&(WaitKind::Task, "b".to_owned())));
        life
    };
    let mut life = stuck();
    let from = life.work().len();
    says(&mut life, "b", NOT_DONE, Value::Null);
    assert_eq!((since(&life, from), life.status()), (vec![], Status::Stuck));
    life.retry().unwrap();
    assert_eq!(since(&life, from), ["a", "b"]);

    let mut life = stuck();
    life.force_complete().unwrap();
    assert_eq!((life.status(), stands(&life, "b").as_str()), (Status::Completed, "given_up"));
    assert!(life.tasks().is_empty() && life.waits().is_empty());
}

#[test]
fn without_the_word_a_doubt_is_a_time_that_ran_out() {
    for word in ["", ", in_doubt: fail", ", in_doubt: retry"] {
        let saga = saga(&format!("steps:\n  - {{ id: pay, do: {{ effect: e.pay }}{word} }}\n"));
        let mut life = begun(&saga, json!({}));
        life.outcome("pay", &in_doubt()).unwrap();
        assert_eq!(
            (life.status(), life.failure().unwrap().code.as_str()),
            (Status::Failed, "in_doubt"),
            "{word}"
        );
    }
    let saga = saga("steps:\n  - { id: pay, do: { effect: e.pay }, in_doubt: ask }\n");
    let mut life = begun(&saga, json!({}));
    let failure = orlog_model::Failure { code: "timeout".to_owned(), message: "late".to_owned() };
    life.outcome("pay", &Verdict::TimedOut { failure }).unwrap();
    assert_eq!(life.status(), Status::Failed, "another code is no doubt");
}

#[test]
fn an_undo_in_doubt_is_stuck_where_a_person_decides() {
    let saga = saga(PAY);
    let mut life = doubted(&saga);
    says(&mut life, "pay", DONE, json!({ "receipt": "r" }));
    fail(&mut life, "end");
    let Some(Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!(undo.in_doubt, Some(InDoubt::Ask));
    life.outcome("undo:pay", &in_doubt()).unwrap();
    assert_eq!((life.status(), stands(&life, "pay").as_str()), (Status::Stuck, "undo_failed"));
    life.skip().unwrap();
    assert_eq!((life.status(), stands(&life, "book").as_str()), (Status::Compensating, "undoing"));
}

#[test]
fn the_word_goes_with_the_work_and_only_where_a_provider_has_a_hand_in_it() {
    let built = Definition::builder("t")
        .start("Go")
        .step("pay", Do::effect("e.pay").in_doubt(InDoubt::Fail))
        .in_doubt(InDoubt::Ask)
        .step("job", Do::job("py", "x").in_doubt(InDoubt::Retry))
        .build()
        .unwrap();
    let life = begun(&built, json!({}));
    let Some(Work::Effect(effect)) = life.work().last() else { panic!("an effect") };
    assert_eq!(effect.in_doubt, Some(InDoubt::Ask));
    assert_eq!(built.definition().steps[1].in_doubt, Some(InDoubt::Retry));

    let kinds = "steps:
  - { id: a, do: { command: x.A }, in_doubt: ask }
  - { id: b, do: { wait: 1h }, in_doubt: fail }
  - { id: c, do: { human: { title: Do } }, in_doubt: ask, undo: { command: x.C, in_doubt: ask } }
  - { id: d, do: { saga: child }, in_doubt: ask }
  - { id: e, do: { event: E }, in_doubt: ask }
  - { id: f, do: { effect: e.f }, in_doubt: asks }
  - { id: g, do: { switch: [{ then: h }] }, in_doubt: retry }
  - { id: h, do: { effect: e.h } }
";
    assert_eq!(
        wrong(kinds).lines().collect::<Vec<_>>(),
        [
            "steps[0].in_doubt: a command is never in doubt, so it has no `in_doubt`",
            "steps[1].in_doubt: a wait is never in doubt, so it has no `in_doubt`",
            "steps[2].in_doubt: a person's task is never in doubt, so it has no `in_doubt`",
            "steps[2].undo.in_doubt: a command is never in doubt, so it has no `in_doubt`",
            "steps[3].in_doubt: a saga is never in doubt, so it has no `in_doubt`",
            "steps[4].in_doubt: an event that is waited for is never in doubt, so it has no `in_doubt`",
            "steps[5].in_doubt: `asks` is none of the words for this",
            "steps[6].in_doubt: a switch is never in doubt, so it has no `in_doubt`",
        ]
    );
}

#[test]
fn an_instance_that_asks_moves_to_a_version_that_asks() {
    let version = |number: u32, word: &str, more: &str| {
        let text = format!(
            "saga: t\nversion: {number}\nstart: Go\nsteps:\n  - {{ id: {word} }}\n  - {{ id: end, do: {{ effect: e.end }} }}\n{more}"
        );
        orlog_program::compile_yaml(&text, "t").expect("it is well formed")
    };
    let old = version(1, "pay, do: { effect: e.pay }, in_doubt: ask", "");
    let asking = || {
        let mut life = begun(&old, json!({}));
        life.outcome("pay", &in_doubt()).unwrap();
        life
    };
    let silent = version(2, "pay, do: { effect: e.pay }", "");
    let mut life = asking();
    assert_eq!(
        life.migrate(&silent).unwrap_err(),
        ["a person is asked whether `pay` was done, and `pay` asks nobody"]
    );
    life.cancel("x").unwrap();
    assert_eq!(life.migrate(&silent).unwrap_err().len(), 1, "late too");

    let same = version(2, "pay, do: { effect: e.pay2 }, in_doubt: ask", "");
    let mut life = asking();
    assert!(!life.migrate(&same).unwrap().mapped);
    assert_eq!(
        (stands(&life, "pay").as_str(), life.waits()),
        ("asking", vec![(WaitKind::Task, "pay".to_owned())])
    );

    let renamed = version(
        2,
        "charge, do: { effect: e.pay }, in_doubt: ask",
        "migrates: [{ from: 1, steps: { pay: charge } }]\n",
    );
    let mut life = asking();
    assert!(life.migrate(&renamed).unwrap().mapped);
    assert_eq!(life.tasks()[0].tag.as_str(), "charge");
    says(&mut life, "charge", DONE, Value::Null);
    assert_eq!(stands(&life, "end"), "running");
}
