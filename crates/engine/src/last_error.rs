//! Last error of an instance: the latest failure, and the one with which the instance stopped
//! running forward.

use orlog_model::{
    ControlAction, Input, Instance, InstanceFailure, Name, Status, Timestamp, TransitionFailure,
};

/// Returns the last error after a transition to `status`. `before` is the instance before it, in
/// the same run.
pub(crate) fn last_error(
    before: Option<&Instance>,
    input: &Input,
    reported: Option<Box<TransitionFailure>>,
    status: Status,
    now: Timestamp,
) -> Option<Box<InstanceFailure>> {
    let earlier = before.and_then(|instance| instance.last_error.as_ref());
    let Some(reported) = reported else {
        return earlier.cloned();
    };

    let TransitionFailure { failure, step } = *reported;
    let was_running = before.is_none_or(|instance| instance.status == Status::Running);

    // The cause is the failure that stopped the instance from running forward. Failures of its
    // compensations follow it, and must not replace it.
    let cause = earlier.filter(|_| !was_running).and_then(|earlier| {
        let is_cause = earlier.is_cause.then_some(earlier);
        earlier.cause.as_ref().or(is_cause).cloned()
    });

    Some(Box::new(InstanceFailure {
        step: step.or_else(|| tag(before?, input).cloned()),
        attempts: attempts(input),
        at: Some(now),
        is_cause: was_running && status != Status::Running,
        cause,
        ..InstanceFailure::from(failure)
    }))
}

/// Returns the tag of the work or of the task whose result the input is.
fn tag<'a>(instance: &'a Instance, input: &Input) -> Option<&'a Name> {
    if let Some(id) = input.completed_work_id() {
        return instance
            .pending_work
            .iter()
            .find(|work| work.id == id)
            .map(|work| &work.tag);
    }

    let Input::Control(control) = input else {
        return None;
    };
    let ControlAction::Task { id, .. } = &control.action else {
        return None;
    };

    instance
        .tasks
        .iter()
        .find(|task| task.id == *id)
        .map(|task| &task.spec.tag)
}

fn attempts(input: &Input) -> Option<u32> {
    match input {
        Input::WorkResult(result) => Some(result.attempts),
        Input::Early(early) => attempts(&early.input),
        Input::Event(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
    }
}
