//! Composition root of a node: builds all components in dependency order and owns their handles.
//!
//! A start scans no instances, so its cost does not depend on their number.

mod callers;
mod lifecycle;
mod observers;
mod overrides;
mod publishing;
mod reload;
mod services;
mod shard_startup;
mod slot_owner;
mod status;

use std::sync::{Arc, Mutex};

use orlog_actors::{AttemptMetrics, ProgramRegistry, Runtime, RuntimeDependencies, WorkerPool};
use orlog_bus::Bus;
use orlog_effect::Catalog;
use orlog_model::{Clock, Timestamp};
use tokio::sync::watch;

use crate::access::{AccessRegistry, SignedEvents};
use crate::admitted_tenants::AdmittedTenants;
use crate::audit::AuditTrail;
use crate::auth::Authenticator;
use crate::background::BackgroundTasks;
use crate::backup::service::claim_dir;
use crate::clock::SystemClock;
use crate::config::{Config, ConfigSource};
use crate::dead_letters;
use crate::definitions::change::DefinitionLocks;
use crate::definitions::numbers::DeploymentNumbers;
use crate::definitions::{DefinitionSet, initial};
use crate::effects::EffectParts;
use crate::jobs::runners::Runners;
use crate::peers::{NodeIdentity, PeerClient, Peers};
use crate::sagas::attempts::RecentAttempts;
use crate::sagas::pages::BuiltInPages;
use crate::stores::{LocalStorage, NodeStorage};
use crate::telemetry::{MetricsRegistry, TelemetryHandle};
use crate::tls::NodeTls;
use crate::transport::Transport;
use crate::webhooks::Webhooks;
use crate::{component_config, effects, stores};
use callers::Callers;
use observers::{InitialMetrics, Observers};
use services::{Parts, ServiceParts, Services};
use slot_owner::Routing;

pub use overrides::AppOverrides;
pub use slot_owner::SlotOwner;

/// A running node: its parts, and the services that use them.
pub struct App {
    /// The actor runtime.
    pub runtime: Arc<Runtime>,
    /// The source of events.
    pub bus: Arc<dyn Bus>,
    /// The programs, including those of retired definitions.
    pub programs: Arc<ProgramRegistry>,
    /// The upstreams.
    pub catalog: Arc<Catalog>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The configuration at the start of the node.
    pub config: Arc<Config>,
    /// The active definitions.
    pub definitions: Arc<DefinitionSet>,
    /// The services of the features.
    pub services: Services,
    /// Owners of the slots.
    pub routing: Routing,
    /// The metrics registry.
    pub metrics_registry: Mutex<MetricsRegistry>,
    /// Start time of the node.
    pub started_at: Timestamp,
    /// Recent failed attempts by instance.
    pub attempts: Arc<RecentAttempts>,
    /// Counters of attempts.
    pub attempt_metrics: Arc<AttemptMetrics>,
    /// Registered runners.
    pub runners: Runners,
    /// The authenticator of callers.
    pub authenticator: Authenticator,
    /// The contexts, actors and peers.
    pub access: Arc<AccessRegistry>,
    /// The identity of the node, and its peers.
    pub peers: Arc<Peers>,
    /// The client for requests to peers.
    pub peer_client: PeerClient,
    /// The verification of signed events.
    pub signed_events: Arc<SignedEvents>,
    /// The pages of the built-in sagas.
    pub pages: BuiltInPages,
    /// The received webhooks.
    pub webhooks: Arc<Webhooks>,
    config_source: Option<Arc<ConfigSource>>,
    /// The audit log.
    pub audit: Arc<AuditTrail>,
    /// The telemetry export.
    pub telemetry: TelemetryHandle,
    /// The tenants that the node admits.
    pub tenants: Arc<AdmittedTenants>,
    /// The bus with the streams of this node.
    pub transport: Arc<Transport>,
    workers: Option<Arc<WorkerPool>>,
    drain_state: watch::Sender<bool>,
    locks: Arc<DefinitionLocks>,
    background: Arc<BackgroundTasks>,
}

/// Returns the tenants that the streams of the node use, so that a reload changes one list.
fn admitted_tenants(transport: &Transport, config: &Config) -> Arc<AdmittedTenants> {
    transport
        .admitted_tenants()
        .unwrap_or_else(|| Arc::new(AdmittedTenants::new(config.tenants.clone())))
}

/// State that the API reads.
struct ApiParts {
    registry: MetricsRegistry,
    started_at: Timestamp,
    attempts: Arc<RecentAttempts>,
    attempt_metrics: Arc<AttemptMetrics>,
    callers: Callers,
    pages: BuiltInPages,
    webhooks: Arc<Webhooks>,
    config_source: Option<Arc<ConfigSource>>,
    telemetry: TelemetryHandle,
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
        let config = Arc::new(config);
        let clock = overrides.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let started_at = clock.now();
        let tls = NodeTls::load(&config)?;

