//! Services of the features: each one is built from the parts that it uses.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use orlog_actors::{ProgramRegistry, Runtime, WorkerPool};
use orlog_bus::Bus;
use orlog_effect::Catalog;
use orlog_model::Clock;
use prometheus_client::metrics::counter::Counter;

use super::shard_startup::ShardStarter;
use crate::access::{AccessRegistry, SignedEvents};
use crate::admitted_tenants::AdmittedTenants;
use crate::audit::AuditTrail;
use crate::audit::publisher::AuditPublisher;
use crate::background::BackgroundTasks;
use crate::backup::service::Backups;
use crate::certificates::KeyFiles;
use crate::cluster::ShardHost;
use crate::component_config;
use crate::config::Config;
use crate::dead_letters::tenant_redrive::{ScanRequests, TenantRedrive};
use crate::definitions::DefinitionSet;
use crate::definitions::change::DefinitionLocks;
use crate::definitions::deploy::Deployments;
use crate::definitions::gc::Collector;
use crate::definitions::migrate::Migrations;
use crate::definitions::numbers::DeploymentNumbers;
use crate::definitions::schedules::deployed::DeployedSchedules;
use crate::doctor::DiagnosisLimits;
use crate::doctor::trends::Trends;
use crate::jobs::claims::ClaimWriter;
use crate::jobs::lines::{LineWriter, UnsavedLines};
use crate::replay::Replays;
use crate::retention::{PurgeCounters, Retention};
use crate::stores::{LocalStorage, PositionRecorder};
use crate::tls::NodeTls;
use crate::transport::Transport;
use crate::upstreams::UpstreamSources;

/// Parts of a node that several services use.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) definitions: Arc<DefinitionSet>,
    pub(crate) workers: Option<Arc<WorkerPool>>,
    pub(crate) audit: Arc<AuditTrail>,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) background: Arc<BackgroundTasks>,
    pub(crate) local: LocalStorage,
    pub(crate) access: Arc<AccessRegistry>,
    pub(crate) signed_events: Arc<SignedEvents>,
    pub(crate) numbers: Arc<DeploymentNumbers>,
    pub(crate) tenants: Arc<AdmittedTenants>,
    /// Shards that started and have dead letters to scan.
    pub(crate) scans: Arc<ScanRequests>,
}

/// Parts of a node that one service uses.
pub(crate) struct ServiceParts {
    pub(crate) upstreams: UpstreamSources,
    pub(crate) tls: Option<Arc<NodeTls>>,
    pub(crate) backup_dir: PathBuf,
    pub(crate) collected: Counter,
    pub(crate) purges: PurgeCounters,
    pub(crate) diagnosis: DiagnosisLimits,
    pub(crate) lines: Arc<UnsavedLines>,
}

/// Services of a node.
pub struct Services {
    /// Deployments of definitions and upstreams.
    pub deployments: Arc<Deployments>,
    /// Schedules of the deployment.
    pub schedules: Arc<DeployedSchedules>,
    /// Garbage collection of definitions.
    pub collector: Arc<Collector>,
    /// Migrations of instances.
    pub migrations: Migrations,
    /// Replays of recorded inputs.
    pub replays: Arc<Replays>,
    /// Purges of expired rows.
    pub retention: Arc<Retention>,
    /// Redrives of the dead letters of admitted tenants.
    pub(crate) tenant_redrive: Arc<TenantRedrive>,
    /// Downloadable backups.
    pub backups: Arc<Backups>,
    /// Certificates and signing keys.
    pub keys: Arc<KeyFiles>,
    pub(crate) positions: Arc<PositionRecorder>,
    /// Trends of the counters.
    pub trends: Arc<Trends>,
    pub(crate) diagnosis: DiagnosisLimits,
    publisher: Arc<AuditPublisher>,
    /// Lines of the jobs of flows.
    pub lines: Arc<LineWriter>,
    /// Claims of jobs.
    pub(crate) claims: Arc<ClaimWriter>,
}

