//! Definitions of sagas: those that the node runs, and their changes.

use std::sync::Arc;

use axum::extract::FromRef;
use orlog_actors::ProgramRegistry;
use tokio::sync::MutexGuard;

use crate::server::context::ApiState;
use orlog_node::app::App;
use orlog_node::definitions::change::DeployError;
use orlog_node::definitions::deploy::{DeployPolicy, Deployments};
use orlog_node::definitions::gc::Collector;
use orlog_node::definitions::migrate::Migrations;
use orlog_node::definitions::{DefinitionSet, DeploymentPlan};
use orlog_node::replay::Replays;

/// Programs and deployments, with migrations and replays, which go by definitions too.
#[derive(Clone)]
pub(crate) struct Definitions {
    app: Arc<App>,
}

impl FromRef<ApiState> for Definitions {
    fn from_ref(api: &ApiState) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
        }
    }
}

impl Definitions {
    /// Returns the programs, including those of retired definitions.
    pub(crate) fn programs(&self) -> &ProgramRegistry {
        &self.app.programs
    }

    /// Returns the active definitions.
    pub(crate) fn active(&self) -> &DefinitionSet {
        &self.app.definitions
    }

    /// Returns the deployments of definitions.
    pub(crate) fn deployments(&self) -> &Arc<Deployments> {
        &self.app.services.deployments
    }

    /// Returns the garbage collection of definitions.
    pub(crate) fn collector(&self) -> &Arc<Collector> {
        &self.app.services.collector
    }

    /// Returns the migrations of instances.
    pub(crate) fn migrations(&self) -> &Migrations {
        &self.app.services.migrations
    }

    /// Returns the replays of recorded events.
    pub(crate) fn replays(&self) -> &Arc<Replays> {
        &self.app.services.replays
    }

    /// Deploys the definitions directory and the changed configuration.
    ///
    /// # Errors
    /// Those of [`App::reload`].
    pub(crate) async fn reload(
        &self,
        by: String,
        policy: DeployPolicy,
    ) -> Result<DeploymentPlan, DeployError> {
        self.app.reload(by, policy).await
    }

    /// Waits for the deployment, migration or replay that is in progress, and prevents the next one
    /// until the guard is dropped.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.app.lock_definitions().await
    }
}
