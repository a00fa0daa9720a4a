//! What a tenant has, counted in the background for whoever looks at the overview.
//!
//! Counting a million instances takes seconds, and people look every few of them. So a count is kept, and made anew only
//! when somebody asks and the last one is old in comparison with what it took: at most a twentieth of a thread goes into it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_model::{TaskStatus, TenantId};
use orlog_store::{Census, TaskQuery};

use super::cache::{Counted, Letters, Tasks, make_room};
use crate::api::context::Api;
use crate::api::dead_letters::causes;
use crate::api::problem::Problem;
use crate::app::App;

/// How long the first question waits for the first count.
const PATIENCE: Duration = Duration::from_millis(500);
/// Instances that are looked at in each shard.
const MOST: u64 = 5_000_000;
/// Tasks that are looked at.
const TASKS: usize = 10_000;

/// The last count of a tenant; begins another where that one is old. `None` while the first is being made.
pub(crate) async fn of(api: &Api, tenant: &TenantId) -> Option<Arc<Counted>> {
    let first = {
        let mut tallies = api.tallies.lock();
        make_room(&mut tallies, tenant);
        let tally = tallies.entry(tenant.clone()).or_default();
        let is_old = tally.last.as_ref().is_none_or(|last| last.is_old());
        if tally.is_counting || !is_old {
            return tally.last.clone();
        }
        tally.is_counting = true;
        let counting = tokio::spawn(count(api.clone(), tenant.clone()));
        if let Some(last) = &tally.last {
            return Some(Arc::clone(last));
        }
        counting
    };
    // Small stores answer at once; what takes longer goes on by itself.
    tokio::time::timeout(PATIENCE, first).await.ok();
    api.tallies.lock().get(tenant)?.last.clone()
}

async fn count(api: Api, tenant: TenantId) {
    let (of, reader) = (tenant.clone(), api.clone());
    // A panic ends this count and not the next one.
    let counted = tokio::spawn(async move { reader.read(move |app| look(app, &of)).await }).await;
    let mut tallies = api.tallies.lock();
    let tally = tallies.entry(tenant).or_default();
    tally.is_counting = false;
    match counted {
        Ok(Ok(counted)) => tally.last = Some(Arc::new(counted)),
        Ok(Err(problem)) => tracing::warn!(?problem, "the instances cannot be counted"),
        Err(error) => tracing::error!(%error, "the instances cannot be counted"),
    }
}

fn look(app: &App, tenant: &TenantId) -> Result<Counted, Problem> {
    let (began, at) = (Instant::now(), app.clock.now());
    let mut census = Census { complete: true, ..Census::default() };
    let query = TaskQuery {
        tenant: tenant.clone(),
        statuses: vec![TaskStatus::Open, TaskStatus::Claimed],
        limit: TASKS,
        scan_limit: TASKS,
        ..TaskQuery::default()
    };
    let mut tasks = Tasks { waiting: 0, overdue: 0, complete: true };
    for reader in app.runtime.readers() {
        census.add(reader.census(tenant, MOST)?);
        let page = reader.tasks(&query)?;
        let overdue = page.items.iter().filter(|row| row.task.form.due.is_some_and(|due| due < at));
        tasks.overdue += overdue.count();
        tasks.waiting += page.items.len();
        tasks.complete &= page.next.is_none();
    }
    let (piles, complete) = causes::piles(app, tenant)?;
    let letters = Letters { count: piles.values().map(|pile| pile.count).sum(), complete };
    let made = Instant::now();
    Ok(Counted { census, letters, tasks, at, took: made - began, made })
}
