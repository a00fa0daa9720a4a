//! `GET /v1/timers`: what falls due next.

use axum::Json;
use axum::extract::State;
use orlog_store::{FoundTimer, Page, TimerQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::context::Api;
use super::extract::{Params, Tenant, page_limit};
use super::problem::Problem;
use crate::app::App;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Entries at most; 100 where nothing is said.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The timers that fall due first, or a later page of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Timers {
    items: Vec<ArmedTimer>,
    /// The cursor of the next page; null after the last one. A page may be short, or empty, and yet not the last.
    next: Option<String>,
    /// Timers that were looked at.
    scanned: usize,
}

/// A timer that is armed.
#[derive(Debug, Serialize, ToSchema)]
struct ArmedTimer {
    due: String,
    name: String,
    saga: String,
    correlation: String,
    /// The state version that armed it.
    token: u64,
}

/// The timers that fall due first
#[utoipa::path(
    get,
    path = "/v1/timers",
    tag = "timers",
    params(Wanted),
    responses((status = 200, description = "In the order in which they fall due", body = Timers))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Timers>, Problem> {
    let scan_limit = api.app.config.http.scan_limit;
    let query =
        TimerQuery { tenant, cursor: wanted.cursor, limit: page_limit(wanted.limit, &api), scan_limit };
    let page = api.read(move |app| gather(app, query)).await?;
    let items = page.items.into_iter().map(|found| ArmedTimer {
        due: found.timer.due.to_string(),
        name: found.timer.name.to_string(),
        saga: found.key.saga.to_string(),
        correlation: found.key.correlation.to_string(),
        token: found.timer.token,
    });
    Ok(Json(Timers { items: items.collect(), next: page.next, scanned: page.scanned }))
}

/// The timers of all shards in one order, as far as every shard has been looked through.
fn gather(app: &App, mut query: TimerQuery) -> Result<Page<FoundTimer>, Problem> {
    let readers: Vec<_> = app.runtime.readers().collect();
    query.scan_limit = (query.scan_limit / readers.len().max(1)).max(1);
    let mut all = Page { items: Vec::new(), next: None, scanned: 0 };
    for reader in readers {
        let page = reader.timers(&query)?;
        all.items.extend(page.items);
        all.scanned += page.scanned;
        all.next = all.next.into_iter().chain(page.next).min();
    }
    if let Some(seen) = &all.next {
        all.items.retain(|found| found.place < *seen);
    }
    all.items.sort_by(|a, b| a.place.cmp(&b.place));
    if all.items.len() > query.limit {
        all.items.truncate(query.limit);
        all.next = all.items.last().map(FoundTimer::cursor_behind);
    }
    Ok(all)
}
