//! Metrics, traces and logs of the actors.

pub(crate) mod metrics;
pub(crate) mod trace_context;
pub mod tracer;
