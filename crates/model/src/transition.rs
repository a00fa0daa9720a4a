//! Transitions: what a program answers when it is shown an input.

use crate::{Failure, Name, Status, TaskChange, Timestamp, Wait, Work};

/// The next state of an instance and what must happen because of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The program's new state.
    pub state: Vec<u8>,
    /// Where the instance stands now.
    pub status: Status,
    /// What to do, in order.
    pub work: Vec<Work>,
    /// Timers to arm and to cancel, in order.
    pub timers: Vec<TimerChange>,
    /// Tasks for people to open, to assign and to close, in order.
    pub tasks: Vec<TaskChange>,
    /// What the instance waits for now.
    pub waits: Vec<Wait>,
    /// What the business calls the instance, where the program knows.
    pub reference: Option<String>,
    /// What went wrong, where something did.
    pub failure: Option<Failure>,
    /// What happened, in a few words, for the history: `charge: ok`.
    pub note: String,
}

/// A change to the timers of an instance. Arming a name anew replaces the timer of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// Fire at `due`.
    Arm {
        /// Unique within the instance.
        name: Name,
        /// When.
        due: Timestamp,
    },
    /// Do not fire; nothing happens when no such timer is armed.
    Cancel {
        /// The name it was armed under.
        name: Name,
    },
}
