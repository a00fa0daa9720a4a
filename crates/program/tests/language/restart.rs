//! Restarts: the end of a run and the begin of a new one in one transition.

use std::time::Duration;

use orlog_model::{Event, InstanceKey, Status, TenantId, Timestamp, Work, WorkOutcome};
use orlog_program::{Context, Program, ProgramInput, ProgramOutput};
use orlog_testkit::definition_suite::{InstanceDriver, succeeded};
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

const MONTHLY: &str = "timeout: 40d
vars: { month: =event.month, total: =event.total }
on: [{ event: Note, do: { effect: e.note } }]
steps:
  - { id: bill, do: { effect: e.bill, data: =vars.month }, save: { last: =event.last }, undo: { effect: u.bill } }
  - { id: paid, do: { event: Paid }, save: { amount: =event.amount } }
  - { id: route, do: { switch: [{ when: vars.last, then: close }, { then: next }] } }
  - { id: close, do: { effect: e.close } }
  - id: next
    after: [route]
    do: { restart_as_new: Go, data: { month: =vars.month + 1, total: =vars.total + vars.amount } }
";

fn month(run: &mut InstanceDriver<'_>, last: bool) -> String {
    run.outcome("bill", &succeeded(json!({ "last": last })))
        .unwrap();
    run.event("Paid", json!({ "amount": 10 })).unwrap()
}

#[test]
fn restart_begins_a_new_run_with_new_start_data_in_one_transition() {
    let saga = saga(MONTHLY);
    let mut run = start_run(&saga, json!({ "month": 1, "total": 0 }));
    run.advance(Duration::from_hours(24)).unwrap();
    let from = run.work().len();
    assert_eq!(
        month(&mut run, false),
        "paid: ok, route: to next, close: bypassed, next: run 2"
    );
    assert_eq!(since(&run, from), ["bill"]);
    let Some(Work::Effect(bill)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(bill.payload, 2);
    let view = run.state_view();
    assert_eq!(
        view["vars"],
        json!({ "month": 2, "total": 10, "last": null, "amount": null })
    );
    assert_eq!(
        (&view["run"], step_state(&run, "bill").as_str()),
        (&json!(2), "running")
    );
    assert_eq!(
        (run.timers(), run.status()),
        (vec!["saga"], Status::Running)
    );
    month(&mut run, true);
    ok(&mut run, "close");
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["total"]),
        (Status::Completed, &json!(10))
    );
}

