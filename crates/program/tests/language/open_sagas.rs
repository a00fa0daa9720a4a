//! Sagas that stay active until an event ends them, and child sagas that their handlers start.

use std::time::Duration;

use orlog_model::{Status, WaitKind, Work, WorkOutcome};
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite::{self, InstanceDriver, failed, succeeded};
use serde_json::json;

use super::start_again::send;
use super::{diagnostics, ok, saga, start_run};

pub(super) const ACCOUNT: &str = "vars: { balance: 0 }
keep_active: true
on:
  - { event: Deposited, save: { balance: =vars.balance + event.amount } }
  - { event: Closed, when: vars.balance == 0, then: complete }
  - { event: Seized, then: fail }
";

#[test]
fn saga_without_steps_stays_active_until_an_event_ends_it() {
    let saga = saga(ACCOUNT);
    for (kind, status) in [("Closed", Status::Completed), ("Seized", Status::Failed)] {
        let mut run = start_run(&saga, json!({}));
        assert_eq!(run.status(), Status::Running);
        let awaited = ["Closed", "Seized"].map(|kind| (WaitKind::Event, kind.to_owned()));
        assert_eq!(
            run.waits(),
            awaited,
            "an instance shows the events that end it"
        );
        for amount in [5, -5] {
            run.event("Deposited", json!({ "amount": amount })).unwrap();
        }
        run.event(kind, json!({})).unwrap();
        assert_eq!(run.status(), status, "{kind}");
        assert!(run.event("Deposited", json!({ "amount": 1 })).is_err());
    }
}

#[test]
fn saga_that_stays_active_executes_its_steps_first() {
    let saga = saga(
        "keep_active: true
timeout: 30d
on: [{ event: Closed, then: complete }, { event: Seized, then: cancel }]
steps: [{ id: open, do: { effect: accounts.open }, undo: { effect: accounts.close } }]
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "open");
    assert_eq!(run.status(), Status::Running);
    run.event("Closed", json!({})).unwrap();
    assert_eq!((run.status(), run.timers().len()), (Status::Completed, 0));

    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "open");
    run.advance(Duration::from_hours(30 * 24)).unwrap();
    assert_eq!(
        run.status(),
        Status::Compensating,
        "the timeout ends it as a failure"
    );
    ok(&mut run, "compensate:open");
    assert_eq!(run.status(), Status::Failed);

    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "open");
    run.event("Seized", json!({})).unwrap();
    ok(&mut run, "compensate:open");
    assert_eq!(run.status(), Status::Cancelled);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "open");
    run.cancel("by an operator").unwrap();
    ok(&mut run, "compensate:open");
    assert_eq!(run.status(), Status::Cancelled);
}

#[test]
fn saga_that_nothing_ends_is_rejected() {
    let none = "keep_active: nothing ends an instance of this saga";
    assert_eq!(
        diagnostics("keep_active: true\non: { event: A, save: { a: =event.a } }\n"),
        none
    );
    let pivot = "steps: [{ id: p, pivot: true, do: { effect: e.p } }]\n";
    assert_eq!(
        diagnostics(&format!(
            "keep_active: true\ntimeout: 1d\non: {{ event: A, then: cancel }}\n{pivot}"
        )),
        none
    );
    saga(&format!(
        "keep_active: true\non: {{ event: A, then: complete }}\n{pivot}"
    ));
    saga("keep_active: true\ntimeout: 1d\n");
    assert_eq!(
        diagnostics("keep_active: false\n"),
        "steps: a saga must have 1 to 1000 steps; it has 0"
    );
}

