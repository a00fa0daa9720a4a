//! Page of instances in API responses.

use serde::Serialize;
use utoipa::ToSchema;

use super::view::InstanceSummary;
use crate::server::page::{PageBuilder, PageLimits};
use crate::server::read_scope::ReadScope;
use orlog_node::sagas::search::SearchResult;
use orlog_node::sagas::state::hidden_values;

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
    pub(crate) fn of(
        scope: &ReadScope,
        result: SearchResult,
        limits: PageLimits,
        counted: bool,
    ) -> Self {
        let mut page = PageBuilder::new(limits);
        for located in &result.items {
            let found = &located.found;
            // The reference and the errors of an instance can quote hidden values of its state.
            let hidden = hidden_values(scope.stores(), &found.instance);
            let summary = InstanceSummary::of(&found.key, &found.instance, &hidden);
            if !page.push(summary, located.cursor()) {
                break;
            }
        }

        let page = page.finish(result.next);
        let count = counted.then_some(InstanceCount {
            value: result.matches,
            exact: result.is_complete,
        });
        Self {
            items: page.entries,
            next_cursor: page.next,
            scanned: result.scanned,
            count,
            filter_errors: result.filter_errors,
            first_filter_error: result.first_filter_error,
        }
    }
}
