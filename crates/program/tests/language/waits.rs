//! Those the saga waits for: time, people, other sagas, workers.

use std::time::Duration;

use orlog_model::{EventType, Status, Verdict, WaitKind, Work};
use orlog_testkit::definition_suite::{failed, succeeded};
use serde_json::json;

use super::{begun, fail, ok, saga, stands, wrong};

#[test]
fn a_wait_lasts_as_long_as_it_says() {
    let saga = saga(
        "vars: { delay: =event.delay, at: =event.at }
steps:
  - { id: fixed, do: { wait: 30m } }
  - { id: asked, do: { wait: { for: =vars.delay } } }
  - { id: until, do: { wait: { until: =vars.at } } }
",
    );
    let mut life = begun(&saga, json!({ "delay": "1h", "at": "2023-11-15T00:00:00Z" }));
    assert_eq!((life.timers(), life.waits()), (vec!["fixed"], vec![(WaitKind::Timer, "fixed".to_owned())]));
    life.advance(Duration::from_mins(30)).unwrap();
    assert_eq!(stands(&life, "asked"), "running");
    life.advance(Duration::from_hours(1)).unwrap();
    let until = life.shown()["steps"][2]["until"].clone();
    assert_eq!(until, "2023-11-15T00:00:00.000Z");
    life.advance(Duration::from_hours(2)).unwrap();
    assert_eq!(life.status(), Status::Completed);
    let mut life = begun(&saga, json!({ "delay": "soon", "at": 0 }));
    life.advance(Duration::from_mins(30)).unwrap();
    assert_eq!(life.failure().unwrap().code, "expression_error");
    assert!(
        wrong("steps:\n  - { id: a, do: { wait: 5m }, timeout: 1h, save: { x: 1 } }")
            .contains("a wait has no `timeout`")
    );
}

pub(super) const APPROVE: &str = "vars: { who: =event.who, branch: =event.branch }
steps:
  - { id: one, do: { effect: e.one }, undo: { effect: u.one } }
  - id: approve
    do:
      human:
        title: =\"Loan for \" + vars.who
        roles: [clerk, =vars.branch]
        assignee: =vars.who
        due: 2d
        data: { who: =vars.who }
        escalate: { roles: [head] }
    ok: Approved
    fail: Rejected
    timeout: 10d
    save: { by: =event.by }
";

#[test]
fn a_person_is_asked_and_decides() {
    let saga = saga(APPROVE);
    let mut life = begun(&saga, json!({ "who": "ada", "branch": "north" }));
    ok(&mut life, "one");
    let task = life.tasks()[0].clone();
    assert_eq!((task.tag.as_str(), task.title.as_str()), ("approve", "Loan for ada"));
    assert_eq!(
        (task.roles, task.assignee.as_deref()),
        (vec!["clerk".to_owned(), "north".to_owned()], Some("ada"))
    );
    assert_eq!(task.outcomes.iter().map(EventType::as_str).collect::<Vec<_>>(), ["Approved", "Rejected"]);
    assert_eq!((task.due.is_some(), task.data), (true, json!({ "who": "ada" })));
    assert_eq!(life.waits(), [(WaitKind::Task, "approve".to_owned())]);
    let chosen =
        Verdict::Succeeded { event: Some("Approved".parse().unwrap()), payload: json!({ "by": "bob" }) };
    life.outcome("approve", &chosen).unwrap();
    assert_eq!(life.status(), Status::Completed);
    assert_eq!(life.shown()["vars"]["by"], "bob");
    assert!(life.labels().contains(&"Approved".to_owned()), "the decision is told");
    assert!(life.timers().is_empty());
}

#[test]
fn a_person_can_refuse_and_choose_nothing_else() {
    let saga = saga(APPROVE);
    for (chosen, code) in [("Rejected", "Rejected"), ("Whatever", "contract_violation")] {
        let mut life = begun(&saga, json!({ "who": "ada", "branch": "n" }));
        ok(&mut life, "one");
        let event = Some(EventType::new(chosen).unwrap());
        life.outcome("approve", &Verdict::Succeeded { event, payload: json!({}) }).unwrap();
        assert_eq!((life.status(), life.failure().unwrap().code.as_str()), (Status::Compensating, code));
    }
}

