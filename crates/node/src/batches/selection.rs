//! Searches for the instances of a batch.

use std::time::Duration;

use orlog_model::TenantId;
use orlog_sagas::batch::Selection;
use orlog_store::InstanceQuery;

use crate::reads::StoreScope;
use crate::sagas::instance_pages::parse_cursor;
use crate::sagas::search::{InstanceSearch, SearchError, SearchResult, compile_filter, search};

/// Part of a search.
pub struct Part<'a> {
    /// The cursor of the previous part.
    pub cursor: Option<&'a str>,
    /// Maximum number of instances; 0: they are only counted.
    pub limit: usize,
    /// The only shard to search, in an order that no change of an instance changes; `None`: all
    /// shards of this process.
    pub shard: Option<u16>,
}

/// Searches for the next part of a selection. Blocks.
///
/// # Errors
/// If the cursor or the filter is invalid, or a store cannot be read.
pub fn next(
    scope: &StoreScope,
    tenant: &TenantId,
    selection: &Selection,
    part: &Part<'_>,
) -> Result<SearchResult, SearchError> {
    let (start, cursor) = parse_cursor(part.cursor)?;
    let filter = selection
        .filter
        .as_deref()
        .map(compile_filter)
        .transpose()?;
    let query = InstanceQuery {
        tenant: tenant.clone(),
        saga: Some(selection.saga.clone()),
        statuses: selection.statuses.clone(),
        prefix: selection.prefix.clone(),
        updated_from: selection.updated_from,
        updated_until: selection.updated_until,
        created_from: selection.created_from,
        created_until: selection.created_until,
        variable: None,
        cursor,
        limit: part.limit,
        scan_limit: scope.http().scan_limit,
    };

    let start_shard = part.shard.map_or(start, usize::from);
    let count = part.limit == 0;
    let timeout = timeout(scope);
    search(
        scope,
        InstanceSearch {
            query,
            start_shard,
            only: part.shard,
            filter,
            count,
            timeout,
        },
    )
}

/// Returns the maximum duration of a part; the other half of a request is for waiting for a thread.
#[must_use]
pub fn timeout(scope: &StoreScope) -> Duration {
    scope.http().request_timeout / 2
}
