//! Complete nodes, in this process and as processes of the real binary: API, command line, web UI,
//! effects, operations, clusters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/harness.rs"]
mod harness;
#[path = "../common/signer.rs"]
mod signer;
#[path = "../common/webhooks.rs"]
mod webhooks;

mod api;
mod batches;
mod cli;
mod cluster;
mod compose;
mod config;
mod deploy;
mod effects;
mod flows;
mod kill;
mod kubernetes;
mod messages;
mod nats;
mod operations;
mod packages;
mod projection;
mod quick_start;
mod schedules;
mod shadows;
mod telemetry;
mod web;
mod workflows;
