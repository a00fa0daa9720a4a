//! Steps in doubt: the outcome of an effect is unknown, and an operator decides.

use std::time::Duration;

use orlog_model::{InDoubtPolicy, Status, WaitKind, Work, WorkOutcome};
use orlog_program::in_doubt::{EXECUTED, NOT_EXECUTED};
use orlog_testkit::definition_suite::{InstanceDriver, in_doubt, resolve_in_doubt};
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

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
    foreach: { in: =vars.items, as: item, max_concurrency: 2 }
    do: { effect: e.pay, data: =item }
    in_doubt: ask
    undo: { effect: u.pay, data: =item }
  - { id: end, do: { effect: e.end } }
";

fn in_doubt_run(saga: &orlog_program::CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = start_run(saga, json!({ "total": 7 }));
    ok(&mut run, "book");
    let note = run.outcome("pay", &in_doubt()).unwrap();
    assert_eq!(note, "pay: in doubt");
    run
}

#[track_caller]
fn resolve(run: &mut InstanceDriver<'_>, tag: &str, choice: &str, data: Value) -> String {
    resolve_in_doubt(run, tag, choice, data).unwrap_or_else(|reason| panic!("{tag}: {reason}"))
}

#[test]
fn in_doubt_task_suspends_the_step_timeout() {
    let saga = saga(PAY);
    let mut run = in_doubt_run(&saga);
    assert_eq!(
        (run.status(), step_state(&run, "pay").as_str()),
        (Status::Running, "in_doubt")
    );
    assert_eq!(run.waits(), [(WaitKind::Task, "pay".to_owned())]);
    assert!(run.timers().is_empty(), "{:?}", run.timers());
    assert_eq!(run.failure(), None);
    let [task] = run.tasks() else {
        panic!("one task: {:?}", run.tasks())
    };
    assert_eq!(
        (task.tag.as_str(), task.title.as_str()),
        ("pay", "Was e.pay done? (step pay)")
    );
    assert_eq!(
        task.outcomes
            .iter()
            .map(orlog_model::EventType::as_str)
            .collect::<Vec<_>>(),
        [EXECUTED, NOT_EXECUTED]
    );
    let WorkOutcome::TimedOut { failure } = in_doubt() else {
        panic!("an unknown outcome")
    };
    let failure = json!({ "code": "in_doubt", "message": failure.message });
    assert_eq!(
        task.data,
        json!({ "effect": "e.pay", "payload": { "amount": 7 }, "failure": failure })
    );
    assert_eq!(
        run.outcome("pay", &in_doubt()).unwrap_err(),
        "an operator decision is already pending"
    );
    let choice = Some("Perhaps".parse().unwrap());
    run.outcome("pay", &WorkOutcome::succeeded(choice, Value::Null))
        .unwrap_err();
}

