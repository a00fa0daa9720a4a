//! The runner as a stranger sees it: a process to start, kill and stop, and an HTTP API to ask.

mod client;
mod process;

pub use client::{Client, Step, Upstream, View, http_client};
pub use process::{Place, Runner};
