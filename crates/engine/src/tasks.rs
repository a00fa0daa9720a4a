//! Tasks for people: what a saga and what people do about them, and the rows and lines that tell of it.

use orlog_model::{
    Commit, Control, EventType, Input, Instance, Record, Status, Task, TaskChange, TaskEntry, TaskEvent,
    TaskForm, TaskOrder, TaskRow, TaskStatus, TaskStep, Verdict, derived_id,
};
use orlog_program::Stimulus;
use uuid::Uuid;

use crate::apply::Cause;
use crate::decide::{Decision, Refusal, ignore, react};
use crate::note::signed;
use crate::subject::Subject;

/// A person does something about a task. Only completing it is the program's business.
pub(crate) fn decide_task(
    subject: &Subject<'_>,
    input: &Input,
    (control, instance): (&Control, &Instance),
    (id, order, roles): (Uuid, &TaskOrder, &[String]),
) -> Decision {
    let Some(task) = instance.tasks.iter().find(|task| task.id == id) else {
        return Decision::Refuse(Refusal::NoTask { id });
    };
    let Some(by) = control.by.as_deref() else { return refuse("nobody is named who does it".to_owned()) };
    let admitted = match order {
        TaskOrder::Claim | TaskOrder::Complete { .. } => admitted(task, by, roles),
        TaskOrder::Release => held_by(task, by),
        TaskOrder::Assign { .. } => Ok(()),
    };
    if let Err(why) = admitted {
        return refuse(why);
    }
    match order {
        TaskOrder::Complete { outcome, data } => match chosen(&task.form, outcome.as_ref()) {
            Err(why) => refuse(why),
            Ok(()) if instance.paused => {
                refuse("its instance is paused: resume it before the task is completed".to_owned())
            }
            Ok(()) => {
                let verdict = Verdict::Succeeded { event: outcome.clone(), payload: data.clone() };
                let stimulus = Stimulus::Outcome { tag: task.form.tag.as_str(), verdict: &verdict };
                react(subject, input, &stimulus)
            }
        },
        TaskOrder::Claim if task.claimed_by.is_some() => ignore("it is claimed already, by the same person"),
        TaskOrder::Release if task.claimed_by.is_none() => ignore("nobody has claimed it"),
        TaskOrder::Claim => handed(subject, input, (control, instance), id, &TaskStep::Claimed),
        TaskOrder::Release => handed(subject, input, (control, instance), id, &TaskStep::Released),
        TaskOrder::Assign { assignee, roles } => {
            let roles = roles.clone().unwrap_or_else(|| task.form.roles.clone());
            let step = TaskStep::Reassigned { roles, assignee: assignee.clone() };
            handed(subject, input, (control, instance), id, &step)
        }
    }
}

fn refuse(why: String) -> Decision {
    Decision::Refuse(Refusal::Task { why })
}

/// Whether this person may take the task, or answer it.
fn admitted(task: &Task, by: &str, roles: &[String]) -> Result<(), String> {
    held_by(task, by)?;
    let form = &task.form;
    if let Some(assignee) = form.assignee.as_ref().filter(|assignee| *assignee != by) {
        return Err(format!("the task is assigned to {assignee}"));
    }
    if form.roles.is_empty() || form.roles.iter().any(|role| roles.contains(role)) {
        return Ok(());
    }
    Err(format!("the task is for the roles {}, and {by} has none of them", form.roles.join(", ")))
}

fn held_by(task: &Task, by: &str) -> Result<(), String> {
    match &task.claimed_by {
        Some(other) if other != by => Err(format!("the task is claimed by {other}")),
        Some(_) | None => Ok(()),
    }
}

fn chosen(form: &TaskForm, outcome: Option<&EventType>) -> Result<(), String> {
    let choices = || form.outcomes.iter().map(EventType::as_str).collect::<Vec<_>>().join(", ");
    match outcome {
        None if form.outcomes.is_empty() => Ok(()),
        None => Err(format!("an outcome must be chosen: {}", choices())),
        Some(outcome) if form.outcomes.contains(outcome) => Ok(()),
        Some(outcome) if form.outcomes.is_empty() => {
            Err(format!("the task has no outcomes to choose from, so {outcome} is none"))
        }
        Some(outcome) => Err(format!("{outcome} is no outcome of the task; there are {}", choices())),
    }
}

/// A task changes hands; the program is not asked.
fn handed(
    subject: &Subject<'_>,
    input: &Input,
    (control, instance): (&Control, &Instance),
    id: Uuid,
    step: &TaskStep,
) -> Decision {
    let mut commit = Commit::empty(subject.key.clone(), subject.now);
    let mut next = instance.clone();
    next.version += 1;
    next.last_input = control.id.clone();
    next.updated_at = subject.now;
    subject.node.clone_into(&mut next.node);
    let mut note = String::new();
    for task in next.tasks.iter_mut().filter(|task| task.id == id) {
        note = signed(&format!("{}: {}", task.form.tag, step.as_str()), control);
        take_step(task, step, control.by.as_deref());
        commit.tasks.push(entry(subject, task, step.clone(), Some(control)));
    }
    commit.history = Some(Record {
        version: next.version,
        at: subject.now,
        input: control.id.clone(),
        label: input.label().to_owned(),
        note,
        status: next.status,
        work: Vec::new(),
    });
    commit.applied = Some(control.id.clone());
    commit.instance = Some(next);
    Decision::Commit(Box::new(commit))
}

