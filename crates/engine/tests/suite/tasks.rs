//! Tests of human tasks.

use orlog_model::{
    ControlAction, Input, Status, TaskAction, TaskChange, TaskEventKind, TaskSpec, TaskStatus,
    Transition, WorkOutcome,
};
use orlog_program::{ProgramInput, ProgramOutput};
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    DecisionFixture, ScriptedProgram, applied, by, control, event, kind, name, step,
};

fn spec() -> TaskSpec {
    TaskSpec {
        not_by: Vec::new(),
        is_in_doubt: false,
        round: 0,
        tag: name("approve"),
        title: "Approve the order".to_owned(),
        roles: vec!["clerk".to_owned()],
        assignee: None,
        due: None,
        outcomes: vec![kind("Approved"), kind("Rejected")],
        data: json!({ "total": 5 }),
    }
}

fn scripted_program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        let with = |tasks| Transition {
            tasks,
            ..step(Status::Running)
        };
        Ok(match input {
            ProgramInput::Event(event) => match event.kind.as_str() {
                "Started" | "Repeated" => applied(with(vec![TaskChange::Open(spec())])),
                "Late" => applied(with(vec![TaskChange::Assign {
                    tag: name("approve"),
                    roles: vec!["head".to_owned()],
                    assignee: None,
                }])),
                "Gone" => applied(with(vec![TaskChange::Close {
                    tag: name("approve"),
                }])),
                _ => applied(step(Status::Completed)),
            },
            ProgramInput::WorkResult {
                tag: "approve",
                outcome: WorkOutcome::Succeeded { event, payload, .. },
            } => {
                let note = format!("{} {payload}", event.as_ref().unwrap());
                applied(Transition {
                    note,
                    ..step(Status::Running)
                })
            }
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

fn task(fixture: &DecisionFixture<'_>) -> Uuid {
    fixture.current_instance().tasks[0].id
}

fn task_request(fixture: &DecisionFixture<'_>, order: TaskAction, roles: &[&str]) -> ControlAction {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    ControlAction::Task {
        id: task(fixture),
        order,
        roles,
    }
}

fn complete(outcome: Option<&str>) -> TaskAction {
    TaskAction::Complete {
        outcome: outcome.map(kind),
        data: json!(7),
    }
}

#[test]
fn task_id_does_not_depend_on_time() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::empty(&program);
    let commit = fixture.commit(&event("Started", "b"));
    let [entry] = &commit.tasks[..] else {
        panic!("{:?}", commit.tasks)
    };
    assert_eq!(
        (entry.row.status, &entry.event.kind),
        (TaskStatus::Open, &TaskEventKind::Opened)
    );
    assert_eq!(
        (entry.row.task.spec.clone(), entry.event.user.as_ref()),
        (spec(), None)
    );
    assert_eq!(entry.row.task.id, task(&fixture));
    assert_eq!(task(&fixture).get_version_num(), 7);
    let mut late = DecisionFixture::empty(&program);
    late.now = crate::support::at(99_000);
    late.commit(&event("Started", "b"));
    assert_eq!(task(&late), task(&fixture));
}

#[test]
fn role_holder_claims_releases_and_completes() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let claim = by(
        "alice",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    );
    let commit = fixture.commit(&claim);
    assert_eq!(commit.tasks[0].row.status, TaskStatus::Claimed);
    assert_eq!(
        commit.history.as_ref().unwrap().note,
        "approve: claimed by alice"
    );
    assert_eq!(
        (
            commit.dedupe_key.is_some(),
            fixture.current_instance().version
        ),
        (true, 2)
    );
    assert_eq!(
        fixture.current_instance().tasks[0].claimed_by.as_deref(),
        Some("alice")
    );
    assert_eq!(
        fixture.expect_ignored(&claim),
        "already claimed by the same user"
    );
    let release = by("alice", task_request(&fixture, TaskAction::Release, &[]));
    assert_eq!(
        fixture.commit(&release).tasks[0].row.status,
        TaskStatus::Open
    );
    assert_eq!(fixture.expect_ignored(&release), "the task is not claimed");
    let done = by(
        "alice",
        task_request(&fixture, complete(Some("Approved")), &["clerk"]),
    );
    let commit = fixture.commit(&done);
    let entry = &commit.tasks[0];
    assert_eq!(
        entry.event.kind,
        TaskEventKind::Completed {
            outcome: Some(kind("Approved"))
        }
    );
    assert_eq!(
        (entry.row.status, entry.event.user.as_deref()),
        (TaskStatus::Completed, Some("alice"))
    );
    assert_eq!(
        commit.history.unwrap().note,
        "complete by alice; Approved 7"
    );
    assert!(fixture.current_instance().tasks.is_empty());
}

