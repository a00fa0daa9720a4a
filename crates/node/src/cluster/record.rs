//! Record of a cluster: the values of the keys that all its pods must have. The first pod writes
//! it.
//!
//! A pod with another value does not start. An immutable value stays for good. Any other value
//! changes when a pod starts while no other pod is alive: an operator stops all pods, then starts
//! them with the new value.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use orlog_bus::nats::{Connection, Leases};
use orlog_bus::registry::{Registry, RegistryView};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::config::{ChangeMethod, Config, rule_of};

/// Key of the record in the registry.
const KEY: &str = "cluster";
/// Key whose value names the bucket with the live pods.
const CLUSTER_NAME: &str = "cluster.name";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterRecord {
    /// Values by key, as they are written in the configuration.
    values: BTreeMap<String, String>,
    /// Pod that wrote the record.
    written_by: String,
}

/// Key whose value on this pod differs from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    key: String,
    recorded: String,
    own: String,
    is_immutable: bool,
}

impl ClusterRecord {
    /// Returns a difference; an immutable value if there is one, because nothing resolves it.
    fn difference(&self, own: &BTreeMap<String, String>) -> Option<Difference> {
        let differences = own.iter().filter_map(|(key, value)| {
            // A key that the record does not have is no difference: `with` adds it.
            let recorded = self.values.get(key).filter(|recorded| *recorded != value)?;
            Some(Difference {
                key: key.clone(),
                recorded: recorded.clone(),
                own: value.clone(),
                is_immutable: rule_of(key)
                    .is_none_or(|rule| rule.change == ChangeMethod::Impossible),
            })
        });
        differences.max_by_key(|difference| difference.is_immutable)
    }

    /// Returns the record with the values of a pod; those of other releases stay.
    fn with(&self, own: &BTreeMap<String, String>, node: String) -> Self {
        let mut values = self.values.clone();
        values.extend(own.clone());
        Self {
            values,
            written_by: node,
        }
    }

    /// Returns the error of a pod with another value. `others`: the live pods.
    fn rejection(&self, found: &Difference, others: &[String]) -> anyhow::Error {
        let Difference {
            key,
            recorded,
            own,
            is_immutable,
        } = found;

        let writer = &self.written_by;
        let remedy = if *is_immutable {
            format!(
                "restore {key} = {recorded}: it determines where instances are stored, and cannot \
                 be changed"
            )
        } else {
            format!(
                "set {key} = {recorded}; or, to change it, stop all pods (alive: {}) and start \
                 them with the new value",
                others.join(", ")
            )
        };

        anyhow::anyhow!(
            "{key} is {own} on this pod, but {recorded} in the record of the cluster, which pod \
             {writer} wrote; {remedy} (docs/configuration.md, Rules of the keys)"
        )
    }
}

/// Compares the configuration of a pod with the record of its cluster, or writes the record. A node
/// that shares no state with others has none.
///
/// # Errors
/// If a value differs and cannot be changed now, or if the servers are not available.
pub(crate) async fn claim(
    config: &Config,
    connection: &Connection,
    registry: &dyn Registry,
) -> anyhow::Result<()> {
    if !config.shares_state() {
        return Ok(());
    }

    // Several pods may start at the same time: the record is written with compare-and-set, and
    // compared again after a conflict.
    let own = config.equal_values();
    loop {
        let view = registry.view().borrow().clone();
        let stored = match view.records.get(KEY) {
            Some(record) => serde_json::from_str(&record.value)
                .context("the record `cluster` in the bucket orlog-registry cannot be read")?,
            None => ClusterRecord {
                values: BTreeMap::new(),
                written_by: String::new(),
            },
        };
        if let Some(difference) = stored.difference(&own) {
            let others = other_pods(config, connection, &stored).await?;
            if difference.is_immutable || !others.is_empty() {
                bail!(stored.rejection(&difference, &others));
            }

            let Difference {
                key, recorded, own, ..
            } = difference;
            tracing::warn!(
                key,
                from = recorded,
                to = own,
                "configuration of the cluster changed"
            );
        }

        // A pod of a later release adds the keys that the record does not have yet.
        let next = stored.with(&own, config.node_name());
        if next.values == stored.values {
            return Ok(());
        }

        let text = serde_json::to_string(&next).context("a record can be serialized")?;
        let written = registry.put(KEY, Some(text), view.revision_of(KEY)).await?;
        if written.is_some() {
            return Ok(());
        }

        // Another pod was faster.
        registry.refresh().await?;
    }
}

