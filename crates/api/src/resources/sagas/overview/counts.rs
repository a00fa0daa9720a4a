//! Counts of a tenant, computed in the background for the overview.
//!
//! A count of a million instances takes seconds, and clients poll every few seconds. Therefore a
//! count is cached. It is recomputed only on a request, when its age is large relative to its
//! duration: at most a twentieth of one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_model::{TaskStatus, TenantId};
use orlog_store::{InstanceCounts, TaskQuery};

use crate::resources::dead_letters::causes;
use crate::server::context::RequestContext;
use crate::server::overview_cache::{
    DeadLetterCounts, OverviewCache, TaskCounts, TenantCounts, evict_oldest,
};
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;

/// Maximum time that the first request waits for the first count.
const WAIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum scanned tasks.
const MAX_TASKS: usize = 10_000;

/// Returns the latest count of a tenant; starts a new count if it is stale. `None` until the first
/// count is complete.
pub(crate) async fn counts(
    api: &RequestContext,
    cache: &Arc<OverviewCache>,
    tenant: &TenantId,
) -> Option<Arc<TenantCounts>> {
    let first = {
        let mut tallies = cache.lock();
        evict_oldest(&mut tallies, tenant);
        let entry = tallies.entry(tenant.clone()).or_default();
        let is_old = entry.last.as_ref().is_none_or(|last| last.is_stale());
        // One count of a tenant at a time: clients poll faster than a large tenant can be counted.
        if entry.is_counting || !is_old {
            return entry.last.clone();
        }

        entry.is_counting = true;
        // A task of its own: a client that disconnects does not discard the count for the next one.
        let counting = tokio::spawn(count(api.detached(), Arc::clone(cache), tenant.clone()));
        if let Some(last) = &entry.last {
            return Some(Arc::clone(last));
        }
        counting
    };

    // Small stores complete immediately; a longer count continues in the background.
    tokio::time::timeout(WAIT_TIMEOUT, first).await.ok();
    cache.lock().get(tenant)?.last.clone()
}

async fn count(api: RequestContext, cache: Arc<OverviewCache>, tenant: TenantId) {
    let of = tenant.clone();
    // A panic ends this count only.
    let counted =
        tokio::spawn(async move { api.read(move |scope| count_tenant(scope, &of)).await }).await;
    let mut tallies = cache.lock();
    let entry = tallies.entry(tenant).or_default();
    // Also after an error, so that the next request starts another count.
    entry.is_counting = false;

    match counted {
        Ok(Ok(counted)) => entry.last = Some(Arc::new(counted)),
        Ok(Err(problem)) => tracing::warn!(?problem, "instance count failed"),
        Err(error) => tracing::error!(%error, "instance count failed"),
    }
}

fn count_tenant(scope: &ReadScope, tenant: &TenantId) -> Result<TenantCounts, Problem> {
    let began = Instant::now();
    let at = scope.now();
    let mut instance_counts = InstanceCounts {
        complete: true,
        ..InstanceCounts::default()
    };
    let query = TaskQuery {
        tenant: tenant.clone(),
        statuses: vec![TaskStatus::Open, TaskStatus::Claimed],
        limit: MAX_TASKS,
        scan_limit: MAX_TASKS,
        ..TaskQuery::default()
    };

    let mut tasks = TaskCounts {
        waiting: 0,
        overdue: 0,
        complete: true,
    };

    for reader in scope.readers() {
        instance_counts.add(reader.count_instances(tenant)?);
        let page = reader.tasks(&query)?;
        let overdue = page
            .items
            .iter()
            .filter(|row| row.task.spec.due.is_some_and(|due| due < at));
        tasks.overdue += overdue.count();
        tasks.waiting += page.items.len();

        tasks.complete &= page.next.is_none();
    }

    let counted = causes::count_causes(scope, tenant)?;
    let dead_letter_count = DeadLetterCounts {
        count: counted.causes.values().map(|cause| cause.count).sum(),
        complete: counted.complete,
    };
    let computed_at = Instant::now();

    Ok(TenantCounts {
        instances: instance_counts,
        dead_letters: dead_letter_count,
        tasks,
        at,
        duration: computed_at - began,
        computed_at,
    })
}
