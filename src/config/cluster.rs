//! Configuration of `[cluster]`: assignment of shards to pods. `config/default.toml` describes the
//! keys.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Configuration of `[cluster]`: one pod or many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Mode of shard assignment.
    pub mode: ClusterMode,
    /// Cluster name; pods with the same name share the shards.
    pub name: String,
    /// Number of pods, with [`ClusterMode::Static`].
    pub pod_count: u16,
    /// Time after the last lease renewal until a pod counts as failed.
    #[serde(with = "units::duration")]
    pub lease_ttl: Duration,
    /// Maximum time to finish in-flight work when a shard is handed over.
    #[serde(with = "units::duration")]
    pub handover_timeout: Duration,
    /// URL at which other pods reach the HTTP API; `http://<listen>` if empty.
    pub advertise_url: String,
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

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            mode: ClusterMode::Standalone,
            name: "orlog".to_owned(),
            pod_count: 1,
            lease_ttl: Duration::from_secs(3),
            handover_timeout: Duration::from_millis(500),
            advertise_url: String::new(),
        }
    }
}

/// Returns the ordinal at the end of a pod name, as in a StatefulSet.
#[must_use]
pub fn ordinal(pod: &str) -> Option<u16> {
    pod.rsplit_once('-')?.1.parse().ok()
}

impl ClusterConfig {
    /// Validates rules that involve several keys. Returns the key and the reason.
    pub(super) fn validate(&self, node: &str, nats: bool) -> Option<(&'static str, String)> {
        if self.mode == ClusterMode::Standalone {
            return None;
        }
        if !nats {
            return Some(("cluster.mode", "several pods require `bus.kind = \"nats\"`".to_owned()));
        }
        let is_valid_name =
            |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if self.name.is_empty() || !is_valid_name(&self.name) {
            return Some((
                "cluster.name",
                format!("{:?} contains characters other than letters, digits, - and _", self.name),
            ));
        }
        if self.lease_ttl < Duration::from_secs(1) {
            return Some(("cluster.lease_ttl", "must be at least 1s".to_owned()));
        }
        if self.mode == ClusterMode::Static && ordinal(node).is_none_or(|ordinal| ordinal >= self.pod_count) {
            let message = format!(
                "with `static`, the node name must end in a number below {}, as in orlog-0; it is {node:?}",
                self.pod_count
            );
            return Some(("cluster.mode", message));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cluster: &ClusterConfig, node: &str, nats: bool, key: Option<&str>) {
        assert_eq!(cluster.validate(node, nats).map(|(key, _)| key), key);
    }

    #[test]
    fn conflicting_cluster_settings_are_reported() {
        let leased = ClusterConfig { mode: ClusterMode::Leases, ..ClusterConfig::default() };
        check(&ClusterConfig::default(), "n", false, None);
        check(&leased, "n", true, None);
        check(&leased, "n", false, Some("cluster.mode"));
        check(&ClusterConfig { name: "a.b".to_owned(), ..leased.clone() }, "n", true, Some("cluster.name"));
        check(
            &ClusterConfig { lease_ttl: Duration::from_millis(10), ..leased.clone() },
            "n",
            true,
            Some("cluster.lease_ttl"),
        );
        let fixed = ClusterConfig { mode: ClusterMode::Static, pod_count: 3, ..leased };
        check(&fixed, "orlog-2", true, None);
        check(&fixed, "orlog-3", true, Some("cluster.mode"));
        check(&fixed, "orlog", true, Some("cluster.mode"));
    }
}