        // Before any connection: a directory that is in use, or that lost data, is the first error.
        let local = LocalStorage::claim(&config, overrides.disk, overrides.accept_data_loss)?;
        let NodeStorage {
            mut stores,
            transport,
            access,
        } = Box::pin(NodeStorage::open(&config, &local, &clock)).await?;

        let Observers {
            tracer,
            attempts,
            attempt_metrics,
            lines,
            effect_observer,
        } = observers::build_observers(&overrides.telemetry, overrides.effect_observer);

        let connection = transport.connection();
        let callers = Callers::open(&config, connection, &clock, &access, overrides.session);
        let callers = Box::pin(callers).await?;
        let webhooks = Arc::new(Webhooks::new(&config)?);
        let audit = Arc::new(AuditTrail::open(&component_config::audit(&config))?);
        let backup_dir = claim_dir(&config)?;
        let EffectParts {
            upstreams,
            catalog,
            pages,
        } = Box::pin(EffectParts::build(
            &config,
            connection,
            overrides.upstreams,
            &clock,
            &effect_observer,
        ))
        .await?;

        let dir = config
            .definitions_dir
            .clone()
            .filter(|_| config.role.runs_sagas());
        let definitions = Arc::new(DefinitionSet::new(dir, overrides.programs));

        // Before the runtime: a shard never runs without the definitions of its instances.
        let programs = Arc::new(initial::activate(
            &definitions,
            &catalog,
            &mut stores,
            started_at,
            config.role.runs_sagas(),
        )?);

        let dependencies = RuntimeDependencies {
            bus: transport.bus(),
            sources: transport.sources(&callers.signed_events),
            catalog: Arc::clone(&catalog),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            dead_letter_encoder: dead_letters::view::publishable(config.redact.clone()),
            shards: stores::shards(&config, stores),
            observer: overrides.observer,
            tracer: tracer.clone(),
        };
        let runtime = Box::pin(Runtime::start(dependencies, local.runtime_config(&config))).await?;

        let workers = effects::workers(
            &config,
            connection,
            &catalog,
            &clock,
            runtime.metrics(),
            tracer,
        );
        let workers = Box::pin(workers).await?.map(Arc::new);
        let InitialMetrics {
            registry,
            collected,
            purges,
        } = InitialMetrics::of(&runtime, &attempt_metrics, &overrides.telemetry);

        let numbers = Arc::new(DeploymentNumbers::new(&config, connection));
        let tenants = admitted_tenants(&transport, &config);
        let parts = Parts {
            config,
            clock,
            runtime: Arc::new(runtime),
            bus: transport.bus(),
            transport,
            programs,
            catalog,
            definitions,
            workers,
            audit,
            locks: Arc::default(),
            background: Arc::default(),
            local,
            access,
            signed_events: Arc::clone(&callers.signed_events),
            numbers,
            tenants,
            scans: Arc::default(),
        };

        let diagnosis = overrides.diagnosis;
        let service_parts = ServiceParts {
            upstreams,
            tls,
            backup_dir,
            collected,
            purges,
            diagnosis,
            lines,
        };

        let state = ApiParts {
            registry,
            started_at,
            attempts,
            attempt_metrics,
            callers,
            pages,
            webhooks,
            config_source: overrides.config_source.map(Arc::new),
            telemetry: overrides.telemetry,
        };
        Box::pin(Self::join(parts, service_parts, state)).await
    }

    /// Starts the services, and joins the cluster if it is configured.
    async fn join(
        parts: Parts,
        service_parts: ServiceParts,
        state: ApiParts,
    ) -> anyhow::Result<Arc<Self>> {
        // Before the cluster is joined: from then on shards arrive, and they use the services.
        let services = Services::build(&parts, service_parts);
        services.run_in(&parts.background);

        let identity = state.callers.peer_client.peers().identity();
        let node_keys = identity.map(NodeIdentity::key_ids).unwrap_or_default();
        let routing = Routing::join(&parts, node_keys).await?;
        if let Some(deployment) = parts.definitions.deployment() {
            parts.numbers.raise(deployment.number).await;
        }

        Ok(Arc::new(Self {
            runtime: parts.runtime,
            bus: parts.bus,
            programs: parts.programs,
            catalog: parts.catalog,
            clock: parts.clock,
            config: parts.config,
            definitions: parts.definitions,
            services,
            routing,
            metrics_registry: Mutex::new(state.registry),
            started_at: state.started_at,
            attempts: state.attempts,
            attempt_metrics: state.attempt_metrics,
            runners: Runners::default(),
            authenticator: state.callers.authenticator,
            access: parts.access,
            peers: Arc::clone(state.callers.peer_client.peers()),
            peer_client: state.callers.peer_client,
            signed_events: parts.signed_events,
            pages: state.pages,
            webhooks: state.webhooks,
            config_source: state.config_source,
            audit: parts.audit,
            telemetry: state.telemetry,
            tenants: parts.tenants,
            transport: parts.transport,
            workers: parts.workers,
            drain_state: watch::Sender::new(false),
            locks: parts.locks,
            background: parts.background,
        }))
    }
}