#[test]
fn idle_instance_migrates_only_to_a_version_that_stays_active() {
    let version = |version: u32, rest: &str| {
        let text = format!(
            "saga: t\nversion: {version}\nstart: Go\non: {{ event: Closed, then: complete }}\n{rest}"
        );
        compile_yaml(&text, "t").unwrap()
    };
    let (old, other) = (
        version(1, "keep_active: true\n"),
        version(2, "steps: [{ id: a, do: { event: A } }]\n"),
    );
    let new = version(2, "keep_active: true\n");
    let mut run = start_run(&old, json!({}));
    let blocked = run.migrate(&other).unwrap_err();
    assert_eq!(
        blocked,
        ["the steps have finished, and the new version has no `keep_active`"]
    );
    run.migrate(&new).unwrap();
    run.event("Closed", json!({})).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

/// Saga that starts a child for each line, with this policy.
fn lines(policy: &str) -> orlog_program::CompiledDefinition {
    saga(&format!(
        "keep_active: true
on:
  - {{ event: LineAdded, do: {{ saga: shipment, correlation: =event.line, data: =event{policy} }} }}
  - {{ event: Closed, then: complete }}
  - {{ event: Lost, then: fail }}
steps: [{{ id: reserve, do: {{ effect: stock.reserve }}, undo: {{ effect: stock.release }} }}]
"
    ))
}

/// Starts children for two lines and completes the step; returns the tags of the children.
fn two_children(run: &mut InstanceDriver<'_>) -> [String; 2] {
    ok(run, "reserve");
    for line in ["l-1", "l-2"] {
        send(run, line, "LineAdded", json!({ "line": line })).unwrap();
    }
    let started = run
        .work()
        .iter()
        .filter(|work| matches!(work, Work::StartChild(_)));
    let tags: Vec<_> = started
        .map(|work| work.tag().unwrap().to_string())
        .collect();
    tags.try_into().expect("two children")
}

fn cancelled(run: &InstanceDriver<'_>) -> Vec<String> {
    let cancels = run.work().iter().filter_map(|work| match work {
        Work::CancelChild(cancel) => Some(cancel.correlation.to_string()),
        _ => None,
    });
    cancels.collect()
}

#[test]
fn each_event_starts_a_child_saga() {
    let saga = lines("");
    let mut run = start_run(&saga, json!({}));
    let tags = two_children(&mut run);
    let Work::StartChild(start) = &run.work()[1] else {
        panic!("a child")
    };
    assert_eq!(
        (start.saga.as_str(), start.correlation.as_str()),
        ("shipment", "l-1")
    );
    assert_eq!(start.data, json!({ "line": "l-1" }));
    assert_ne!(tags[0], tags[1]);
    assert_eq!(
        run.state_view()["children"],
        json!(["shipment/l-1", "shipment/l-2"])
    );
    send(&mut run, "l-1", "LineAdded", json!({ "line": "l-1" })).unwrap();
    assert_eq!(
        run.state_view()["children"].as_array().unwrap().len(),
        2,
        "a redelivered event has the same child"
    );
}

#[test]
fn saga_waits_for_the_children_of_its_handlers() {
    let saga = saga(
        "on: { event: LineAdded, do: { saga: shipment } }
steps: [{ id: closed, do: { event: Closed } }]
",
    );
    let mut run = start_run(&saga, json!({}));
    send(&mut run, "l-1", "LineAdded", json!({})).unwrap();
    send(&mut run, "l-2", "LineAdded", json!({})).unwrap();
    let tags: Vec<_> = run.requested().to_vec();
    run.event("Closed", json!({})).unwrap();
    assert_eq!(
        run.status(),
        Status::Running,
        "the step has finished, the children have not"
    );
    assert_eq!(
        run.waits(),
        tags.iter()
            .map(|tag| (WaitKind::Saga, tag.clone()))
            .collect::<Vec<_>>()
    );
    run.outcome(&tags[0], &failed("child_failed")).unwrap();
    assert_eq!(
        run.status(),
        Status::Running,
        "the failure of a child does not fail the saga"
    );
    run.outcome(&tags[1], &succeeded(json!({}))).unwrap();
    assert_eq!(run.status(), Status::Completed);
    assert!(run.outcome(&tags[1], &succeeded(json!({}))).is_err());
}

#[test]
fn children_are_cancelled_awaited_or_abandoned_when_the_saga_fails() {
    for (policy, stopped, awaited) in [
        ("", 2, false),
        (", on_parent_end: stop", 2, false),
        (", on_parent_end: wait", 0, true),
        (", on_parent_end: abandon", 0, false),
    ] {
        let saga = lines(policy);
        let mut run = start_run(&saga, json!({}));
        let tags = two_children(&mut run);
        run.event("Lost", json!({})).unwrap();
        assert_eq!(
            (cancelled(&run).len(), run.status()),
            (stopped, Status::Compensating),
            "{policy}"
        );
        if awaited {
            assert!(
                run.compensated().is_empty(),
                "no compensation starts before the children end"
            );
            for tag in &tags {
                run.outcome(tag, &succeeded(json!({}))).unwrap();
            }
        }
        assert_eq!(run.compensated(), ["compensate:reserve"], "{policy}");
        ok(&mut run, "compensate:reserve");
        assert_eq!(run.status(), Status::Failed, "{policy}");
        assert!(awaited || run.outcome(&tags[0], &succeeded(json!({}))).is_err());
    }
}

#[test]
fn handler_that_completes_the_saga_applies_the_policy_of_the_children() {
    for (policy, stopped, status) in [
        (", on_parent_end: stop", 2, Status::Completed),
        (", on_parent_end: wait", 0, Status::Running),
        (", on_parent_end: abandon", 0, Status::Completed),
    ] {
        let saga = lines(policy);
        let mut run = start_run(&saga, json!({}));
        let tags = two_children(&mut run);
        run.event("Closed", json!({})).unwrap();
        assert_eq!(
            (cancelled(&run).len(), run.status()),
            (stopped, status),
            "{policy}"
        );
        if status == Status::Running {
            let more = send(&mut run, "l-3", "LineAdded", json!({ "line": "l-3" }));
            assert!(
                more.is_err(),
                "no handler runs after the one that completed the saga"
            );
            for tag in &tags {
                run.outcome(tag, &WorkOutcome::succeeded(None, json!({})))
                    .unwrap();
            }
            assert_eq!(run.status(), Status::Completed);
        }
    }
}

#[test]
fn number_of_open_children_is_limited() {
    let saga = lines("");
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "reserve");
    for n in 0..256 {
        send(
            &mut run,
            &format!("l-{n}"),
            "LineAdded",
            json!({ "line": n }),
        )
        .unwrap();
    }
    let error = send(&mut run, "l-256", "LineAdded", json!({ "line": 256 })).unwrap_err();
    assert!(
        error.contains("on[0]: 256 child sagas of event handlers are open"),
        "{error}"
    );
    let first = run.requested()[1].clone();
    run.outcome(&first, &succeeded(json!({}))).unwrap();
    send(&mut run, "l-256", "LineAdded", json!({ "line": 256 })).unwrap();
}

