//! External view of the runner: a process to start, kill and stop, and an HTTP API.

mod client;
mod process;

pub use client::{Client, HistoryStep, SagaView, Upstream, http_client};
pub use process::{Runner, RunnerPaths};
