//! Durable saga runner: one actor per saga instance, one transaction per transition, effects under
//! an idempotency key.
//!
//! This is the root crate. Embed a node ([`App::start_with`]) or run it as the command `orlog`.

pub mod cli;

pub use orlog_api as api;
pub use orlog_node::{
    App, AppOverrides, Config, SystemClock, access, app, audit, auth, backup, clock, cluster,
    config, dead_letters, definitions, doctor, effects, layout, redact, replay, replication,
    retention, sagas, stores, telemetry, transport, upstreams,
};
/// Workflows as a library, independent of nodes.
pub use orlog_workflow as workflow;
