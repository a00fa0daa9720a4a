//! The hands: providers that act on the world, and the policies under which they try.
//!
//! A work item's way: [`Catalog`] (who performs it) → [`Performer`] (when, how often, until when) → [`Provider`] (one
//! attempt) → the world. What the performer decides is decided by plain state machines: [`backoff`], [`breaker`], [`budget`] and [`rate`].

mod admission;
pub mod answered;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod catalog;
pub mod config;
mod course;
mod duration;
pub mod egress;
mod fair;
mod gate;
mod gateway;
pub mod grpc;
pub mod http;
pub mod lines;
mod native;
mod observer;
mod performer;
mod policy;
mod provider;
pub mod rate;
mod rules;
pub mod script;
pub mod secret;
pub mod smtp;
pub mod sql;
mod text;
mod turnstile;
mod upstream;
pub mod worker;

pub use catalog::{Catalog, Renewal};
pub use config::{EffectsConfig, GatewayConfig, HttpConfig};
pub use course::{Done, Progress};
pub use gateway::{Gateway, message as gateway_message};
pub use http::Http;
pub use native::{Native, NativeCall, PlainCall};
pub use observer::{Attempted, Ending, Observer, Silent};
pub use performer::{Condition, Performer};
pub use policy::{Policy, Share};
pub use provider::{Attempt, Probe, Provider, Refusal, Reply, Trouble};
pub use rules::{Meaning, Rule};
pub use script::Script;
pub use sql::Sql;
pub use upstream::{Serves, Upstream};
