//! Replay request and report.

use orlog_actors::ControlError;
use orlog_model::{CorrelationId, InstanceKey, SagaName, Status, TenantId, Timestamp};

/// Maximum number of inputs in memory.
pub(crate) const MAX_INPUTS: usize = 1_000_000;

/// Maximum number of instances that are changed concurrently: enough to fill a group commit.
pub(crate) const MAX_CONCURRENT: usize = 64;

/// Replay request.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// Tenant of the saga.
    pub tenant: TenantId,
    /// Saga to replay; its instances use the active definition.
    pub saga: SagaName,
    /// Start time: reads messages that were published then or later.
    pub from: Timestamp,
    /// Instances to replay; empty: all.
    pub only: Vec<CorrelationId>,
    /// Handling of the inputs.
    pub mode: ReplayMode,
    /// Whether to report the result only.
    pub dry_run: bool,
    /// User for the history entry.
    pub user: String,
    /// Reason for the history entry.
    pub reason: Option<String>,
}

/// Handling of the inputs of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayMode {
    /// Instances are rebuilt from their inputs and replaced.
    Rebuild(ReplayWorkMode),
    /// Instances receive the inputs that they have not applied, as if the checkpoint of the saga
    /// was reset.
    Redeliver,
}

/// Mode for work that a rebuild requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplayWorkMode {
    /// No work is sent or executed. Inputs keep their original times, so due timers fire.
    Suppress,
    /// Work is sent and executed, under its original ids. All inputs are applied at
    /// the current time.
    Emit,
}

/// Report of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayReport {
    /// Number of messages read.
    pub read: u64,
    /// Number of messages that are not events or lack the correlation id.
    pub undecodable: u64,
    /// Instances with inputs, ordered by correlation id.
    pub instances: Vec<ReplayedInstance>,
}

/// Replay of one instance, actual or planned.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedInstance {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Status before the replay; `None`: the instance did not exist.
    pub before: Option<Status>,
    /// Status after the replay.
    pub after: Option<Status>,
    /// Result of the replay.
    pub result: ReplayResult,
    /// Number of work items that a rebuild dispatches.
    pub work: usize,
    /// Number of inputs that are delivered again.
    pub inputs: usize,
}

/// Result of the replay of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayResult {
    /// The instance was created.
    Created,
    /// The snapshot was replaced.
    Replaced,
    /// The instance received inputs again.
    Redelivered,
    /// The state is unchanged.
    Unchanged,
    /// The instance was skipped, with the reason.
    Skipped(String),
}

/// Reason why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The saga has no active definition.
    #[error("saga {0} has no active definition")]
    NoDefinition(SagaName),
    /// The inputs exceed the memory limit.
    #[error("more than {MAX_INPUTS} inputs since that time; use a later time or select instances")]
    TooMany,
    /// The bus cannot be read.
    #[error(transparent)]
    Bus(#[from] orlog_bus::Error),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] orlog_store::Error),
    /// A shard is not available; instances replaced until then stay replaced.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The process is shutting down.
    #[error("node is shutting down")]
    ShuttingDown,
}
