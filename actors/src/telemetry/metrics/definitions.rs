//! Metrics by version of a definition, and inputs that a saga sends to itself. Definitions bound the number of
//! series.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{Commit, DefinitionRef, Instance, SagaName, Status};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::sink::MetricSink;

type ByVersion = [(&'static str, String); 2];
type ByVersionAndStatus = [(&'static str, String); 3];
type BySaga = [(&'static str, String); 1];

/// Metrics of all definitions.
#[derive(Debug, Default)]
pub(crate) struct DefinitionMetrics {
    started: Family<ByVersion, Counter>,
    ended: Family<ByVersionAndStatus, Counter>,
    own_inputs: Family<BySaga, Counter>,
    versions: RwLock<BTreeMap<(SagaName, u32), Arc<DefinitionCounters>>>,
    sagas: RwLock<BTreeMap<SagaName, Counter>>,
}

/// Counters of one version of a definition.
#[derive(Debug)]
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
    /// Ended instances: completed, failed or cancelled.
    pub ended: u64,
    /// Failed instances.
    pub failed: u64,
}

impl DefinitionMetrics {
    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("definition_instances_started_total", self.started.clone());
        sink.register("definition_instances_ended_total", self.ended.clone());
        sink.register("saga_own_inputs_total", self.own_inputs.clone());
    }

    /// Returns the counters of a version.
    pub(super) fn version(&self, saga: &SagaName, version: u32) -> Arc<DefinitionCounters> {
        let key = (saga.clone(), version);
        let known = self
            .versions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        known.unwrap_or_else(|| {
            let mut versions = self
                .versions
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                versions
                    .entry(key)
                    .or_insert_with(|| Arc::new(self.create(saga, version))),
            )
        })
    }

    /// Returns the counter of the inputs that a saga sends to itself.
    pub(super) fn own_inputs(&self, saga: &SagaName) -> Counter {
        let known = self
            .sagas
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(saga)
            .cloned();
        known.unwrap_or_else(|| {
            let counter = self
                .own_inputs
                .get_or_create(&[("saga", saga.to_string())])
                .clone();
            let mut sagas = self.sagas.write().unwrap_or_else(PoisonError::into_inner);
            sagas.entry(saga.clone()).or_insert(counter).clone()
        })
    }

    pub(super) fn totals(&self) -> BTreeMap<(SagaName, u32), DefinitionTotals> {
        let versions = self.versions.read().unwrap_or_else(PoisonError::into_inner);
        versions
            .iter()
            .map(|(key, counters)| (key.clone(), counters.totals()))
            .collect()
    }

    pub(super) fn own_input_totals(&self) -> BTreeMap<SagaName, u64> {
        let sagas = self.sagas.read().unwrap_or_else(PoisonError::into_inner);
        sagas
            .iter()
            .map(|(saga, counter)| (saga.clone(), counter.get()))
            .collect()
    }

    fn create(&self, saga: &SagaName, version: u32) -> DefinitionCounters {
        let labels = || [("saga", saga.to_string()), ("version", version.to_string())];
        let ended = |status: Status| {
            let [saga, version] = labels();
            self.ended
                .get_or_create(&[saga, version, ("status", status.as_str().to_owned())])
                .clone()
        };
        DefinitionCounters {
            started: self.started.get_or_create(&labels()).clone(),
            completed: ended(Status::Completed),
            failed: ended(Status::Failed),
            cancelled: ended(Status::Cancelled),
        }
    }
}

impl DefinitionCounters {
    fn totals(&self) -> DefinitionTotals {
        let failed = self.failed.get();
        let ended = self.completed.get() + failed + self.cancelled.get();
        DefinitionTotals {
            started: self.started.get(),
            ended,
            failed,
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
pub(crate) struct DefinitionCache(HashMap<[u8; 16], Arc<DefinitionCounters>>);

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
        let counters = self
            .0
            .entry(*hash)
            .or_insert_with(|| metrics.version(saga, *version));
        counters.count(starts, after);
    }
}
