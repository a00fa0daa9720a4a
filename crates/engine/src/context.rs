//! Whom an input is about, and which rows the input itself occupies.

use orlog_model::{Commit, EventId, Input, Instance, InstanceKey, Timer, TimerFired, Timestamp};
use orlog_program::Program;

use crate::early_buffer::Kept;

/// Whom an input is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Which instance.
    pub key: &'a InstanceKey,
    /// Its snapshot; `None` when it does not exist.
    pub instance: Option<&'a Instance>,
    /// The program the instance is pinned to, or, for a new one, the newest of its saga.
    pub program: &'a dyn Program,
    /// The present: the time of the transition. Timers and deadlines count from here, so that neither a backlog nor an
    /// outage eats up the time a step is given; ids do not depend on it.
    pub now: Timestamp,
    /// The node that decides, for the record.
    pub node: &'a str,
    /// What is kept for an instance that does not exist yet, oldest first.
    pub early: &'a [Kept],
}

/// The input behind a transition and the state version it leads to.
pub(crate) struct Cause<'a> {
    pub(crate) input: &'a Input,
    /// The input's id, made once.
    pub(crate) id: EventId,
    pub(crate) version: u64,
}

/// The commit that clears away the rows the input itself occupies: an outcome its outbox row, a timer its timer row.
pub(crate) fn cleared(key: &InstanceKey, input: &Input, now: Timestamp) -> Commit {
    let mut commit = Commit::empty(key.clone(), now);
    match input {
        Input::Outcome(outcome) => commit.settles = Some(outcome.outbox.clone()),
        Input::Timer(TimerFired { name, token, due }) => {
            commit.disarm.push(Timer { due: *due, name: name.clone(), token: *token });
        }
        Input::Event(_) | Input::Control(_) | Input::Workflow(_) | Input::Early(_) => {}
    }
    commit
}

/// The marker that makes a second delivery harmless. Outcomes and timers need none: their tokens do it.
pub(crate) fn marker(input: &Input) -> Option<EventId> {
    match input {
        Input::Event(event) => Some(event.id.clone()),
        Input::Control(control) => Some(control.id.clone()),
        Input::Workflow(command) => Some(command.id.clone()),
        Input::Early(early) => marker(&early.input),
        Input::Outcome(_) | Input::Timer(_) => None,
    }
}
