//! Sagas that cause inputs without end.

use orlog_model::{InstanceKey, Name};

/// Reason why the simulator stopped before all consequences of an input were applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndlessSaga {
    /// Timers fire again and again while time advances.
    #[error(
        "{saga} continues without end: {limit} timers fired while time advanced once, the last one \
         is {timer} of {correlation}; advance in smaller steps, or give the saga a step that waits"
    )]
    Timers {
        /// Saga of the last timer.
        saga: String,
        /// Correlation id of its instance.
        correlation: String,
        /// Name of the last timer.
        timer: String,
        /// Number of fired timers.
        limit: usize,
    },
    /// Sagas start each other, or send each other facts.
    #[error(
        "{saga} continues without end: more than {limit} inputs follow from one input, the next \
         one is for {correlation}; check which facts start the saga"
    )]
    Inputs {
        /// Saga of the next input.
        saga: String,
        /// Correlation id of its instance.
        correlation: String,
        /// Number of applied inputs.
        limit: usize,
    },
}

impl EndlessSaga {
    pub(super) fn timers(key: &InstanceKey, timer: &Name, limit: usize) -> Self {
        Self::Timers {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            timer: timer.to_string(),
            limit,
        }
    }

    pub(super) fn inputs(key: &InstanceKey, limit: usize) -> Self {
        Self::Inputs {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            limit,
        }
    }
}
