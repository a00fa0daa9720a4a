//! What a native saga orders: work, timers, waits, and how the instance is to be shown.

use std::time::Duration;

use orlog_model::{
    Command, Confirmation, Effect, EffectName, EventType, Fact, Failure, IdError, Name, Status, TimerChange,
    Wait, WaitKind, Work,
};
use serde_json::Value;

use crate::contract::Context;
use crate::limits::check_payload;

/// Takes down what is to be done. A name that is none is kept back and makes the input a dead letter that says so.
#[derive(Debug)]
pub struct Orders<'a> {
    context: &'a Context<'a>,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) waits: Vec<Wait>,
    pub(super) status: Status,
    pub(super) reference: Option<String>,
    pub(super) failure: Option<Failure>,
    pub(super) note: Option<String>,
    pub(super) wrong: Option<String>,
}

impl<'a> Orders<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            work: Vec::new(),
            timers: Vec::new(),
            waits: Vec::new(),
            status: Status::Running,
            reference: None,
            failure: None,
            note: None,
            wrong: None,
        }
    }

    /// What the saga may know beside its state.
    #[must_use]
    pub fn context(&self) -> &Context<'a> {
        self.context
    }

    /// Asks the aggregate of the correlation id for something; its answer is an event.
    pub fn command(&mut self, tag: &str, aggregate_type: &str, name: &str, payload: Value) {
        let names = [tag, aggregate_type, name].map(Name::new);
        let [Some(tag), Some(aggregate_type), Some(name)] = names.map(|name| self.checked(name)) else {
            return;
        };
        self.add(Work::Command(Command {
            tag,
            aggregate_type,
            aggregate_id: self.context.key.correlation.to_string(),
            name,
            payload,
            confirmation: Confirmation::RefusalOnly,
            timeout: None,
        }));
    }

    /// Asks for an effect; its outcome comes back under the tag.
    pub fn effect(&mut self, tag: &str, name: &str, payload: Value, timeout: Option<Duration>) {
        let (tag, name) = (self.checked(Name::new(tag)), self.checked(EffectName::new(name)));
        let (Some(tag), Some(name)) = (tag, name) else { return };
        self.waits.push(Wait { kind: WaitKind::Outcome, name: tag.clone(), until: None });
        self.add(Work::Effect(Effect { tag, name, payload, timeout, retry: None, in_doubt: None }));
    }

    /// Tells everybody that something happened.
    pub fn tell(&mut self, kind: &str, data: Value) {
        if let Some(kind) = self.checked(EventType::new(kind)) {
            self.add(Work::Fact(Fact { kind, data }));
        }
    }

    /// Asks for any other work.
    pub fn add(&mut self, work: Work) {
        let payload = match &work {
            Work::Command(command) => &command.payload,
            Work::Effect(effect) => &effect.payload,
            Work::Fact(fact) => &fact.data,
            Work::Start(start) => &start.data,
            Work::Stop(_) | Work::End(_) => &Value::Null,
        };
        if let Err(large) = check_payload(payload) {
            self.wrong.get_or_insert_with(|| format!("the payload of {}: {large}", work.label()));
        }
        self.work.push(work);
    }

    /// Arms a timer, that long after the transition's time.
    pub fn arm(&mut self, name: &str, after: Duration) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.timers.push(TimerChange::Arm { name, due: self.context.now.after(after) });
        }
    }

    /// Cancels a timer.
    pub fn disarm(&mut self, name: &str) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.timers.push(TimerChange::Cancel { name });
        }
    }

    /// Says what it waits for, for people.
    pub fn wait_for(&mut self, kind: WaitKind, name: &str) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.waits.push(Wait { kind, name, until: None });
        }
    }

    /// Where the instance stands after this; `running` without a word.
    pub fn end(&mut self, status: Status) {
        self.status = status;
    }

    /// What the business calls the instance.
    pub fn reference(&mut self, reference: impl Into<String>) {
        self.reference = Some(reference.into());
    }

    /// What went wrong.
    pub fn failure(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// What happened, in a few words, for the history.
    pub fn note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }

    fn checked<T>(&mut self, id: Result<T, IdError>) -> Option<T> {
        id.map_err(|error| self.wrong.get_or_insert_with(|| error.to_string()).clone()).ok()
    }
}
