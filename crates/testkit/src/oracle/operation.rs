//! Operations of the oracle and their results.

/// Outcome of work in the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OracleOutcome {
    /// The gateway accepted the command.
    Accepted,
    /// The work was executed.
    Succeeded,
    /// The work was rejected.
    Failed,
    /// The outcome is unknown.
    TimedOut,
}

/// Input of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OracleOp {
    /// Event with this type and id.
    Event(&'static str, String),
    /// Outcome of the n-th work item that was requested under a tag.
    Outcome(String, usize, OracleOutcome),
    /// Timer with this number, counted for each instance; 0: expiry of early events.
    Timer(u64),
    /// Control request (`cancel`, `pause`, `resume`, `retry`) with this id.
    Control(&'static str, String),
}

/// Result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OracleResult {
    /// The input caused a transition.
    Applied,
    /// The input changed nothing.
    Ignored,
    /// The input is buffered until the instance starts or is resumed.
    Buffered,
    /// The status forbids the input.
    Rejected,
    /// The input was applied before.
    Duplicate,
}
