//! Options of a proof.

use std::num::NonZeroUsize;

/// Options of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProveOptions {
    /// Maximum number of visited states; limits the memory.
    pub max_states: usize,
    /// Maximum number of moves from the start.
    pub max_steps: usize,
    /// Maximum number of disturbances in a run: events that no step waits for, signals,
    /// cancellations.
    pub disturbances: u8,
    /// Number of threads. The result does not depend on it.
    pub threads: NonZeroUsize,
}
