//! Runtime of Orlog: a supervision tree of actors without domain decisions.
//!
//! ```text
//! root ─┬─ effects ── provider (one per upstream)
//!       └─ shard ─┬─ committer              one thread, group commit
//!                 ├─ relay                  outbox → providers, bus
//!                 ├─ timer                  due timers → sagas
//!                 ├─ ingester               bus → sagas
//!                 ├─ dead_letter_publisher  dead letters → bus
//!                 └─ saga                   one per live instance
//! ```
//!
//! [`Runtime`] is the handle of a node. An event passes these modules: `ingester`, `registry`
//! (activate), `saga` (decide), `committer`, `relay`, `provider`, and back through `registry`.

mod abort_on_drop;
mod effects;
mod instance;
pub mod placement;
mod publish_with_retry;
mod restart;
mod root;
mod runtime;
mod shard;
pub mod telemetry;
mod workers;

pub use effects::queue_provider::{QueueProvider, ResultListener};
pub use instance::program_registry::ProgramRegistry;
pub use restart::RestartIntensity;
pub use runtime::control_result::{ControlError, ControlResult};
pub use runtime::gauges::{MailboxStats, StreamLag};
pub use runtime::handle::{Runtime, RuntimeConfig, RuntimeDependencies, RuntimeError, RuntimeHealth};
pub use runtime::limits::{Limits, LimitsError};
pub use runtime::migration::PlannedMigration;
pub use runtime::ownership::ReleasedShard;
pub use shard::committer::CommitObserver;
pub use shard::dead_letter_publisher::DeadLetterEncoder;
pub use shard::event_source::{EMBEDDED_STREAM, EventSource, StreamSharing};
pub use shard::running::ShardDependencies;
pub use telemetry::metrics::{AttemptMetrics, MetricSink, Metrics};
pub use telemetry::tracer::Tracer;
pub use workers::{WorkerPool, WorkerPoolConfig, WorkerPoolDependencies, WorkerPoolError};