#[test]
fn new_run_does_not_compensate_the_steps_of_the_old_one() {
    let saga = saga(MONTHLY);
    let mut run = start_run(&saga, json!({ "month": 1, "total": 0 }));
    month(&mut run, false);
    run.outcome("bill", &succeeded(json!({ "last": true })))
        .unwrap();
    run.event("Paid", json!({ "amount": 1 })).unwrap();
    fail(&mut run, "close");
    assert_eq!(run.compensated(), ["compensate:bill"]);
    ok(&mut run, "compensate:bill");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn early_events_pass_to_the_new_run() {
    let saga = saga(MONTHLY);
    let mut run = start_run(&saga, json!({ "month": 1, "total": 0 }));
    for amount in 1..4 {
        run.event("Paid", json!({ "amount": amount })).unwrap();
    }
    for n in 2..5 {
        let note = run
            .outcome("bill", &succeeded(json!({ "last": false })))
            .unwrap();
        assert!(note.ends_with(&format!("next: run {n}")), "{note}");
    }
    assert_eq!(run.state_view()["vars"]["total"], 6);
    assert!(run.state_view().get("early_events").is_none());
}

#[test]
fn event_after_its_step_is_kept_for_the_next_run() {
    let saga = saga(
        "vars: { total: =event.total }
steps:
  - { id: tick, do: { event: Tick }, save: { total: =vars.total + event.by }, timeout: 1h }
  - { id: log, do: { effect: e.log } }
  - { id: again, do: { restart_as_new: Go, data: { total: =vars.total } } }
",
    );
    let mut run = start_run(&saga, json!({ "total": 0 }));
    for by in 1..=5 {
        run.event("Tick", json!({ "by": by })).unwrap();
    }
    for n in 2..=6 {
        let note = ok(&mut run, "log");
        assert!(note.contains(&format!("again: run {n}")), "{note}");
    }
    assert_eq!(run.state_view()["vars"]["total"], 15);
    assert_eq!(step_state(&run, "tick"), "running");
    assert!(run.state_view().get("early_events").is_none());
}

#[test]
fn no_run_follows_a_compensation_so_its_events_are_dropped() {
    let saga = saga(
        "steps:
  - { id: tick, do: { event: Tick } }
  - { id: log, do: { effect: e.log }, undo: { effect: e.undo } }
  - { id: close, do: { effect: e.close } }
  - { id: again, do: { restart_as_new: Go, data: {} } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Tick", json!({})).unwrap();
    run.event("Tick", json!({})).unwrap();
    ok(&mut run, "log");
    let note = fail(&mut run, "close");
    assert!(
        note.contains("Tick dropped: no step can await it"),
        "{note}"
    );
}

#[test]
fn history_of_earlier_runs_is_deleted_one_entry_for_each_transition() {
    let saga = saga(MONTHLY);
    let mut run = start_run(&saga, json!({ "month": 1, "total": 0 }));
    let (mut kept, mut version) = (vec![1], 1);
    for _ in 0..30 {
        for step in ["bill", "paid"] {
            match step {
                "bill" => run.outcome("bill", &succeeded(json!({ "last": false }))),
                _ => run.event("Paid", json!({ "amount": 1 })),
            }
            .unwrap();
            version += 1;
            kept.push(version);
            kept.retain(|kept| Some(*kept) != run.forgets());
        }
    }
    assert_eq!(run.state_view()["run"], 31);
    assert!(kept.len() <= 4, "{kept:?}");
}

#[test]
fn run_that_ends_at_once_restarts_later() {
    let saga = saga("steps:\n  - { id: again, do: { restart_as_new: Go } }\n");
    let mut run = start_run(&saga, json!({}));
    assert_eq!(run.timers(), ["retry:again"]);
    let note = run.fire("retry:again", Duration::from_secs(1)).unwrap();
    assert_eq!(
        note,
        "again: again, again: run 2, again: restart_blocked, retry in 1s"
    );
    run.cancel("enough").unwrap();
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn restart_waits_for_compensations_and_abandoned_branches() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b }, in_doubt: ask, undo: { effect: u.b } }
  - { id: kid, after: [], do: { saga: equipment, on_parent_end: wait } }
  - { id: join, after: { any: [a, b, kid] }, do: { wait: 1s } }
  - { id: again, do: { restart_as_new: Go } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    assert_eq!(
        run.fire("join", Duration::from_secs(1)).unwrap(),
        "join: ok, again: restart_blocked, retry in 1s"
    );
    ok(&mut run, "b");
    run.fire("retry:again", Duration::from_secs(1)).unwrap();
    ok(&mut run, "compensate:b");
    run.fire("retry:again", Duration::from_secs(2)).unwrap();
    fail(&mut run, "kid");
    assert!(run.state_view().get("run").is_none());
    run.fire("retry:again", Duration::from_secs(4)).unwrap();
    assert_eq!(
        (&run.state_view()["run"], run.timers()),
        (&json!(2), vec![])
    );
}

#[test]
fn children_of_a_later_run_are_new_instances() {
    let saga = saga(
        "steps:
  - { id: kid, do: { saga: equipment } }
  - { id: again, do: { restart_as_new: Go } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "kid");
    let Some(Work::StartChild(start)) = run.work().last() else {
        panic!("a child saga")
    };
    assert_eq!(start.correlation.as_str(), "o1:kid:run-2");
}

/// The engine begins a requested run without the state of the previous one.
#[test]
fn children_of_a_requested_run_are_new_instances() {
    let saga = saga(
        "steps:
  - { id: kid, do: { saga: equipment } }
  - { id: again, do: { restart_as_new: Go } }
",
    );
    let now = Timestamp::from_millis(9);
    let key = InstanceKey {
        tenant: TenantId::default(),
        saga: saga.definition_ref().saga.clone(),
        correlation: "o1".parse().unwrap(),
    };
    let event = Event {
        id: "e".parse().unwrap(),
        tenant: key.tenant.clone(),
        kind: saga.start_event(None).unwrap().clone(),
        source: "orlog:start".to_owned(),
        subject: None,
        time: now,
        correlation: Some(key.correlation.clone()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
        user: None,
        attributes: None,
    };
    let apply = |state: Option<&[u8]>, input: &ProgramInput<'_>, version: u64| {
        let context = Context {
            key: &key,
            version,
            now,
            pending_work: &[],
            attempts: 0,
        };
        let output = saga.apply(state, input, &context).unwrap();
        let ProgramOutput::Applied(transition) = output else {
            panic!("{output:?}")
        };
        let Some(Work::StartChild(start)) = transition.work.last() else {
            panic!("a child saga")
        };
        (transition.state, start.correlation.to_string())
    };
    let ended = WorkOutcome::succeeded(None, Value::Null);
    let mut children = Vec::new();
    for version in [1, 7] {
        let (state, child) = apply(None, &ProgramInput::Event(&event), version);
        let result = ProgramInput::WorkResult {
            tag: "kid",
            outcome: &ended,
        };
        children.extend([child, apply(Some(&state), &result, version + 1).1]);
    }
    assert_eq!(
        children,
        [
            "o1:kid",
            "o1:kid:run-2",
            "o1:kid:version-7",
            "o1:kid:version-7:run-2"
        ]
    );
}

#[test]
fn data_without_a_value_fails_the_run() {
    let saga = saga(
        "vars: { n: =event.n }
steps:
  - { id: a, do: { effect: e.a }, undo: { effect: u.a } }
  - { id: again, do: { restart_as_new: Go, data: { m: =vars.n } } }
",
    );
    let mut run = start_run(&saga, json!({ "n": 1 }));
    ok(&mut run, "a");
    let failure = run.failure().unwrap();
    assert_eq!(failure.code, "expression_error");
    assert!(
        failure
            .message
            .starts_with("cannot begin a new run: cannot set vars.n"),
        "{}",
        failure.message
    );
    assert_eq!(run.compensated(), ["compensate:a"]);
}

#[test]
fn invalid_restarts_are_rejected() {
    let cases = [
        (
            "  - { id: r, do: { restart_as_new: Start } }\n",
            "steps[0].do.restart_as_new: Start does not start this saga",
        ),
        (
            "  - { id: r, do: { restart_as_new: Go } }\n  - { id: b, do: { effect: e.b } }\n",
            "steps[0].do: step `b` follows the restart `r`",
        ),
        (
            "  - { id: a, do: { effect: e.a } }\n  - { id: r, after: [], do: { restart_as_new: Go } }\n",
            "steps[1].do: step `a` may run concurrently with the restart `r`",
        ),
        (
            "  - { id: r, pivot: true, do: { restart_as_new: Go } }\n",
            "steps[0].pivot: the restart `r` ends the run, so it is no pivot",
        ),
        (
            "  - { id: r, do: { restart_as_new: Go }, timeout: 1h }\n",
            "steps[0].timeout: a restart has no `timeout`",
        ),
    ];
    for (steps, expected) in cases {
        let found = diagnostics(&format!("steps:\n{steps}"));
        assert!(
            found.contains(expected),
            "expected {expected}\nfound {found}"
        );
    }
}
