//! The runner on NATS JetStream, with real servers: streams, what is noticed, trouble, a whole node, security.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "nats/findings.rs"]
mod findings;
#[path = "nats/ground.rs"]
mod ground;
#[path = "nats/node.rs"]
mod node;
#[path = "nats/reading.rs"]
mod reading;
#[path = "nats/security.rs"]
mod security;
#[path = "nats/streams.rs"]
mod streams;
#[path = "nats/trouble.rs"]
mod trouble;