#[test]
fn task_of_another_assignee_or_role_is_rejected() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    let no_role = by(
        "bob",
        task_request(&fixture, TaskAction::Claim, &["driver"]),
    );
    assert_eq!(
        fixture.expect_rejection(&no_role),
        "the task requires one of the roles clerk; bob has none of them"
    );
    let no_user = Input::Control(control(task_request(
        &fixture,
        TaskAction::Claim,
        &["clerk"],
    )));
    assert_eq!(
        fixture.expect_rejection(&no_user),
        "the request names no user; set `user`, or --user on the command line"
    );
    fixture.commit(&by(
        "alice",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    ));
    for case in [
        TaskAction::Claim,
        TaskAction::Release,
        complete(Some("Approved")),
    ] {
        let input = by("bob", task_request(&fixture, case, &["clerk"]));
        assert_eq!(
            fixture.expect_rejection(&input),
            "the task is claimed by alice"
        );
    }
    let invalid = by(
        "alice",
        task_request(&fixture, complete(Some("Maybe")), &["clerk"]),
    );
    assert_eq!(
        fixture.expect_rejection(&invalid),
        "Maybe is not an outcome of the task; outcomes: Approved, Rejected"
    );
    let none = by("alice", task_request(&fixture, complete(None), &["clerk"]));
    assert_eq!(
        fixture.expect_rejection(&none),
        "an outcome is required: Approved, Rejected"
    );
    let other = ControlAction::Task {
        id: Uuid::nil(),
        order: TaskAction::Claim,
        roles: vec![],
    };
    assert_eq!(
        fixture.expect_rejection(&by("alice", other)),
        format!("task {} is not open", Uuid::nil())
    );
}

#[test]
fn assignment_is_exclusive_and_can_be_changed() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    fixture.commit(&by(
        "alice",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    ));
    let to = TaskAction::Assign {
        assignee: Some("carol".to_owned()),
        roles: None,
    };
    let commit = fixture.commit(&by("boss", task_request(&fixture, to, &[])));
    let step = TaskEventKind::Reassigned {
        roles: vec!["clerk".to_owned()],
        assignee: Some("carol".to_owned()),
    };
    assert_eq!(
        (&commit.tasks[0].event.kind, commit.tasks[0].row.status),
        (&step, TaskStatus::Open)
    );
    let claim = by(
        "alice",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    );
    assert_eq!(
        fixture.expect_rejection(&claim),
        "the task is assigned to carol"
    );
    fixture.commit(&by(
        "carol",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    ));
    let commit = fixture.commit(&event("Late", "l"));
    assert_eq!(commit.tasks[0].event.kind.as_str(), "escalated");
    let task = &fixture.current_instance().tasks[0];
    assert_eq!(
        (&task.spec.roles[..], &task.spec.assignee, &task.claimed_by),
        (&["head".to_owned()][..], &None, &None)
    );
}

#[test]
fn paused_instance_allows_reassignment_but_not_completion() {
    let program = scripted_program();
    let mut fixture = DecisionFixture::with_instance(&program);
    fixture.commit(&by("boss", ControlAction::Pause));
    fixture.commit(&by(
        "alice",
        task_request(&fixture, TaskAction::Claim, &["clerk"]),
    ));
    let done = by(
        "alice",
        task_request(&fixture, complete(Some("Approved")), &["clerk"]),
    );
    assert!(fixture.expect_rejection(&done).contains("paused"));
}

#[test]
fn task_is_closed_by_saga_replacement_or_end() {
    let program = scripted_program();
    for (case, steps, remaining) in [
        ("Gone", &["closed"][..], 0),
        ("Repeated", &["closed", "opened"][..], 1),
        ("Done", &["closed"][..], 0),
    ] {
        let mut fixture = DecisionFixture::with_instance(&program);
        let commit = fixture.commit(&event(case, "x"));
        let reported: Vec<_> = commit
            .tasks
            .iter()
            .map(|entry| entry.event.kind.as_str())
            .collect();
        assert_eq!(
            (&reported[..], fixture.current_instance().tasks.len()),
            (steps, remaining),
            "{case}"
        );
        assert_eq!(commit.tasks[0].row.status, TaskStatus::Closed);
    }
}
