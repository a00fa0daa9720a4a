//! Child sagas: start, cancellation, and the notification of the parent at the end.
//!
//! A child that cannot start immediately sends a failed end, so that no parent waits forever. The
//! shard of the child decides this, because only that shard stores the instance and its
//! definitions.

use orlog_model::{
    ChildResult, Commit, Event, EventType, Failure, Input, Instance, InstanceKey, MAX_CHILD_DEPTH,
    NotifyParent, ParentRef, Priority, Timestamp, Transition, Work, WorkItem, WorkOutcome,
    WorkflowAction, WorkflowCommand, derive_child_id,
};
use orlog_program::{ProgramInput, ProgramOutput};
use serde_json::Value;

use crate::commit_builder::child_result;
use crate::context::DecisionContext;
use crate::decision::{Decision, ignore};
use crate::early_input;
use crate::run_program::{buffer_input, commit_transition, decide_with_program, run_program};

/// Decides a workflow command of another saga.
pub(crate) fn decide_workflow(
    context: &DecisionContext<'_>,
    input: &Input,
    command: &WorkflowCommand,
) -> Decision {
    match &command.action {
        WorkflowAction::Start {
            parent,
            event,
            data,
            ..
        } => start(context, input, command, parent, event.as_ref(), data),
        WorkflowAction::Cancel { from, reason } => cancel(context, input, from, reason),
        WorkflowAction::ChildEnded(ended) => child_ended(context, input, ended),
    }
}

fn start(
    context: &DecisionContext<'_>,
    input: &Input,
    command: &WorkflowCommand,
    parent: &ParentRef,
    event: Option<&EventType>,
    data: &Value,
) -> Decision {
    let reject = |code: &str, message| {
        let failure = Failure {
            code: code.to_owned(),
            message,
        };
        let mut commit = rejection_commit(context.key, command, parent, failure, context.now);

        // The dedupe key prevents a second rejection on each redelivery.
        // A missing instance stores none, because its duplicates are not looked up. The derived id
        // of the message makes a second rejection a duplicate on the bus.
        commit.dedupe_key = context.instance.and(input.dedupe_key());

        Decision::Commit(Box::new(commit))
    };

    // A parent whose event handler starts the child again, because its event was delivered again
    // after the dedupe window, waits for the end of the child a second time.
    if let Some(instance) = context.instance {
        if instance
            .parent
            .as_ref()
            .is_some_and(|own| own.work_id == parent.work_id)
        {
            if instance.status.is_final() {
                return Decision::Commit(Box::new(repeated_end(
                    context, input, command, parent, instance,
                )));
            }
            return ignore("already started by this command");
        }
        return reject("already_exists", format!("{} already exists", context.key));
    }

    if parent.depth > MAX_CHILD_DEPTH {
        let message = format!(
            "{} ancestor sagas exceed the limit of {MAX_CHILD_DEPTH}",
            parent.depth
        );
        return reject("too_deep", message);
    }

    let Some(kind) = context.program.start_event(event).cloned() else {
        let saga = &context.key.saga;
        let message = event.map_or_else(
            || format!("saga \"{saga}\" has no start event"),
            |event| format!("\"{event}\" is not a start event of saga \"{saga}\""),
        );
        return reject("no_start_event", message);
    };

    let event = child_start_event(context.key, command, parent, kind, data);

    match run_program(context, input, &ProgramInput::Event(&event)) {
        Ok(ProgramOutput::Applied(mut transition)) => {
            note_other_address(context, &event, &mut transition);
            commit_transition(context, input, *transition)
        }
        Ok(ProgramOutput::Ignored(reason) | ProgramOutput::Rejected(reason)) => {
            reject("start_rejected", reason.into_owned())
        }
        Err(fault) => reject("start_rejected", fault.to_string()),
    }
}

/// Adds a note to the history if the correlation rule of the child gives another id than its
/// parent.
fn note_other_address(context: &DecisionContext<'_>, event: &Event, transition: &mut Transition) {
    if let Ok(own) = context.program.correlate(event)
        && own != context.key.correlation
    {
        // Events with that id do not reach the child (ADR 0060); without a note, it only seems to
        // wait.
        let note = &transition.note;
        transition.note =
            format!("{note}; its events with the correlation id {own} do not reach it");
    }
}

fn child_start_event(
    key: &InstanceKey,
    command: &WorkflowCommand,
    parent: &ParentRef,
    kind: EventType,
    data: &Value,
) -> Event {
    Event {
        id: command.id.clone(),
        tenant: key.tenant.clone(),
        kind,
        source: format!("orlog:{}", parent.key.saga),
        subject: Some(parent.key.correlation.to_string()),
        time: command.at,
        correlation: Some(key.correlation.clone()),
        causation: Some(parent.work_id.to_string()),
        trace: command.trace.clone(),
        schema_version: 1,
        data: data.clone(),
        user: None,
        attributes: None,
    }
}