#[test]
fn a_task_that_nobody_does_goes_to_others_and_is_closed_in_the_end() {
    let saga = saga(APPROVE);
    let mut life = begun(&saga, json!({ "who": "ada", "branch": "n" }));
    ok(&mut life, "one");
    assert_eq!(life.timers(), ["escalate:approve", "approve"]);
    life.advance(Duration::from_hours(48)).unwrap();
    assert_eq!(
        (life.tasks()[0].roles.as_slice(), &life.tasks()[0].assignee),
        (["head".to_owned()].as_slice(), &None)
    );
    assert_eq!((life.timers(), life.status()), (vec!["approve"], Status::Running));
    life.advance(Duration::from_hours(8 * 24)).unwrap();
    assert!(life.tasks().is_empty(), "the task is closed");
    assert_eq!(life.status(), Status::Compensating);
    assert!(life.timers().is_empty());
}

#[test]
fn cancelling_closes_the_task_and_its_timers() {
    let saga = saga(APPROVE);
    let mut life = begun(&saga, json!({ "who": "ada", "branch": "n" }));
    ok(&mut life, "one");
    life.cancel("no").unwrap();
    assert!(life.tasks().is_empty() && life.timers().is_empty());
    assert!(
        wrong("steps:\n  - { id: a, do: { human: { title: t, escalate: { roles: [x] } } } }")
            .contains("nothing says when")
    );
}

pub(super) const CHILD: &str = "steps:
  - { id: one, after: [], do: { effect: e.one }, undo: { effect: u.one } }
  - { id: kid, after: [], do: { saga: equipment, event: Needed, data: { for: =key.correlation } }, save: { laptop: =event.laptop }, undo: { effect: u.kid, data: =vars.laptop }, timeout: 1h }
";

#[test]
fn a_child_runs_to_its_end_and_what_it_told_last_is_remembered() {
    let saga = saga(CHILD);
    let mut life = begun(&saga, json!({}));
    let Some(Work::Start(start)) = life.work().last() else { panic!("a child") };
    assert_eq!((start.correlation.as_str(), start.saga.as_str()), ("o1:kid", "equipment"));
    assert_eq!((start.event.as_ref().unwrap().as_str(), &start.data), ("Needed", &json!({ "for": "o1" })));
    assert!(life.waits().contains(&(WaitKind::Saga, "kid".to_owned())));
    ok(&mut life, "one");
    life.outcome("kid", &succeeded(json!({ "laptop": "x1" }))).unwrap();
    assert_eq!((life.status(), &life.shown()["vars"]["laptop"]), (Status::Completed, &json!("x1")));
}

#[test]
fn a_child_that_is_given_up_is_stopped_and_its_late_success_undone() {
    let saga = saga(CHILD);
    let mut life = begun(&saga, json!({}));
    fail(&mut life, "one");
    let Some(Work::Stop(stop)) = life.work().iter().find(|work| matches!(work, Work::Stop(_))) else {
        panic!("the child is stopped")
    };
    assert_eq!((stop.correlation.as_str(), stop.saga.as_str()), ("o1:kid", "equipment"));
    assert_eq!(life.status(), Status::Failed);
    life.outcome("kid", &succeeded(json!({ "laptop": "x1" }))).unwrap();
    let Some(Work::Effect(undo)) = life.work().last() else { panic!("an effect") };
    assert_eq!(undo.payload, json!("x1"));
    ok(&mut life, "undo:kid");
    assert_eq!(life.status(), Status::Failed);
}

#[test]
fn a_child_that_fails_fails_its_step_and_one_that_is_silent_is_stopped() {
    let saga = saga(CHILD);
    let mut life = begun(&saga, json!({}));
    life.outcome("kid", &failed("child_failed")).unwrap();
    assert!(!life.work().iter().any(|work| matches!(work, Work::Stop(_))), "it has ended already");
    assert_eq!(life.failure().unwrap().code, "child_failed");
    let mut life = begun(&saga, json!({}));
    life.advance(Duration::from_hours(1)).unwrap();
    assert!(life.work().iter().any(|work| matches!(work, Work::Stop(_))));
}

