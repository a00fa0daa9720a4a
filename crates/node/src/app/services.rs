//! Services of the features, which the composition root builds.

use std::sync::Arc;

use crate::audit::publisher::AuditPublisher;
use crate::background::BackgroundTasks;
use crate::backup::service::Backups;
use crate::certificates::KeyFiles;
use crate::dead_letters::tenant_redrive::TenantRedrive;
use crate::definitions::deploy::Deployments;
use crate::definitions::gc::Collector;
use crate::definitions::migrate::Migrations;
use crate::definitions::schedules::deployed::DeployedSchedules;
use crate::doctor::DiagnosisLimits;
use crate::doctor::trends::Trends;
use crate::jobs::claims::ClaimWriter;
use crate::jobs::lines::LineWriter;
use crate::replay::Replays;
use crate::retention::Retention;
use crate::stores::PositionRecorder;

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
    pub(super) publisher: Arc<AuditPublisher>,
    /// Lines of the jobs of flows.
    pub lines: Arc<LineWriter>,
    /// Claims of jobs.
    pub(crate) claims: Arc<ClaimWriter>,
}

impl Services {
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