#[test]
fn confirmed_in_doubt_effect_counts_as_success() {
    let saga = saga(PAY);
    let mut run = in_doubt_run(&saga);
    let from = run.work().len();
    assert_eq!(
        resolve(&mut run, "pay", EXECUTED, json!({ "receipt": "r1" })),
        "pay: ok"
    );
    assert_eq!(
        (since(&run, from), &run.state_view()["vars"]["receipt"]),
        (vec!["end"], &json!("r1"))
    );
    assert!(run.tasks().is_empty());
    resolve_in_doubt(&mut run, "pay", NOT_EXECUTED, Value::Null).unwrap_err();
    fail(&mut run, "end");
    let Some(Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(
        (compensation.name.as_str(), &compensation.payload),
        ("u.pay", &json!("r1"))
    );
}

#[test]
fn unconfirmed_in_doubt_effect_is_requested_again_with_full_timeout() {
    let saga = saga(PAY);
    let mut run = in_doubt_run(&saga);
    let from = run.work().len();
    assert_eq!(
        resolve(&mut run, "pay", NOT_EXECUTED, Value::Null),
        "pay: not executed, requested again"
    );
    assert_eq!(
        (since(&run, from), run.timers()),
        (vec!["pay"], vec!["pay"])
    );
    assert_eq!(
        (
            step_state(&run, "pay").as_str(),
            &run.state_view()["steps"][1]["attempts"]
        ),
        ("running", &json!(2))
    );
    run.outcome("pay", &in_doubt()).unwrap();
    resolve(&mut run, "pay", NOT_EXECUTED, Value::Null);
    run.outcome(
        "pay",
        &orlog_testkit::definition_suite::succeeded(json!({ "receipt": "r" })),
    )
    .unwrap();
    ok(&mut run, "end");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn in_doubt_resolution_must_be_a_valid_result() {
    let named = saga(
        "steps:\n  - { id: pay, do: { effect: e.pay }, in_doubt: ask, ok: { event: Paid, when: event.cents > 0 }, fail: { event: Rejected, when: event.cents == 0 }, undo: { effect: u.pay } }\n",
    );
    let mut run = start_run(&named, json!({}));
    run.outcome("pay", &in_doubt()).unwrap();
    let rejection = "the data does not match the expected result of the step";
    assert_eq!(
        resolve_in_doubt(&mut run, "pay", EXECUTED, json!({})).unwrap_err(),
        rejection
    );
    assert_eq!(
        resolve_in_doubt(&mut run, "pay", EXECUTED, json!({ "cents": -1 })).unwrap_err(),
        rejection
    );
    assert_eq!(step_state(&run, "pay"), "in_doubt");
    resolve(&mut run, "pay", EXECUTED, json!({ "cents": 5 }));
    assert_eq!(
        (run.status(), &run.labels()[1..]),
        (
            Status::Completed,
            &["Paid", "Completed"].map(str::to_owned)[..]
        )
    );

    let mut run = start_run(&named, json!({}));
    run.outcome("pay", &in_doubt()).unwrap();
    resolve(&mut run, "pay", EXECUTED, json!({ "cents": 0 }));
    assert_eq!(
        (run.status(), run.failure().unwrap().code.as_str()),
        (Status::Failed, "Rejected")
    );
}

#[test]
fn compensating_saga_waits_for_the_in_doubt_task() {
    let saga = saga(PAY);
    for (choice, expected) in [(EXECUTED, vec!["compensate:pay"]), (NOT_EXECUTED, vec![])] {
        let mut run = in_doubt_run(&saga);
        run.cancel("x").unwrap();
        ok(&mut run, "compensate:book");
        assert_eq!(
            (run.status(), step_state(&run, "pay").as_str()),
            (Status::Compensating, "in_doubt_abandoned")
        );
        assert_eq!(run.waits(), [(WaitKind::Task, "pay".to_owned())]);
        assert_eq!(run.tasks().len(), 1);
        let from = run.work().len();
        resolve(&mut run, "pay", choice, json!({ "receipt": "r" }));
        assert_eq!(since(&run, from), expected, "{choice}");
        for compensation in expected {
            ok(&mut run, compensation);
        }
        assert_eq!(run.status(), Status::Cancelled, "{choice}");
        assert!(run.tasks().is_empty());
    }
}

#[test]
fn late_in_doubt_result_opens_a_task() {
    let saga = saga(PAY);
    let mut run = start_run(&saga, json!({ "total": 7 }));
    ok(&mut run, "book");
    run.advance(Duration::from_hours(1)).unwrap();
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Failed);
    run.outcome("pay", &in_doubt()).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "pay").as_str()),
        (Status::Compensating, "in_doubt_abandoned")
    );
    resolve(&mut run, "pay", EXECUTED, json!({ "receipt": "r" }));
    ok(&mut run, "compensate:pay");
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(
        run.labels()
            .iter()
            .filter(|label| *label == "Failed")
            .count(),
        1,
        "the fact is emitted once"
    );
}

#[test]
fn join_continues_and_saga_waits_for_the_in_doubt_task() {
    let race = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, in_doubt: ask, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b } }
  - { id: end, after: { any: [a, b] }, do: { effect: e.end } }
