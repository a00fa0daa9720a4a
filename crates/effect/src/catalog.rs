//! The catalog: routes work to the upstream that executes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_model::{
    Clock, Destination, EffectName, Failure, IN_DOUBT, InDoubtPolicy, SteadyTime, TenantId,
    WorkItem, WorkKind, WorkOutcome,
};
use parking_lot::RwLock;
use serde_json::Value;

use crate::effect_execution::{ExecutionProgress, ExecutionResult};
use crate::executor::EffectExecutor;
use crate::job_logs::JobLogs;
use crate::observer::EffectObserver;
use crate::upstream::{Upstream, UpstreamScope, UpstreamStatus, is_job};
use crate::worker::{ClaimOptions, JobBoard};

/// Error for upstreams that claim the same name, effect or role. The text names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// All effect executors of a process.
///
/// It can be replaced as a whole: [`Catalog::rebuild`] creates the next one, in which unchanged
/// upstreams keep their executors with the state of breakers and limits. [`Catalog::replace_with`]
/// activates it. Readers see either the old or the new catalog, never a mixture.
pub struct Catalog {
    table: RwLock<Arc<RoutingTable>>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn EffectObserver>,
}

#[derive(Default)]
struct RoutingTable {
    upstreams: BTreeMap<String, Arc<EffectExecutor>>,
    effects: BTreeMap<String, Vec<Arc<EffectExecutor>>>,
    fallback: Option<Arc<EffectExecutor>>,
    jobs: Option<Arc<EffectExecutor>>,
    gateway: Option<Arc<EffectExecutor>>,
}

/// Changes of a catalog replacement.
#[derive(Default)]
pub struct CatalogChange {
    /// Executors that are now active.
    pub added: Vec<Arc<EffectExecutor>>,
    /// Executors that are no longer active and were retired.
    pub retired: Vec<Arc<EffectExecutor>>,
}

impl Catalog {
    /// Creates a catalog with one executor per upstream.
    ///
    /// # Errors
    /// If two upstreams claim the same name, the same effect for the same tenants, or the commands.
    pub fn new(
        upstreams: Vec<Upstream>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn EffectObserver>,
    ) -> Result<Self, Error> {
        let empty = Self {
            table: RwLock::default(),
            clock: Arc::clone(clock),
            observer: Arc::clone(observer),
        };
        empty.rebuild(upstreams)
    }

    /// Returns the catalog of these upstreams. Unchanged upstreams keep their executors.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub fn rebuild(&self, upstreams: Vec<Upstream>) -> Result<Self, Error> {
        let present = self.table();
        let mut table = RoutingTable::default();

        // An unchanged upstream is not created again: its breaker and its budget would start from
        // zero with each reload.
        for upstream in upstreams {
            let existing = present.upstreams.get(&upstream.name);
            table.add(match existing {
                Some(existing) if existing.upstream().has_same_config(&upstream) => {
                    Arc::clone(existing)
                }
                Some(existing) => {
                    self.create_executor(upstream.inherit_job_board(existing.upstream()))
                }
                None => self.create_executor(upstream),
            })?;
        }

