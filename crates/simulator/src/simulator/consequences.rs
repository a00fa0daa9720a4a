//! Immediate follow-ups of a commit: delivery of facts, start and cancellation of child sagas, delivery
//! of buffered inputs.

use orlog_model::{
    Event, EventId, EventType, Input, InstanceKey, OutboxKey, ParentRef, StartChild, Work, WorkItem,
    WorkflowAction, WorkflowCommand,
};
use serde_json::Value;

use super::instance::RequestedWork;
use super::{FollowUp, PreviousStatus, Simulator};

impl Simulator {
    /// Records one work item and executes the part that the simulator supports.
    pub(super) fn record_work(&mut self, key: &InstanceKey, item: WorkItem) {
        match &item.work {
            Work::Command(_) | Work::Effect(_) => {}
            Work::Fact(fact) => self.publish_fact(&item, fact.kind.clone(), fact.data.clone()),
            Work::StartChild(start) => self.start_child(key, &item, start),
            Work::CancelChild(cancel) => {
                let to = self.key(&cancel.saga, cancel.correlation.clone());
                let action = WorkflowAction::Cancel { from: key.clone(), reason: cancel.reason.clone() };
                self.send(to, &item, action);
            }
            Work::NotifyParent(end) => {
                self.send(end.to.clone(), &item, WorkflowAction::ChildEnded(end.ended.clone()));
            }
        }
        let outbox = OutboxKey { destination: item.destination(), sequence: self.sequence };
        let records_history = self.records_history;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.record_work(RequestedWork { item, outbox, completed: false }, records_history);
    }

    /// Delivers a fact to every loaded saga that consumes it.
    fn publish_fact(&mut self, item: &WorkItem, kind: EventType, data: Value) {
        let event = fact(item, kind, data);
        for key in self.programs.route(&event).into_iter().flatten() {
            self.queue.push_back(FollowUp { key, input: Input::Event(event.clone()), was_buffered: false });
        }
    }

    /// Starts a child saga. If its definition is not loaded, the caller must provide its result.
    fn start_child(&mut self, key: &InstanceKey, item: &WorkItem, start: &StartChild) {
        let instance = self.instance(key);
        let user = instance.and_then(|instance| instance.users.as_ref()?.started_by.clone());
        let parent = instance.and_then(|instance| instance.parent.as_ref());
        let depth = parent.map_or(0, |parent| parent.depth) + 1;
        let parent = ParentRef { key: key.clone(), work_id: item.id, depth };
        let action =
            WorkflowAction::Start { parent, event: start.event.clone(), data: start.data.clone(), user };
        self.send(self.key(&start.saga, start.correlation.clone()), item, action);
    }

    fn send(&mut self, key: InstanceKey, item: &WorkItem, action: WorkflowAction) {
        if self.programs.of(&key.saga).is_none() {
            return;
        }
        let command =
            WorkflowCommand { id: event_id(item), at: item.created_at, trace: item.trace.clone(), action };
        self.queue.push_back(FollowUp { key, input: Input::Workflow(command), was_buffered: false });
    }

    /// Schedules the follow-ups of the difference to the previous status.
    pub(super) fn schedule_follow_ups(
        &mut self,
        key: &InstanceKey,
        input: &Input,
        previous: &PreviousStatus,
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Input::Workflow(WorkflowCommand { action: WorkflowAction::ChildEnded(ended), .. }) = input {
            entry.complete(ended.work_id);
        }
        let Some(instance) = &entry.instance else { return };
        let ended = instance.status.is_final() && !previous.ended;
        if !instance.paused && (previous.paused || !previous.existed) {
            let buffered = std::mem::take(&mut entry.buffered);
            for input in buffered.into_values().rev() {
                self.queue.push_front(FollowUp { key: key.clone(), input, was_buffered: true });
            }
        }
        if ended && !self.records_history {
            self.entries.entry(key.clone()).or_default().clear();
        }
    }
}

fn event_id(item: &WorkItem) -> EventId {
    EventId::new(item.id.to_string()).expect("a UUID is a valid event id")
}

/// Converts a fact to an event.
fn fact(item: &WorkItem, kind: EventType, data: Value) -> Event {
    let InstanceKey { tenant, saga, correlation } = &item.instance;
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
    }
}
