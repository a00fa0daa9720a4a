//! What is to be replayed, and what came of it.

use orlog_actors::ControlError;
use orlog_model::{CorrelationId, InstanceKey, SagaName, Status, TenantId, Timestamp};

/// Inputs held in memory at most.
pub(super) const MAX_INPUTS: usize = 1_000_000;

/// What to replay.
#[derive(Clone, Debug)]
pub struct ReplayOrder {
    /// Whose.
    pub tenant: TenantId,
    /// Which saga; its instances go by the definition that is in force.
    pub saga: SagaName,
    /// What was published then or later is read.
    pub from: Timestamp,
    /// Only these instances; empty: all.
    pub only: Vec<CorrelationId>,
    /// What becomes of the work that is asked for on the way.
    pub work: ReplayedWork,
    /// Only say what would happen.
    pub dry_run: bool,
    /// Who says so, for the record.
    pub by: String,
    /// Why, for the record.
    pub reason: Option<String>,
}

/// What becomes of work that a replay asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplayedWork {
    /// Nothing is sent or performed. Time passes as it did, so timers that are past have fired.
    Suppress,
    /// It is sent and performed, under its old ids where the history tells them. Everything happens in this moment.
    Emit,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Messages that were read.
    pub read: u64,
    /// Those that are no event, or lack the identifier.
    pub unreadable: u64,
    /// The instances that have inputs among them, in the order of their correlation ids.
    pub instances: Vec<Replayed>,
}

/// What became of an instance, or would.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Which.
    pub key: InstanceKey,
    /// Where it stood; `None`: it did not exist.
    pub was: Option<Status>,
    /// Where it stands after its inputs.
    pub becomes: Option<Status>,
    /// What became of it.
    pub fate: Fate,
    /// Work that is sent or performed.
    pub work: usize,
}

/// What became of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It exists now.
    New,
    /// Another snapshot stands in its place.
    Replaced,
    /// It stands as it stood.
    Unchanged,
    /// It was left as it was; why.
    Left(String),
}

/// Why a replay cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The saga has no definition.
    #[error("no definition of {0} is in force")]
    NoDefinition(SagaName),
    /// It would take too much memory.
    #[error("there are more than {MAX_INPUTS} inputs since then; name a later time, or instances one by one")]
    TooMany,
    /// The bus cannot be read.
    #[error(transparent)]
    Bus(#[from] orlog_bus::Error),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] orlog_store::Error),
    /// A shard is not available; what was replaced until then is.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The process ends.
    #[error("the node is ending")]
    Ending,
}
