//! Progress of a proof, for a display.

/// Progress of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofProgress {
    /// Number of visited states.
    pub states: usize,
    /// Number of visited states whose moves are not made yet.
    pub queued: usize,
    /// Number of moves to the farthest state.
    pub depth: usize,
    /// Phase of the proof.
    pub phase: ProofPhase,
}

/// Phase of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofPhase {
    /// The states are visited.
    Search,
    /// States without a path to an end are examined.
    DeadEnds {
        /// Number of examined states.
        examined: usize,
        /// Number of states to examine.
        total: usize,
    },
}

/// Observer of the progress of a proof.
pub trait ProofObserver {
    /// Called regularly, many times in a second. It must return at once.
    fn on_progress(&mut self, progress: &ProofProgress);
}

/// Observer that does nothing.
impl ProofObserver for () {
    fn on_progress(&mut self, _: &ProofProgress) {}
}
