//! Composition root of a node: builds all components in dependency order and owns their handles.
//!
//! A start scans no instances, so its cost does not depend on their number.

pub(crate) mod background;
mod certificates;
pub(crate) mod cluster;
pub(crate) mod component_config;
mod durable_positions;
pub(crate) mod effects;
mod key_files;
pub(crate) mod layout;
mod observers;
pub mod replication;
mod shard_startup;
mod slot_owner;
pub(crate) mod stores;
pub(crate) mod transport;

use std::sync::{Arc, Mutex, OnceLock};

use anyhow::Context;
use orlog_actors::{
    AttemptMetrics, CommitObserver, ProgramRegistry, Runtime, RuntimeDependencies, WorkerPool,
};
use orlog_bus::{Bus, PublishAck, codec};
use orlog_effect::{Catalog, EffectObserver, Upstream};
use orlog_model::{Clock, Event, Timestamp};
use orlog_program::{Diagnostic, Program};
use orlog_store::{Device, Reader, Writer};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::audit::AuditTrail;
use crate::auth::{Authenticator, SessionToken};
use crate::backup::downloads::BackupStore;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::dead_letters;
use crate::definitions::DefinitionSet;
use crate::retention::purge_counts::PurgeCounters;
use crate::sagas::attempts::RecentAttempts;
use crate::telemetry::{MetricsRegistry, TelemetryHandle};
use crate::upstreams::UpstreamSources;
use background::BackgroundTasks;
use cluster::Cluster;
use effects::EffectParts;
use key_files::KeyFiles;
use observers::{InitialMetrics, Observers};
use stores::{LocalStorage, NodeStorage};
use transport::Transport;

pub use crate::backup::downloads::{BackupError, BackupHandle, backup_offline};
pub use crate::backup::rebuild::rebuild;
pub use crate::definitions::deploy::{DeployError, DeployRequest};
pub use crate::definitions::gc::CollectResult;
pub use crate::definitions::migrate::{MigrateRequest, MigrateResult};
pub use crate::node::info::{Info, SagaInfo, ShardInfo, UpstreamInfo};
pub use crate::replay::{
    ReplayError, ReplayReport, ReplayRequest, ReplayResult, ReplayWorkMode, ReplayedInstance,
};
pub use crate::retention::purge_counts::PurgeResult;
pub use cluster::{ClusterInfo, PodInfo};
pub use effects::probe_dependencies;
pub use layout::{check_data_dir, durable_positions, shard_dir, shard_name};
pub use slot_owner::SlotOwner;
pub use stores::ReadOnlyStores;
pub use transport::{BusInfo, connect, streams};

/// Components that an embedding program, a test or a bench replaces.
#[derive(Default)]
pub struct AppOverrides {
    /// Clock. Default: the clock of the host.
    pub clock: Option<Arc<dyn Clock>>,
    /// Programs in addition to those of the definitions.
    pub programs: Vec<Arc<dyn Program>>,
    /// Upstreams in addition to the configured ones, for example functions in this process.
    pub upstreams: Vec<Upstream>,
    /// Observer of every commit.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// Observer of every attempt.
    pub effect_observer: Option<Arc<dyn EffectObserver>>,
    /// Disk of the journals of the stores.
    pub disk: Option<Arc<dyn Device>>,
    /// Whether stores and logs that lost durable data are opened without it. Default: they are rejected.
    pub accept_data_loss: bool,
    /// Token that requests need if the configuration requires no authentication.
    pub session: Option<SessionToken>,
    /// Telemetry for a collector. Default: no export.
    pub telemetry: TelemetryHandle,
}

/// Locks of changes that concern the definitions.
#[derive(Default)]
pub(crate) struct DefinitionLocks {
    /// Serializes deployments, garbage collections, migrations, replays and redrives.
    pub(crate) deploying: tokio::sync::Mutex<()>,
    /// Number of takeovers since the start. Held while definitions are stored in the shards and activated,
    /// and while a shard adopts them. Unlike `deploying` it is held for a short time, so that a takeover can
    /// wait for it.
    pub(crate) activating: tokio::sync::Mutex<u64>,
}

