//! Record of a transition for its history entry: the payloads, and why it failed.

use orlog_model::{
    ControlAction, Failure, Input, RecordedFailure, RecordedPayloads, TaskAction, VariableChange,
    WorkItem, WorkflowAction,
};

/// Returns the data of the input, the changed variables and the payloads of the requested work,
/// each cut to `limit` bytes.
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
            ControlAction::Deliver { event, .. } => Some(&event.data),
            ControlAction::Start(start) => Some(&start.data),
            // The outcome or the assignee is part of the decision, so the whole action is recorded.
            ControlAction::Task {
                order: order @ (TaskAction::Complete { .. } | TaskAction::Assign { .. }),
                ..
            } => {
                return payloads.push(Some(order), limit);
            }
            action @ ControlAction::Cancel { .. } => return payloads.push(Some(action), limit),
            ControlAction::Task {
                order: TaskAction::Claim | TaskAction::Release,
                ..
            }
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

/// Returns the failure of a transition: that of the program, or else that of the input, with the
/// attempts.
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
    (failure.is_some() || attempts.is_some()).then(|| {
        Box::new(RecordedFailure {
            failure: failure.cloned(),
            attempts: attempts.cloned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        AttemptLog, Destination, OutboxKey, TenantId, Timestamp, WorkKind, WorkOutcome, WorkResult,
    };
    use serde_json::json;

    use super::*;

    fn result(outcome: WorkOutcome, attempt_log: Option<AttemptLog>) -> Input {
        let tenant = TenantId::default_tenant();
        let destination = Destination {
            kind: WorkKind::Effect,
            tenant,
            name: "hotel.book".into(),
            priority: orlog_model::Priority::Normal,
        };
        Input::WorkResult(WorkResult {
            work_id: uuid::Uuid::nil(),
            outbox_key: OutboxKey {
                destination,
                sequence: 1,
            },
            outcome,
            requested_at: Timestamp::from_millis(1),
            attempts: 1,
            at: Timestamp::from_millis(2),
            facts: Vec::new(),
            publishes: false,
            trace: None,
            attempt_log: attempt_log.map(Box::new),
        })
    }

    #[test]
    fn failure_of_the_result_is_recorded_with_its_attempts() {
        let no_rooms = Failure {
            code: "http_503".to_owned(),
            message: "no rooms".to_owned(),
        };
        let log = AttemptLog {
            records: Vec::new(),
            omitted: 3,
        };
        let input = result(
            WorkOutcome::TimedOut {
                failure: no_rooms.clone(),
            },
            Some(log.clone()),
        );
        let recorded = failure(&input, None).expect("it is a failure");
        assert_eq!(
            (recorded.failure, recorded.attempts),
            (Some(no_rooms), Some(log))
        );
        let succeeded = WorkOutcome::succeeded(None, json!({ "id": 3 }));
        assert_eq!(failure(&result(succeeded, None), None), None);
    }

    #[test]
    fn response_and_variables_are_recorded_in_order() {
        let succeeded = WorkOutcome::succeeded(None, json!({ "id": 3 }));
        let change = VariableChange {
            name: "room".into(),
            before: json!(null),
            after: json!(3),
        };
        let recorded = payloads(&result(succeeded, None), &[change], &[], 100);
        let texts: Vec<_> = recorded
            .iter()
            .flatten()
            .map(|payload| payload.text.into_owned())
            .collect();
        assert_eq!(texts, [r#"{"id":3}"#, r#"{"room":[null,3]}"#]);
    }
}
