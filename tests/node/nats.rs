//! Orlog on NATS JetStream with real servers: streams, anomalies, outages, a complete node, security.

mod audit;
mod contexts;
mod cutting_proxy;
mod fixture;
mod node;
mod outages;
mod reading;
mod requests;
mod security;
mod signed_events;
mod snapshot_saves;
mod stream_anomalies;
mod streams;
mod tenants;
mod unreadable_messages;
