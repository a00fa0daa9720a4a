//! Orlog on NATS JetStream with real servers: streams, anomalies, outages, a complete node, security.

mod audit;
mod contexts;
mod fixture;
mod node;
mod outages;
mod reading;
mod requests;
mod security;
mod signed_events;
mod stream_anomalies;
mod streams;
mod tenants;
