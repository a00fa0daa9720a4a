//! Components that an embedding program, a test or a bench replaces.

use std::sync::Arc;

use orlog_actors::CommitObserver;
use orlog_effect::{EffectObserver, Upstream};
use orlog_model::Clock;
use orlog_program::Program;
use orlog_store::Device;
use orlog_workflow::{DeployError, NodeParts, NodeWorkflow};

use crate::auth::SessionToken;
use crate::config::ConfigSource;
use crate::doctor::DiagnosisLimits;
use crate::telemetry::TelemetryHandle;

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
    /// Whether stores and logs that lost durable data are opened without it. Default: they are
    /// rejected.
    pub accept_data_loss: bool,
    /// Token that requests need if the configuration requires no authentication.
    pub session: Option<SessionToken>,
    /// Telemetry for a collector. Default: no export.
    pub telemetry: TelemetryHandle,
    /// Limits of the checks of the running node.
    pub diagnosis: DiagnosisLimits,
    /// Source that a reload reads the configuration from. Default: a reload does not read it.
    pub config_source: Option<ConfigSource>,
}

impl AppOverrides {
    /// Returns the overrides for [`crate::App::start_with`] that deploy these workflows; several
    /// versions of one may be among them.
    ///
    /// # Errors
    /// All problems of the workflows, each with its remedy.
    pub fn workflows(
        workflows: impl IntoIterator<Item = NodeWorkflow>,
    ) -> Result<Self, DeployError> {
        let parts = NodeParts::of(workflows)?;
        Ok(Self {
            programs: parts.programs,
            upstreams: parts.upstream.into_iter().collect(),
            ..Self::default()
        })
    }
}
