//! A page of instances as callers see it.

use serde::Serialize;
use utoipa::ToSchema;

use super::search::Sifted;
use super::view::Summary;

/// A page of instances.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Found {
    items: Vec<Summary>,
    /// The cursor of the next page; null after the last one.
    next: Option<String>,
    /// Instances that were looked at.
    scanned: usize,
    /// How many there are, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<Count>,
    /// Instances of which the filter was neither true nor false.
    failed: u64,
    /// Why, of the first of them.
    failure: Option<String>,
}

/// How many instances there are.
#[derive(Debug, Serialize, ToSchema)]
struct Count {
    /// So many were found, from the cursor on.
    value: u64,
    /// All were looked at; if not, there may be more.
    exact: bool,
}

impl Found {
    pub(super) fn of(sifted: Sifted, counted: bool) -> Self {
        let (value, exact) = sifted.count;
        let (failed, failure) = sifted.failed;
        Self {
            items: sifted.items.iter().map(|(key, instance)| Summary::of(key, instance)).collect(),
            next: sifted.next,
            scanned: sifted.scanned,
            count: counted.then_some(Count { value, exact }),
            failed,
            failure,
        }
    }
}
