//! Waits of the saga: timers, human tasks, child sagas, workers.

use std::time::Duration;

use orlog_model::{EventType, Status, WaitKind, Work, WorkOutcome};
use orlog_testkit::definition_suite::{failed, succeeded};
use serde_json::json;

use super::{diagnostics, fail, ok, saga, start_run, step_state};

#[test]
fn wait_lasts_for_its_duration() {
    let saga = saga(
        "vars: { delay: =event.delay, at: =event.at }
steps:
  - { id: fixed, do: { wait: 30m } }
  - { id: delayed, do: { wait: { for: =vars.delay } } }
  - { id: until, do: { wait: { until: =vars.at } } }
",
    );
    let mut run = start_run(
        &saga,
        json!({ "delay": "1h", "at": "2023-11-15T00:00:00Z" }),
    );
    assert_eq!(
        (run.timers(), run.waits()),
        (vec!["fixed"], vec![(WaitKind::Timer, "fixed".to_owned())])
    );
    run.advance(Duration::from_mins(30)).unwrap();
    assert_eq!(step_state(&run, "delayed"), "running");
    run.advance(Duration::from_hours(1)).unwrap();
    let until = run.state_view()["steps"][2]["until"].clone();
    assert_eq!(until, "2023-11-15T00:00:00.000Z");
    run.advance(Duration::from_hours(2)).unwrap();
    assert_eq!(run.status(), Status::Completed);
    let mut run = start_run(&saga, json!({ "delay": "soon", "at": 0 }));
    run.advance(Duration::from_mins(30)).unwrap();
    assert_eq!(run.failure().unwrap().code, "expression_error");
    assert!(
        diagnostics("steps:\n  - { id: a, do: { wait: 5m }, timeout: 1h, save: { x: 1 } }")
            .contains("a wait has no `timeout`")
    );
}

pub(super) const APPROVE: &str = "vars: { customer: =event.customer, branch: =event.branch }
steps:
  - { id: one, do: { effect: e.one }, undo: { effect: u.one } }
  - id: approve
    do:
      human:
        title: =\"Loan for \" + vars.customer
        roles: [clerk, =vars.branch]
        assignee: =vars.customer
        due: 2d
        data: { customer: =vars.customer }
        escalate: { roles: [head] }
    ok: Approved
    fail: Rejected
    timeout: 10d
    save: { by: =event.by }
";

#[test]
fn human_task_decides_the_step() {
    let saga = saga(APPROVE);
    let mut run = start_run(&saga, json!({ "customer": "ada", "branch": "north" }));
    ok(&mut run, "one");
    let task = run.tasks()[0].clone();
    assert_eq!(
        (task.tag.as_str(), task.title.as_str()),
        ("approve", "Loan for ada")
    );
    assert_eq!(
        (task.roles, task.assignee.as_deref()),
        (vec!["clerk".to_owned(), "north".to_owned()], Some("ada"))
    );
    assert_eq!(
        task.outcomes
            .iter()
            .map(EventType::as_str)
            .collect::<Vec<_>>(),
        ["Approved", "Rejected"]
    );
    assert_eq!(
        (task.due.is_some(), task.data),
        (true, json!({ "customer": "ada" }))
    );
    assert_eq!(run.waits(), [(WaitKind::Task, "approve".to_owned())]);
    let chosen = WorkOutcome::succeeded(Some("Approved".parse().unwrap()), json!({ "by": "bob" }));
    run.outcome("approve", &chosen).unwrap();
    assert_eq!(run.status(), Status::Completed);
    assert_eq!(run.state_view()["vars"]["by"], "bob");
    assert!(
        run.labels().contains(&"Approved".to_owned()),
        "the outcome is emitted"
    );
    assert!(run.timers().is_empty());
}

#[test]
fn human_task_accepts_listed_outcomes_only() {
    let saga = saga(APPROVE);
    for (chosen, code) in [("Rejected", "Rejected"), ("Unlisted", "contract_violation")] {
        let mut run = start_run(&saga, json!({ "customer": "ada", "branch": "n" }));
        ok(&mut run, "one");
        let event = Some(EventType::new(chosen).unwrap());
        run.outcome("approve", &WorkOutcome::succeeded(event, json!({})))
            .unwrap();
        assert_eq!(
            (run.status(), run.failure().unwrap().code.as_str()),
            (Status::Compensating, code)
        );
    }
}

