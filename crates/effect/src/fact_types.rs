//! Types of the facts that the results of an upstream may contain.
//!
//! A fact becomes an event of its tenant, which can start and advance sagas. Functions of the
//! program itself may emit any fact; other processes only those that the operator declares for
//! their upstream.

use std::collections::BTreeSet;

use orlog_model::{EventType, Fact};

/// Types of the facts that the results of an upstream may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactTypes {
    /// All types: code of this program emits the facts.
    Any,
    /// Only these types.
    Declared(BTreeSet<EventType>),
}

impl FactTypes {
    /// Returns the types of an upstream without a declaration, whose effects other processes
    /// execute.
    #[must_use]
    pub const fn none() -> Self {
        Self::Declared(BTreeSet::new())
    }

    /// Returns whether a result may contain facts of a type.
    #[must_use]
    pub fn permit(&self, kind: &EventType) -> bool {
        match self {
            Self::Any => true,
            Self::Declared(types) => types.contains(kind),
        }
    }

    /// Returns the first type that is not permitted.
    #[must_use]
    pub fn first_undeclared<'a>(&self, facts: &'a [Fact]) -> Option<&'a EventType> {
        facts
            .iter()
            .map(|fact| &fact.kind)
            .find(|kind| !self.permit(kind))
    }
}
