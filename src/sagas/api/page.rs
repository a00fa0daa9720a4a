//! Page of instances in API responses.

use orlog_model::{Instance, InstanceKey};
use serde::Serialize;
use utoipa::ToSchema;

use super::search::SearchResult;
use super::state::hidden_values;
use super::view::InstanceSummary;
use crate::app::App;

/// Page of instances.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstancePage {
    items: Vec<InstanceSummary>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
    /// Number of scanned instances.
    scanned: usize,
    /// Number of matching instances, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<InstanceCount>,
    /// Number of instances for which the filter failed.
    filter_errors: u64,
    /// Reason of the first filter error.
    first_filter_error: Option<String>,
}

/// Number of instances.
#[derive(Debug, Serialize, ToSchema)]
struct InstanceCount {
    /// Number of matches, from the cursor on.
    value: u64,
    /// All instances were scanned; otherwise there may be more matches.
    exact: bool,
}

impl InstancePage {
    pub(crate) fn of(app: &App, sifted: SearchResult, counted: bool) -> Self {
        let view = |(key, instance): &(InstanceKey, Instance)| {
            InstanceSummary::of(key, instance, &hidden_values(app, instance))
        };
        let (value, exact) = sifted.count;
        let (failed, failure) = sifted.filter_errors;
        Self {
            items: sifted.items.iter().map(view).collect(),
            next_cursor: sifted.next,
            scanned: sifted.scanned,
            count: counted.then_some(InstanceCount { value, exact }),
            filter_errors: failed,
            first_filter_error: failure,
        }
    }
}
