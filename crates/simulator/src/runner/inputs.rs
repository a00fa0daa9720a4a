//! From moves to inputs: which event or outcome answers the work of a tag, and what it must carry.

use std::sync::Arc;

use orlog_model::{
    Action, Control, CorrelationId, Event, EventId, EventType, Failure, IN_DOUBT, Input, InstanceKey,
    Outcome, TaskOrder, Verdict, Work,
};
use orlog_program::{Action as Asks, Definition, Program};
use serde_json::Value;

use super::names::{Called, fill, place};
use super::{Cannot, Player};
use crate::responses::{By, answering, step_of};
use crate::step::EventMove;

/// How a tag is answered, with the first names of success and failure.
struct How {
    by: By,
    ok: Option<EventType>,
    fail: Option<EventType>,
}

impl Player {
    pub(super) fn starts(&self, kind: &EventType) -> bool {
        let program = self.lab.programs().of(&self.saga);
        program.is_some_and(|p| p.manifest().triggers.iter().any(|t| t.starts && t.kind == *kind))
    }

    pub(super) fn event_from(&mut self, one: &EventMove, focus: Option<&InstanceKey>) -> Event {
        let stated = one.correlation.as_ref().and_then(|text| CorrelationId::new(text.as_str()).ok());
        let made = || CorrelationId::new("1").expect("a digit");
        let correlation = stated.or_else(|| focus.map(|key| key.correlation.clone())).unwrap_or_else(made);
        Event {
            id: one.id.clone().unwrap_or_else(|| self.next_id()),
            tenant: self.lab.tenant().clone(),
            kind: one.kind.clone(),
            source: "urn:lab".to_owned(),
            subject: None,
            time: one.time.unwrap_or(self.lab.now()),
            correlation: Some(correlation),
            causation: None,
            trace: None,
            schema_version: one.version,
            data: one.data.clone(),
        }
    }

    fn next_id(&mut self) -> EventId {
        self.count += 1;
        EventId::new(format!("input-{}", self.count)).expect("a short word")
    }

    pub(super) fn ok(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        event: Option<&EventType>,
        data: &Value,
    ) -> Result<Input, Cannot> {
        let how = self.how(key, tag);
        match how.by {
            By::Event => {
                self.must_be_asked(key, tag)?;
                let kind = event.cloned().or(how.ok);
                let kind = kind.ok_or_else(|| Cannot::Wrong(format!("no event answers `{tag}`")))?;
                Ok(self.addressed(key, kind, data))
            }
            By::Acceptance => self.outcome(key, tag, Verdict::Accepted),
            By::Outcome => {
                self.outcome(key, tag, Verdict::Succeeded { event: event.cloned(), payload: data.clone() })
            }
            By::Person => self.task(key, tag, event, None, data),
            By::Timer | By::Nobody => {
                Err(Cannot::Wrong(format!("`{tag}` is not answered; use `advance` where it waits for time")))
            }
        }
    }

    pub(super) fn fail(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        called: Called<'_>,
        failure: Failure,
        data: &Value,
    ) -> Result<Input, Cannot> {
        let how = self.how(key, tag);
        let named = match called {
            Called::Event(event) => Some(event.clone()),
            Called::Code | Called::Nothing => None,
        };
        match (how.by, called) {
            (By::Event | By::Acceptance, Called::Event(kind)) => Ok(self.addressed(key, kind.clone(), data)),
            (By::Event, Called::Nothing) if how.fail.is_some() => {
                self.must_be_asked(key, tag)?;
                let kind = how.fail.ok_or_else(|| Cannot::Wrong(format!("`{tag}` has no `fail`")))?;
                Ok(self.addressed(key, kind, data))
            }
            (By::Event | By::Acceptance | By::Outcome, _) => {
                self.outcome(key, tag, Verdict::Failed { event: named, failure, payload: data.clone() })
            }
            (By::Person, _) => {
                let refusal = || Cannot::Wrong(format!("a person cannot refuse `{tag}`: it has no `fail`"));
                let chosen = named.or(how.fail).ok_or_else(refusal)?;
                self.task(key, tag, Some(&chosen), None, data)
            }
            (By::Timer | By::Nobody, _) => Err(Cannot::Wrong(format!("`{tag}` cannot fail"))),
        }
    }

    /// Only what a provider does can be in doubt.
    pub(super) fn doubt(&self, key: &InstanceKey, tag: &str) -> Result<Input, Cannot> {
        let asked = self.lab.entry(key).and_then(|entry| entry.asked_as(tag));
        if asked.is_some_and(|asked| !matches!(asked.item.work, Work::Effect(_))) {
            return Err(Cannot::Wrong(format!("`{tag}` is no effect and no job, and is never in doubt")));
        }
        let message = format!("nobody knows whether {tag} was done");
        let failure = Failure { code: IN_DOUBT.to_owned(), message };
        self.outcome(key, tag, Verdict::TimedOut { failure })
    }

