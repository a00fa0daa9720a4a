//! Configuration of `[http]`: limits of the HTTP API. `config/default.toml` describes the keys.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;
use super::violations::Violations;

/// Minimum of `http.max_connections`.
pub const MIN_CONNECTIONS: usize = 16;

/// Configuration of `[http]`: limits of the HTTP API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpServerConfig {
    /// Maximum body size with one event or control request, in bytes.
    #[serde(with = "units::text")]
    pub max_body_size: u64,
    /// Maximum body size with a batch of events, in bytes.
    #[serde(with = "units::text")]
    pub max_batch_size: u64,
    /// Maximum size of all request bodies in memory, in bytes.
    #[serde(with = "units::text")]
    pub max_bytes_in_flight: u64,
    /// Maximum page size of a list.
    pub max_page_size: usize,
    /// Maximum size of the entries of a page, in bytes.
    #[serde(with = "units::text")]
    pub max_page_bytes: u64,
    /// Maximum rows that one list request scans.
    pub scan_limit: usize,
    /// Maximum number of requests that read the stores at the same time.
    pub max_concurrent_reads: usize,
    /// Maximum number of queries with a condition that one tenant runs at the same time.
    pub max_concurrent_queries: usize,
    /// Timeout of a request.
    #[serde(with = "units::text")]
    pub request_timeout: Duration,
    /// Names of this node in the `Host` header.
    pub allowed_hosts: Vec<HostPattern>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections from one address.
    pub max_connections_per_address: usize,
    /// TLS of the listener.
    pub tls: HttpTlsConfig,
    /// Quotas of one caller.
    pub per_caller: CallerQuotaConfig,
}

/// Configuration of `[http.tls]`: certificates in PEM. They are read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTlsConfig {
    /// Certificate of the node and its intermediate certificates; without it, the node serves HTTP.
    #[serde(with = "units::optional")]
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate.
    #[serde(with = "units::optional")]
    pub key: Option<PathBuf>,
    /// CA certificates of clients.
    #[serde(with = "units::optional")]
    pub client_ca: Option<PathBuf>,
    /// Whether connections without a client certificate are rejected.
    pub require_client_certificate: bool,
}

impl HttpTlsConfig {
    /// Returns whether the node serves HTTPS.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.certificate.is_some()
    }

    /// Validates rules that involve several keys.
    pub(super) fn validate(&self, cluster_ca: bool, found: &mut Violations) {
        found.require(
            self.certificate.is_some() == self.key.is_some(),
            "http.tls.certificate",
            "certificate and key must be set together",
        );

        found.require(
            self.client_ca.is_none() || self.is_enabled(),
            "http.tls.client_ca",
            "requires http.tls.certificate",
        );

        found.require(
            !self.require_client_certificate || self.client_ca.is_some() || cluster_ca,
            "http.tls.require_client_certificate",
            "requires http.tls.client_ca",
        );
    }
}

/// Configuration of `[http.per_caller]`: quotas of one caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerQuotaConfig {
    /// Maximum rate of requests; zero: no limit.
    pub max_requests_per_second: u32,
    /// Maximum number of requests at once before the rate applies.
    pub request_burst: u32,
    /// Maximum number of requests in progress.
    pub max_concurrent_requests: usize,
    /// Maximum number of requests that wait for jobs or changes.
    pub max_long_polls: usize,
    /// Maximum CPU time of queries with a condition; zero: no limit.
    #[serde(with = "units::duration_or_zero")]
    pub max_query_time_per_minute: Duration,
    /// Maximum share of `max_bytes_in_flight` and `max_concurrent_reads`.
    pub max_share: f64,
}

impl HttpServerConfig {
    /// Validates the keys of this table.
    pub(super) fn validate(&self, found: &mut Violations) {
        let page = self.max_page_size;
        let scan = self.scan_limit;
        let message = format_args!("must be between 1 and http.scan_limit: {page}, {scan}");
        found.require(page > 0 && scan >= page, "http.max_page_size", message);

        // A larger body could never be admitted, not even without other requests.
        let largest = self.max_batch_size.max(self.max_body_size);
        let message = format_args!(
            "must be at least http.max_batch_size and http.max_body_size: {largest} bytes"
        );
        found.require(
            self.max_bytes_in_flight >= largest,
            "http.max_bytes_in_flight",
            message,
        );

        let message = format_args!("must be at least {MIN_CONNECTIONS}");
        found.require(
            self.max_connections >= MIN_CONNECTIONS,
            "http.max_connections",
            message,
        );

        let quotas = &self.per_caller;
        for (key, value) in [
            ("http.max_concurrent_reads", self.max_concurrent_reads),
            ("http.max_concurrent_queries", self.max_concurrent_queries),
            (
                "http.max_connections_per_address",
                self.max_connections_per_address,
            ),
            (
                "http.per_caller.request_burst",
                quotas.request_burst as usize,
            ),
            (
                "http.per_caller.max_concurrent_requests",
                quotas.max_concurrent_requests,
            ),
            ("http.per_caller.max_long_polls", quotas.max_long_polls),
        ] {
            found.require(value > 0, key, "must be at least 1");
        }

        let share = quotas.max_share;
        let message = format_args!("{share} is not above 0.0 and at most 1.0");
        found.require(
            share > 0.0 && share <= 1.0,
            "http.per_caller.max_share",
            message,
        );
    }
}

/// Name of a node: `orlog.example.com`, all names below one (`*.example.com`), or any name (`*`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern(String);

impl HostPattern {
    /// Returns whether the pattern matches a host in lower case.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            // The suffix includes the dot, so that `*.example.com` does not match the domain
            // itself.
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => self.0 == host,
        }
    }

    /// Returns whether the pattern matches any name.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0 == "*"
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_prefix("*.").unwrap_or(&text);

        if text == "*"
            || name.split('.').all(|label| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            })
        {
            return Ok(Self(text.to_ascii_lowercase()));
        }

        Err(format!(
            "invalid host {text:?}; expected a name without scheme and port, such as \
             \"orlog.example.com\" or \"*.example.com\""
        ))
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.0
    }
}