#[test]
fn unfinished_task_escalates_and_is_closed() {
    let saga = saga(APPROVE);
    let mut run = start_run(&saga, json!({ "customer": "ada", "branch": "n" }));
    ok(&mut run, "one");
    assert_eq!(run.timers(), ["escalate:approve", "approve"]);
    run.advance(Duration::from_hours(48)).unwrap();
    assert_eq!(
        (run.tasks()[0].roles.as_slice(), &run.tasks()[0].assignee),
        (["head".to_owned()].as_slice(), &None)
    );
    assert_eq!(
        (run.timers(), run.status()),
        (vec!["approve"], Status::Running)
    );
    run.advance(Duration::from_hours(8 * 24)).unwrap();
    assert!(run.tasks().is_empty(), "the task is closed");
    assert_eq!(run.status(), Status::Compensating);
    assert!(run.timers().is_empty());
}

#[test]
fn cancelling_closes_the_task_and_its_timers() {
    let saga = saga(APPROVE);
    let mut run = start_run(&saga, json!({ "customer": "ada", "branch": "n" }));
    ok(&mut run, "one");
    run.cancel("no").unwrap();
    assert!(run.tasks().is_empty() && run.timers().is_empty());
    assert!(
        diagnostics("steps:\n  - { id: a, do: { human: { title: t, escalate: { roles: [x] } } } }")
            .contains("the escalation has no time")
    );
}

pub(super) const CHILD: &str = "steps:
  - { id: one, after: [], do: { effect: e.one }, undo: { effect: u.one } }
  - { id: kid, after: [], do: { saga: equipment, event: Needed, data: { for: =key.correlation } }, save: { laptop: =event.laptop }, undo: { effect: u.kid, data: =vars.laptop }, timeout: 1h }
";

#[test]
fn child_result_fact_is_saved() {
    let saga = saga(CHILD);
    let mut run = start_run(&saga, json!({}));
    let Some(Work::StartChild(start)) = run.work().last() else {
        panic!("a child")
    };
    assert_eq!(
        (start.correlation.as_str(), start.saga.as_str()),
        ("o1:kid", "equipment")
    );
    assert_eq!(
        (start.event.as_ref().unwrap().as_str(), &start.data),
        ("Needed", &json!({ "for": "o1" }))
    );
    assert!(run.waits().contains(&(WaitKind::Saga, "kid".to_owned())));
    ok(&mut run, "one");
    run.outcome("kid", &succeeded(json!({ "laptop": "x1" })))
        .unwrap();
    assert_eq!(
        (run.status(), &run.state_view()["vars"]["laptop"]),
        (Status::Completed, &json!("x1"))
    );
}

