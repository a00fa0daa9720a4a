//! Composition root of a node: builds all components in dependency order and owns their handles.
//!
//! A start scans no instances, so its cost does not depend on their number.
//!
//! Size: one function names each part once, in the order in which the parts are built.

mod lifecycle;
mod overrides;
mod publishing;
mod reload;
mod services;
mod shard_startup;
mod status;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use orlog_actors::{
    AttemptMetrics, LocalShards, MetricSink as _, ProgramRegistry, RunningShards, Runtime,
    RuntimeDependencies, Tracer, WorkerPool,
};
use orlog_bus::Bus;
use orlog_effect::{Catalog, EffectObserver, ObserverList};
use orlog_model::{Clock, Timestamp};
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::access::{AccessRegistry, SignedEvents};
use crate::admitted_tenants::AdmittedTenants;
use crate::audit::AuditTrail;
use crate::audit::publisher::AuditPublisher;
use crate::auth::{Authenticator, SignedRequests, SignerKeys};
use crate::background::BackgroundTasks;
use crate::backup::service::{Backups, claim_dir};
use crate::batches::pages::BatchPages;
use crate::certificates::KeyFiles;
use crate::clock::SystemClock;
use crate::cluster::{Cluster, PodClient, Routing, ShardHost, open_membership};
use crate::config::{Config, ConfigSource};
use crate::dead_letters;
use crate::dead_letters::tenant_redrive::{ScanRequests, TenantRedrive};
use crate::definitions::change::DefinitionLocks;
use crate::definitions::deploy::Deployments;
use crate::definitions::gc::Collector;
use crate::definitions::migrate::Migrations;
use crate::definitions::numbers::DeploymentNumbers;
use crate::definitions::schedules::deployed::DeployedSchedules;
use crate::definitions::{DefinitionSet, initial};
use crate::doctor::trends::Trends;
use crate::effects::built_in::BuiltInEffects;
use crate::jobs::claims::ClaimWriter;
use crate::jobs::lines::{LineWriter, UnsavedLines};
use crate::jobs::runners::Runners;
use crate::messages::delivery::MessageDelivery;
use crate::messages::exchange::MessageExchange;
use crate::messages::outbound::{PeerMessageSender, Unreachable};
use crate::peers::{NodeIdentity, PeerClient, Peers};
use crate::reads::{ReadParts, Reads};
use crate::replay::Replays;
use crate::retention::{PurgeCounters, Retention};
use crate::sagas::attempts::RecentAttempts;
use crate::shadows::pages::ShadowPages;
use crate::stores::{LocalStorage, PositionRecorder};
use crate::telemetry::{MetricsRegistry, SpanExporter, TelemetryHandle};
use crate::tls::NodeTls;
use crate::transport::Transport;
use crate::webhooks::Webhooks;
use crate::{component_config, effects, stores};
use services::Services;
use shard_startup::ShardStarter;

