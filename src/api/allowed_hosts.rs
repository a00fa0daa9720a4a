//! Names of a node in the `Host` header of requests.

use axum::http::Uri;

use crate::config::{Config, HostPattern};

/// Names of the node in the `Host` header.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts {
    configured: Vec<HostPattern>,
    advertised: Option<String>,
}

impl AllowedHosts {
    pub(crate) fn new(config: &Config) -> Self {
        let advertised = config.cluster.advertise_url.parse::<Uri>().ok();
        let advertised = advertised.and_then(|url| url.host().map(str::to_ascii_lowercase));
        Self {
            configured: config.http.allowed_hosts.clone(),
            advertised,
        }
    }

    /// Returns whether a host names this node. No page controls an IP address or a loopback name.
    pub(crate) fn contains(&self, host: &str) -> bool {
        let is_address = host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok();
        is_address
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.advertised.as_deref() == Some(host)
            || self.configured.iter().any(|pattern| pattern.matches(host))
    }

    /// Returns whether a page of this host may send requests although `Host` differs: a proxy has replaced it.
    pub(crate) fn names(&self, host: &str) -> bool {
        self.configured
            .iter()
            .any(|pattern| !pattern.is_any() && pattern.matches(host))
    }
}
