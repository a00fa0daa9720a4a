//! Tasks for people.

use orlog_model::{
    Action, Input, Status, TaskChange, TaskForm, TaskOrder, TaskStatus, TaskStep, Transition, Verdict,
};
use orlog_program::{Reaction, Stimulus};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Puppet, Stage, applied, by, control, event, kind, name, step};

fn form() -> TaskForm {
    TaskForm {
        tag: name("approve"),
        title: "Approve the order".to_owned(),
        roles: vec!["clerk".to_owned()],
        assignee: None,
        due: None,
        outcomes: vec![kind("Approved"), kind("Rejected")],
        data: json!({ "total": 5 }),
    }
}

fn puppet() -> Puppet {
    Puppet::new(|stimulus| {
        let with = |tasks| Transition { tasks, ..step(Status::Running) };
        Ok(match stimulus {
            Stimulus::Event(event) => match event.kind.as_str() {
                "Begun" | "Again" => applied(with(vec![TaskChange::Open(form())])),
                "Late" => applied(with(vec![TaskChange::Assign {
                    tag: name("approve"),
                    roles: vec!["head".to_owned()],
                    assignee: None,
                }])),
                "Gone" => applied(with(vec![TaskChange::Close { tag: name("approve") }])),
                _ => applied(step(Status::Completed)),
            },
            Stimulus::Outcome { tag: "approve", verdict: Verdict::Succeeded { event, payload } } => {
                let note = format!("{} {payload}", event.as_ref().unwrap());
                applied(Transition { note, ..step(Status::Running) })
            }
            _ => Reaction::Ignored("nothing".into()),
        })
    })
}

fn task(stage: &Stage<'_>) -> Uuid {
    stage.now_instance().tasks[0].id
}

fn order(stage: &Stage<'_>, order: TaskOrder, roles: &[&str]) -> Action {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    Action::Task { id: task(stage), order, roles }
}

fn complete(outcome: Option<&str>) -> TaskOrder {
    TaskOrder::Complete { outcome: outcome.map(kind), data: json!(7) }
}

#[test]
fn a_task_is_opened_under_an_id_that_does_not_depend_on_when() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    let commit = stage.commit(&event("Begun", "b"));
    let [entry] = &commit.tasks[..] else { panic!("{:?}", commit.tasks) };
    assert_eq!((entry.row.status, &entry.event.step), (TaskStatus::Open, &TaskStep::Opened));
    assert_eq!((entry.row.task.form.clone(), entry.event.by.as_ref()), (form(), None));
    assert_eq!(entry.row.task.id, task(&stage));
    assert_eq!(task(&stage).get_version_num(), 7);
    let mut late = Stage::empty(&program);
    late.now = crate::support::at(99_000);
    late.commit(&event("Begun", "b"));
    assert_eq!(task(&late), task(&stage));
}

#[test]
fn who_has_the_role_claims_releases_and_completes() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    let claim = by("alice", order(&stage, TaskOrder::Claim, &["clerk"]));
    let commit = stage.commit(&claim);
    assert_eq!(commit.tasks[0].row.status, TaskStatus::Claimed);
    assert_eq!(commit.history.as_ref().unwrap().note, "approve: claimed by alice");
    assert_eq!((commit.applied.is_some(), stage.now_instance().version), (true, 2));
    assert_eq!(stage.now_instance().tasks[0].claimed_by.as_deref(), Some("alice"));
    assert_eq!(stage.ignored(&claim), "it is claimed already, by the same person");
    let release = by("alice", order(&stage, TaskOrder::Release, &[]));
    assert_eq!(stage.commit(&release).tasks[0].row.status, TaskStatus::Open);
    assert_eq!(stage.ignored(&release), "nobody has claimed it");
    let done = by("alice", order(&stage, complete(Some("Approved")), &["clerk"]));
    let commit = stage.commit(&done);
    let entry = &commit.tasks[0];
    assert_eq!(entry.event.step, TaskStep::Completed { outcome: Some(kind("Approved")) });
    assert_eq!((entry.row.status, entry.event.by.as_deref()), (TaskStatus::Completed, Some("alice")));
    assert_eq!(commit.history.unwrap().note, "complete by alice; Approved 7");
    assert!(stage.now_instance().tasks.is_empty());
}

