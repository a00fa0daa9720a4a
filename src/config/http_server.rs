//! Configuration of `[http]`: limits of the HTTP API. `config/default.toml` describes the keys.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

const MIB: u64 = 1 << 20;
/// Minimum of `http.max_connections`.
pub(crate) const MIN_CONNECTIONS: usize = 16;

/// Configuration of `[http]`: limits of the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpServerConfig {
    /// Maximum body size with one event or control request, in bytes.
    #[serde(with = "units::size")]
    pub max_body_size: u64,
    /// Maximum body size with a batch of events, in bytes.
    #[serde(with = "units::size")]
    pub max_batch_size: u64,
    /// Maximum page size of a list.
    pub max_page_size: usize,
    /// Maximum rows that one list request scans.
    pub scan_limit: usize,
    /// Maximum number of requests that read the stores at the same time.
    pub max_concurrent_reads: usize,
    /// Maximum number of queries with a condition that one tenant runs at the same time.
    pub max_concurrent_queries: usize,
    /// Timeout of a request.
    #[serde(with = "units::duration")]
    pub request_timeout: Duration,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections from one address.
    pub max_connections_per_address: usize,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            max_body_size: MIB,
            max_batch_size: 8 * MIB,
            max_page_size: 1000,
            scan_limit: 20_000,
            max_concurrent_reads: 64,
            max_concurrent_queries: 4,
            request_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_connections_per_address: 1024,
        }
    }
}
