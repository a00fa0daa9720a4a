//! Builder of the transitions of native sagas: work, timers, waits, status and display fields.

use std::time::Duration;

use orlog_model::{
    Command, Confirmation, Effect, EffectName, EventType, Fact, Failure, IdError, Name, Priority,
    Reference, Status, TimerChange, Timestamp, Transition, Wait, WaitKind, Work,
};
use serde_json::Value;

use crate::contract::{Context, ProgramError, ProgramInput};
use crate::limits::check_payload;

/// Builder of one transition. An invalid name is recorded, and the input is dead-lettered with that
/// error.
#[derive(Debug)]
pub struct TransitionBuilder<'a> {
    context: &'a Context<'a>,
    /// Transition so far; its state is set last.
    transition: Transition,
    error: Option<String>,
}

impl<'a> TransitionBuilder<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            transition: Transition::new(Vec::new(), Status::Running),
            error: None,
        }
    }

    /// Returns the context of the transition.
    #[must_use]
    pub fn context(&self) -> &'a Context<'a> {
        self.context
    }

    /// Returns the time of the transition.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.context.now
    }

    /// Adds a command to the aggregate of the correlation id; its response is an event.
    pub fn command(&mut self, tag: &str, aggregate_type: &str, name: &str, payload: Value) {
        let names = [tag, aggregate_type, name].map(Name::new);
        let [Some(tag), Some(aggregate_type), Some(name)] = names.map(|name| self.checked(name))
        else {
            return;
        };

        self.limited_work(Work::Command(Command {
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

        self.transition
            .waits
            .push(Wait::new(WaitKind::WorkResult, tag.clone(), None));
        self.limited_work(Work::Effect(Effect {
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
            self.limited_work(Work::Fact(Fact::new(kind, data)));
        }
    }

    /// Adds any other work. Its payload has no limit here: the sagas that build work themselves
    /// bound what it contains, for example the text of a flow.
    pub fn work(&mut self, work: Work) {
        self.transition.work.push(work);
    }

    /// Adds work whose payload is limited as that of a definition.
    fn limited_work(&mut self, work: Work) {
        let payload = match &work {
            Work::Command(command) => &command.payload,
            Work::Effect(effect) => &effect.payload,
            Work::Fact(fact) => &fact.data,
            Work::StartChild(start) => &start.data,
            Work::CancelChild(_) | Work::NotifyParent(_) | Work::PublishResult(_) => &Value::Null,
        };

        // The first error is reported when the transition is finished, so the methods need no
        // result.
        if let Err(large) = check_payload(payload) {
            self.error
                .get_or_insert_with(|| format!("the payload of {}: {large}", work.label()));
        }
        self.work(work);
    }

    /// Arms a timer that fires this duration after the time of the transition.
    pub fn arm_timer(&mut self, name: &str, after: Duration) {
        self.arm_timer_at(name, self.context.now.saturating_add(after));
    }

    /// Arms a timer that fires at this time. It replaces the timer of the same name.
    pub fn arm_timer_at(&mut self, name: &str, due: Timestamp) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.transition.timers.push(TimerChange::Arm { name, due });
        }
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, name: &str) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.transition.timers.push(TimerChange::Cancel { name });
        }
    }

    /// Records what the instance waits for, and until when. The wait is only displayed.
    pub fn wait_for(&mut self, kind: WaitKind, name: &str, due: Option<Timestamp>) {
        if let Some(name) = self.checked(Name::new(name)) {
            self.transition.waits.push(Wait::new(kind, name, due));
        }
    }

    /// Sets the status of the instance after the transition. Default: `running`.
    pub fn set_status(&mut self, status: Status) {
        self.transition.status = status;
    }

    /// Sets the business reference of the instance.
    pub fn reference(&mut self, reference: impl Into<Reference>) {
        self.transition.reference = Some(reference.into());
    }

    /// Sets the failure.
    pub fn failure(&mut self, failure: Failure) {
        self.transition.failure = Some(failure.into());
    }

    /// Sets the short note of the history entry. Default: the label of the input.
    pub fn note(&mut self, note: impl Into<String>) {
        self.transition.note = note.into();
    }

    /// Replaces everything but the state by another transition, for a saga whose steps run on the
    /// step machine.
    pub fn replace(&mut self, transition: Transition) {
        self.transition = transition;
    }

    /// Returns the transition to an encoded state.
    pub(super) fn finish(
        self,
        state: Vec<u8>,
        input: &ProgramInput<'_>,
    ) -> Result<Transition, ProgramError> {
        if let Some(error) = self.error {
            return Err(ProgramError::Evaluation(error));
        }

        let mut transition = self.transition;
        transition.state = state;
        // An instance that has ended waits for nothing.
        if transition.status.is_final() {
            transition.waits.clear();
        }
        if transition.note.is_empty() {
            transition.note = input.label();
        }
        Ok(transition)
    }

    fn checked<T>(&mut self, id: Result<T, IdError>) -> Option<T> {
        id.map_err(|error| self.error.get_or_insert_with(|| error.to_string()).clone())
            .ok()
    }
}
