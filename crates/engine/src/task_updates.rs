//! The tasks of an instance after a transition, and the rows and lines that tell what happened to them.

use orlog_model::{
    Action, Commit, Control, Input, Status, Task, TaskChange, TaskEntry, TaskEvent, TaskOrder, TaskRow,
    TaskStatus, TaskStep, derived_id,
};
use uuid::Uuid;

use crate::context::{Cause, Subject};

/// What a step makes of a task.
pub(crate) fn take_step(task: &mut Task, step: &TaskStep, by: Option<&str>) {
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
    let Action::Task { id, order: TaskOrder::Complete { outcome, .. }, .. } = &control.action else {
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

/// How the task stands now, and what happened.
pub(crate) fn entry(
    subject: &Subject<'_>,
    task: &Task,
    step: TaskStep,
    control: Option<&Control>,
) -> TaskEntry {
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
