//! Configuration of `[cluster]`: assignment of shards to pods. `config/default.toml` describes the
//! keys.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::loopback::is_loopback_url;
use super::units;
use super::violations::Violations;

/// Configuration of `[cluster]`: one pod or many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Mode of shard assignment.
    pub mode: ClusterMode,
    /// Cluster name; pods with the same name share the shards.
    pub name: String,
    /// Number of pods, with [`ClusterMode::Static`].
    pub pod_count: u16,
    /// Time after the last lease renewal until a pod counts as failed.
    #[serde(with = "units::text")]
    pub lease_ttl: Duration,
    /// Maximum time to finish in-flight work when a shard is handed over.
    #[serde(with = "units::text")]
    pub handover_timeout: Duration,
    /// URL at which other pods reach the HTTP API; the listen address if empty.
    pub advertise_url: String,
    /// Allows HTTP between pods outside loopback.
    pub allow_plaintext: bool,
    /// TLS between pods.
    pub tls: ClusterTlsConfig,
}

/// Configuration of `[cluster.tls]`: identity of other pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterTlsConfig {
    /// CA certificates of the pods; PEM.
    #[serde(with = "units::optional")]
    pub ca: Option<PathBuf>,
    /// Name in the certificate of a pod; `{pod}` is replaced with the name of the pod.
    pub peer_name: String,
}

/// Mode of shard assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterMode {
    /// This process owns all shards.
    #[default]
    Standalone,
    /// Shards are divided evenly among the live pods and move when pods join or leave.
    Leases,
    /// Shards are assigned by the ordinal in the pod name; each pod is bound to its volume.
    Static,
}

/// Returns the ordinal at the end of a pod name, as in a StatefulSet.
#[must_use]
pub fn ordinal(pod: &str) -> Option<u16> {
    pod.rsplit_once('-')?.1.parse().ok()
}

impl ClusterConfig {
    /// Validates rules that involve several keys.
    pub(super) fn validate(&self, node: &str, nats: bool, found: &mut Violations) {
        if self.mode == ClusterMode::Standalone {
            return;
        }

        found.require(
            nats,
            "cluster.mode",
            "several pods require `bus.kind = \"nats\"`",
        );

        let is_valid_name = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        let name = &self.name;
        let message =
            format_args!("{name:?} contains characters other than letters, digits, - and _");

        found.require(
            !name.is_empty() && is_valid_name(name),
            "cluster.name",
            message,
        );

        found.require(
            // NATS counts the time to live of a heartbeat in whole seconds.
            self.lease_ttl >= Duration::from_secs(1),
            "cluster.lease_ttl",
            "must be at least 1s",
        );

        let count = self.pod_count;
        let message = format_args!(
            "with `static`, the node name must end in a number below {count}, as in orlog-0; it is \
             {node:?}"
        );

        // With static placement the ordinal selects the shards of a pod.
        let is_pod = ordinal(node).is_some_and(|ordinal| ordinal < count);

        found.require(
            self.mode != ClusterMode::Static || is_pod,
            "cluster.mode",
            message,
        );
    }

    /// Returns the URL at which other pods reach the HTTP API of this pod.
    #[must_use]
    pub fn url(&self, listen: SocketAddr, https: bool) -> String {
        match self.advertise_url.as_str() {
            "" => format!("{}://{listen}", if https { "https" } else { "http" }),
            url => url.trim_end_matches('/').to_owned(),
        }
    }

