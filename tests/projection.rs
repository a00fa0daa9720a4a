//! Replicas: a consumer of the export has the state of the node, despite faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "projection/command.rs"]
mod command;
#[path = "projection/docs.rs"]
mod docs;
#[path = "projection/node.rs"]
mod node;
#[path = "projection/replica.rs"]
mod replica;
#[path = "projection/stream.rs"]
mod stream;
#[path = "projection/tables.rs"]
mod tables;
