//! Tests of the four-eyes rules of human tasks.

use orlog_model::{
    ControlAction, ExcludedUser, Input, Instance, InstanceUsers, Status, TaskAction, TaskChange,
    TaskSpec, Transition,
};
use orlog_program::{ProgramInput, ProgramOutput};
use serde_json::json;

use crate::support::{DecisionFixture, ScriptedProgram, applied, by, event, name, step};

const STARTER: &str = "the task excludes ada, the user who started the instance (not_by: starter)";
const PREVIOUS: &str =
    "the task excludes bob, the user who completed the previous task (not_by: previous)";

fn spec(tag: &str, not_by: &[ExcludedUser]) -> TaskSpec {
    TaskSpec {
        tag: name(tag),
        round: 0,
        title: tag.to_owned(),
        roles: Vec::new(),
        assignee: None,
        due: None,
        outcomes: Vec::new(),
        data: json!(null),
        not_by: not_by.to_vec(),
        is_in_doubt: tag == "doubt",
    }
}

/// Opens the task `check`, then `doubt`, then `approve`; each completed task opens the next one.
fn program() -> ScriptedProgram {
    ScriptedProgram::new(|input| {
        let with = |spec| {
            applied(Transition {
                tasks: vec![TaskChange::Open(spec)],
                ..step(Status::Running)
            })
        };
        Ok(match input {
            ProgramInput::Event(event) if event.kind.as_str() == "Started" => {
                with(spec("check", &[ExcludedUser::Starter]))
            }
            ProgramInput::WorkResult { tag: "check", .. } => with(spec("doubt", &[])),
            ProgramInput::WorkResult { tag: "doubt", .. } => with(spec(
                "approve",
                &[ExcludedUser::Starter, ExcludedUser::Previous],
            )),
            ProgramInput::WorkResult { .. } => applied(step(Status::Completed)),
            _ => ProgramOutput::Ignored("nothing".into()),
        })
    })
}

fn started_by(user: Option<&str>) -> Input {
    let Input::Event(mut event) = event("Started", "b") else {
        unreachable!("it is an event")
    };
    event.user = user.map(str::to_owned);
    Input::Event(event)
}

fn request(fixture: &DecisionFixture<'_>, user: &str, order: TaskAction) -> Input {
    let id = fixture.current_instance().tasks[0].id;
    by(
        user,
        ControlAction::Task {
            id,
            order,
            roles: Vec::new(),
        },
    )
}

fn complete() -> TaskAction {
    TaskAction::Complete {
        outcome: None,
        data: json!(null),
    }
}

fn assign(assignee: Option<&str>) -> TaskAction {
    TaskAction::Assign {
        assignee: assignee.map(str::to_owned),
        roles: Some(Vec::new()),
    }
}

#[track_caller]
fn check_excluded(fixture: &DecisionFixture<'_>, user: &str, expected: &str) {
    for order in [TaskAction::Claim, complete()] {
        assert_eq!(
            fixture.expect_rejection(&request(fixture, user, order)),
            expected
        );
    }
    let by_manager = request(fixture, "manager", assign(Some(user)));
    assert_eq!(fixture.expect_rejection(&by_manager), expected);
}

#[test]
fn starter_and_previous_user_neither_claim_nor_are_assigned_nor_complete() {
    let program = program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&started_by(Some("ada")));
    check_excluded(&fixture, "ada", STARTER);
    fixture.commit(&request(&fixture, "bob", complete()));
    // The decision about an effect in doubt is no previous task.
    fixture.commit(&request(&fixture, "carol", complete()));
    check_excluded(&fixture, "ada", STARTER);
    check_excluded(&fixture, "bob", PREVIOUS);
    // Without its roles and its assignee, the task still excludes them.
    fixture.commit(&request(&fixture, "manager", assign(None)));
    check_excluded(&fixture, "bob", PREVIOUS);
    fixture.commit(&request(&fixture, "carol", TaskAction::Claim));
    fixture.commit(&request(&fixture, "carol", complete()));
    assert_eq!(fixture.current_instance().status, Status::Completed);
    let users = fixture.current_instance().users.clone().unwrap();
    assert_eq!(
        (users.started_by.as_deref(), users.last_task_user.as_deref()),
        (Some("ada"), Some("carol"))
    );
}

#[test]
fn claim_before_the_previous_task_does_not_permit_completion() {
    let program = program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&started_by(Some("ada")));
    for user in ["bob", "carol"] {
        fixture.commit(&request(&fixture, user, complete()));
    }
    let last_task_user = Some("dora".to_owned());
    fixture.commit(&request(&fixture, "dora", TaskAction::Claim));
    let users = Some(InstanceUsers {
        started_by: Some("ada".to_owned()),
        last_task_user,
    });
    fixture.instance = Some(Instance {
        users,
        ..fixture.current_instance().clone()
    });
    let rejection = fixture.expect_rejection(&request(&fixture, "dora", complete()));
    assert_eq!(rejection, PREVIOUS.replace("bob", "dora"));
    fixture.commit(&request(&fixture, "dora", TaskAction::Release));
}

#[test]
fn unknown_user_of_a_rule_excludes_all_users() {
    let program = program();
    let mut fixture = DecisionFixture::empty(&program);
    fixture.commit(&started_by(None));
    let expected = "the task excludes the user who started the instance (not_by: starter), and the instance does not \
                    record that user";
    check_excluded(&fixture, "bob", expected);
    // An instance of an earlier release records neither user.
    fixture.instance = Some(Instance {
        users: None,
        ..fixture.current_instance().clone()
    });
    check_excluded(&fixture, "bob", expected);
    let mut instance = fixture.current_instance().clone();
    instance.tasks[0].spec.not_by = vec![ExcludedUser::Previous];
    fixture.instance = Some(instance);
    let expected = "the task excludes the user who completed the previous task (not_by: previous), and the instance \
                    does not record that user";
    check_excluded(&fixture, "bob", expected);
}