/// A running node.
pub struct App {
    /// The actor runtime.
    pub runtime: Runtime,
    /// The source of events.
    pub bus: Arc<dyn Bus>,
    /// The programs, including those of retired definitions.
    pub programs: Arc<ProgramRegistry>,
    /// The upstreams.
    pub catalog: Arc<Catalog>,
    /// The sources of the upstreams.
    pub upstreams: UpstreamSources,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The configuration at the start of the node.
    pub config: Config,
    /// The active definitions.
    pub definitions: DefinitionSet,
    /// The metrics registry.
    pub metrics_registry: Mutex<MetricsRegistry>,
    /// Start time of the node.
    pub started_at: Timestamp,
    /// Recent failed attempts by instance.
    pub attempts: Arc<RecentAttempts>,
    /// Counters of attempts.
    pub attempt_metrics: Arc<AttemptMetrics>,
    /// The authenticator of callers.
    pub authenticator: Authenticator,
    /// The audit log.
    pub audit: AuditTrail,
    /// The telemetry export.
    pub(crate) telemetry: TelemetryHandle,
    pub(crate) transport: Transport,
    pub(crate) local: LocalStorage,
    pub(crate) workers: Option<WorkerPool>,
    pub(crate) drain_state: watch::Sender<bool>,
    pub(crate) locks: DefinitionLocks,
    pub(crate) collected: Counter,
    pub(crate) purges: PurgeCounters,
    pub(crate) background: BackgroundTasks,
    pub(crate) backups: BackupStore,
    pub(crate) keys: KeyFiles,
    /// The cluster membership; unset if the node runs alone.
    pub(crate) cluster: OnceLock<Cluster>,
}

impl App {
    /// Starts a node.
    ///
    /// # Errors
    /// If the data directory is in use or damaged, or if definitions or upstreams are invalid.
    pub async fn start(config: Config) -> anyhow::Result<Arc<Self>> {
        Self::start_with(config, AppOverrides::default()).await
    }

    /// Starts a node with overridden components.
    ///
    /// # Errors
    /// Same as [`App::start`].
    pub async fn start_with(config: Config, overrides: AppOverrides) -> anyhow::Result<Arc<Self>> {
        Box::pin(Self::build(config, overrides)).await
    }

    async fn build(config: Config, overrides: AppOverrides) -> anyhow::Result<Arc<Self>> {
        let clock = overrides.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let started_at = clock.now();
        let keys = KeyFiles::load(&config)?;
        let local = LocalStorage::claim(&config, overrides.disk, overrides.accept_data_loss)?;
        let NodeStorage { mut stores, transport } =
            Box::pin(NodeStorage::open(&config, &local, &clock)).await?;
        let Observers { tracer, attempts, counted } =
            observers::build_observers(&overrides.telemetry, overrides.effect_observer, &clock);
        let access = Box::pin(Authenticator::new(&config, overrides.session)).await?;
        let audit = AuditTrail::open(&component_config::audit(&config))?;
        let backups = BackupStore::open(&config)?;
        let observer = Arc::clone(&counted) as Arc<dyn EffectObserver>;
        let providers =
            EffectParts::build(&config, transport.connection(), overrides.upstreams, &clock, &observer);
        let EffectParts { upstreams, catalog } = Box::pin(providers).await?;
        let dir = config.definitions_dir.clone().filter(|_| config.role.runs_sagas());
        let definitions = DefinitionSet::new(dir, overrides.programs);
        let occasion = (started_at, config.role.runs_sagas());
        let programs = Arc::new(activate(&definitions, &catalog, &mut stores, occasion)?);
        let bus = transport.bus();
        let dependencies = RuntimeDependencies {
            bus: Arc::clone(&bus),
            sources: transport.sources(),
            catalog: Arc::clone(&catalog),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            dead_letter_encoder: dead_letters::view::publishable(config.redact.clone()),
            shards: stores::shards(&config, stores),
            observer: overrides.observer,
            tracer: tracer.clone(),
        };
        let runtime = Box::pin(Runtime::start(dependencies, local.runtime_config(&config))).await?;
        let (connection, metrics) = (transport.connection(), runtime.metrics());
        let workers = effects::workers(&config, connection, &catalog, &clock, metrics, tracer);
        let workers = Box::pin(workers).await?;
        let InitialMetrics { registry, collected, purges } =
            InitialMetrics::of(&runtime, &counted, &overrides.telemetry);
        let app = Arc::new(Self {
            runtime,
            bus,
            programs,
            catalog,
            upstreams,
            clock,
            config,
            definitions,
            metrics_registry: Mutex::new(registry),
            started_at,
            attempts,
            attempt_metrics: counted,
            authenticator: access,
            audit,
            keys,
            telemetry: overrides.telemetry,
            transport,
            local,
            workers,
            drain_state: watch::Sender::new(false),
            locks: DefinitionLocks::default(),
            collected,
            purges,
            background: BackgroundTasks::default(),
            backups,
            cluster: OnceLock::new(),
        });
        app.start_background_tasks();
        Box::pin(app.join()).await?;
        Ok(app)
    }

    fn start_background_tasks(self: &Arc<Self>) {
        self.collect_after_start();
        self.purge_after_start();
        self.store_positions_later();
        self.publish_audit_later();
        self.reload_certificates_later();
    }