pub use overrides::AppOverrides;

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
    /// Reads of the stores.
    pub reads: Arc<Reads>,
    /// The services of the features.
    pub services: Services,
    /// Owners of the slots.
    pub routing: Arc<Routing>,
    /// The cluster membership; `None` if the node runs alone.
    pub cluster: Option<Cluster>,
    /// The client for requests to other pods.
    pub pod_client: Arc<PodClient>,
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
    pub peer_client: Arc<PeerClient>,
    /// The verification of signed events.
    pub signed_events: Arc<SignedEvents>,
    /// The exchange of messages with other nodes.
    pub messages: Arc<MessageExchange>,
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
        let AppOverrides {
            clock,
            programs: added_programs,
            upstreams: added_upstreams,
            observer: commit_observer,
            effect_observer: added_observer,
            disk,
            accept_data_loss,
            session,
            telemetry,
            diagnosis,
            config_source,
        } = overrides;

        let config = Arc::new(config);
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let started_at = clock.now();
        tracing::debug!(node = config.node_name(), role = ?config.role, "node starts");

        let tls = NodeTls::load(&config)?;
        tracing::debug!(configured = tls.is_some(), "certificates loaded");

        // Before any connection: a directory that is in use, or that lost data, is the first error.
        let local = LocalStorage::claim(&config, disk, accept_data_loss)?;
        tracing::debug!(dir = %config.data_dir.display(), "data directory claimed");

        // Before the transport: the embedded log is compared with the checkpoints of the stores.
        let mut stores = stores::local(&config, &local).await?;
        tracing::debug!(count = stores.len(), "local stores opened");

        let transport = Box::pin(local.open_transport(&config, &stores, &clock)).await?;
        let transport = Arc::new(transport);
        let bus = transport.bus();
        let connection = transport.connection();
        tracing::debug!(kind = ?config.bus.kind, "transport opened");

        let access = local.open_registry(&config, connection);
        let access = Arc::new(Box::pin(access).await?);
        tracing::debug!("registry of contexts and actors opened");

        // After the registry: it has the partitioning, which decides which shard a log belongs to.
        let replicated = stores::replicated(&config, &transport, accept_data_loss);
        stores.extend(Box::pin(replicated).await?);
        tracing::debug!(
            replicated = config.replicated(),
            count = stores.len(),
            "stores opened"
        );

        let tracer = telemetry
            .spans
            .clone()
            .map(|spans| spans as Arc<dyn Tracer>);
        let attempts = Arc::new(RecentAttempts::default());
        let attempt_metrics = Arc::new(AttemptMetrics::default());
        let unsaved_lines = Arc::new(UnsavedLines::default());

        // The span of an attempt is the one of the exporter, if both it and an added observer
        // return one.
        let mut observers: Vec<Arc<dyn EffectObserver>> = vec![
            Arc::<UnsavedLines>::clone(&unsaved_lines),
            Arc::<AttemptMetrics>::clone(&attempt_metrics),
            Arc::<RecentAttempts>::clone(&attempts),
        ];
        if let Some(spans) = &telemetry.spans {
            observers.push(Arc::<SpanExporter>::clone(spans));
        }
        observers.extend(added_observer);
        tracing::debug!(count = observers.len(), "observers of attempts built");
        let observer: Arc<dyn EffectObserver> = Arc::new(ObserverList::new(observers));

        // Only an unusable key is an error: the inner result is the reason why a node has no
        // identity.
        let identity = NodeIdentity::open(&config)?;
        let node_keys = identity
            .as_ref()
            .map(NodeIdentity::key_ids)
            .unwrap_or_default();
        tracing::debug!(keys = node_keys.len(), "identity of the node opened");

        let configured_peers = config.peers.clone();
        let peers = Arc::new(Peers::new(identity, configured_peers, Arc::clone(&access)));
        let peer_client =
            PeerClient::new(&config, connection, Arc::clone(&peers), Arc::clone(&clock))?;
        let peer_client = Arc::new(peer_client);
        tracing::debug!(configured = config.peers.len(), "peers loaded");

        // The peers have keys of their own, which sign requests, too.
        let signer_keys = Arc::clone(&peers) as Arc<dyn SignerKeys>;
        let signed_requests = SignedRequests::open(&config, connection, &clock, signer_keys);
        let signed_requests = Box::pin(signed_requests).await?;
        tracing::debug!("verification of signed requests opened");

        let configured_keys = Arc::clone(signed_requests.configured());
        let signed_events = SignedEvents::new(&config, Arc::clone(&access), configured_keys);
        let signed_events = Arc::new(signed_events);
        tracing::debug!("verification of signed events built");

        let authenticator = Authenticator::new(&config, session, signed_requests);
        let authenticator = Box::pin(authenticator).await?;
        tracing::debug!(mode = ?config.auth.mode, "authentication opened");

        let webhooks = Arc::new(Webhooks::new(&config)?);
        tracing::debug!(count = config.webhooks.len(), "webhooks built");

        // Before the services, some of which record their own changes.
        let audit = Arc::new(AuditTrail::open(&component_config::audit(&config))?);
        tracing::debug!("audit trail opened");

        // Removes the copies of an earlier process, which only use space.
        let backup_dir = claim_dir(&config);
        tracing::debug!(dir = %backup_dir.display(), "backup directory claimed");

        // Before the upstreams, some of which dispatch over NATS.
        let remote = effects::remote_dependencies(&config, connection, &clock);
        let remote = Box::pin(remote).await?;
        tracing::debug!(
            connected = remote.is_some(),
            "remote dependencies of effects connected"
        );

        let runs_sagas = config.role.runs_sagas();
        // A node of the role `effect` deploys nothing.
        let definitions_dir = config.definitions_dir.clone().filter(|_| runs_sagas);
        let definitions = Arc::new(DefinitionSet::new(definitions_dir, added_programs));
        let programs = Arc::<ProgramRegistry>::default();
        let locks = Arc::<DefinitionLocks>::default();
        let running = RunningShards::new(component_config::slots(&config));

        let shards = LocalShards::of(&running);
        let reads = Arc::new(Reads::new(ReadParts {
            config: Arc::clone(&config),
            clock: Arc::clone(&clock),
            shards: shards.clone(),
            programs: Arc::clone(&programs),
            definitions: Arc::clone(&definitions),
        }));
        tracing::debug!(threads = config.http.max_concurrent_reads, "reads built");

        let tenants = admitted_tenants(&transport, &config);
        let membership = Box::pin(open_membership(&config, connection)).await?;
        let routing = Arc::new(Routing::new(
            Arc::clone(&config),
            shards.clone(),
            membership.clone(),
        ));
        let pod_client = Arc::new(PodClient::new(Arc::clone(&config), tls.clone()));
        tracing::debug!(joins = routing.is_clustered(), "routing built");

        let batches = Arc::new(BatchPages {
            config: Arc::clone(&config),
            clock: Arc::clone(&clock),
            shards: shards.clone(),
            reads: Arc::clone(&reads),
            programs: Arc::clone(&programs),
            locks: Arc::clone(&locks),
        });
        let shadows = Arc::new(ShadowPages {
            config: Arc::clone(&config),
            clock: Arc::clone(&clock),
            reads: Arc::clone(&reads),
            programs: Arc::clone(&programs),
            sources: transport.sources(&signed_events),
        });
        let messages = Arc::new(MessageExchange {
            config: Arc::clone(&config),
            clock: Arc::clone(&clock),
            shards: shards.clone(),
            reads: Arc::clone(&reads),
            access: Arc::clone(&access),
            tenants: Arc::clone(&tenants),
            peers: Arc::clone(&peers),
        });
        let delivery = Arc::new(MessageDelivery {
            exchange: Arc::clone(&messages),
            routing: Arc::clone(&routing),
            sender: PeerMessageSender {
                config: Arc::clone(&config),
                clock: Arc::clone(&clock),
                peers: Arc::clone(&peers),
                peer_client: Arc::clone(&peer_client),
                pod_client: Arc::clone(&pod_client),
                unreachable: Unreachable::default(),
            },
        });
        let built_in = BuiltInEffects {
            batches,
            shadows,
            messages: delivery,
        };
        tracing::debug!("effects of built-in sagas built");

        let upstreams = effects::upstream_sources(&config, added_upstreams, &built_in, remote);
        let catalog = effects::open_catalog(&upstreams, &clock, &observer);
        let catalog = Arc::new(Box::pin(catalog).await?);
        tracing::debug!(
            upstreams = catalog.executors().len(),
            "catalog of upstreams built"
        );

        // Before the runtime: a shard never runs without the definitions of its instances.
        initial::activate(
            &programs,
            &definitions,
            &catalog,
            &mut stores,
            started_at,
            runs_sagas,
        )?;
        tracing::debug!("definitions activated");

        let dependencies = RuntimeDependencies {
            bus: Arc::clone(&bus),
            sources: transport.sources(&signed_events),
            catalog: Arc::clone(&catalog),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            running,
            dead_letter_encoder: dead_letters::view::publishable(config.redact.clone()),
            shards: stores::shards(&config, stores),
            observer: commit_observer,
            tracer: tracer.clone(),
        };
        let runtime = Runtime::start(dependencies, local.runtime_config(&config));
        let runtime = Arc::new(Box::pin(runtime).await?);
        tracing::debug!(shards = runtime.owned_shards().len(), "runtime started");

        // After the runtime, whose metrics count their jobs.
        let workers = effects::workers(
            &config,
            connection,
            &catalog,
            &clock,
            runtime.metrics(),
            tracer,
        );
        let workers = Box::pin(workers).await?.map(Arc::new);
        tracing::debug!(started = workers.is_some(), "effect workers started");

        let mut metrics_registry = MetricsRegistry::default();
        let purges = PurgeCounters::register(&mut metrics_registry);
        runtime.metrics().register(&mut metrics_registry);
        attempt_metrics.register(&mut metrics_registry);
        telemetry.register_metrics(&mut metrics_registry);
        let collected = Counter::default();
        metrics_registry.register("definitions_collected_total", collected.clone());
        let background = Arc::<BackgroundTasks>::default();
        background.register_metrics(&mut metrics_registry);
        tracing::debug!("metrics registered");

        let numbers = Arc::new(DeploymentNumbers::new(&config, connection));
        let scans = Arc::<ScanRequests>::default();

        // Before the deployments, which start a collection when they retire definitions.
        let collector = Arc::new(Collector {
            runtime: Arc::clone(&runtime),
            programs: Arc::clone(&programs),
            definitions: Arc::clone(&definitions),
            catalog: Arc::clone(&catalog),
            locks: Arc::clone(&locks),
            background: Arc::clone(&background),
            collected,
            is_retry_planned: AtomicBool::new(false),
        });
        tracing::debug!("garbage collection of definitions built");

        let schedules = Arc::new(DeployedSchedules {
            runtime: Arc::clone(&runtime),
            definitions: Arc::clone(&definitions),
            clock: Arc::clone(&clock),
            retries: Mutex::default(),
        });
        tracing::debug!("schedules built");

        let deployments = Arc::new(Deployments {
            schedules: Arc::clone(&schedules),
            runtime: Arc::clone(&runtime),
            programs: Arc::clone(&programs),
            definitions: Arc::clone(&definitions),
            catalog: Arc::clone(&catalog),
            upstreams,
            workers: workers.clone(),
            clock: Arc::clone(&clock),
            locks: Arc::clone(&locks),
            collector: Arc::clone(&collector),
            context_limits: RwLock::new(component_config::context_limits(&config)),
            numbers: Arc::clone(&numbers),
        });
        tracing::debug!("deployments built");

        let migrations = Migrations {
            runtime: Arc::clone(&runtime),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            locks: Arc::clone(&locks),
        };
        tracing::debug!("migrations built");

        let replays = Arc::new(Replays {
            runtime: Arc::clone(&runtime),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            locks: Arc::clone(&locks),
            sources: transport.sources(&signed_events),
            node: config.node_name(),
        });
        tracing::debug!("replays built");

        let retention = Arc::new(Retention {
            config: Arc::clone(&config),
            runtime: Arc::clone(&runtime),
            clock: Arc::clone(&clock),
            purges,
        });
        tracing::debug!("retention built");

        let tenant_redrive = Arc::new(TenantRedrive {
            config: Arc::clone(&config),
            runtime: Arc::clone(&runtime),
            tenants: Arc::<AdmittedTenants>::clone(&tenants),
            locks: Arc::clone(&locks),
            audit: Arc::clone(&audit),
            requests: Arc::clone(&scans),
            page: tokio::sync::Mutex::default(),
        });
        tracing::debug!("redrive of admitted tenants built");

        let backups = Arc::new(Backups {
            config: Arc::clone(&config),
            runtime: Arc::clone(&runtime),
            transport: Arc::clone(&transport),
            access: Arc::clone(&access),
            clock: Arc::clone(&clock),
            dir: backup_dir,
            turn: Arc::default(),
            handle: Mutex::default(),
        });
        tracing::debug!("backups built");

        let keys = Arc::new(KeyFiles {
            config: Arc::clone(&config),
            tls,
            connection: connection.cloned(),
            signing_failure: Mutex::default(),
        });
        tracing::debug!("reload of certificates and signing keys built");

        let positions = Arc::new(PositionRecorder {
            runtime: Arc::clone(&runtime),
            transport: Arc::clone(&transport),
            positions: Arc::clone(&local.positions),
            access: Arc::clone(&access),
        });
        tracing::debug!("recorder of durable positions built");

        // Takes the first sample now, so that the rates count from the start.
        let trends = Trends::new(Arc::clone(&runtime), Arc::clone(&clock), diagnosis.window);
        let trends = Arc::new(trends);
        tracing::debug!(window = ?diagnosis.window, "trends built");

        let publisher = Arc::new(AuditPublisher {
            audit: Arc::clone(&audit),
            bus: Arc::clone(&bus),
            subject: config.audit.nats_subject.clone(),
            retries: Mutex::default(),
        });
        tracing::debug!(subject = ?config.audit.nats_subject, "publisher of audit records built");

        let lines = Arc::new(LineWriter {
            unsaved: unsaved_lines,
            runtime: Arc::clone(&runtime),
            max_lines: config.jobs.lines,
            turn: tokio::sync::Mutex::default(),
        });
        tracing::debug!(max_lines = config.jobs.lines, "writer of job lines built");

        let claims = Arc::new(ClaimWriter {
            catalog: Arc::clone(&catalog),
            runtime: Arc::clone(&runtime),
            clock: Arc::clone(&clock),
            unsaved: tokio::sync::Mutex::default(),
        });
        tracing::debug!("writer of job claims built");

        // Before the cluster is joined: from then on shards arrive, and they use the services.
        let services = Services {
            deployments,
            schedules,
            collector,
            migrations,
            replays,
            retention,
            tenant_redrive,
            backups,
            keys,
            positions,
            trends,
            diagnosis,
            publisher,
            lines,
            claims,
        };
        services.run_in(&background);
        tracing::debug!("services started");

        let cluster = match membership {
            Some(membership) => {
                let shard_host: Arc<dyn ShardHost> = Arc::new(ShardStarter {
                    config: Arc::clone(&config),
                    runtime: Arc::clone(&runtime),
                    programs: Arc::clone(&programs),
                    definitions: Arc::clone(&definitions),
                    catalog: Arc::clone(&catalog),
                    clock: Arc::clone(&clock),
                    transport: Arc::clone(&transport),
                    local,
                    locks: Arc::clone(&locks),
                    numbers: Arc::clone(&numbers),
                    scans,
                });
                let cluster = Cluster::join(&shard_host, membership, access.changes(), node_keys);
                tracing::debug!("cluster joined");
                Some(cluster)
            }
            None => None,
        };

        // A changed directory was deployed before the node reached the cluster, with a number from
        // its own store. Later deployments need a larger one.
        if let Some(deployment) = definitions.deployment() {
            numbers.raise(deployment.number).await;
        }

        Ok(Arc::new(Self {
            runtime,
            bus,
            programs,
            catalog,
            clock,
            config,
            definitions,
            reads,
            services,
            routing,
            cluster,
            pod_client,
            metrics_registry: Mutex::new(metrics_registry),
            started_at,
            attempts,
            attempt_metrics,
            runners: Runners::default(),
            authenticator,
            access,
            peers,
            peer_client,
            signed_events,
            messages,
            webhooks,
            config_source: config_source.map(Arc::new),
            audit,
            telemetry,
            tenants,
            transport,
            workers,
            drain_state: watch::Sender::new(false),
            locks,
            background,
        }))
    }
}

/// Returns the tenants that the streams of the node use, so that a reload changes one list.
fn admitted_tenants(transport: &Transport, config: &Config) -> Arc<AdmittedTenants> {
    transport
        .admitted_tenants()
        .unwrap_or_else(|| Arc::new(AdmittedTenants::new(config.tenants.clone())))
}
