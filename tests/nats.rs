//! Orlog on NATS JetStream with real servers: streams, anomalies, outages, a complete node, security.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "nats/audit.rs"]
mod audit;
#[path = "nats/fixture.rs"]
mod fixture;
#[path = "nats/node.rs"]
mod node;
#[path = "nats/outages.rs"]
mod outages;
#[path = "nats/reading.rs"]
mod reading;
#[path = "nats/security.rs"]
mod security;
#[path = "nats/stream_anomalies.rs"]
mod stream_anomalies;
#[path = "nats/streams.rs"]
mod streams;
