//! Replicas: a consumer of the export has the state of the node, despite faults.

mod command;
mod docs;
mod node;
mod replica;
mod stream;
mod tables;