#[test]
fn a_task_of_another_or_of_other_roles_is_refused_and_choices_are_named() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    let no_role = by("bob", order(&stage, TaskOrder::Claim, &["driver"]));
    assert_eq!(stage.refused(&no_role), "the task is for the roles clerk, and bob has none of them");
    let nobody = Input::Control(control(order(&stage, TaskOrder::Claim, &["clerk"])));
    assert_eq!(stage.refused(&nobody), "nobody is named who does it");
    stage.commit(&by("alice", order(&stage, TaskOrder::Claim, &["clerk"])));
    for what in [TaskOrder::Claim, TaskOrder::Release, complete(Some("Approved"))] {
        let input = by("bob", order(&stage, what, &["clerk"]));
        assert_eq!(stage.refused(&input), "the task is claimed by alice");
    }
    let wrong = by("alice", order(&stage, complete(Some("Maybe")), &["clerk"]));
    assert_eq!(stage.refused(&wrong), "Maybe is no outcome of the task; there are Approved, Rejected");
    let none = by("alice", order(&stage, complete(None), &["clerk"]));
    assert_eq!(stage.refused(&none), "an outcome must be chosen: Approved, Rejected");
    let other = Action::Task { id: Uuid::nil(), order: TaskOrder::Claim, roles: vec![] };
    assert!(stage.refused(&by("alice", other)).starts_with("the instance has no open task"));
}

#[test]
fn who_is_assigned_has_it_alone_and_people_and_the_saga_assign_anew() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    stage.commit(&by("alice", order(&stage, TaskOrder::Claim, &["clerk"])));
    let to = TaskOrder::Assign { assignee: Some("carol".to_owned()), roles: None };
    let commit = stage.commit(&by("boss", order(&stage, to, &[])));
    let step = TaskStep::Reassigned { roles: vec!["clerk".to_owned()], assignee: Some("carol".to_owned()) };
    assert_eq!((&commit.tasks[0].event.step, commit.tasks[0].row.status), (&step, TaskStatus::Open));
    let claim = by("alice", order(&stage, TaskOrder::Claim, &["clerk"]));
    assert_eq!(stage.refused(&claim), "the task is assigned to carol");
    stage.commit(&by("carol", order(&stage, TaskOrder::Claim, &["clerk"])));
    let commit = stage.commit(&event("Late", "l"));
    assert_eq!(commit.tasks[0].event.step.as_str(), "escalated");
    let task = &stage.now_instance().tasks[0];
    assert_eq!(
        (&task.form.roles[..], &task.form.assignee, &task.claimed_by),
        (&["head".to_owned()][..], &None, &None)
    );
}

#[test]
fn a_paused_instance_lets_tasks_change_hands_and_completes_none() {
    let program = puppet();
    let mut stage = Stage::begun(&program);
    stage.commit(&by("boss", Action::Pause));
    stage.commit(&by("alice", order(&stage, TaskOrder::Claim, &["clerk"])));
    let done = by("alice", order(&stage, complete(Some("Approved")), &["clerk"]));
    assert!(stage.refused(&done).contains("paused"));
}

#[test]
fn tasks_are_closed_by_the_saga_by_a_new_one_of_the_tag_and_by_the_end() {
    let program = puppet();
    for (what, steps, left) in
        [("Gone", &["closed"][..], 0), ("Again", &["closed", "opened"][..], 1), ("Done", &["closed"][..], 0)]
    {
        let mut stage = Stage::begun(&program);
        let commit = stage.commit(&event(what, "x"));
        let told: Vec<_> = commit.tasks.iter().map(|entry| entry.event.step.as_str()).collect();
        assert_eq!((&told[..], stage.now_instance().tasks.len()), (steps, left), "{what}");
        assert_eq!(commit.tasks[0].row.status, TaskStatus::Closed);
    }
}