        Ok(Self {
            table: RwLock::new(Arc::new(table)),
            clock: Arc::clone(&self.clock),
            observer: Arc::clone(&self.observer),
        })
    }

    fn create_executor(&self, upstream: Upstream) -> Arc<EffectExecutor> {
        if let Some(logs) = &upstream.job_logs {
            logs.observe(&self.observer);
        }
        EffectExecutor::with_observer(
            upstream,
            Arc::clone(&self.clock),
            Arc::clone(&self.observer),
        )
    }

    /// Returns the executors that are in `next` and not in this catalog.
    #[must_use]
    pub fn added_in(&self, next: &Self) -> Vec<Arc<EffectExecutor>> {
        next.table().without(&self.table())
    }

    /// Returns the names of the upstreams that differ in `next`, in order.
    #[must_use]
    pub fn changed_in(&self, next: &Self) -> Vec<String> {
        let previous = self.table();
        let next = next.table();

        // A changed upstream is in both differences. The set names it once.
        let mut names = BTreeSet::new();
        for executor in next.without(&previous) {
            names.insert(executor.upstream().name.clone());
        }
        for executor in previous.without(&next) {
            names.insert(executor.upstream().name.clone());
        }
        names.into_iter().collect()
    }

    /// Activates another catalog and retires the executors that it lacks.
    pub fn replace_with(&self, next: &Self) -> CatalogChange {
        let next = next.table();

        // The lock is held for the exchange only; executors retire without it.
        let previous = {
            let mut table = self.table.write();
            std::mem::replace(&mut *table, Arc::clone(&next))
        };

        let change = CatalogChange {
            added: next.without(&previous),
            retired: previous.without(&next),
        };
        for executor in &change.retired {
            executor.retire();
        }

        // A changed upstream inherits the board of its predecessor, with the jobs that workers
        // hold. Only a board without a successor is closed.
        for (board, _) in previous.boards() {
            let is_retained = next.boards().any(|(other, _)| Arc::ptr_eq(other, board));
            if !is_retained {
                board.close();
            }
        }
        change
    }

    /// Invalidates data that providers fetched from their upstreams. Called after a configuration
    /// reload, even if nothing changed here.
    pub fn refresh(&self) {
        self.table()
            .upstreams
            .values()
            .for_each(|executor| executor.upstream().provider.refresh());
    }

    /// Returns an executor of the destination for at least one tenant; `None`: there is none. The
    /// bus handles facts.
    #[must_use]
    pub fn executor_for_name(&self, kind: WorkKind, name: &str) -> Option<Arc<EffectExecutor>> {
        self.route(kind, name, |_| true)
    }

    /// Returns the executor of the work items of a destination; an upstream that names the tenant
    /// has precedence over one for all tenants. Jobs without an upstream go to the runners if one
    /// has requested jobs of the type, otherwise to the fallback.
    #[must_use]
    pub fn executor_for(&self, to: &Destination) -> Option<Arc<EffectExecutor>> {
        let is_requested = |runners: &Arc<EffectExecutor>| {
            let board = runners.upstream().board.as_ref();
            board.is_some_and(|(board, _)| board.is_requested(&to.tenant, &to.name))
        };

        self.job_executor(to, is_requested)
            .or_else(|| {
                self.route(to.kind, to.name.as_str(), |executor| {
                    serves(executor, &to.tenant)
                })
            })
            .or_else(|| self.job_executor(to, |_| true))
    }

    /// Returns the executor of the work items of a flow. As [`Catalog::executor_for`], but the
    /// fallback never executes a job that runners can execute: no definition describes its result.
    #[must_use]
    pub fn executor_for_flow(&self, to: &Destination) -> Option<Arc<EffectExecutor>> {
        self.job_executor(to, |_| true)
            .or_else(|| self.executor_for(to))
    }

    /// Returns the executor of a job: an upstream of the effect, or the runners if they are to
    /// execute it.
    fn job_executor(
        &self,
        to: &Destination,
        runners_execute: impl Fn(&Arc<EffectExecutor>) -> bool,
    ) -> Option<Arc<EffectExecutor>> {
        if to.kind != WorkKind::Effect || !is_job(&to.name) {
            return None;
        }

        let table = self.table();
        // An upstream that names the job has precedence over runners, which claim jobs of all
        // types.
        let own = table
            .effects
            .get(to.name.as_str())
            .into_iter()
            .flatten()
            .find(|executor| serves(executor, &to.tenant));

        own.or(table
            .jobs
            .as_ref()
            .filter(|runners| runners_execute(runners)))
            .cloned()
    }

    fn route(
        &self,
        kind: WorkKind,
        name: &str,
        fits: impl Fn(&EffectExecutor) -> bool,
    ) -> Option<Arc<EffectExecutor>> {
        let table = self.table();
        match kind {
            WorkKind::Effect => {
                // The table has the upstreams that name their tenants first.
                let own = table
                    .effects
                    .get(name)
                    .into_iter()
                    .flatten()
                    .find(|executor| fits(executor));
                own.or(table.fallback.as_ref()).cloned()
            }
            WorkKind::Command => table.gateway.clone(),
            WorkKind::Fact | WorkKind::Saga => None,
        }
    }

    /// Executes a work item until it has a result. Work without an executor fails at once with the
    /// code `effect_unknown` or `no_gateway`.
    pub async fn execute(&self, item: &WorkItem) -> ExecutionResult {
        match self.executor_for(&item.destination()) {
            Some(executor) => executor.execute(item).await,
            None => self.unroutable_result(item, ExecutionProgress::default()),
        }
    }

    /// Returns all executors, ordered by the names of their upstreams.
    #[must_use]
    pub fn executors(&self) -> Vec<Arc<EffectExecutor>> {
        self.table().upstreams.values().cloned().collect()
    }

    /// Returns the effects with the upstreams of each, ordered by name.
    #[must_use]
    pub fn effects(&self) -> Vec<(String, Vec<String>)> {
        let table = self.table();
        let mut effects = Vec::with_capacity(table.effects.len());
        for (effect, executors) in &table.effects {
            let upstreams = executors
                .iter()
                .map(|executor| executor.upstream().name.clone())
                .collect();
            effects.push((effect.clone(), upstreams));
        }
        effects
    }

    /// Returns the status of each upstream, ordered by name.
    #[must_use]
    pub fn upstream_statuses(&self) -> Vec<UpstreamStatus> {
        self.table()
            .upstreams
            .values()
            .map(|executor| executor.status())
            .collect()
    }

    /// Returns the job boards with jobs for workers.
    #[must_use]
    pub fn job_boards(&self) -> Vec<(Arc<JobBoard>, ClaimOptions, Arc<EffectExecutor>)> {
        let table = self.table();
        let executors = table.upstreams.values();
        let boards = executors.filter_map(|executor| {
            let (board, terms) = executor.upstream().board.as_ref()?;
            Some((Arc::clone(board), *terms, Arc::clone(executor)))
        });
        boards.collect()
    }

    /// Returns the number of jobs on the job boards that no worker has claimed.
    #[must_use]
    pub fn unclaimed_jobs(&self, now: SteadyTime) -> usize {
        let table = self.table();
        table.boards().map(|(board, _)| board.unclaimed(now)).sum()
    }

    /// Returns the job logs of all executors.
    #[must_use]
    pub fn job_logs(&self) -> Vec<Arc<JobLogs>> {
        let table = self.table();
        let written = table
            .upstreams
            .values()
            .filter_map(|executor| executor.upstream().job_logs.as_ref());
        written.map(Arc::clone).collect()
    }

    fn table(&self) -> Arc<RoutingTable> {
        Arc::clone(&self.table.read())
    }

    /// Returns the result of work without an executor: it ends at once with the code
    /// `effect_unknown` or `no_gateway`. It failed, or timed out if an attempt under an earlier
    /// executor is in doubt. If the definition does not allow a retry, the code is then `in_doubt`.
    #[must_use]
    pub fn unroutable_result(
        &self,
        item: &WorkItem,
        progress: ExecutionProgress,
    ) -> ExecutionResult {
        let mut failure = self.unroutable(item);
        // The upstream may have executed it. A definition that forbids a second attempt must not
        // see an ordinary failure.
        let outcome = if progress.in_doubt {
            let policy = item.work.effect().and_then(|effect| effect.in_doubt);
            if matches!(policy, Some(InDoubtPolicy::Fail | InDoubtPolicy::Ask)) {
                IN_DOUBT.clone_into(&mut failure.code);
            }
            failure.message = format!(
                "unknown whether an earlier attempt executed it under the key {}; not retried: {}",
                item.id, failure.message
            );
            WorkOutcome::TimedOut { failure }
        } else {
            WorkOutcome::Failed {
                event: None,
                failure,
                payload: Value::Null,
            }
        };

        let ExecutionProgress {
            attempts,
            attempt_log,
            ..
        } = progress;
        ExecutionResult {
            attempts,
            attempt_log,
            ..ExecutionResult::without_attempt(outcome)
        }
    }

    fn unroutable(&self, item: &WorkItem) -> Failure {
        let (code, message) = match item.work.kind() {
            WorkKind::Effect => ("effect_unknown", self.unknown(&item.work.label())),
            WorkKind::Command => (
                "no_gateway",
                "command cannot be sent: no gateway is configured".to_owned(),
            ),
            WorkKind::Fact | WorkKind::Saga => (
                "not_an_effect",
                "facts and sagas are published, not executed".to_owned(),
            ),
        };

        Failure {
            code: code.to_owned(),
            message,
        }
    }

    fn unknown(&self, name: &str) -> String {
        let table = self.table();
        if table.effects.contains_key(name) {
            return format!("no upstream serves {name} for this tenant");
        }

        // The name may be misspelled, and the message is all that the operator has.
        let near = table
            .effects
            .keys()
            .map(|known| (strsim::jaro_winkler(name, known), known));
        let nearest = near
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            // A less similar name is probably another effect.
            .filter(|(likeness, _)| *likeness > 0.8);

        match nearest {
            Some((_, known)) => format!("no upstream serves {name}; did you mean {known}?"),
            None => format!("no upstream serves {name}"),
        }
    }
}