fn cancel(
    context: &DecisionContext<'_>,
    input: &Input,
    from: &InstanceKey,
    reason: &str,
) -> Decision {
    match context.instance {
        // The cancellation can overtake the start: they are separate messages of the bus (ADR
        // 0008).
        None => early_input::buffer_cancel(context, input),
        Some(instance)
            if instance
                .parent
                .as_ref()
                .is_none_or(|parent| parent.key != *from) =>
        {
            ignore("the cancel command is not from its parent")
        }
        // The child can end before the command arrives.
        Some(instance) if instance.status.is_final() => ignore("it has ended"),
        Some(instance) if instance.paused => buffer_input(context, input),
        Some(_) => decide_with_program(context, input, &ProgramInput::Cancel { reason }),
    }
}

fn child_ended(context: &DecisionContext<'_>, input: &Input, ended: &ChildResult) -> Decision {
    let open = context
        .instance
        .and_then(|i| i.pending_work.iter().find(|open| open.id == ended.work_id));
    match (context.instance, open) {
        (Some(instance), Some(_)) if instance.paused => buffer_input(context, input),
        (Some(_), Some(open)) => {
            let work_outcome = work_outcome(ended);
            decide_with_program(
                context,
                input,
                &ProgramInput::WorkResult {
                    tag: open.tag.as_str(),
                    outcome: &work_outcome,
                },
            )
        }
        (_, None) | (None, _) => ignore("no pending work waits for the end of this saga"),
    }
}

fn work_outcome(ended: &ChildResult) -> WorkOutcome {
    let payload = ended.data.clone();
    match &ended.failure {
        None => WorkOutcome::succeeded(ended.event.clone(), payload),
        Some(failure) => WorkOutcome::Failed {
            event: None,
            failure: failure.clone(),
            payload,
        },
    }
}

/// Returns the commit that notifies the parent again of the end of its child.
fn repeated_end(
    context: &DecisionContext<'_>,
    input: &Input,
    command: &WorkflowCommand,
    parent: &ParentRef,
    instance: &Instance,
) -> Commit {
    let result = instance
        .result
        .as_deref()
        .map(|result| (&result.event, &result.data));
    let failure = instance.last_error.as_ref().map(ToString::to_string);

    let ended = child_result(
        context.key,
        parent.work_id,
        instance.status,
        result,
        failure,
    );

    let mut commit = end_commit(context.key, command, parent, ended, context.now);
    commit.dedupe_key = input.dedupe_key();
    commit
}

/// Decides a workflow command for a missing instance of a saga without a definition.
pub(crate) fn reject_unknown_saga(
    key: &InstanceKey,
    command: &WorkflowCommand,
    now: Timestamp,
) -> Decision {
    let WorkflowAction::Start { parent, .. } = &command.action else {
        return ignore("unknown saga");
    };

    let message = format!("saga \"{}\" has no definition", key.saga);
    let failure = Failure {
        code: "unknown_saga".to_owned(),
        message,
    };
    Decision::Commit(Box::new(rejection_commit(
        key, command, parent, failure, now,
    )))
}

/// Returns the commit that notifies a parent that its child was not started.
fn rejection_commit(
    key: &InstanceKey,
    command: &WorkflowCommand,
    parent: &ParentRef,
    failure: Failure,
    now: Timestamp,
) -> Commit {
    let ended = ChildResult {
        work_id: parent.work_id,
        failure: Some(failure),
        event: None,
        data: Value::Null,
    };
    end_commit(key, command, parent, ended, now)
}

/// Returns the commit of a start command that only notifies the parent.
fn end_commit(
    key: &InstanceKey,
    command: &WorkflowCommand,
    parent: &ParentRef,
    ended: ChildResult,
    now: Timestamp,
) -> Commit {
    let mut commit = Commit::empty(key.clone(), now);
    commit.work.push(WorkItem {
        // Derived from the request of the parent, so that a redelivered command has the same
        // message.
        id: derive_child_id(parent.work_id, &[b"rejected"]),
        instance: key.clone(),
        work: Work::NotifyParent(NotifyParent {
            to: parent.key.clone(),
            ended,
        }),
        deadline: None,
        causation: command.id.clone(),
        trace: command.trace.clone(),
        created_at: now,
        priority: Priority::Normal,
    });
    commit
}