#[test]
fn a_child_that_is_begun_again_is_another_one() {
    let saga = saga(
        "steps:\n  - { id: p, pivot: true, do: { effect: e } }\n  - { id: kid, do: { saga: equipment } }",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "p");
    life.outcome("kid", &failed("child_failed")).unwrap();
    life.retry().unwrap();
    let Some(Work::Start(start)) = life.work().last() else { panic!("a child") };
    assert_eq!(start.correlation.as_str(), "o1:kid:2");
}

#[test]
fn people_and_sagas_can_undo_too() {
    let saga = saga(
        "steps:
  - { id: a, do: { effect: e.a }, undo: { human: { title: Undo a }, ok: Yes, fail: No } }
  - { id: b, do: { effect: e.b }, undo: { saga: unbook } }
  - { id: c, do: { effect: e.c } }
",
    );
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "a");
    ok(&mut life, "b");
    fail(&mut life, "c");
    let Some(Work::Start(start)) = life.work().last() else { panic!("a child") };
    assert_eq!((start.tag.as_str(), start.correlation.as_str()), ("undo:b", "o1:undo:b"));
    ok(&mut life, "undo:b");
    assert_eq!(life.tasks()[0].tag.as_str(), "undo:a");
    let no = Verdict::Succeeded { event: Some("No".parse().unwrap()), payload: json!({}) };
    life.outcome("undo:a", &no).unwrap();
    assert_eq!(life.status(), Status::Stuck);
    life.skip().unwrap();
    assert_eq!((life.status(), life.tasks().len()), (Status::Failed, 0));
}

pub(super) const FLOW: &str = "env: { REGION: eu }
vars: { url: =event.url }
steps:
  - { id: fetch, after: [], do: { job: { type: python, script: 'get()', args: { url: =vars.url } } } }
  - { id: probe, after: [], do: { job: { type: python, script: 'probe()', env: { DEEP: 'yes' } } } }
  - { id: transcode, do: { job: { type: sal, script: 't()', prerequisites: [fetch], dependencies: [probe], args: =results.probe.frames } } }
";

#[test]
fn a_flow_of_jobs_hands_results_on_and_shows_its_statuses() {
    let saga = saga(FLOW);
    let mut life = begun(&saga, json!({ "url": "u" }));
    assert_eq!(life.labels(), ["job.python", "job.python"]);
    let Work::Effect(probe) = &life.work()[1] else { panic!("an effect") };
    let expected = json!({ "job": "probe", "type": "python", "script": "probe()", "env": { "REGION": "eu", "DEEP": "yes" }, "args": null, "results": {} });
    assert_eq!(probe.payload, expected);
    let flow = life.shown()["flow"].clone();
    assert_eq!(
        flow["jobs"],
        json!({ "fetch": "started", "probe": "started", "transcode": "waiting_for_prerequisites" })
    );
    assert_eq!(flow["status"], "started");
    ok(&mut life, "fetch");
    life.outcome("probe", &succeeded(json!({ "frames": 24 }))).unwrap();
    let Some(Work::Effect(transcode)) = life.work().last() else { panic!("an effect") };
    assert_eq!((transcode.name.as_str(), &transcode.payload["args"]), ("job.sal", &json!(24)));
    assert_eq!(transcode.payload["results"], json!({ "probe": { "frames": 24 } }));
    ok(&mut life, "transcode");
    let flow = life.shown()["flow"].clone();
    assert_eq!((&flow["status"], &flow["results"]["probe"]), (&json!("finished"), &json!({ "frames": 24 })));
}

#[test]
fn a_job_that_fails_is_an_error_of_the_flow() {
    let saga = saga(FLOW);
    let mut life = begun(&saga, json!({ "url": "u" }));
    fail(&mut life, "probe");
    let flow = life.shown()["flow"].clone();
    assert_eq!((&flow["status"], &flow["jobs"]["probe"]), (&json!("error"), &json!("error")));
    let found = wrong(
        "steps:\n  - { id: a, do: { effect: e } }\n  - { id: b, do: { job: { type: x, script: s, dependencies: [a], prerequisites: [c] } } }",
    );
    assert!(
        found.contains("`a` is no job and gives no results") && found.contains("there is no step `c`"),
        "{found}"
    );
}