fn take_step(task: &mut Task, step: &TaskStep, by: Option<&str>) {
    match step {
        TaskStep::Claimed | TaskStep::Completed { .. } => task.claimed_by = by.map(str::to_owned),
        TaskStep::Released => task.claimed_by = None,
        TaskStep::Reassigned { roles, assignee } | TaskStep::Escalated { roles, assignee } => {
            task.claimed_by = None;
            task.form.roles.clone_from(roles);
            task.form.assignee.clone_from(assignee);
        }
        TaskStep::Opened | TaskStep::Closed => {}
    }
}

/// The tasks that are open after a transition, and what is to be said about the others. An instance that has ended has none.
pub(crate) fn after(
    subject: &Subject<'_>,
    cause: &Cause<'_>,
    changes: Vec<TaskChange>,
    status: Status,
    commit: &mut Commit,
) -> Vec<Task> {
    let mut tasks = subject.instance.map_or_else(Vec::new, |i| i.tasks.clone());
    complete(subject, cause.input, &mut tasks, commit);
    for (index, change) in changes.into_iter().enumerate() {
        match change {
            TaskChange::Open(form) => {
                close(subject, &mut tasks, commit, |task| task.form.tag == form.tag);
                let task = Task {
                    id: task_id(subject, cause, index),
                    form,
                    claimed_by: None,
                    opened_at: subject.now,
                };
                commit.tasks.push(entry(subject, &task, TaskStep::Opened, None));
                tasks.push(task);
            }
            TaskChange::Assign { tag, roles, assignee } => {
                let step = TaskStep::Escalated { roles, assignee };
                for task in tasks.iter_mut().filter(|task| task.form.tag == tag) {
                    take_step(task, &step, None);
                    commit.tasks.push(entry(subject, task, step.clone(), None));
                }
            }
            TaskChange::Close { tag } => close(subject, &mut tasks, commit, |task| task.form.tag == tag),
        }
    }
    if status.is_final() {
        close(subject, &mut tasks, commit, |_| true);
    }
    tasks
}

fn complete(subject: &Subject<'_>, input: &Input, tasks: &mut Vec<Task>, commit: &mut Commit) {
    let Input::Control(control) = input else { return };
    let orlog_model::Action::Task { id, order: TaskOrder::Complete { outcome, .. }, .. } = &control.action
    else {
        return;
    };
    for mut task in tasks.extract_if(.., |task| task.id == *id) {
        let step = TaskStep::Completed { outcome: outcome.clone() };
        take_step(&mut task, &step, control.by.as_deref());
        commit.tasks.push(entry(subject, &task, step, Some(control)));
    }
}

fn close(subject: &Subject<'_>, tasks: &mut Vec<Task>, commit: &mut Commit, chosen: impl Fn(&Task) -> bool) {
    for task in tasks.extract_if(.., |task| chosen(task)) {
        commit.tasks.push(entry(subject, &task, TaskStep::Closed, None));
    }
}

/// Like the ids of work, it does not depend on when it is decided.
fn task_id(subject: &Subject<'_>, cause: &Cause<'_>, index: usize) -> Uuid {
    let key = subject.key;
    derived_id(
        cause.input.at(),
        &[
            key.tenant.as_str().as_bytes(),
            key.saga.as_str().as_bytes(),
            key.correlation.as_str().as_bytes(),
            &cause.version.to_le_bytes(),
            &(index as u64).to_le_bytes(),
            b"task",
        ],
    )
}

fn entry(subject: &Subject<'_>, task: &Task, step: TaskStep, control: Option<&Control>) -> TaskEntry {
    let outcome = match &step {
        TaskStep::Completed { outcome } => outcome.clone(),
        _ => None,
    };
    let status = match &step {
        TaskStep::Completed { .. } => TaskStatus::Completed,
        TaskStep::Closed => TaskStatus::Closed,
        _ if task.claimed_by.is_some() => TaskStatus::Claimed,
        _ => TaskStatus::Open,
    };
    TaskEntry {
        row: TaskRow {
            instance: subject.key.clone(),
            task: task.clone(),
            status,
            updated_at: subject.now,
            outcome,
        },
        event: TaskEvent {
            step,
            by: control.and_then(|control| control.by.clone()),
            reason: control.and_then(|control| control.reason.clone()),
            at: subject.now,
        },
    }
}
