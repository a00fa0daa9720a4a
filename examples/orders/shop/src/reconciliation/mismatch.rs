//! Mismatch between the records of the runner and the shop.

use std::fmt;

/// Mismatch between the two records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Id of the order; empty if the mismatch concerns no order.
    pub order: String,
    /// Kind of the mismatch.
    pub kind: MismatchKind,
    /// Description of the mismatch.
    pub message: String,
}

/// Kind of a mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MismatchKind {
    /// A required action is missing.
    Lost,
    /// An action was executed more often than required.
    Duplicated,
    /// An action was executed out of order or without a reason.
    Unexpected,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            MismatchKind::Lost => "lost",
            MismatchKind::Duplicated => "duplicated",
            MismatchKind::Unexpected => "unexpected",
        };
        write!(f, "{kind}: {} {}", self.order, self.message)
    }
}
