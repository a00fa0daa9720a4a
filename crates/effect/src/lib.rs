//! Effect execution: providers call external systems; policies limit and retry the calls.
//!
//! Path of a work item: [`Catalog`] (routing) → [`EffectExecutor`] (start, retries, deadline) →
//! [`Provider`] (one attempt) → upstream. The decisions of the executor are pure state machines:
//! backoff, circuit breaker, retry budget and rate limiter.

mod attempt;
mod attempt_start;
pub mod catalog;
pub mod config;
pub mod content_encoding;
mod decisions;
mod dispatcher;
mod duration;
mod effect_execution;
pub mod egress;
mod executor;
mod fact_types;
pub mod http;
mod in_doubt;
pub mod job_logs;
pub mod limits;
mod observer;
mod operations;
mod policy;
mod provider;
pub mod providers;
mod quote;
mod receipt;
mod response_rules;
pub mod retry;
pub mod retry_budget;
pub mod secret;
mod template;
mod upstream;
pub mod webhook_signature;

pub use attempt_start::AttemptStart;
pub use catalog::{Catalog, CatalogChange};
pub use decisions::Decision;
pub use dispatcher::{Dispatcher, LeaseEnd, StartRecorder, StopToken};
pub use effect_execution::{ExecutionProgress, ExecutionResult};
pub use executor::EffectExecutor;
pub use fact_types::FactTypes;
pub use observer::{AttemptReport, EffectObserver, NoopObserver, ObserverList, ProbeOutcome};
pub use policy::{Policy, TenantLimits};
pub use provider::{
    Attempt, ErrorFacts, Probe, ProbeResult, Provider, ProviderError, RejectionScope,
    RemoteProvider, RemoteResult, Reply, TransientCause,
};
pub use providers::EffectsConfig;
pub use providers::function::{FunctionCall, FunctionProvider, SyncFunctionCall};
#[cfg(feature = "script")]
pub use providers::script;
pub use providers::worker;
pub use receipt::{ReceiptState, ReceiptWatch, ResultReceipt};
pub use response_rules::{ProbeClass, ResponseClass, ResponseRule};
pub use upstream::{Upstream, UpstreamScope, UpstreamStatus, is_job};
