//! Something on which the runner and the shop do not agree.

use std::fmt;

/// Something on which the two do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// About which order; empty where it is about none.
    pub order: String,
    /// What kind of thing it is.
    pub kind: Kind,
    /// What it is.
    pub what: String,
}

/// The kinds of disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something that should have happened did not.
    Lost,
    /// Something happened more often than it should.
    Doubled,
    /// Something happened out of order, or should not have happened at all.
    Wrong,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Lost => "lost",
            Kind::Doubled => "doubled",
            Kind::Wrong => "wrong",
        };
        write!(f, "{kind}: {} {}", self.order, self.what)
    }
}
