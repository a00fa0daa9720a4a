//! What follows from a commit at once: facts reach other sagas, sagas begin and end one another, what was kept is taken.

use orlog_model::{
    Event, EventId, EventType, Input, InstanceKey, OutboxKey, Parent, Start, Work, WorkItem, WorkflowCommand,
    WorkflowOrder,
};
use serde_json::Value;

use super::instance::Asked;
use super::{Consequence, Lab, Was};

impl Lab {
    /// Notes one piece of work and does what the lab itself can do about it.
    pub(super) fn ask(&mut self, key: &InstanceKey, item: WorkItem) {
        match &item.work {
            Work::Command(_) | Work::Effect(_) => {}
            Work::Fact(fact) => self.tell(&item, fact.kind.clone(), fact.data.clone()),
            Work::Start(start) => self.begin(key, &item, start),
            Work::Stop(stop) => {
                let to = self.key(&stop.saga, stop.correlation.clone());
                let order = WorkflowOrder::Stop { from: key.clone(), reason: stop.reason.clone() };
                self.order(to, &item, order);
            }
            Work::End(end) => self.order(end.to.clone(), &item, WorkflowOrder::Ended(end.ended.clone())),
        }
        let outbox = OutboxKey { lane: item.work.lane(), sequence: self.sequence };
        let keeps_history = self.keeps_history;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.ask(Asked { item, outbox, settled: false }, keeps_history);
    }

    /// A fact reaches every saga here that takes it.
    fn tell(&mut self, item: &WorkItem, kind: EventType, data: Value) {
        let event = fact(item, kind, data);
        for key in self.programs.route(&event).into_iter().flatten() {
            self.queue.push_back(Consequence { key, input: Input::Event(event.clone()), again: false });
        }
    }

    /// A saga whose definition is not here is answered for by somebody else.
    fn begin(&mut self, key: &InstanceKey, item: &WorkItem, start: &Start) {
        let above = self.instance(key).and_then(|instance| instance.parent.as_ref());
        let depth = above.map_or(0, |parent| parent.depth) + 1;
        let parent = Parent { key: key.clone(), work_id: item.id, depth };
        let order = WorkflowOrder::Start { parent, event: start.event.clone(), data: start.data.clone() };
        self.order(self.key(&start.saga, start.correlation.clone()), item, order);
    }

    fn order(&mut self, key: InstanceKey, item: &WorkItem, order: WorkflowOrder) {
        if self.programs.of(&key.saga).is_none() {
            return;
        }
        let command =
            WorkflowCommand { id: event_id(item), at: item.created_at, trace: item.trace.clone(), order };
        self.queue.push_back(Consequence { key, input: Input::Workflow(command), again: false });
    }

    /// What the difference to before leads to.
    pub(super) fn consequences_of(&mut self, key: &InstanceKey, input: &Input, was: &Was) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Input::Workflow(WorkflowCommand { order: WorkflowOrder::Ended(ended), .. }) = input {
            entry.settle(ended.work_id);
        }
        let Some(instance) = &entry.instance else { return };
        let ended = instance.status.is_final() && !was.ended;
        if !instance.paused && (was.paused || !was.existed) {
            let kept = std::mem::take(&mut entry.kept);
            for input in kept.into_values().rev() {
                self.queue.push_front(Consequence { key: key.clone(), input, again: true });
            }
        }
        if ended && !self.keeps_history {
            self.entries.entry(key.clone()).or_default().forget();
        }
    }
}

fn event_id(item: &WorkItem) -> EventId {
    EventId::new(item.id.to_string()).expect("a UUID is short ASCII")
}

/// A fact as an event.
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
    }
}