impl RoutingTable {
    fn boards(&self) -> impl Iterator<Item = &(Arc<JobBoard>, ClaimOptions)> {
        self.upstreams
            .values()
            .filter_map(|executor| executor.upstream().board.as_ref())
    }

    fn without(&self, other: &Self) -> Vec<Arc<EffectExecutor>> {
        // By identity, not by name: a changed upstream has the name of its predecessor.
        let is_in_other = |executor: &Arc<EffectExecutor>| {
            let namesake = other.upstreams.get(&executor.upstream().name);
            namesake.is_some_and(|namesake| Arc::ptr_eq(namesake, executor))
        };
        self.upstreams
            .values()
            .filter(|executor| !is_in_other(executor))
            .cloned()
            .collect()
    }

    fn add(&mut self, executor: Arc<EffectExecutor>) -> Result<(), Error> {
        let name = executor.upstream().name.clone();
        match &executor.upstream().scope {
            UpstreamScope::Effects(effects) => {
                for effect in effects {
                    self.add_effect(effect, &executor)?;
                }
            }
            UpstreamScope::Fallback => claim(&mut self.fallback, &executor, "fallback upstreams")?,
            UpstreamScope::Jobs => claim(&mut self.jobs, &executor, "upstreams of all jobs")?,
            UpstreamScope::Commands => claim(&mut self.gateway, &executor, "gateways")?,
        }

        match self.upstreams.insert(name.clone(), executor) {
            Some(_) => Err(Error(format!("duplicate upstream {name:?}; rename one"))),
            None => Ok(()),
        }
    }