/// Waits until the record has another value than this pod, and returns the reason why the pod
/// cannot continue; `None` after the end of the registry.
///
/// A pod replaces a value if it sees no other live pod. It does not see this one between
/// [`claim`] and its first announcement, nor after the end of its lease.
pub(super) async fn replaced(
    config: &Config,
    mut view: watch::Receiver<Arc<RegistryView>>,
) -> Option<anyhow::Error> {
    let own = config.equal_values();
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        let record = current.records.get(KEY);
        // `claim` of the next start reports a record that cannot be read.
        let stored =
            record.and_then(|record| serde_json::from_str::<ClusterRecord>(&record.value).ok());
        if let Some(stored) = stored
            && let Some(difference) = stored.difference(&own)
        {
            let writer = std::slice::from_ref(&stored.written_by);
            return Some(stored.rejection(&difference, writer));
        }

        if view.changed().await.is_err() {
            return None;
        }
    }
}

/// Returns the names of the other live pods of the recorded cluster.
async fn other_pods(
    config: &Config,
    connection: &Connection,
    record: &ClusterRecord,
) -> anyhow::Result<Vec<String>> {
    // If `cluster.name` itself changes, the live pods are in the bucket of the recorded name.
    let name = record.values.get(CLUSTER_NAME);
    // The record contains values as TOML text, so that a name has quotes.
    let bucket = name.map_or(config.cluster.name.as_str(), |name| name.trim_matches('"'));
    let pods = Leases::live_pods(connection, bucket)
        .await
        .context("the live pods of the cluster cannot be read")?;
    let own = config.node_name();
    Ok(pods.into_iter().filter(|pod| *pod != own).collect())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use orlog_bus::embedded::JournalRegistry;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn record(pairs: &[(&str, &str)]) -> ClusterRecord {
        ClusterRecord {
            values: values(pairs),
            written_by: "a".to_owned(),
        }
    }

    #[test]
    fn immutable_value_is_rejected_before_others() {
        let stored = record(&[("cluster.mode", "\"leases\""), ("shards", "6")]);
        let own = values(&[("cluster.mode", "\"static\""), ("shards", "8")]);
        let found = stored.difference(&own).unwrap();
        assert!(found.is_immutable, "{found:?}");
        let text = stored.rejection(&found, &[]).to_string();
        assert!(
            text.starts_with(
                "shards is 8 on this pod, but 6 in the record of the cluster, which pod a wrote; \
                 restore shards = 6"
            ),
            "{text}"
        );
    }

    #[test]
    fn another_value_is_rejected_with_the_live_pods() {
        let stored = record(&[("cluster.mode", "\"leases\"")]);
        let own = values(&[("cluster.mode", "\"static\"")]);
        let found = stored.difference(&own).unwrap();
        assert!(!found.is_immutable);
        let text = stored.rejection(&found, &["b".to_owned()]).to_string();
        assert!(text.contains("stop all pods (alive: b)"), "{text}");
    }

    #[tokio::test]
    async fn running_pod_notices_that_another_pod_replaced_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let registry = JournalRegistry::open(&dir.path().join("registry"), None).unwrap();
        let config = Config::default();
        let own = ClusterRecord {
            values: config.equal_values(),
            written_by: "a".to_owned(),
        };
        let mut changed = own.clone();
        let mode = "cluster.mode".to_owned();
        changed.values.insert(mode, "\"static\"".to_owned());
        changed.written_by = "b".to_owned();

        let mut replaced = Box::pin(super::replaced(&config, registry.view()));
        let mut seen = 0;
        for (record, is_replaced) in [(own, false), (changed, true)] {
            let text = serde_json::to_string(&record).unwrap();
            seen = registry.put(KEY, Some(text), seen).await.unwrap().unwrap();
            let found = (&mut replaced).now_or_never().flatten();
            let found = found.map(|error| error.to_string());
            assert_eq!(found.is_some(), is_replaced, "{found:?}");
            assert!(found.is_none_or(|text| text.contains("which pod b wrote")));
        }
    }

    #[test]
    fn values_of_other_releases_stay() {
        let stored = record(&[("later.key", "1"), ("shards", "6")]);
        let own = values(&[("cluster.name", "\"orlog\""), ("shards", "6")]);
        assert_eq!(stored.difference(&own), None);
        let next = stored.with(&own, "b".to_owned());
        let expected = values(&[
            ("cluster.name", "\"orlog\""),
            ("later.key", "1"),
            ("shards", "6"),
        ]);
        assert_eq!(next.values, expected);
    }
}
