//! Tasks of an instance after a transition, with their rows and history entries.

use orlog_model::{
    Commit, ControlAction, ControlRequest, Input, Status, Task, TaskAction, TaskChange, TaskEvent,
    TaskEventKind, TaskRow, TaskSpec, TaskStatus, TaskUpdate, derive_child_id,
};
use uuid::Uuid;

use crate::context::DecisionContext;

/// Applies an event to a task.
pub(crate) fn apply_event(task: &mut Task, step: &TaskEventKind, by: Option<&str>) {
    match step {
        TaskEventKind::Claimed | TaskEventKind::Completed { .. } => {
            task.claimed_by = by.map(str::to_owned);
        }
        TaskEventKind::Released => task.claimed_by = None,
        TaskEventKind::Reassigned { roles, assignee }
        | TaskEventKind::Escalated { roles, assignee } => {
            task.claimed_by = None;
            task.spec.roles.clone_from(roles);
            task.spec.assignee.clone_from(assignee);
        }
        TaskEventKind::Opened | TaskEventKind::Closed => {}
    }
}

/// Returns the tasks that are open after a transition, and the updates of the others.
pub(crate) fn updates_after(
    context: &DecisionContext<'_>,
    input: &Input,
    changes: Vec<TaskChange>,
    run_id: Uuid,
    status: Status,
    commit: &mut Commit,
) -> Vec<Task> {
    let mut tasks = context.instance.map_or_else(Vec::new, |i| i.tasks.clone());

    // The program does not report the completed task: the input ends it.
    complete(context, input, &mut tasks, commit);

    for change in changes {
        match change {
            TaskChange::Open(spec) => {
                // A step that is executed again replaces its open task.
                close(context, &mut tasks, commit, |task| {
                    task.spec.tag == spec.tag
                });
                let task = Task {
                    id: task_id(run_id, &spec),
                    spec,
                    claimed_by: None,
                    opened_at: context.now,
                };
                commit
                    .tasks
                    .push(task_update(context, &task, TaskEventKind::Opened, None));
                tasks.push(task);
            }
            TaskChange::Assign {
                tag,
                roles,
                assignee,
            } => {
                let step = TaskEventKind::Escalated { roles, assignee };
                for task in tasks.iter_mut().filter(|task| task.spec.tag == tag) {
                    apply_event(task, &step, None);
                    commit
                        .tasks
                        .push(task_update(context, task, step.clone(), None));
                }
            }
            TaskChange::Close { tag } => {
                close(context, &mut tasks, commit, |task| task.spec.tag == tag);
            }
        }
    }

    // An ended instance has no tasks.
    if status.is_final() {
        close(context, &mut tasks, commit, |_| true);
    }
    tasks
}

fn complete(
    context: &DecisionContext<'_>,
    input: &Input,
    tasks: &mut Vec<Task>,
    commit: &mut Commit,
) {
    let Input::Control(control) = input else {
        return;
    };
    let ControlAction::Task {
        id,
        order: TaskAction::Complete { outcome, .. },
        ..
    } = &control.action
    else {
        return;
    };

    for mut task in tasks.extract_if(.., |task| task.id == *id) {
        let step = TaskEventKind::Completed {
            outcome: outcome.clone(),
        };
        apply_event(&mut task, &step, control.user.as_deref());
        commit
            .tasks
            .push(task_update(context, &task, step, Some(control)));
    }
}

fn close(
    context: &DecisionContext<'_>,
    tasks: &mut Vec<Task>,
    commit: &mut Commit,
    chosen: impl Fn(&Task) -> bool,
) {
    for task in tasks.extract_if(.., |task| chosen(task)) {
        commit
            .tasks
            .push(task_update(context, &task, TaskEventKind::Closed, None));
    }
}

/// Returns the id of a task.
fn task_id(run_id: Uuid, spec: &TaskSpec) -> Uuid {
    // Like work ids, it does not depend on the time of the decision.
    derive_child_id(
        run_id,
        &[
            b"task",
            spec.tag.as_str().as_bytes(),
            &spec.round.to_le_bytes(),
        ],
    )
}

/// Returns the update of a task: its new state and the event.
pub(crate) fn task_update(
    context: &DecisionContext<'_>,
    task: &Task,
    step: TaskEventKind,
    control: Option<&ControlRequest>,
) -> TaskUpdate {
    let outcome = match &step {
        TaskEventKind::Completed { outcome } => outcome.clone(),
        _ => None,
    };

    let status = match &step {
        TaskEventKind::Completed { .. } => TaskStatus::Completed,
        TaskEventKind::Closed => TaskStatus::Closed,
        _ if task.claimed_by.is_some() => TaskStatus::Claimed,
        _ => TaskStatus::Open,
    };

    TaskUpdate {
        row: TaskRow {
            instance: context.key.clone(),
            task: task.clone(),
            status,
            updated_at: context.now,
            outcome,
        },
        event: TaskEvent {
            kind: step,
            user: control.and_then(|control| control.user.clone()),
            reason: control.and_then(|control| control.reason.clone()),
            at: context.now,
        },
    }
}
