//! Telemetry: a node under load with failures and its metrics. Dashboards and alerts run on a real
//! Prometheus and a real VictoriaMetrics, and the faults of the runbooks are exercised.

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
