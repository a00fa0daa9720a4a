//! `GET /v1/timers`: timers by due time.

use orlog_store::{FoundTimer, Page, TimerQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::server::context::RequestContext;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;

/// Page to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TimerQueryParams {
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Page of timers, ordered by due time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TimerPage {
    items: Vec<TimerListItem>,
    /// Cursor of the next page; null after the last one. A page can be short or empty and still
    /// have a next page.
    next_cursor: Option<String>,
    /// Number of scanned timers.
    scanned: usize,
}

/// Armed timer.
#[derive(Debug, Serialize, ToSchema)]
struct TimerListItem {
    #[schema(format = "date-time")]
    due: String,
    name: String,
    saga: String,
    correlation: String,
    /// State version that armed it.
    token: u64,
}

/// List timers by due time
#[utoipa::path(
    get,
    path = "/v1/timers",
    tag = "timers",
    params(TimerQueryParams),
    responses((status = 200, description = "Timers ordered by due time", body = TimerPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<TimerQueryParams>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(params.limit, &api);
    let query = TimerQuery {
        tenant,
        cursor: params.cursor,
        limit: limits.entries,
        scan_limit: api.http().scan_limit,
    };

    api.read_json(move |scope| {
        let found = gather(scope, query)?;
        let mut page = PageBuilder::new(limits);
        for timer in &found.items {
            if !page.push(TimerListItem::of(timer), timer.cursor_after()) {
                break;
            }
        }

        let page = page.finish(found.next);
        Ok(TimerPage {
            items: page.entries,
            next_cursor: page.next,
            scanned: found.scanned,
        })
    })
    .await
}

impl TimerListItem {
    fn of(found: &FoundTimer) -> Self {
        Self {
            due: found.timer.due.to_string(),
            name: found.timer.name.to_string(),
            saga: found.key.saga.to_string(),
            correlation: found.key.correlation.to_string(),
            token: found.timer.token,
        }
    }
}

/// Merges the timers of all shards by due time, as far as every shard was scanned.
fn gather(scope: &ReadScope, mut query: TimerQuery) -> Result<Page<FoundTimer>, Problem> {
    let readers: Vec<_> = scope.readers().collect();
    // The limit is that of the request, so that its shards share it.
    query.scan_limit = (query.scan_limit / readers.len().max(1)).max(1);
    let mut all = Page {
        items: Vec::new(),
        next: None,
        scanned: 0,
    };

    for reader in readers {
        let page = reader.timers(&query)?;
        all.items.extend(page.items);
        all.scanned += page.scanned;
        // The earliest stop of a shard: later timers of the others can be behind timers that were
        // not read.
        all.next = all.next.into_iter().chain(page.next).min();
    }

    if let Some(seen) = &all.next {
        all.items.retain(|found| found.position < *seen);
    }
    all.items.sort_by(|a, b| a.position.cmp(&b.position));

    if all.items.len() > query.limit {
        all.items.truncate(query.limit);
        all.next = all.items.last().map(FoundTimer::cursor_after);
    }
    Ok(all)
}
