//! Transitions: results of program inputs.

use crate::{Failure, Name, Status, TaskChange, Timestamp, Wait, Work};

/// Next state of an instance, with the resulting work, timers and tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// New state of the program.
    pub state: Vec<u8>,
    /// New status of the instance.
    pub status: Status,
    /// Work, in order.
    pub work: Vec<Work>,
    /// Timers to arm and to cancel, in order.
    pub timers: Vec<TimerChange>,
    /// Human tasks to open, reassign and close, in order.
    pub tasks: Vec<TaskChange>,
    /// New waits of the instance.
    pub waits: Vec<Wait>,
    /// Business reference, if the program sets it.
    pub reference: Option<String>,
    /// Failure, if any.
    pub failure: Option<Failure>,
    /// Short note for the history: `charge: ok`.
    pub note: String,
}

/// Change to the timers of an instance. Arming a timer replaces the timer of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// Fires at `due`.
    Arm {
        /// Name, unique within the instance.
        name: Name,
        /// Due time.
        due: Timestamp,
    },
    /// Cancels the timer; a no-op if it is not armed.
    Cancel {
        /// Name of the timer.
        name: Name,
    },
}