    /// Validates the transport of requests between pods.
    pub(super) fn validate_transport(
        &self,
        listen: SocketAddr,
        https: bool,
        found: &mut Violations,
    ) {
        if self.mode == ClusterMode::Standalone {
            return;
        }

        let url = self.url(listen, https);

        // The URL leads to the listener of this pod, which has either TLS or none.
        let scheme = if https { "https://" } else { "http://" };
        if !url.starts_with(scheme) {
            let state = if https { "is set" } else { "is not set" };
            let message = format_args!(
                "{url:?} must start with {scheme}, because http.tls.certificate {state}"
            );
            return found.report("cluster.advertise_url", message);
        }

        match (https, self.tls.ca.is_some()) {
            (true, false) => {
                let message = "pods verify each other; set the CA that issues their certificates";
                found.report("cluster.tls.ca", message);
            }
            (false, true) => found.report("cluster.tls.ca", "requires http.tls.certificate"),
            (false, false) if !self.allow_plaintext && !is_loopback_url(&url) => {
                let message = format_args!(
                    "pods would forward requests, with the credentials of their callers, over \
                     HTTP ({url}); set [http.tls] and [cluster.tls], or set \
                     cluster.allow_plaintext = true inside an encrypted pod network"
                );
                found.report("cluster.allow_plaintext", message);
            }
            (true, true) | (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cluster: &ClusterConfig, node: &str, nats: bool, key: Option<&str>) {
        let keys = Violations::keys(|found| cluster.validate(node, nats, found));
        assert_eq!(keys, key.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn conflicting_cluster_settings_are_reported() {
        let leased = ClusterConfig {
            mode: ClusterMode::Leases,
            ..ClusterConfig::default()
        };
        check(&ClusterConfig::default(), "n", false, None);
        check(&leased, "n", true, None);
        check(&leased, "n", false, Some("cluster.mode"));
        check(
            &ClusterConfig {
                name: "a.b".to_owned(),
                ..leased.clone()
            },
            "n",
            true,
            Some("cluster.name"),
        );
        check(
            &ClusterConfig {
                lease_ttl: Duration::from_millis(10),
                ..leased.clone()
            },
            "n",
            true,
            Some("cluster.lease_ttl"),
        );
        let fixed = ClusterConfig {
            mode: ClusterMode::Static,
            pod_count: 3,
            ..leased
        };
        check(&fixed, "orlog-2", true, None);
        check(&fixed, "orlog-3", true, Some("cluster.mode"));
        check(&fixed, "orlog", true, Some("cluster.mode"));
    }

    #[test]
    fn pods_outside_loopback_require_tls_or_an_explicit_permission() {
        let config = |url: &str, allow_plaintext: bool, ca: Option<&str>| ClusterConfig {
            mode: ClusterMode::Leases,
            advertise_url: url.to_owned(),
            allow_plaintext,
            tls: ClusterTlsConfig {
                ca: ca.map(PathBuf::from),
                ..ClusterTlsConfig::default()
            },
            ..ClusterConfig::default()
        };
        let error = |config: &ClusterConfig, listen: &str, https: bool| {
            let listen = listen.parse().unwrap();
            Violations::keys(|found| config.validate_transport(listen, https, found)).pop()
        };
        let (local, any, pod) = ("127.0.0.1:7070", "0.0.0.0:7070", "http://10.0.0.7:7070");
        assert_eq!(error(&ClusterConfig::default(), any, false), None);
        assert_eq!(error(&config("", false, None), local, false), None);
        assert_eq!(
            error(&config("http://localhost:1", false, None), any, false),
            None
        );
        assert_eq!(
            error(&config("", false, None), "10.0.0.7:7070", false).as_deref(),
            Some("cluster.allow_plaintext")
        );
        assert_eq!(
            error(&config(pod, false, None), any, false).as_deref(),
            Some("cluster.allow_plaintext")
        );
        let disguised = "http://127.0.0.1.example.com:7070";
        assert_eq!(
            error(&config(disguised, false, None), any, false).as_deref(),
            Some("cluster.allow_plaintext")
        );
        assert_eq!(error(&config(pod, true, None), any, false), None);
        assert_eq!(
            error(&config(pod, true, Some("ca")), any, true).as_deref(),
            Some("cluster.advertise_url")
        );
        assert_eq!(
            error(&config("https://a:1", false, None), any, false).as_deref(),
            Some("cluster.advertise_url")
        );
        assert_eq!(
            error(&config("https://a:1", false, None), any, true).as_deref(),
            Some("cluster.tls.ca")
        );
        assert_eq!(
            error(&config("https://a:1", false, Some("ca")), any, true),
            None
        );
        assert_eq!(
            error(&config("", false, Some("ca")), local, false).as_deref(),
            Some("cluster.tls.ca")
        );
        assert_eq!(
            config("", false, None).url(local.parse().unwrap(), true),
            "https://127.0.0.1:7070"
        );
    }
}
