//! Limit of the queries with a condition that one tenant runs at the same time.
//!
//! The evaluation of a condition uses a processor. The place of a query is free again when its
//! evaluation has ended, not when its client has gone.

use std::collections::HashMap;
use std::sync::Arc;

use orlog_model::TenantId;
use parking_lot::{Mutex, MutexGuard};

use super::problem::{Code, Problem};

/// Queries in progress, by tenant.
#[derive(Clone)]
pub(crate) struct QueryLimit {
    running: Arc<Mutex<HashMap<TenantId, usize>>>,
    limit: usize,
}

impl QueryLimit {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            running: Arc::default(),
            limit,
        }
    }

    /// Takes a place of the tenant.
    ///
    /// # Errors
    /// If the tenant runs the maximum number of queries.
    pub(crate) fn acquire(&self, tenant: &TenantId) -> Result<QueryPermit, Problem> {
        let mut running = lock(&self.running);
        let count = running.entry(tenant.clone()).or_default();
        if *count >= self.limit {
            let message =
                "too many queries of this tenant run; retry, or raise http.max_concurrent_queries";
            return Err(Problem::new(Code::Unavailable, message));
        }

        *count += 1;
        Ok(QueryPermit {
            running: Arc::clone(&self.running),
            tenant: tenant.clone(),
        })
    }
}

/// Place of a query; free again when dropped.
pub(crate) struct QueryPermit {
    running: Arc<Mutex<HashMap<TenantId, usize>>>,
    tenant: TenantId,
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        let mut running = lock(&self.running);
        // A tenant without queries leaves no entry, because clients choose the tenants.
        let last = running.get_mut(&self.tenant).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if last {
            running.remove(&self.tenant);
        }
    }
}

fn lock(running: &Mutex<HashMap<TenantId, usize>>) -> MutexGuard<'_, HashMap<TenantId, usize>> {
    running.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_own_limit_of_queries() {
        let limit = QueryLimit::new(2);
        let [acme, other] = ["acme", "other"].map(|name| TenantId::new(name).unwrap());
        let (first, _second) = (limit.acquire(&acme).unwrap(), limit.acquire(&acme).unwrap());
        let rejection = format!(
            "{:?}",
            limit.acquire(&acme).err().expect("both places are taken")
        );
        assert!(
            rejection.contains("http.max_concurrent_queries"),
            "{rejection}"
        );
        assert!(limit.acquire(&other).is_ok());
        drop(first);
        assert!(limit.acquire(&acme).is_ok());
    }
}
