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

mod cell;
mod committer;
mod control;
mod directory;
mod dispatch;
mod done;
mod driver;
mod effects;
mod errands;
mod event_source;
mod follow;
mod forward;
mod gauges;
mod hands;
mod ingester;
mod insist;
mod limits;
mod metrics;
mod migration;
mod observer;
mod offer;
mod ownership;
pub mod placement;
mod pool;
mod postman;
mod programs;
mod provider;
mod publisher;
mod purge;
mod redrive;
mod relay;
mod replay;
mod restart;
mod root;
mod runtime;
mod saga;
mod say;
mod shard;
mod shards;
mod submission;
mod timer;
pub mod tracer;
mod under_way;

pub use control::{ControlError, Controlled};
pub use dispatch::{Desk, Dispatch};
pub use event_source::{EventSource, Sharing};
pub use gauges::{Lag, Mailboxes};
pub use limits::{Limits, LimitsError};
pub use metrics::{AttemptCounts, Metrics, Sheet};
pub use migration::Planned;
pub use observer::CommitObserver;
pub use ownership::Released;
pub use pool::{Pool, PoolConfig, PoolError, PoolParts};
pub use postman::ShowLetter;
pub use programs::Programs;
pub use restart::Intensity;
pub use runtime::{Config, Health, Parts, Runtime, RuntimeError};
pub use shards::ShardParts;
pub use tracer::Tracer;
