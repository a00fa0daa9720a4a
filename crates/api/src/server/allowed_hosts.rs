//! Names of a node in the `Host` header of requests.

use axum::http::Uri;

use orlog_node::config::{Config, HostPattern};

/// Names of the node in the `Host` header.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts {
    configured: Vec<HostPattern>,
    advertised: Option<String>,
    advertised_port: Option<u16>,
}

impl AllowedHosts {
    pub(crate) fn new(config: &Config) -> Self {
        let advertised = config.cluster.advertise_url.parse::<Uri>().ok();
        let advertised_port = advertised.as_ref().and_then(Uri::port_u16);
        let advertised = advertised.and_then(|url| url.host().map(str::to_ascii_lowercase));
        Self {
            configured: config.http.allowed_hosts.clone(),
            advertised,
            advertised_port,
        }
    }

    /// Returns whether an authority is the address of this node in the configuration.
    pub(crate) fn is_configured(&self, host: &str, port: Option<u16>) -> bool {
        // With the port, because several nodes can have the same host.
        let is_advertised =
            self.advertised.as_deref() == Some(host) && self.advertised_port == port;
        is_advertised || self.names(host)
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

    /// Returns whether a page of this host may send requests although `Host` differs: a proxy has
    /// replaced it.
    pub(crate) fn names(&self, host: &str) -> bool {
        // A pattern for all hosts is meant for `Host`; as an origin, it would admit every site.
        self.configured
            .iter()
            .any(|pattern| !pattern.is_any() && pattern.matches(host))
    }
}
