//! The running system: a tree of small actors without domain decisions.
//!
//! ```text
//! root ─┬─ effects ── provider (one per upstream)
//!       └─ shard ─┬─ committer   one thread, group commit
//!                 ├─ relay       outbox → providers, bus
//!                 ├─ timer       due timers → sagas
//!                 ├─ ingester    bus → sagas
//!                 ├─ postman     dead letters → bus
//!                 └─ saga        one per live instance
//! ```
//!
//! [`Runtime`] is the one handle for whoever starts it. The way of an event through these files: `ingester`, `directory`
//! (activate), `saga` (decide), `committer`, `relay`, `provider`, and back through `directory`.

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

pub use effects::queue_provider::{Desk, Dispatch};
pub use instance::programs::Programs;
pub use restart::Intensity;
pub use runtime::control::{ControlError, Controlled};
pub use runtime::gauges::{Lag, Mailboxes};
pub use runtime::handle::{Config, Health, Parts, Runtime, RuntimeError};
pub use runtime::limits::{Limits, LimitsError};
pub use runtime::migration::Planned;
pub use runtime::ownership::Released;
pub use shard::committer::CommitObserver;
pub use shard::dead_letter_publisher::ShowLetter;
pub use shard::event_source::{EventSource, Sharing};
pub use shard::running::ShardParts;
pub use telemetry::metrics::{AttemptCounts, Metrics, Sheet};
pub use telemetry::tracer::Tracer;
pub use workers::{Pool, PoolConfig, PoolError, PoolParts};
