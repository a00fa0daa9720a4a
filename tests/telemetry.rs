//! What an operator sees: a node under load with failures, its metrics held against their table, dashboards and alerts asked
//! of a real Prometheus and a VictoriaMetrics, and the faults of the runbooks played through.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "telemetry/metrics.rs"]
mod metrics;
#[path = "telemetry/node.rs"]
mod node;
#[path = "telemetry/queries.rs"]
mod queries;
#[path = "telemetry/runbooks.rs"]
mod runbooks;
#[path = "telemetry/servers.rs"]
mod servers;
