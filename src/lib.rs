//! Durable saga runner: one actor per saga instance, one transaction per transition, effects under an
//! idempotency key.
//!
//! This is the root crate. Embed it ([`App::start_with`]) or run it as the command `orlog`.

pub mod access;
pub mod api;
pub mod app;
pub mod audit;
pub mod auth;
pub mod backup;
mod batches;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dead_letters;
pub mod definitions;
mod descriptors;
pub mod doctor;
mod events;
mod export;
mod flows;
mod http_client;
mod jobs;
mod messages;
mod node;
mod peers;
mod private_file;
pub mod redact;
pub mod replay;
pub mod retention;
pub mod sagas;
mod schedules;
mod shadows;
mod tasks;
pub mod telemetry;
mod timers;
mod tls;
pub mod upstreams;
mod url_path;
mod webhooks;

pub use app::{App, AppOverrides};
pub use clock::SystemClock;
pub use config::Config;
/// Workflows as a library, independent of nodes.
pub use orlog_workflow as workflow;