#[test]
fn abandoned_child_is_cancelled_and_its_late_success_compensated() {
    let saga = saga(CHILD);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "one");
    let Some(Work::CancelChild(cancel)) = run
        .work()
        .iter()
        .find(|work| matches!(work, Work::CancelChild(_)))
    else {
        panic!("the child is cancelled")
    };
    assert_eq!(
        (cancel.correlation.as_str(), cancel.saga.as_str()),
        ("o1:kid", "equipment")
    );
    assert_eq!(run.status(), Status::Failed);
    run.outcome("kid", &succeeded(json!({ "laptop": "x1" })))
        .unwrap();
    let Some(Work::Effect(compensation)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(compensation.payload, json!("x1"));
    ok(&mut run, "compensate:kid");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn failed_child_fails_the_step_and_timed_out_child_is_cancelled() {
    let saga = saga(CHILD);
    let mut run = start_run(&saga, json!({}));
    run.outcome("kid", &failed("child_failed")).unwrap();
    assert!(
        !run.work()
            .iter()
            .any(|work| matches!(work, Work::CancelChild(_))),
        "the child has already ended"
    );
    assert_eq!(run.failure().unwrap().code, "child_failed");
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    assert!(
        run.work()
            .iter()
            .any(|work| matches!(work, Work::CancelChild(_)))
    );
}

#[test]
fn restarted_child_is_a_new_instance() {
    let saga = saga(
        "steps:\n  - { id: p, pivot: true, do: { effect: e } }\n  - { id: kid, do: { saga: equipment } }",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "p");
    run.outcome("kid", &failed("child_failed")).unwrap();
    run.retry().unwrap();
    let Some(Work::StartChild(start)) = run.work().last() else {
        panic!("a child")
    };
    assert_eq!(start.correlation.as_str(), "o1:kid:2");
}

#[test]
fn human_tasks_and_child_sagas_can_compensate() {
    let saga = saga(
        "steps:
  - { id: a, do: { effect: e.a }, undo: { human: { title: Revert a }, ok: Yes, fail: No } }
  - { id: b, do: { effect: e.b }, undo: { saga: unbook } }
  - { id: c, do: { effect: e.c } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    ok(&mut run, "b");
    fail(&mut run, "c");
    let Some(Work::StartChild(start)) = run.work().last() else {
        panic!("a child")
    };
    assert_eq!(
        (start.tag.as_str(), start.correlation.as_str()),
        ("compensate:b", "o1:compensate:b")
    );
    ok(&mut run, "compensate:b");
    assert_eq!(run.tasks()[0].tag.as_str(), "compensate:a");
    let no = WorkOutcome::succeeded(Some("No".parse().unwrap()), json!({}));
    run.outcome("compensate:a", &no).unwrap();
    assert_eq!(run.status(), Status::Stuck);
    run.skip().unwrap();
    assert_eq!((run.status(), run.tasks().len()), (Status::Failed, 0));
}

pub(super) const FLOW: &str = "env: { REGION: eu }
vars: { url: =event.url }
steps:
  - { id: fetch, after: [], do: { job: { type: python, script: 'get()', args: { url: =vars.url } } } }
  - { id: probe, after: [], do: { job: { type: python, script: 'probe()', env: { DEEP: 'yes' } } } }
  - { id: transcode, do: { job: { type: sal, script: 't()', prerequisites: [fetch], dependencies: [probe], args: =results.probe.frames } } }
";

#[test]
fn job_flow_passes_results_and_reports_status() {
    let saga = saga(FLOW);
    let mut run = start_run(&saga, json!({ "url": "u" }));
    assert_eq!(run.labels(), ["job.python", "job.python"]);
    let Work::Effect(probe) = &run.work()[1] else {
        panic!("an effect")
    };
    let expected = json!({ "job": "probe", "type": "python", "script": "probe()", "env": { "REGION": "eu", "DEEP": "yes" }, "args": null, "results": {} });
    assert_eq!(probe.payload, expected);
    let flow = run.state_view()["flow"].clone();
    assert_eq!(
        flow["jobs"],
        json!({ "fetch": "started", "probe": "started", "transcode": "waiting_for_prerequisites" })
    );
    assert_eq!(flow["status"], "started");
    ok(&mut run, "fetch");
    run.outcome("probe", &succeeded(json!({ "frames": 24 })))
        .unwrap();
    let Some(Work::Effect(transcode)) = run.work().last() else {
        panic!("an effect")
    };
    assert_eq!(
        (transcode.name.as_str(), &transcode.payload["args"]),
        ("job.sal", &json!(24))
    );
    assert_eq!(
        transcode.payload["results"],
        json!({ "probe": { "frames": 24 } })
    );
    ok(&mut run, "transcode");
    let flow = run.state_view()["flow"].clone();
    assert_eq!(
        (&flow["status"], &flow["results"]["probe"]),
        (&json!("finished"), &json!({ "frames": 24 }))
    );
}

#[test]
fn failed_job_fails_the_flow() {
    let saga = saga(FLOW);
    let mut run = start_run(&saga, json!({ "url": "u" }));
    fail(&mut run, "probe");
    let flow = run.state_view()["flow"].clone();
    assert_eq!(
        (&flow["status"], &flow["jobs"]["probe"]),
        (&json!("error"), &json!("error"))
    );
    let found = diagnostics(
        "steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, do: { job: { type: x, script: s, dependencies: [a], prerequisites: [c] } } }",
    );
    assert!(
        found.contains("`a` is not a job and has no results")
            && found.contains("there is no step `c`"),
        "{found}"
    );
}

#[test]
fn job_that_was_never_requested_ends_with_its_saga() {
    let saga = saga(FLOW);
    let mut run = start_run(&saga, json!({ "url": "u" }));
    fail(&mut run, "probe");
    assert_eq!(run.state_view()["flow"]["jobs"]["transcode"], "error");

    let mut cancelled = start_run(&saga, json!({ "url": "u" }));
    cancelled.cancel("not needed").unwrap();
    assert_eq!(cancelled.state_view()["flow"]["jobs"]["transcode"], "error");
}
