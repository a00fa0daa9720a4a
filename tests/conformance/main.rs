//! Contracts of the parts below the runtime: buses, stores, replicated logs, providers, the queue of
//! effects.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/webhooks.rs"]
mod webhooks;

mod bus;
mod effect_queue;
mod numbers;
mod provider;
mod registry;
mod replication;
mod replication_jetstream;
mod store;
