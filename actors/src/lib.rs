//! Runtime of Orlog: a supervision tree of actors without domain decisions.
//!
//! ```text
//! root ─┬─ effects ─┬─ provider             one per upstream
//!       │           └─ publisher            facts and saga messages → bus
//!       └─ shard ─┬─ committer              one thread, group commit
//!                 ├─ relay                  outbox → providers, bus
//!                 ├─ timer                  due timers → sagas
//!                 ├─ ingester               bus → sagas, one per stream
//!                 ├─ dead_letter_publisher  dead letters → bus
//!                 └─ saga                   one per live instance
//! ```
//!
//! [`Runtime`] is the handle of a node. An event passes these modules: `shard::ingester`,
//! `instance` (deliver), `instance::saga` (decide), `shard::committer`, `shard::relay`,
//! `effects::providers`; its result is an input of `instance`.

mod effects;
mod instance;
mod publish;
mod root;
mod runtime;
mod shard;
mod supervision;
pub mod telemetry;
mod workers;

pub use effects::queue_provider::{QueueProvider, ResultListener};
pub use instance::completion::{ALREADY_APPLIED, ControlError, ControlResult};
pub use instance::ignored_events::IgnoredEvent;
pub use instance::owned_program::OwnedProgram;
pub use instance::program_registry::ProgramRegistry;
pub use instance::recordings::{Recording, Recordings};
pub use instance::waiters::InstanceWaiter;
pub use runtime::gauges::{MailboxStats, StreamLag, StreamSubscription};
pub use runtime::limits::{Limits, LimitsError};
pub use runtime::operations::{PlannedMigration, Redriven};
pub use runtime::ownership::ReleasedShard;
pub use runtime::preview::PreviewError;
pub use runtime::{Runtime, RuntimeConfig, RuntimeDependencies, RuntimeError, RuntimeHealth};
pub use shard::committer::CommitObserver;
pub use shard::dead_letter_publisher::DeadLetterEncoder;
pub use shard::event_source::{
    EMBEDDED_STREAM, EventAuthority, EventSource, StreamSharing, TenantAdmission,
};
pub use shard::local_shards::LocalShards;
pub use shard::running::{RunningShards, ShardDependencies, WorkObstacle};
pub use supervision::RestartIntensity;
pub use telemetry::metrics::{AttemptMetrics, DefinitionTotals, MetricSink, Metrics};
pub use telemetry::tracer::Tracer;
pub use workers::{
    GroupKey, JobConsumer, WorkerPool, WorkerPoolConfig, WorkerPoolDependencies, WorkerPoolError,
};
