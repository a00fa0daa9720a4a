//! What follows from a commit at once: facts reach other sagas, sagas begin and end one another, what was kept is taken.

use orlog_model::{
    Action, Control, CorrelationId, Event, EventId, EventType, Failure, Input, InstanceKey, OutboxKey, Outcome,
    Start, Status, Stop, Verdict, Work, WorkItem,
};
use orlog_program::Program;
use serde_json::Value;

use super::entry::Asked;
use super::{Consequence, Lab, Was};

impl Lab {
    /// Notes one piece of work and does what the lab itself can do about it.
    pub(super) fn ask(&mut self, key: &InstanceKey, item: WorkItem) {
        let outbox = OutboxKey { lane: item.work.lane(), sequence: self.sequence };
        let asked = Asked { item, outbox, settled: false };
        match &asked.item.work {
            Work::Command(_) | Work::Effect(_) => {}
            Work::Fact(fact) => {
                let event = event_of(&asked.item, fact.kind.clone(), fact.data.clone(), &key.correlation);
                for key in self.programs.route(&event).into_iter().flatten() {
                    self.queue.push_back(Consequence { key, input: Input::Event(event.clone()), again: false });
                }
            }
            Work::Start(start) => self.begin_child(key, &asked, start),
            Work::Stop(stop) => self.stop_child(&asked.item, stop),
        }
        let keeps_history = self.keeps_history;
        let entry = self.entries.entry(key.clone()).or_default();
        if let Work::Fact(fact) = &asked.item.work {
            entry.last_fact = Some(fact.data.clone());
        }
        entry.ask(asked, keeps_history);
    }

    /// A saga that is not here is answered for by somebody else.
    fn begin_child(&mut self, parent: &InstanceKey, asked: &Asked, start: &Start) {
        let Some(program) = self.programs.of(&start.saga) else { return };
        let Some(kind) = start.event.clone().or_else(|| first_start(program.as_ref())) else { return };
        let child = self.key(&start.saga, start.correlation.clone());
        let entry = self.entries.entry(child.clone()).or_default();
        entry.parent = Some((parent.clone(), asked.clone()));
        if entry.status().is_some_and(Status::is_final) {
            return self.answer_parent(&child);
        }
        let event = event_of(&asked.item, kind, start.data.clone(), &start.correlation);
        self.queue.push_back(Consequence { key: child, input: Input::Event(event), again: false });
    }

    fn stop_child(&mut self, item: &WorkItem, stop: &Stop) {
        let key = self.key(&stop.saga, stop.correlation.clone());
        let control = Control {
            id: event_id(item),
            action: Action::Cancel { reason: stop.reason.clone() },
            expected_version: None,
            at: self.now,
        };
        self.queue.push_back(Consequence { key, input: Input::Control(control), again: false });
    }

    /// What the difference to before leads to.
    pub(super) fn consequences_of(&mut self, key: &InstanceKey, was: &Was) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(instance) = &entry.instance else { return };
        let ended = instance.status.is_final() && !was.ended;
        let goes_on = !instance.paused && (was.paused || !was.existed);
        if goes_on {
            let kept = entry.kept.drain(..).rev();
            for input in kept {
                self.queue.push_front(Consequence { key: key.clone(), input, again: true });
            }
        }
        if ended {
            self.answer_parent(key);
            if !self.keeps_history {
                self.entries.entry(key.clone()).or_default().forget();
            }
        }
    }

    /// Tells the saga that began this one how it ended.
    fn answer_parent(&mut self, child: &InstanceKey) {
        let Some(entry) = self.entries.get_mut(child) else { return };
        let (Some(instance), Some((parent, asked))) = (&entry.instance, entry.parent.take()) else { return };
        let verdict = match instance.status {
            Status::Completed => {
                Verdict::Succeeded { event: None, payload: entry.last_fact.clone().unwrap_or(Value::Null) }
            }
            Status::Cancelled => failed("child_cancelled", child),
            Status::Running | Status::Compensating | Status::Failed | Status::Stuck => {
                failed("child_failed", child)
            }
        };
        let outcome =
            Outcome { work_id: asked.item.id, outbox: asked.outbox, verdict, attempts: 1, at: self.now };
        self.queue.push_back(Consequence { key: parent, input: Input::Outcome(outcome), again: false });
    }
}

fn failed(code: &str, child: &InstanceKey) -> Verdict {
    let message = format!("{} {} ended without completing", child.saga, child.correlation);
    Verdict::Failed { event: None, failure: Failure { code: code.to_owned(), message }, payload: Value::Null }
}

fn first_start(program: &dyn Program) -> Option<EventType> {
    let by_definition = program.compiled().and_then(|compiled| compiled.definition().start.first());
    let by_manifest = || program.manifest().triggers.iter().find(|t| t.starts).map(|t| &t.kind);
    by_definition.or_else(by_manifest).cloned()
}

fn event_id(item: &WorkItem) -> EventId {
    EventId::new(item.id.to_string()).expect("a UUID is short ASCII")
}

/// The event that a fact, or the beginning of another saga, is.
fn event_of(item: &WorkItem, kind: EventType, data: Value, correlation: &CorrelationId) -> Event {
    Event {
        id: event_id(item),
        tenant: item.instance.tenant.clone(),
        kind,
        source: format!("orlog:{}", item.instance.saga),
        subject: Some(item.instance.correlation.to_string()),
        time: item.created_at,
        correlation: Some(correlation.clone()),
        causation: Some(item.causation.to_string()),
        trace: item.trace.clone(),
        schema_version: 1,
        data,
    }
}
