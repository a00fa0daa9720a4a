//! The hands: providers that act on the world, and the policies under which they try.
//!
//! A work item's way: [`Catalog`] (who performs it) → [`Performer`] (when, how often, until when) → [`Provider`] (one
//! attempt) → the world. What the performer decides is decided by plain state machines: [`backoff`], [`breaker`], [`budget`] and [`rate`].

pub mod backoff;
pub mod catalog;
pub mod config;
mod duration;
pub mod egress;
mod execution;
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
pub mod retry_budget;
pub mod script;
pub mod secret;
pub mod smtp;
pub mod sql;
mod upstream;
pub mod worker;

pub use catalog::{Catalog, Renewal};
pub use config::{EffectsConfig, GatewayConfig, HttpConfig};
pub use execution::{Done, Progress};
pub use executor::{Condition, Performer};
pub use function::{Native, NativeCall, PlainCall};
pub use gateway::{Gateway, message as gateway_message};
pub use http::Http;
pub use observer::{Attempted, Ending, Observer, Silent};
pub use policy::{Policy, Share};
pub use provider::{Attempt, Probe, Provider, Refusal, Reply, Trouble, note};
pub use response_rules::{Meaning, Rule};
pub use script::Script;
pub use sql::Sql;
pub use upstream::{Serves, Upstream};
