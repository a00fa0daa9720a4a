//! Tracing: one trace for all activities that an event causes, and the log of a real process. A binary of its
//! own, because `tracing` has one subscriber per process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other test binaries use the rest")]
#[path = "../common/harness.rs"]
mod harness;

/// Commands of the binary, and a node that they use.
#[path = "../node/cli"]
mod cli {
    #[expect(dead_code, reason = "other test binaries use the rest")]
    pub(crate) mod node;
}

/// Node with upstreams, and an HTTP upstream.
#[path = "../node/effects"]
mod effects {
    #[expect(dead_code, reason = "other test binaries use the rest")]
    pub(crate) mod http_upstream;
    #[expect(dead_code, reason = "other test binaries use the rest")]
    pub(crate) mod node;
}

mod collector;
mod embedded;
mod fixture;
mod logs;
mod pods;
mod sampling;