    /// Adds an executor of an effect; those for all tenants come after those for specific tenants.
    fn add_effect(
        &mut self,
        effect: &EffectName,
        executor: &Arc<EffectExecutor>,
    ) -> Result<(), Error> {
        let all = self.effects.entry(effect.to_string()).or_default();
        if let Some(first) = all.iter().find(|first| contend(first, executor)) {
            let first = &first.upstream().name;
            let second = &executor.upstream().name;
            return Err(Error(format!(
                "effect {effect} is configured in {first:?} and {second:?}; remove it from one"
            )));
        }

        // Lookups take the first executor that serves the tenant.
        match executor.upstream().tenants {
            Some(_) => all.insert(0, Arc::clone(executor)),
            None => all.push(Arc::clone(executor)),
        }
        Ok(())
    }
}

/// Assigns a role that only one upstream can have.
fn claim(
    place: &mut Option<Arc<EffectExecutor>>,
    executor: &Arc<EffectExecutor>,
    role: &str,
) -> Result<(), Error> {
    if let Some(first) = place.replace(Arc::clone(executor)) {
        let first = &first.upstream().name;
        let second = &executor.upstream().name;
        return Err(Error(format!(
            "{first:?} and {second:?} are both {role}; remove one"
        )));
    }
    Ok(())
}

fn serves(executor: &EffectExecutor, tenant: &TenantId) -> bool {
    executor
        .upstream()
        .tenants
        .as_ref()
        .is_none_or(|tenants| tenants.contains(tenant))
}

/// Returns whether the choice between the two is ambiguous for some tenant.
fn contend(a: &EffectExecutor, b: &EffectExecutor) -> bool {
    match (&a.upstream().tenants, &b.upstream().tenants) {
        (None, None) => true,
        (Some(a), Some(b)) => !a.is_disjoint(b),
        // The upstream that names the tenant has precedence.
        (Some(_), None) | (None, Some(_)) => false,
    }
}
