//! Builder of the transitions of native sagas: work, timers, waits, status and display fields.

use std::time::Duration;

use orlog_model::{
    Command, Confirmation, Effect, EffectName, EventType, Fact, Failure, IdError, Name, Priority,
    Reference, Status, TimerChange, Wait, WaitKind, Work,
};
use serde_json::Value;

use crate::contract::Context;
use crate::limits::check_payload;

/// Builder of one transition. An invalid name is recorded, and the input is dead-lettered with that
/// error.
#[derive(Debug)]
pub struct TransitionBuilder<'a> {
    context: &'a Context<'a>,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) waits: Vec<Wait>,
    pub(super) status: Status,
    pub(super) reference: Option<Reference>,
    pub(super) failure: Option<Failure>,
    pub(super) note: Option<String>,
    pub(super) error: Option<String>,
}

impl<'a> TransitionBuilder<'a> {
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
            error: None,
        }
    }

    /// Returns the context of the transition.
    #[must_use]
    pub fn context(&self) -> &Context<'a> {
        self.context
    }

    /// Adds a command to the aggregate of the correlation id; its response is an event.
    pub fn command(&mut self, tag: &str, aggregate_type: &str, name: &str, payload: Value) {
        let names = [tag, aggregate_type, name].map(Name::new);
        let [Some(tag), Some(aggregate_type), Some(name)] = names.map(|name| self.checked(name))
        else {
            return;
        };

        self.work(Work::Command(Command {
            tag,
            round: 0,
            aggregate_type,
            aggregate_id: self.context.key.correlation.to_string(),
            name,
            payload,
            confirmation: Confirmation::RejectionOnly,
            timeout: None,
            priority: Priority::Normal,
        }));
    }

    /// Adds an effect; its result arrives under the tag.
    pub fn effect(&mut self, tag: &str, name: &str, payload: Value, timeout: Option<Duration>) {
        let Some(tag) = self.checked(Name::new(tag)) else {
            return;
        };
        let Some(name) = self.checked(EffectName::new(name)) else {
            return;
        };

        self.waits
            .push(Wait::new(WaitKind::WorkResult, tag.clone(), None));
        self.work(Work::Effect(Effect {
            tag,
            round: 0,
            name,
            payload,
            timeout,
            retry: None,
            schema_version: 1,
            in_doubt: None,
            priority: Priority::Normal,
        }));
    }

    /// Publishes a fact.
    pub fn emit(&mut self, kind: &str, data: Value) {
        if let Some(kind) = self.checked(EventType::new(kind)) {
            self.work(Work::Fact(Fact::new(kind, data)));
        }
    }

    /// Adds any other work.
    pub fn work(&mut self, work: Work) {
        let payload = match &work {
            Work::Command(command) => &command.payload,
            Work::Effect(effect) => &effect.payload,
            Work::Fact(fact) => &fact.data,
            Work::StartChild(start) => &start.data,
            Work::CancelChild(_) | Work::NotifyParent(_) | Work::PublishResult(_) => &Value::Null,
        };

        if let Err(large) = check_payload(payload) {
            self.error
                .get_or_insert_with(|| format!("the payload of {}: {large}", work.label()));
        }
        self.work.push(work);
    }

    /// Arms a timer that fires this duration after the time of the transition.
    pub fn arm_timer(&mut self, name: &str, after: Duration) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.timers.push(TimerChange::Arm {
                name,
                due: self.context.now.saturating_add(after),
            });
        }
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, name: &str) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.timers.push(TimerChange::Cancel { name });
        }
    }

    /// Records what the instance waits for. The wait is only displayed.
    pub fn wait_for(&mut self, kind: WaitKind, name: &str) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.waits.push(Wait::new(kind, name, None));
        }
    }

    /// Sets the status of the instance after the transition. Default: `running`.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// Sets the business reference of the instance.
    pub fn reference(&mut self, reference: impl Into<Reference>) {
        self.reference = Some(reference.into());
    }

    /// Sets the failure.
    pub fn failure(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Sets the short note of the history entry.
    pub fn note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }

    fn checked<T>(&mut self, id: Result<T, IdError>) -> Option<T> {
        id.map_err(|error| self.error.get_or_insert_with(|| error.to_string()).clone())
            .ok()
    }
}
