//! Deployments: which definitions take new instances, since when, and who said so.

use serde::{Deserialize, Serialize};

use crate::{ProgramRef, Timestamp};

/// The definitions that were put in force together. One record, so that a crash leaves the old set or the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Grows by one with every deployment; the first is 1.
    pub number: u64,
    /// When it was made.
    pub at: Timestamp,
    /// Who made it.
    pub by: String,
    /// The digest of the definitions folder when its files were deployed last; `None` where they never were.
    pub folder: Option<[u8; 16]>,
    /// Its definitions, and those it found retired, in the order of sagas and versions.
    pub definitions: Vec<Deployed>,
}

/// A definition that was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// Which one.
    pub program: ProgramRef,
    /// The name of its file, without a folder.
    pub file: String,
    /// When it was put in force.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
    /// Since when it takes no new instances; `None` while it is in force.
    pub retired_at: Option<Timestamp>,
}

impl Deployment {
    /// The definitions that take new instances.
    pub fn in_force(&self) -> impl Iterator<Item = &Deployed> {
        self.definitions.iter().filter(|definition| definition.retired_at.is_none())
    }

    /// What is known of the definition with this hash.
    #[must_use]
    pub fn find(&self, hash: &[u8; 16]) -> Option<&Deployed> {
        self.definitions.iter().find(|definition| definition.program.hash == *hash)
    }
}
