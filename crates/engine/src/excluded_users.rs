//! Four-eyes rules of human tasks: users whom a task excludes, and the users whom an instance
//! records for it.
//!
//! A rule that refers to an unknown user excludes all users.

use orlog_model::{
    ControlAction, ExcludedUser, Exclusion, Input, Instance, InstanceUsers, Task, TaskAction,
    WorkflowAction,
};

use crate::context::DecisionContext;

/// Checks whether the task admits a user.
///
/// # Errors
/// If the task excludes the user, or a user that the instance does not record.
pub(crate) fn check(instance: &Instance, task: &Task, user: &str) -> Result<(), String> {
    task.spec
        .not_by
        .iter()
        .try_for_each(|excluded| check_one(instance.users.as_ref(), *excluded, user))
}

fn check_one(
    users: Option<&InstanceUsers>,
    excluded: ExcludedUser,
    user: &str,
) -> Result<(), String> {
    let rule = excluded.as_str();
    let label = match excluded {
        ExcludedUser::Starter => "the user who started the instance",
        ExcludedUser::Previous => "the user who completed the previous task",
    };

    match excluded.resolve(users) {
        Some(Exclusion::User(found)) if found == user => Err(format!(
            "the task excludes {user}, {label} (not_by: {rule})"
        )),
        Some(Exclusion::AllUsers) => Err(format!(
            "the task excludes {label} (not_by: {rule}), and the instance does not record that user"
        )),
        Some(Exclusion::User(_)) | None => Ok(()),
    }
}

/// Returns the users of the instance after an input: the user of its start event, and the user of
/// its last completed task.
pub(crate) fn users_after(context: &DecisionContext<'_>, input: &Input) -> Option<InstanceUsers> {
    let Some(instance) = context.instance else {
        return Some(InstanceUsers {
            started_by: start_user(input).cloned(),
            last_task_user: None,
        });
    };

    let mut users = instance.users.clone();

    // Tasks that decide an effect in doubt do not count.
    if let Some(user) = completing_user(instance, input) {
        users.get_or_insert_default().last_task_user = Some(user.clone());
    }
    users
}

/// Returns the user who starts an instance with this input.
fn start_user(input: &Input) -> Option<&String> {
    match input {
        Input::Event(event) => event.user.as_ref(),
        Input::Early(early) => start_user(&early.input),
        Input::Workflow(command) => match &command.action {
            WorkflowAction::Start { user, .. } => user.as_ref(),
            WorkflowAction::Cancel { .. } | WorkflowAction::ChildEnded(_) => None,
        },
        Input::Control(control) => control.user.as_ref(),
        Input::WorkResult(_) | Input::Timer(_) => None,
    }
}

fn completing_user<'a>(instance: &Instance, input: &'a Input) -> Option<&'a String> {
    let Input::Control(control) = input else {
        return None;
    };
    let ControlAction::Task {
        id,
        order: TaskAction::Complete { .. },
        ..
    } = &control.action
    else {
        return None;
    };

    let completes_form = instance
        .tasks
        .iter()
        .any(|task| task.id == *id && !task.spec.is_in_doubt);
    control.user.as_ref().filter(|_| completes_form)
}