impl Services {
    /// Builds the services in dependency order.
    pub(crate) fn build(parts: &Parts, own: ServiceParts) -> Self {
        // Before the deployments, which start a collection when they retire definitions.
        let collector = Arc::new(Collector {
            runtime: Arc::clone(&parts.runtime),
            programs: Arc::clone(&parts.programs),
            definitions: Arc::clone(&parts.definitions),
            catalog: Arc::clone(&parts.catalog),
            locks: Arc::clone(&parts.locks),
            background: Arc::clone(&parts.background),
            collected: own.collected,
        });

        let schedules = Arc::new(deployed_schedules(parts));
        let deployments = Arc::new(Deployments {
            schedules: Arc::clone(&schedules),
            runtime: Arc::clone(&parts.runtime),
            programs: Arc::clone(&parts.programs),
            definitions: Arc::clone(&parts.definitions),
            catalog: Arc::clone(&parts.catalog),
            upstreams: own.upstreams,
            workers: parts.workers.clone(),
            clock: Arc::clone(&parts.clock),
            locks: Arc::clone(&parts.locks),
            collector: Arc::clone(&collector),
            context_limits: RwLock::new(component_config::context_limits(&parts.config)),
            numbers: Arc::clone(&parts.numbers),
        });

        let retention = Arc::new(Retention {
            config: Arc::clone(&parts.config),
            runtime: Arc::clone(&parts.runtime),
            clock: Arc::clone(&parts.clock),
            purges: own.purges,
        });

        let backups = Arc::new(Backups {
            config: Arc::clone(&parts.config),
            runtime: Arc::clone(&parts.runtime),
            transport: Arc::clone(&parts.transport),
            access: Arc::clone(&parts.access),
            clock: Arc::clone(&parts.clock),
            dir: own.backup_dir,
            turn: Arc::default(),
            handle: Mutex::default(),
        });

        let keys = Arc::new(KeyFiles {
            config: Arc::clone(&parts.config),
            tls: own.tls,
            connection: parts.transport.connection().cloned(),
            signing_failure: Mutex::default(),
        });

        let publisher = Arc::new(AuditPublisher {
            audit: Arc::clone(&parts.audit),
            bus: Arc::clone(&parts.bus),
            subject: parts.config.audit.nats_subject.clone(),
            retries: Mutex::default(),
        });
        let migrations = migrations(parts);
        let replays = Arc::new(replays(parts));
        let runtime = Arc::clone(&parts.runtime);
        let clock = Arc::clone(&parts.clock);
        let trends = Arc::new(Trends::new(runtime, clock, own.diagnosis.window));

        Self {
            deployments,
            schedules,
            collector,
            migrations,
            replays,
            retention,
            tenant_redrive: Arc::new(tenant_redrive(parts)),
            backups,
            keys,
            positions: Arc::new(position_recorder(parts)),
            trends,
            diagnosis: own.diagnosis,
            publisher,
            lines: Arc::new(line_writer(parts, own.lines)),
            claims: Arc::new(claim_writer(parts)),
        }
    }

    /// Starts the periodic work of the services.
    pub(crate) fn run_in(&self, background: &BackgroundTasks) {
        self.collector.collect_after_start();
        self.schedules.run_in(background);
        self.retention.run_in(background);
        self.tenant_redrive.run_in(background);
        self.positions.run_in(background);
        self.publisher.run_in(background);
        self.keys.reload_in(background);
        self.trends.run_in(background);
        self.lines.run_in(background);
        self.claims.run_in(background);
    }
}

fn line_writer(parts: &Parts, unsaved: Arc<UnsavedLines>) -> LineWriter {
    let runtime = Arc::clone(&parts.runtime);
    let max_lines = parts.config.jobs.lines;
    LineWriter {
        unsaved,
        runtime,
        max_lines,
        turn: tokio::sync::Mutex::default(),
    }
}

fn tenant_redrive(parts: &Parts) -> TenantRedrive {
    TenantRedrive {
        config: Arc::clone(&parts.config),
        runtime: Arc::clone(&parts.runtime),
        tenants: Arc::<AdmittedTenants>::clone(&parts.tenants),
        locks: Arc::clone(&parts.locks),
        audit: Arc::clone(&parts.audit),
        requests: Arc::clone(&parts.scans),
        page: tokio::sync::Mutex::default(),
    }
}

fn claim_writer(parts: &Parts) -> ClaimWriter {
    ClaimWriter {
        catalog: Arc::clone(&parts.catalog),
        runtime: Arc::clone(&parts.runtime),
        clock: Arc::clone(&parts.clock),
        unsaved: tokio::sync::Mutex::default(),
    }
}

fn deployed_schedules(parts: &Parts) -> DeployedSchedules {
    DeployedSchedules {
        runtime: Arc::clone(&parts.runtime),
        definitions: Arc::clone(&parts.definitions),
        clock: Arc::clone(&parts.clock),
        retries: Mutex::default(),
    }
}

fn position_recorder(parts: &Parts) -> PositionRecorder {
    PositionRecorder {
        runtime: Arc::clone(&parts.runtime),
        transport: Arc::clone(&parts.transport),
        positions: Arc::clone(&parts.local.positions),
        access: Arc::clone(&parts.access),
    }
}

fn migrations(parts: &Parts) -> Migrations {
    Migrations {
        runtime: Arc::clone(&parts.runtime),
        programs: Arc::clone(&parts.programs),
        clock: Arc::clone(&parts.clock),
        locks: Arc::clone(&parts.locks),
    }
}

fn replays(parts: &Parts) -> Replays {
    Replays {
        runtime: Arc::clone(&parts.runtime),
        programs: Arc::clone(&parts.programs),
        clock: Arc::clone(&parts.clock),
        locks: Arc::clone(&parts.locks),
        sources: parts.transport.sources(&parts.signed_events),
        node: parts.config.node_name(),
    }
}

/// Returns the host of the shards that this pod acquires from a cluster.
pub(crate) fn shard_host(parts: &Parts) -> Arc<dyn ShardHost> {
    Arc::new(ShardStarter {
        config: Arc::clone(&parts.config),
        runtime: Arc::clone(&parts.runtime),
        programs: Arc::clone(&parts.programs),
        definitions: Arc::clone(&parts.definitions),
        catalog: Arc::clone(&parts.catalog),
        clock: Arc::clone(&parts.clock),
        transport: Arc::clone(&parts.transport),
        local: parts.local.clone(),
        locks: Arc::clone(&parts.locks),
        numbers: Arc::clone(&parts.numbers),
        scans: Arc::clone(&parts.scans),
    })
}
