//! Effect execution: providers call external systems; policies limit and retry the calls.
//!
//! Path of a work item: [`Catalog`] (routing) → [`EffectExecutor`] (start, retries, deadline) →
//! [`Provider`] (one attempt) → upstream. The decisions of the executor are pure state machines:
//! backoff, circuit breaker, retry budget and rate limiter.

pub mod catalog;
pub mod config;
mod dispatcher;
mod duration;
mod effect_execution;
pub mod egress;
mod executor;
mod function;
mod gateway;
pub mod grpc;
pub mod http;
pub mod job_logs;
pub mod limits;
mod observer;
mod placeholders;
mod policy;
mod provider;
mod response_rules;
pub mod retry;
pub mod retry_budget;
pub mod script;
pub mod secret;
pub mod smtp;
pub mod sql;
mod upstream;
pub mod worker;

pub use catalog::{Catalog, CatalogChange};
pub use config::{EffectsConfig, GatewayConfig, HttpConfig};
pub use dispatcher::{Dispatcher, LeaseEnd, StopToken};
pub use effect_execution::{ExecutionProgress, ExecutionResult};
pub use executor::EffectExecutor;
pub use function::{FunctionCall, FunctionProvider, SyncFunctionCall};
pub use gateway::{HttpGateway, gateway_message};
pub use http::Http;
pub use observer::{AttemptOutcome, AttemptReport, EffectObserver, NoopObserver};
pub use policy::{Policy, TenantLimits};
pub use provider::{
    Attempt, ProbeResult, Provider, ProviderError, Reply, TransientCause, record_remote_span,
};
pub use response_rules::{ResponseClass, ResponseRule};
pub use script::ScriptProvider;
pub use sql::SqlProvider;
pub use upstream::{Upstream, UpstreamScope, UpstreamStatus};
