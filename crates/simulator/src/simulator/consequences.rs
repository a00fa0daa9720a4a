//! Immediate follow-ups of the work of a commit: delivery of facts, start and cancellation of child
//! sagas, notification of parents.

use orlog_model::{
    Event, EventId, EventType, Input, Instance, InstanceKey, ParentRef, Work, WorkItem,
    WorkflowAction, WorkflowCommand,
};
use serde_json::Value;

use super::programs::SimulatorPrograms;

/// Input that follows from a commit.
#[derive(Clone)]
pub(super) struct FollowUp {
    pub(super) key: InstanceKey,
    pub(super) input: Input,
    /// Whether the input was buffered, so that its dedupe key exists already.
    pub(super) was_buffered: bool,
}

/// Returns the inputs that follow from a work item of an instance. A saga that is not loaded
/// receives none; the caller must provide the result of such a child.
pub(super) fn follow_ups(
    item: &WorkItem,
    instance: Option<&Instance>,
    programs: &SimulatorPrograms,
) -> Vec<FollowUp> {
    let key = &item.instance;
    let of = |saga: &orlog_model::SagaName, correlation: &orlog_model::CorrelationId| InstanceKey {
        tenant: key.tenant.clone(),
        saga: saga.clone(),
        correlation: correlation.clone(),
    };

    let (to, action) = match &item.work {
        Work::Command(_) | Work::Effect(_) | Work::PublishResult(_) => return Vec::new(),
        Work::Fact(kind) => {
            let event = fact(item, kind.kind.clone(), kind.data.clone());
            let keys = programs.route(&event).into_iter().flatten();
            let input = Input::Event(event);
            return keys
                .map(|key| FollowUp {
                    key,
                    input: input.clone(),
                    was_buffered: false,
                })
                .collect();
        }
        Work::StartChild(start) => {
            // Inherited, so that tasks of the child can exclude the user who started the parent.
            let user = instance.and_then(|instance| instance.users.as_ref()?.started_by.clone());
            let parent = instance.and_then(|instance| instance.parent.as_ref());
            let depth = parent.map_or(0, |parent| parent.depth) + 1;
            let parent = ParentRef {
                key: key.clone(),
                work_id: item.id,
                depth,
            };
            let action = WorkflowAction::Start {
                parent,
                event: start.event.clone(),
                data: start.data.clone(),
                user,
            };
            (of(&start.saga, &start.correlation), action)
        }
        Work::CancelChild(cancel) => {
            let action = WorkflowAction::Cancel {
                from: key.clone(),
                reason: cancel.reason.clone(),
            };
            (of(&cancel.saga, &cancel.correlation), action)
        }
        Work::NotifyParent(end) => (
            end.to.clone(),
            WorkflowAction::ChildEnded(end.ended.clone()),
        ),
    };

    // Without a definition, the caller provides the result, as for every other work.
    if programs.of(&to.saga).is_none() {
        return Vec::new();
    }

    let command = WorkflowCommand {
        id: event_id(item),
        at: item.created_at,
        trace: item.trace.clone(),
        action,
    };

    vec![FollowUp {
        key: to,
        input: Input::Workflow(command),
        was_buffered: false,
    }]
}

fn event_id(item: &WorkItem) -> EventId {
    EventId::new(item.id.to_string()).expect("a UUID is a valid event id")
}

/// Converts a fact to an event.
fn fact(item: &WorkItem, kind: EventType, data: Value) -> Event {
    let InstanceKey {
        tenant,
        saga,
        correlation,
    } = &item.instance;

    Event {
        id: event_id(item),
        tenant: tenant.clone(),
        kind,
        source: format!("orlog:{saga}"),
        subject: Some(correlation.to_string()),
        time: item.created_at,
        correlation: Some(correlation.clone()),
        causation: Some(item.causation.to_string()),
        trace: item.trace.clone(),
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}
