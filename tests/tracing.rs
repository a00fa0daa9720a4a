//! Tracing: one trace for all activities that an event causes, and the log of a real process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tracing/collector.rs"]
mod collector;
#[path = "tracing/embedded.rs"]
mod embedded;
#[path = "tracing/fixture.rs"]
mod fixture;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "effects/http_upstream.rs"]
mod http_upstream;
#[path = "tracing/logs.rs"]
mod logs;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "effects/node.rs"]
mod node;
#[path = "tracing/pods.rs"]
mod pods;
#[path = "cli/node.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod process;
#[path = "tracing/sampling.rs"]
mod sampling;