#[test]
fn children_of_handlers_survive_a_migration() {
    let version = |version: u32, before: &str| {
        let text = format!(
            "saga: t\nversion: {version}\nstart: Go\non:\n{before}  - {{ event: LineAdded, do: {{ saga: shipment }} }}\nsteps: [{{ id: closed, do: {{ event: Closed }} }}]\n"
        );
        compile_yaml(&text, "t").unwrap()
    };
    let (old, new) = (
        version(1, ""),
        version(2, "  - { event: Other, then: fail }\n"),
    );
    let mut run = start_run(&old, json!({}));
    send(&mut run, "l-1", "LineAdded", json!({})).unwrap();
    let tag = run.requested()[0].clone();
    run.migrate(&new).unwrap();
    run.event("Closed", json!({})).unwrap();
    assert_eq!(run.status(), Status::Running);
    run.outcome(&tag, &succeeded(json!({}))).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn open_saga_waits_for_its_child_before_it_completes() {
    let saga = saga(
        "keep_active: true
on:
  - { event: LineAdded, do: { saga: shipment, on_parent_end: wait } }
  - { event: Closed, then: complete }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("LineAdded", json!({})).unwrap();
    let tag = run.requested()[0].clone();
    run.event("Closed", json!({})).unwrap();
    run.outcome(&tag, &succeeded(json!({}))).unwrap();
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn open_saga_with_steps_passes_the_definition_suite() {
    let text = "keep_active: true\non: { event: Closed, then: complete }\nsteps: [{ id: a, do: { effect: e.a } }]\n";
    assert!(definition_suite::check(&saga(text)).runs > 0);
}
