//! Counters by version of a definition, and inputs that a saga sends to itself.
//!
//! A scrape reads them and decides about the series. The counters of a version end with its
//! definition.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orlog_model::{Commit, DefinitionRef, Instance, SagaName, Status};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;

/// Counters of all definitions.
#[derive(Debug, Default)]
pub(crate) struct DefinitionMetrics {
    versions: RwLock<BTreeMap<(SagaName, u32), Arc<DefinitionCounters>>>,
    own_inputs: RwLock<BTreeMap<SagaName, Counter>>,
    /// Number of removals: a cache of an earlier one can contain removed counters.
    removals: AtomicU64,
}

/// Counters of one version of a definition.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCounters {
    started: Counter,
    completed: Counter,
    failed: Counter,
    cancelled: Counter,
}

/// Instances of one version of a definition since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionTotals {
    /// Started instances.
    pub started: u64,
    /// Completed instances.
    pub completed: u64,
    /// Failed instances.
    pub failed: u64,
    /// Cancelled instances.
    pub cancelled: u64,
}

impl DefinitionTotals {
    /// Returns the number of instances that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.completed + self.failed + self.cancelled
    }
}

impl DefinitionMetrics {
    /// Returns the counters of a version.
    pub(super) fn version(&self, saga: &SagaName, version: u32) -> Arc<DefinitionCounters> {
        let key = (saga.clone(), version);
        let known = self.versions.read().get(&key).cloned();

        known.unwrap_or_else(|| {
            let mut versions = self.versions.write();
            Arc::clone(versions.entry(key).or_default())
        })
    }

    /// Returns the counter of the inputs that a saga sends to itself.
    pub(super) fn own_inputs(&self, saga: &SagaName) -> Counter {
        let known = self.own_inputs.read().get(saga).cloned();

        known.unwrap_or_else(|| {
            let mut sagas = self.own_inputs.write();
            sagas.entry(saga.clone()).or_default().clone()
        })
    }

    /// Removes the counters of a version, and those of its saga if it is the last version.
    pub(super) fn remove(&self, saga: &SagaName, version: u32) {
        let mut versions = self.versions.write();
        versions.remove(&(saga.clone(), version));
        let is_last = !versions.keys().any(|(other, _)| other == saga);
        drop(versions);

        if is_last {
            let mut sagas = self.own_inputs.write();
            sagas.remove(saga);
        }
        self.removals.fetch_add(1, Ordering::Release);
    }

    pub(super) fn totals(&self) -> BTreeMap<(SagaName, u32), DefinitionTotals> {
        let versions = self.versions.read();
        versions
            .iter()
            .map(|(key, counters)| (key.clone(), counters.totals()))
            .collect()
    }

    pub(super) fn own_input_totals(&self) -> BTreeMap<SagaName, u64> {
        let sagas = self.own_inputs.read();
        sagas
            .iter()
            .map(|(saga, counter)| (saga.clone(), counter.get()))
            .collect()
    }
}

impl DefinitionCounters {
    fn totals(&self) -> DefinitionTotals {
        DefinitionTotals {
            started: self.started.get(),
            completed: self.completed.get(),
            failed: self.failed.get(),
            cancelled: self.cancelled.get(),
        }
    }

    fn count(&self, starts: bool, after: &Instance) {
        if starts {
            self.started.inc();
        }
        match after.status {
            Status::Completed => self.completed.inc(),
            Status::Failed => self.failed.inc(),
            Status::Cancelled => self.cancelled.inc(),
            Status::Running | Status::Compensating | Status::Stuck => return,
        };
    }
}

/// Counters of the definitions of a committer, found without a lock.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCache {
    counters: HashMap<[u8; 16], Arc<DefinitionCounters>>,
    /// Number of removals before the counters were found.
    removals: u64,
}

impl DefinitionCache {
    /// Counts a commit that starts or ends an instance.
    pub(super) fn count(&mut self, metrics: &DefinitionMetrics, commit: &Commit, after: &Instance) {
        let before = commit.before.as_deref();
        let starts = before.is_none_or(|before| before.run_id != after.run_id);
        let ends =
            after.status.is_final() && before.is_none_or(|before| before.status != after.status);
        if !starts && !ends {
            return;
        }

        let DefinitionRef {
            saga,
            version,
            hash,
        } = &after.definition;
        let removals = metrics.removals.load(Ordering::Acquire);
        // The cached counters may have been removed: a count in them would be lost.
        if self.removals != removals {
            self.counters.clear();
            self.removals = removals;
        }

        let counters = self
            .counters
            .entry(*hash)
            .or_insert_with(|| metrics.version(saga, *version));
        counters.count(starts, after);
    }
}