",
    );
    for (choice, compensates) in [(EXECUTED, true), (NOT_EXECUTED, false)] {
        let mut run = start_run(&race, json!({}));
        run.outcome("a", &in_doubt()).unwrap();
        ok(&mut run, "b");
        ok(&mut run, "end");
        assert_eq!(
            (run.status(), step_state(&run, "a").as_str()),
            (Status::Running, "in_doubt_abandoned")
        );
        resolve(&mut run, "a", choice, json!({}));
        if compensates {
            ok(&mut run, "compensate:a");
        }
        assert_eq!(
            (run.status(), run.compensated().len()),
            (Status::Completed, usize::from(compensates)),
            "{choice}"
        );
    }
}

#[test]
fn in_doubt_elements_open_one_task_each() {
    let saga = saga(EACH);
    let mut run = start_run(&saga, json!({ "items": [1, 2, 3] }));
    run.outcome("pay[0]", &in_doubt()).unwrap();
    ok(&mut run, "pay[1]");
    assert_eq!(
        (step_state(&run, "pay").as_str(), run.requested().len()),
        ("in_doubt", 3),
        "two run concurrently; one is in doubt"
    );
    assert_eq!(run.tasks()[0].data["payload"], json!(1));
    run.outcome("pay[2]", &in_doubt()).unwrap();
    resolve(&mut run, "pay[0]", NOT_EXECUTED, Value::Null);
    fail(&mut run, "pay[0]");
    ok(&mut run, "compensate:pay[1]");
    assert_eq!(
        (run.status(), step_state(&run, "pay").as_str()),
        (Status::Compensating, "in_doubt_abandoned")
    );
    resolve(&mut run, "pay[2]", EXECUTED, json!({}));
    ok(&mut run, "compensate:pay[2]");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn force_complete_closes_in_doubt_tasks() {
    let saga = saga(
        "steps:
  - { id: confirm, pivot: true, do: { effect: e.confirm } }
  - { id: a, after: [confirm], do: { effect: e.a } }
  - { id: b, after: [confirm], do: { effect: e.b }, in_doubt: ask }
",
    );
    let stuck = || {
        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "confirm");
        run.outcome("b", &in_doubt()).unwrap();
        fail(&mut run, "a");
        assert_eq!((run.status(), run.tasks().len()), (Status::Stuck, 1));
        assert!(run.waits().contains(&(WaitKind::Task, "b".to_owned())));
        run
    };
    let mut run = stuck();
    let from = run.work().len();
    resolve(&mut run, "b", NOT_EXECUTED, Value::Null);
    assert_eq!((since(&run, from), run.status()), (vec![], Status::Stuck));
    run.retry().unwrap();
    assert_eq!(since(&run, from), ["a", "b"]);

    let mut run = stuck();
    run.force_complete().unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "b").as_str()),
        (Status::Completed, "abandoned")
    );
    assert!(run.tasks().is_empty() && run.waits().is_empty());
}

#[test]
fn in_doubt_without_ask_is_a_timeout() {
    for choice in ["", ", in_doubt: fail", ", in_doubt: retry"] {
        let saga = saga(&format!(
            "steps:\n  - {{ id: pay, do: {{ effect: e.pay }}{choice} }}\n"
        ));
        let mut run = start_run(&saga, json!({}));
        run.outcome("pay", &in_doubt()).unwrap();
        assert_eq!(
            (run.status(), run.failure().unwrap().code.as_str()),
            (Status::Failed, "in_doubt"),
            "{choice}"
        );
    }
    let saga = saga("steps:\n  - { id: pay, do: { effect: e.pay }, in_doubt: ask }\n");
    let mut run = start_run(&saga, json!({}));
    let failure = orlog_model::Failure {
        code: "timeout".to_owned(),
        message: "late".to_owned(),
    };
    run.outcome("pay", &WorkOutcome::TimedOut { failure })
        .unwrap();
    assert_eq!(
        run.status(),
        Status::Failed,
        "another failure code is not in doubt"
    );
}

