//! `[cluster]`: which shards this pod runs. What a key means stands in `config/default.toml`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// `[cluster]`: one pod or many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// How shards find their pods.
    pub mode: ClusterMode,
    /// Pods that share a name share the shards.
    pub name: String,
    /// How many pods there are, with [`ClusterMode::Fixed`].
    pub pods: u16,
    /// How long a pod counts as alive after it was heard last.
    #[serde(with = "units::duration")]
    pub ttl: Duration,
    /// What is under way gets this long when a shard is handed over.
    #[serde(with = "units::duration")]
    pub handover: Duration,
    /// Where other pods reach the HTTP API of this one; `http://<listen>` where it is empty.
    pub advertise: String,
}

/// How shards find their pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterMode {
    /// This process has all of them.
    #[default]
    Alone,
    /// Divided evenly among the pods that are alive; they move when pods come and go.
    Leased,
    /// By the number at the end of the pod's name: each is tied to its volume.
    Fixed,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            mode: ClusterMode::Alone,
            name: "orlog".to_owned(),
            pods: 1,
            ttl: Duration::from_secs(3),
            handover: Duration::from_millis(500),
            advertise: String::new(),
        }
    }
}

/// The number at the end of a pod's name, as a StatefulSet makes it.
#[must_use]
pub fn ordinal(pod: &str) -> Option<u16> {
    pod.rsplit_once('-')?.1.parse().ok()
}

impl Cluster {
    /// What does not go together: the key, and why.
    pub(super) fn mistake(&self, node: &str, nats: bool) -> Option<(&'static str, String)> {
        if self.mode == ClusterMode::Alone {
            return None;
        }
        if !nats {
            return Some(("cluster.mode", "many pods need `bus.kind = \"nats\"`".to_owned()));
        }
        let word = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if self.name.is_empty() || !word(&self.name) {
            return Some((
                "cluster.name",
                format!("{:?} is not made of letters, digits, - and _", self.name),
            ));
        }
        if self.ttl < Duration::from_secs(1) {
            return Some(("cluster.ttl", "less than a second is too short for a network".to_owned()));
        }
        if self.mode == ClusterMode::Fixed && ordinal(node).is_none_or(|ordinal| ordinal >= self.pods) {
            let what = format!(
                "with `fixed`, the node's name ends in a number below {} as in orlog-0; it is {node:?}",
                self.pods
            );
            return Some(("cluster.mode", what));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cluster: &Cluster, node: &str, nats: bool, key: Option<&str>) {
        assert_eq!(cluster.mistake(node, nats).map(|(key, _)| key), key);
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        let leased = Cluster { mode: ClusterMode::Leased, ..Cluster::default() };
        check(&Cluster::default(), "n", false, None);
        check(&leased, "n", true, None);
        check(&leased, "n", false, Some("cluster.mode"));
        check(&Cluster { name: "a.b".to_owned(), ..leased.clone() }, "n", true, Some("cluster.name"));
        check(&Cluster { ttl: Duration::from_millis(10), ..leased.clone() }, "n", true, Some("cluster.ttl"));
        let fixed = Cluster { mode: ClusterMode::Fixed, pods: 3, ..leased };
        check(&fixed, "orlog-2", true, None);
        check(&fixed, "orlog-3", true, Some("cluster.mode"));
        check(&fixed, "orlog", true, Some("cluster.mode"));
    }
}
