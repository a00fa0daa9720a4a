//! Context of a decision: the instance with the inputs that wait for it, and the rows that the
//! input occupies.

use orlog_model::{
    ArmedTimer, Commit, DedupeKey, EventId, Input, Instance, InstanceKey, Name, Timer, TimerFired,
    Timestamp,
};
use orlog_program::Program;

/// Context of a decision: the instance and its environment.
#[derive(Clone, Copy)]
pub struct DecisionContext<'a> {
    /// Key of the instance.
    pub key: &'a InstanceKey,
    /// Snapshot of the instance; `None` if it does not exist.
    pub instance: Option<&'a Instance>,
    /// Program to which the instance is pinned. For a new instance: the newest program of its saga.
    pub program: &'a dyn Program,
    /// Time of the transition. Timers and deadlines count from it, so a backlog or an outage does
    /// not reduce the time of a step. Ids do not depend on it.
    pub now: Timestamp,
    /// Node that decides, for the record.
    pub node: &'a str,
    /// Inputs buffered for an instance that does not exist yet, oldest first.
    pub buffered: &'a [BufferedInputRef],
    /// Maximum size of each payload in the history, in bytes; 0: payloads are not recorded.
    pub history_payload_bytes: usize,
}

/// Input that causes a transition, and the resulting state version.
pub(crate) struct TransitionCause<'a> {
    pub(crate) input: &'a Input,
    /// Id of the input, computed once.
    pub(crate) id: EventId,
    /// Identity of the input, computed once.
    pub(crate) identity: DedupeKey,
    pub(crate) version: u64,
}

impl<'a> TransitionCause<'a> {
    pub(crate) fn new(input: &'a Input, version: u64) -> Self {
        Self {
            input,
            id: input.id(),
            identity: input.identity(),
            version,
        }
    }
}

/// Returns the commit that deletes the row of the input: the outbox row of a work result, the timer
/// row of a timer.
pub(crate) fn cleanup_commit(key: &InstanceKey, input: &Input, now: Timestamp) -> Commit {
    let mut commit = Commit::empty(key.clone(), now);

    match input {
        // Also a result that is not applied removes its row. Otherwise the relay would dispatch the
        // work again.
        Input::WorkResult(outcome) => commit.settles = Some(outcome.outbox_key.clone()),
        Input::Timer(TimerFired { name, token, due }) => {
            commit.disarm.push(Timer {
                due: *due,
                name: name.clone(),
                token: *token,
            });
        }
        Input::Event(_) | Input::Control(_) | Input::Workflow(_) | Input::Early(_) => {}
    }
    commit
}

/// Name of the timer that expires buffered inputs.
const EXPIRY_TIMER_NAME: &str = "early";
/// Token of the timer. Those of the other timers are hashes of the inputs that arm them.
const EXPIRY_TIMER_TOKEN: u64 = 0;

/// Input that is buffered for a missing instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferedInputRef {
    /// Number of the input in the store.
    pub number: u64,
    /// Dedupe key of the input. An input is buffered once.
    pub key: DedupeKey,
    /// Expiry time.
    pub expires_at: Timestamp,
}

/// Returns the timer that is armed while inputs are buffered.
pub(crate) fn expiry_timer(early: &[BufferedInputRef]) -> Option<Timer> {
    early
        .first()
        .map(|oldest| expiry_timer_at(oldest.expires_at))
}

/// Returns the row of an armed timer.
pub(crate) fn timer_row(timer: &ArmedTimer) -> Timer {
    Timer {
        due: timer.due,
        name: timer.name.clone(),
        token: timer.token,
    }
}

/// Returns the timer that deletes the oldest buffered input at this time.
pub(crate) fn expiry_timer_at(due: Timestamp) -> Timer {
    Timer {
        due,
        name: Name::new(EXPIRY_TIMER_NAME).expect("the timer name is a valid name"),
        token: EXPIRY_TIMER_TOKEN,
    }
}