#[test]
fn in_doubt_compensation_is_stuck() {
    let saga = saga(PAY);
    let mut run = in_doubt_run(&saga);
    resolve(&mut run, "pay", EXECUTED, json!({ "receipt": "r" }));
    fail(&mut run, "end");
    let Some(Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(compensation.in_doubt, Some(InDoubtPolicy::Ask));
    run.outcome("compensate:pay", &in_doubt()).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "pay").as_str()),
        (Status::Stuck, "compensation_failed")
    );
    run.skip().unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "book").as_str()),
        (Status::Compensating, "compensating")
    );
}

#[test]
fn in_doubt_policy_is_passed_to_providers_only() {
    let built = saga(
        "steps:
  - { id: pay, do: { effect: e.pay }, in_doubt: ask }
  - { id: job, do: { job: { type: py, script: x } }, in_doubt: retry }
",
    );
    let run = start_run(&built, json!({}));
    let Some(Work::Effect(effect)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(effect.in_doubt, Some(InDoubtPolicy::Ask));
    assert_eq!(
        built.definition().steps[1].in_doubt,
        Some(InDoubtPolicy::Retry)
    );

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
        diagnostics(kinds).lines().collect::<Vec<_>>(),
        [
            "steps[0].in_doubt: a command is never in doubt, so it has no `in_doubt`",
            "steps[1].in_doubt: a wait is never in doubt, so it has no `in_doubt`",
            "steps[2].in_doubt: a human task is never in doubt, so it has no `in_doubt`",
            "steps[2].undo.in_doubt: a command is never in doubt, so it has no `in_doubt`",
            "steps[3].in_doubt: a saga is never in doubt, so it has no `in_doubt`",
            "steps[4].in_doubt: an awaited event is never in doubt, so it has no `in_doubt`",
            "steps[5].in_doubt: invalid value `asks`",
            "steps[6].in_doubt: a switch is never in doubt, so it has no `in_doubt`",
        ]
    );
}

#[test]
fn in_doubt_instance_migrates_to_a_version_with_in_doubt_ask() {
    let version = |number: u32, choice: &str, more: &str| {
        let text = format!(
            "saga: t\nversion: {number}\nstart: Go\nsteps:\n  - {{ id: {choice} }}\n  - {{ id: end, do: {{ effect: e.end }} }}\n{more}"
        );
        orlog_program::compile_yaml(&text, "t").expect("the definition is valid")
    };
    let old = version(1, "pay, do: { effect: e.pay }, in_doubt: ask", "");
    let run_in_doubt = || {
        let mut run = start_run(&old, json!({}));
        run.outcome("pay", &in_doubt()).unwrap();
        run
    };
    let without_policy = version(2, "pay, do: { effect: e.pay }", "");
    let mut run = run_in_doubt();
    assert_eq!(
        run.migrate(&without_policy).unwrap_err(),
        ["`pay` is in doubt and waits for a decision, and `pay` has no in-doubt decision"]
    );
    run.cancel("x").unwrap();
    assert_eq!(
        run.migrate(&without_policy).unwrap_err().len(),
        1,
        "also if the result is late"
    );

    let same = version(2, "pay, do: { effect: e.pay2 }, in_doubt: ask", "");
    let mut run = run_in_doubt();
    assert!(!run.migrate(&same).unwrap().is_mapped);
    assert_eq!(
        (step_state(&run, "pay").as_str(), run.waits()),
        ("in_doubt", vec![(WaitKind::Task, "pay".to_owned())])
    );

    let renamed = version(
        2,
        "charge, do: { effect: e.pay }, in_doubt: ask",
        "migrations: [{ from: 1, steps: { pay: charge } }]\n",
    );
    let mut run = run_in_doubt();
    assert!(run.migrate(&renamed).unwrap().is_mapped);
    assert_eq!(run.tasks()[0].tag.as_str(), "charge");
    resolve(&mut run, "charge", EXECUTED, Value::Null);
    assert_eq!(step_state(&run, "end"), "running");
}
