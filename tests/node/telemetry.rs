//! Telemetry: a node under load with failures and its metrics. Dashboards and alerts run on a real
//! Prometheus and a real VictoriaMetrics, and the faults of the runbooks are exercised.

mod log_queries;
mod metrics;
mod node;
mod queries;
mod runbooks;
mod servers;