    pub(super) fn task(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        outcome: Option<&EventType>,
        by: Option<&str>,
        data: &Value,
    ) -> Result<Input, Cannot> {
        let open =
            self.lab.entry(key).and_then(|entry| entry.tasks().find(|task| task.form.tag.as_str() == tag));
        let Some(task) = open.cloned() else {
            let open = self.lab.entry(key).into_iter().flat_map(crate::simulator::Entry::tasks);
            let open = open.map(|task| task.form.tag.to_string()).collect();
            return Err(Cannot::NotAsked { tag: tag.to_owned(), open });
        };
        let usual = self.how(key, tag).ok.filter(|ok| task.form.outcomes.contains(ok));
        let chosen = outcome.cloned().or(usual).or(task.form.outcomes.first().cloned());
        let somebody = || task.claimed_by.clone().or(task.form.assignee.clone());
        let by = by.map(ToOwned::to_owned).or_else(somebody).unwrap_or_else(|| "somebody".to_owned());
        let order = TaskOrder::Complete { outcome: chosen, data: data.clone() };
        Ok(self.control_by(Some(by), Action::Task { id: task.id, order, roles: task.form.roles }))
    }

    pub(super) fn control(&mut self, action: Action) -> Input {
        self.control_by(None, action)
    }

    fn control_by(&mut self, by: Option<String>, action: Action) -> Input {
        let (id, at) = (self.next_id(), self.lab.now());
        Input::Control(Control { id, action, expected_version: None, at, by, reason: None, trace: None })
    }

    pub(super) fn outcome(&self, key: &InstanceKey, tag: &str, verdict: Verdict) -> Result<Input, Cannot> {
        self.must_be_asked(key, tag)?;
        let asked = self.lab.entry(key).and_then(|entry| entry.asked_as(tag));
        let wrong = || Cannot::Wrong(format!("`{tag}` is answered by an event, not by an outcome"));
        let asked = asked.ok_or_else(wrong)?;
        let (work_id, outbox) = (asked.item.id, asked.outbox.clone());
        Ok(Input::Outcome(Outcome {
            work_id,
            outbox,
            verdict,
            attempts: 1,
            at: self.lab.now(),
            facts: Vec::new(),
            trace: None,
        }))
    }

    /// Answers are for what was asked; a step that waits for an event asks for nothing.
    fn must_be_asked(&self, key: &InstanceKey, tag: &str) -> Result<(), Cannot> {
        let entry = self.lab.entry(key);
        let asked = entry.is_some_and(|entry| entry.asked_as(tag).is_some());
        if asked || self.only_waits(key, tag) {
            return Ok(());
        }
        let open = entry.into_iter().flat_map(crate::simulator::Entry::asked);
        let open = open.filter(|(_, asked)| !asked.settled).map(|(tag, _)| tag.to_string()).collect();
        Err(Cannot::NotAsked { tag: tag.to_owned(), open })
    }

    fn only_waits(&self, key: &InstanceKey, tag: &str) -> bool {
        let program = self.program(key);
        let definition = program.as_deref().and_then(definition);
        let step = definition.and_then(|definition| step_of(definition, tag));
        step.is_some_and(|step| matches!(step.action, Asks::Event { .. }))
    }

    /// An event for this instance, whatever its data says. Where the definition correlates by a field of its data that is
    /// not there, it is filled in.
    fn addressed(&mut self, key: &InstanceKey, kind: EventType, data: &Value) -> Input {
        let mut event = self.event_from(&EventMove::new(kind, data.clone()), Some(key));
        let program = self.program(key);
        if let Some(path) = program.as_deref().and_then(definition).and_then(|d| place(d, &event.kind)) {
            fill(&mut event.data, path, key.correlation.as_str());
        }
        Input::Event(event)
    }

    /// Without a definition everything is answered by its outcome.
    fn how(&self, key: &InstanceKey, tag: &str) -> How {
        let program = self.program(key);
        let definition = program.as_deref().and_then(definition);
        match definition.and_then(|definition| answering(definition, tag)) {
            Some(how) => How {
                by: how.by,
                ok: how.ok.first().map(|(event, _)| (*event).clone()),
                fail: how.fail.first().map(|(event, _)| (*event).clone()),
            },
            None => How { by: By::Outcome, ok: None, fail: None },
        }
    }

    fn program(&self, key: &InstanceKey) -> Option<Arc<dyn Program>> {
        self.lab.programs().of(&key.saga)
    }
}

fn definition(program: &dyn Program) -> Option<&Definition> {
    program.compiled().map(orlog_program::Compiled::definition)
}
