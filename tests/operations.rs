//! What operators rely on: who may call, what is kept of it, what a doctor finds, and copies of what is stored.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "operations/access.rs"]
mod access;
#[path = "operations/audit.rs"]
mod audit;
#[path = "operations/backup.rs"]
mod backup;
#[path = "operations/doctor.rs"]
mod doctor;
#[path = "operations/issuer.rs"]
mod issuer;
#[path = "operations/node.rs"]
mod node;
#[path = "operations/process.rs"]
mod process;
#[path = "operations/tokens.rs"]
mod tokens;
