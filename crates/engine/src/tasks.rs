//! Human tasks: permissions and requests.

use std::sync::Arc;

use orlog_model::{
    Commit, ControlRequest, EventType, HistoryEntry, Input, InputOrigin, Instance, Task,
    TaskAction, TaskEventKind, TaskSpec, WorkOutcome,
};
use orlog_program::ProgramInput;
use uuid::Uuid;

use crate::commit_builder::user_note;
use crate::context::DecisionContext;
use crate::decision::{Decision, Rejection, ignore};
use crate::run_program::decide_with_program;
use crate::task_updates::{apply_event, task_update};
use crate::{excluded_users, record};

/// Decides a task request of a user. The program runs only when the task is completed.
pub(crate) fn decide_task(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    instance: &Instance,
    id: Uuid,
    order: &TaskAction,
    roles: &[String],
) -> Decision {
    let Some(task) = instance.tasks.iter().find(|task| task.id == id) else {
        return Decision::Reject(Rejection::TaskNotFound { id });
    };
    let Some(user) = control.user.as_deref() else {
        return reject(
            "the request names no user; set `user`, or --user on the command line".to_owned(),
        );
    };

    let permission = match order {
        TaskAction::Claim | TaskAction::Complete { .. } => check_permission(task, user, roles)
            .and_then(|()| excluded_users::check(instance, task, user)),
        // Only the claimant gives a task back; a task without one has nothing to release.
        TaskAction::Release => check_claimant(task, user),
        TaskAction::Assign {
            // Otherwise an administrator could assign the task to the user whom it excludes.
            assignee: Some(assignee),
            ..
        } => excluded_users::check(instance, task, assignee),
        TaskAction::Assign { assignee: None, .. } => Ok(()),
    };
    if let Err(reason) = permission {
        return reject(reason);
    }

    match order {
        TaskAction::Complete { outcome, data } => match check_outcome(&task.spec, outcome.as_ref())
        {
            Err(reason) => reject(reason),
            // A completion runs the program, which a paused instance must not do. The other actions
            // change only the task.
            Ok(()) if instance.paused => {
                reject("its instance is paused; resume it before you complete the task".to_owned())
            }
            Ok(()) => {
                let work_outcome = WorkOutcome::succeeded(outcome.clone(), data.clone());
                let program_input = ProgramInput::WorkResult {
                    tag: task.spec.tag.as_str(),
                    outcome: &work_outcome,
                };
                decide_with_program(context, input, &program_input)
            }
        },
        // A claim of another user was rejected above, so this one is repeated.
        TaskAction::Claim if task.claimed_by.is_some() => {
            ignore("already claimed by the same user")
        }
        TaskAction::Release if task.claimed_by.is_none() => ignore("the task is not claimed"),
        TaskAction::Claim => update_task(
            context,
            input,
            control,
            instance,
            id,
            &TaskEventKind::Claimed,
        ),
        TaskAction::Release => update_task(
            context,
            input,
            control,
            instance,
            id,
            &TaskEventKind::Released,
        ),
        TaskAction::Assign { assignee, roles } => {
            let roles = roles.clone().unwrap_or_else(|| task.spec.roles.clone());
            let step = TaskEventKind::Reassigned {
                roles,
                assignee: assignee.clone(),
            };
            update_task(context, input, control, instance, id, &step)
        }
    }
}

fn reject(reason: String) -> Decision {
    Decision::Reject(Rejection::TaskConflict { reason })
}

/// Checks whether the user may claim or complete the task.
fn check_permission(task: &Task, user: &str, roles: &[String]) -> Result<(), String> {
    check_claimant(task, user)?;

    let spec = &task.spec;
    if let Some(assignee) = spec.assignee.as_ref().filter(|assignee| *assignee != user) {
        return Err(format!("the task is assigned to {assignee}"));
    }
    if spec.roles.is_empty() || spec.roles.iter().any(|role| roles.contains(role)) {
        return Ok(());
    }
    Err(format!(
        "the task requires one of the roles {}; {user} has none of them",
        spec.roles.join(", ")
    ))
}

fn check_claimant(task: &Task, user: &str) -> Result<(), String> {
    match &task.claimed_by {
        Some(other) if other != user => Err(format!("the task is claimed by {other}")),
        Some(_) | None => Ok(()),
    }
}

fn check_outcome(spec: &TaskSpec, outcome: Option<&EventType>) -> Result<(), String> {
    let choices = || {
        spec.outcomes
            .iter()
            .map(EventType::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };

    match outcome {
        None if spec.outcomes.is_empty() => Ok(()),
        None => Err(format!("an outcome is required: {}", choices())),
        Some(outcome) if spec.outcomes.contains(outcome) => Ok(()),
        Some(outcome) if spec.outcomes.is_empty() => Err(format!(
            "the task defines no outcomes; {outcome} is invalid"
        )),
        Some(outcome) => Err(format!(
            "{outcome} is not an outcome of the task; outcomes: {}",
            choices()
        )),
    }
}

/// Changes the assignee or the claim of a task without running the program.
fn update_task(
    context: &DecisionContext<'_>,
    input: &Input,
    control: &ControlRequest,
    instance: &Instance,
    id: Uuid,
    step: &TaskEventKind,
) -> Decision {
    let mut commit = Commit::empty(context.key.clone(), context.now);

    let mut next = instance.clone();
    next.version += 1;
    next.last_input = control.id.clone();
    next.updated_at = context.now;
    next.node = context.node.into();

    let mut note = String::new();
    for task in next.tasks.iter_mut().filter(|task| task.id == id) {
        note = user_note(&format!("{}: {}", task.spec.tag, step.as_str()), control);
        apply_event(task, step, control.user.as_deref());
        commit
            .tasks
            .push(task_update(context, task, step.clone(), Some(control)));
    }

    commit.history = Some(HistoryEntry {
        version: next.version,
        at: context.now,
        input_id: control.id.clone(),
        input_label: input.label().into(),
        note,
        status: next.status,
        work: Vec::new(),
        origin: InputOrigin::new(input, context.node, context.now),
        payloads: record::payloads(input, &[], &[], context.history_payload_bytes),
        failure: None,
        input: None,
    });

    commit.dedupe_key = input.dedupe_key();
    commit.instance = Some(Arc::new(next));
    Decision::Commit(Box::new(commit))
}
