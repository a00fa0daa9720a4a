//! Limits on attempts: circuit breaker, concurrency, rate and fair shares between tenants.

pub(crate) mod admission;
pub mod breaker;
pub(crate) mod breaker_gate;
pub(crate) mod concurrency;
pub(crate) mod fair_queue;
pub mod rate;