    /// Publishes events; returns when they are durable.
    ///
    /// # Errors
    /// [`orlog_bus::Error::Unavailable`] while the node drains, [`orlog_bus::Error::Full`] while a store
    /// has no free space, and other errors of the bus.
    pub async fn publish(&self, events: Vec<Event>) -> Result<Vec<PublishAck>, orlog_bus::Error> {
        let health = self.runtime.health();
        if !health.accepting {
            let reason = "this node is draining; use another node, or retry after its restart";
            return Err(orlog_bus::Error::Unavailable(reason.to_owned()));
        }
        if !health.has_capacity {
            return Err(orlog_bus::Error::Full("a store has no free space; free disk space".to_owned()));
        }
        let kind = component_config::submitted_event_kind(&self.config);
        let message = |event: &Event| codec::encode(event, codec::subject_with_kind(event, kind));
        self.bus.publish(events.iter().map(message).collect()).await
    }

    /// Waits for the deployment, migration or replay that is in progress, and prevents the next one until the
    /// guard is dropped.
    pub async fn lock_definitions(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.locks.deploying.lock().await
    }

    /// Returns the catalog of the current upstream files without activating it.
    pub(crate) fn next_catalog(&self) -> Result<Arc<Catalog>, Vec<Diagnostic>> {
        let next = self.catalog.rebuild(self.upstreams.read()?);
        next.map(Arc::new).map_err(|error| {
            let file = "the upstreams".to_owned();
            let message = error.to_string();
            vec![Diagnostic { file, line: 0, column: 0, path: String::new(), message, suggestion: None }]
        })
    }

    /// Rejects new work and waits until no work is in flight, up to the configured timeout. Returns `false`
    /// if work is still in flight; it continues at the next start.
    pub async fn drain(&self) -> bool {
        let deadline = self.config.drain.timeout;
        let workers = async {
            match &self.workers {
                Some(workers) => workers.drain(deadline).await,
                None => true,
            }
        };
        let sagas = async {
            let end = tokio::time::Instant::now() + deadline;
            if let Some(cluster) = self.cluster.get() {
                cluster.drain(deadline).await;
            }
            self.runtime.drain(end - tokio::time::Instant::now()).await
        };
        let (sagas, workers) = tokio::join!(sagas, workers);
        let drained = sagas && workers;
        self.drain_state.send_replace(true);
        drained
    }

    /// Waits until the node is drained and can stop.
    pub async fn drained(&self) {
        // The sender lives as long as `self`.
        drop(self.drain_state.subscribe().wait_for(|drained| *drained).await);
    }

    /// Waits until a component has failed too often.
    pub async fn has_failed(&self) {
        let workers = async {
            match &self.workers {
                Some(workers) => workers.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.runtime.ended() => {}
            () = workers => {}
        }
    }

    /// Returns whether the effect workers are running; `true` if the node has none.
    #[must_use]
    pub fn workers_running(&self) -> bool {
        self.workers.as_ref().is_none_or(WorkerPool::is_running)
    }

    /// Returns whether the bus is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.transport.info().connected
    }

    /// Stops all components and flushes the files.
    ///
    /// # Errors
    /// Fails if the store cannot be flushed. Committed data is safe in its journal.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.background.stop().await;
        if let Some(workers) = &self.workers {
            workers.stop().await;
        }
        if let Some(cluster) = self.cluster.get() {
            cluster.leave().await;
        }
        let stopped = self.runtime.stop().await;
        self.transport.close().await?;
        self.store_positions().await;
        stopped.context("the tables could not be flushed; the journal is complete")
    }

    /// Returns information about the node.
    #[must_use]
    pub fn info(&self) -> Info {
        crate::node::info::collect(crate::node::info::InfoSources {
            config: &self.config,
            runtime: &self.runtime,
            catalog: &self.catalog,
            definitions: &self.definitions,
            stream: self.bus.stream_id().to_string(),
            bus: self.transport.info(),
            cluster: self.cluster.get().map(Cluster::info),
            started_at: self.started_at,
        })
    }
}

/// Determines the active definitions and stores them in every store, the first store first.
fn activate(
    definitions: &DefinitionSet,
    catalog: &Catalog,
    stores: &mut [(Writer, Reader)],
    (now, runs_sagas): (Timestamp, bool),
) -> anyhow::Result<ProgramRegistry> {
    if !runs_sagas {
        return Ok(ProgramRegistry::new(Vec::new()));
    }
    let chosen = crate::definitions::initial::choose(
        definitions,
        catalog,
        stores.first().map(|(_, reader)| reader),
        now,
    )?;
    stores.iter_mut().try_for_each(|(writer, reader)| {
        crate::definitions::initial::store_definitions(writer, reader, &chosen, now)
    })?;
    let older = stores.first().map(|(_, reader)| reader.definitions()).transpose()?.unwrap_or_default();
    let programs = ProgramRegistry::new(DefinitionSet::programs(&chosen.definitions, &older));
    definitions.activate(chosen.definitions, chosen.deployment);
    Ok(programs)
}
