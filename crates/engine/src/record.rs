//! Record of a transition for its history entry: the payloads, and why it failed.

use orlog_model::{
    ControlAction, Failure, Input, RecordedFailure, RecordedPayloads, TaskAction, VariableChange, WorkItem,
    WorkflowAction,
};

/// Returns the data of the input, the changed variables and the payloads of the requested work, each cut to
/// `limit` bytes.
pub(crate) fn payloads(
    input: &Input,
    variables: &[VariableChange],
    work: &[WorkItem],
    limit: usize,
) -> RecordedPayloads {
    let mut payloads = RecordedPayloads::default();
    push_input(&mut payloads, input, limit);
    payloads.push_variables(variables, limit);
    for item in work {
        payloads.push(item.work.payload().filter(|data| !data.is_null()), limit);
    }
    payloads
}

fn push_input(payloads: &mut RecordedPayloads, input: &Input, limit: usize) {
    let data = match input {
        Input::Event(event) => Some(&event.data),
        Input::WorkResult(result) => result.outcome.payload(),
        Input::Timer(_) => None,
        Input::Control(control) => match &control.action {
            ControlAction::Signal { data, .. } => Some(data),
            ControlAction::Task {
                order: order @ (TaskAction::Complete { .. } | TaskAction::Assign { .. }),
                ..
            } => {
                return payloads.push(Some(order), limit);
            }
            action @ ControlAction::Cancel { .. } => return payloads.push(Some(action), limit),
            ControlAction::Task { order: TaskAction::Claim | TaskAction::Release, .. }
            | ControlAction::Pause
            | ControlAction::Resume
            | ControlAction::Retry
            | ControlAction::Skip
            | ControlAction::ForceComplete
            | ControlAction::Drop
            | ControlAction::Replay
            | ControlAction::Migrate { .. } => None,
        },
        Input::Workflow(command) => match &command.action {
            WorkflowAction::Start { data, .. } => Some(data),
            WorkflowAction::ChildEnded(ended) => Some(&ended.data),
            WorkflowAction::Cancel { .. } => None,
        },
        Input::Early(early) => return push_input(payloads, &early.input, limit),
    };
    payloads.push(data.filter(|data| !data.is_null()), limit);
}

/// Returns the failure of a transition: that of the program, or else that of the input, with the attempts.
pub(crate) fn failure(input: &Input, caused: Option<&Failure>) -> Option<Box<RecordedFailure>> {
    let (own, attempts) = match input {
        Input::WorkResult(result) => (result.outcome.failure(), result.attempt_log.as_deref()),
        Input::Workflow(command) => match &command.action {
            WorkflowAction::ChildEnded(ended) => (ended.failure.as_ref(), None),
            WorkflowAction::Start { .. } | WorkflowAction::Cancel { .. } => (None, None),
        },
        Input::Early(early) => return failure(&early.input, caused),
        Input::Event(_) | Input::Timer(_) | Input::Control(_) => (None, None),
    };
    let failure = caused.or(own);
    (failure.is_some() || attempts.is_some())
        .then(|| Box::new(RecordedFailure { failure: failure.cloned(), attempts: attempts.cloned() }))
}
