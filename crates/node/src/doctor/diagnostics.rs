//! Diagnostics of a running node, for `orlog doctor`.

use std::time::Duration;

use orlog_actors::{Runtime, WorkerPool};
use orlog_effect::Catalog;
use orlog_effect::limits::breaker;
use orlog_model::Timestamp;
use orlog_store::Reader;

use super::incidents::{incidents, slow_disk};
use super::job_consumers;
use super::trends::{Trend, WINDOW};
use crate::backup::free_bytes;
use crate::cluster::{ClusterInfo, ShardObstacles};
use crate::config::{BusKind, Config};
use crate::definitions::closed::VisibleDefinitions;
use crate::doctor::check::CheckResult;

/// Free disk space in bytes below which a warning is reported; the node soon rejects new work.
const LOW_SPACE_BYTES: u64 = 1 << 30;
/// Maximum number of instances that are counted.
const COUNTED: usize = 1000;
/// Number of unread messages above which a warning is reported.
const LAG: u64 = 100_000;

/// Limits of the node checks.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosisLimits {
    /// Window of the rates. Default: 5m.
    pub window: Duration,
    /// Age after which waiting work is reported. Default: 5m.
    pub stale_work: Duration,
}

impl Default for DiagnosisLimits {
    fn default() -> Self {
        Self {
            window: WINDOW,
            stale_work: Duration::from_mins(5),
        }
    }
}

/// Components of a running node that are checked.
pub(crate) struct NodeParts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) runtime: &'a Runtime,
    pub(crate) catalog: &'a Catalog,
    pub(crate) cluster: Option<ClusterInfo>,
    pub(crate) obstacles: ShardObstacles,
    pub(crate) trend: Trend,
    pub(crate) limits: DiagnosisLimits,
    pub(crate) workers: Option<&'a WorkerPool>,
    pub(crate) now: Timestamp,
    /// Definitions that the caller may know.
    pub(crate) definitions: &'a VisibleDefinitions,
}

impl NodeParts<'_> {
    /// Checks the components. Blocks.
    pub(crate) fn diagnose(&self, last_sequence: Option<u64>) -> Vec<CheckResult> {
        let mut findings = vec![self.state()];
        findings.extend(self.lost_streams());
        findings.extend(self.failing_subscriptions());
        findings.extend(self.lease());
        findings.extend(self.failing_shards());
        findings.extend(self.node_keys());
        findings.extend(self.breakers());
        findings.extend(self.workers.into_iter().flat_map(job_consumers::findings));

        // A tenant with most of the load is an incident only if work waits.
        let mut work_waits = false;
        for (shard, reader) in self.runtime.numbered_readers() {
            let oldest = self.oldest(&reader);
            work_waits |=
                matches!(&oldest, Ok(Some((age, _))) if *age > self.limits.stale_work / 5);
            findings.extend(self.shard(shard, &reader, oldest, last_sequence));
        }

        findings.extend(incidents(&self.trend, self.definitions, work_waits));
        findings.extend(self.quarantined());
        findings.push(self.room());
        findings
    }

    fn state(&self) -> CheckResult {
        let health = self.runtime.health();
        let node = self.config.node_name();
        let failed = [
            (
                !health.is_running,
                "restarts a shard",
                "see the log for the reason",
            ),
            (
                !health.has_capacity,
                "rejects new work, because a store is full",
                "free disk space",
            ),
            (
                !health.accepting,
                "drains and rejects new work",
                "restart it after it has stopped",
            ),
        ];

        match failed.iter().find(|(failed, ..)| *failed) {
            Some((_, message, remedy)) => {
                CheckResult::error("node", format!("{node} {message}"), *remedy)
            }
            None => CheckResult::ok("node", format!("{node} accepts work")),
        }
    }

    /// Reports that the pod cannot renew its lease, or does not receive the state of the cluster.
    fn lease(&self) -> Option<CheckResult> {
        let is_stale = self
            .cluster
            .as_ref()
            .is_some_and(|cluster| !cluster.current);
        let node = self.config.node_name();
        let found = match &self.obstacles.lease {
            Some(reason) => format!(
                "{node} cannot renew its lease on NATS and runs no shards until it can: {reason}"
            ),
            None if is_stale => {
                format!(
                    "{node} cannot read the state of the cluster and acquires no shards until it \
                     can"
                )
            }
            None => return None,
        };

        let remedy = "restore the NATS servers, or the network to them \
            (docs/runbooks/shard-without-owner.md)";
        Some(CheckResult::error("cluster", found, remedy))
    }

    /// Reports the shards that this node should run and cannot.
    fn failing_shards(&self) -> Vec<CheckResult> {
        self.obstacles
            .shards
            .iter()
            .map(|(shard, reason)| {
                let found = format!("the shard does not run: {reason}");
                let remedy =
                    "remove the cause; the node retries (docs/runbooks/shard-without-owner.md)";
                CheckResult::error(&format!("shard {shard}"), found, remedy)
            })
            .collect()
    }

    /// Reports pods with other keys of the node.
    fn node_keys(&self) -> Option<CheckResult> {
        let pods = self
            .cluster
            .as_ref()
            .map(|cluster| cluster.other_node_keys.join(", "))?;
        (!pods.is_empty()).then(|| {
            let found = format!(
                "these pods have another node key than this pod: {pods}; peers reject the requests \
                 of one of them"
            );
            let remedy = "set the same identity.key_file on all pods, and restart those with the \
                wrong key (docs/peers.md)";
            CheckResult::error("node key", found, remedy)
        })
    }

    fn quarantined(&self) -> Option<CheckResult> {
        let count = self.runtime.metrics().quarantined_instances();
        (count > 0).then(|| {
            let found = format!("the stored data of {count} instances cannot be read");
            let remedy = "list their inputs with `orlog dlq list`; then replay or drop the \
                instances (docs/runbooks/quarantined-instance.md)";
            CheckResult::error("quarantine", found, remedy)
        })
    }

    fn lost_streams(&self) -> Vec<CheckResult> {
        self.runtime
            .lost_streams()
            .into_iter()
            .map(|(stream, reason)| {
                let found = format!("OR0061: stream {stream} is not read: {reason}");
                let remedy = "restore the stream, or restart the node with --accept-data-loss";
                CheckResult::error("streams", found, remedy)
            })
            .collect()
    }

    fn failing_subscriptions(&self) -> Option<CheckResult> {
        let count = self.runtime.metrics().failing_subscriptions();
        (count > 0).then(|| {
            let found = format!("{count} subscriptions to streams fail; their events wait");
            let remedy = "the log contains the reason (docs/runbooks/subscription-fails.md)";
            CheckResult::error("streams", found, remedy)
        })
    }

    fn breakers(&self) -> Vec<CheckResult> {
        let conditions = self.catalog.upstream_statuses();
        // A half-open breaker counts, too: it allows only a probe.
        let open: Vec<_> = conditions
            .iter()
            .filter(|condition| {
                condition
                    .breaker
                    .is_some_and(|state| state != breaker::BreakerState::Closed)
            })
            .collect();
        if open.is_empty() {
            return vec![CheckResult::ok(
                "breakers",
                "all circuit breakers are closed",
            )];
        }

        open.iter()
            .map(|condition| {
                let state = condition.breaker.map_or("", breaker::BreakerState::as_str);
                let mut found = format!(
                    "circuit breaker of {} is {state}: too many failures",
                    condition.upstream
                );
                if let Some(error) = &condition.last_error {
                    found.push_str("; last: ");
                    found.push_str(error);
                }

                let remedy = "check the upstream; its effects wait and continue automatically";
                CheckResult::error("breakers", found, remedy)
            })
            .collect()
    }

    fn shard(
        &self,
        shard: u16,
        reader: &Reader,
        oldest: Result<Option<(Duration, String)>, orlog_store::Error>,
        last_sequence: Option<u64>,
    ) -> Vec<CheckResult> {
        let check = format!("shard {shard}");
        let stats = reader.stats();
        let mut findings = Vec::new();
        if let Some(reason) = &stats.flush_failure {
            let found = format!("the tables lag behind the journal: {reason}");
            findings.push(CheckResult::error(
                &check,
                found,
                "free disk space, or raise store.max_size and restart the node",
            ));
        }

        if let Some(reason) = stats
            .replication
            .as_ref()
            .and_then(|log| log.unavailable.as_ref())
        {
            let found =
                format!("replicated log on NATS unavailable, commits are blocked: {reason}");
            findings.push(CheckResult::error(&check, found, "check the NATS servers"));
        }

        let fsyncs = self.trend.fsyncs.get(&shard).copied().unwrap_or_default();
        findings.extend(slow_disk(&check, &self.trend, fsyncs));
        findings.extend(attention(&check, reader));

        match oldest {
            Ok(Some((age, destination))) if age > self.limits.stale_work => {
                let found = format!("work for {destination} has waited for {} s", age.as_secs());
                findings.push(CheckResult::warn(
                    &check,
                    found,
                    "check the upstream: `orlog inspect outbox` lists the pending work",
                ));
            }
            Err(error) => findings.push(unknown(&check, "age of the oldest work item", &error)),
            Ok(_) => {}
        }

        findings.extend(self.lag(&check, reader, last_sequence));

        // One line that states what was checked; silence could mean that the shard was skipped.
        if findings.is_empty() {
            findings.push(match reader.outbox_depth() {
                Ok(depth) => {
                    let found = format!("{} commits, {depth} work items", stats.position);
                    CheckResult::ok(&check, found)
                }
                Err(error) => unknown(&check, "number of work items", &error),
            });
        }

        findings
    }

    /// Returns the age and the destination of the oldest work item.
    fn oldest(&self, reader: &Reader) -> Result<Option<(Duration, String)>, orlog_store::Error> {
        let mut oldest = None;
        for destination in reader.outbox_destinations()? {
            // Items of a destination are ordered by their sequence, so the first one is the oldest.
            if let Some((_, item)) = reader.outbox(&destination, 0, 1)?.pop() {
                let age = self.now.duration_since(item.created_at);
                let name = if destination.name.is_empty() {
                    "the bus".to_owned()
                } else {
                    destination.name.to_string()
                };
                oldest = oldest.max(Some((age, name)));
            }
        }

        Ok(oldest)
    }

    /// Reports the lag of a store behind the stream of this process.
    fn lag(&self, check: &str, reader: &Reader, last_sequence: Option<u64>) -> Option<CheckResult> {
        let last = last_sequence.filter(|_| self.config.bus.kind == BusKind::Embedded)?;
        let checkpoints = match reader.checkpoints() {
            Ok(checkpoints) => checkpoints,
            Err(error) => return Some(unknown(check, "number of unprocessed events", &error)),
        };
        let read = checkpoints
            .into_iter()
            .map(|(_, position)| position.sequence)
            .max()?;
        let behind = last.saturating_sub(read);
        let found = format!("{behind} events are not processed");
        let remedy = "the node receives more than it processes: check upstreams and the disk, or \
            publish less";

        (behind > LAG).then(|| CheckResult::warn(check, found, remedy))
    }

    fn room(&self) -> CheckResult {
        let dir = &self.config.data_dir;
        let free = match free_bytes(dir) {
            Ok(free) => free,
            Err(error) => {
                let found = format!("the free space at {} is unknown: {error}", dir.display());
                let remedy = "check the disk and the permissions of the directory";
                return CheckResult::warn("disk", found, remedy);
            }
        };
        let found = format!("{} MiB are free at {}", free >> 20, dir.display());

        if free < LOW_SPACE_BYTES {
            CheckResult::warn(
                "disk",
                found,
                "free disk space: without free space the node rejects new work",
            )
        } else {
            CheckResult::ok("disk", found)
        }
    }
}

/// Reports a number that a store cannot tell, because it cannot be read.
fn unknown(check: &str, number: &str, error: &orlog_store::Error) -> CheckResult {
    // A store is closed for a moment while its shard stops, moves or restarts: it is not damaged.
    if matches!(error, orlog_store::Error::Closed) {
        let found = format!("the {number} is unknown: the shard stops, moves or restarts");
        let remedy = "run the command again; if the shard stays closed, see the log of the node";
        return CheckResult::warn(check, found, remedy);
    }

    let found = format!("the {number} is unknown: {error}");
    let remedy = "check the disk; if the store is damaged, restore a backup or rebuild its tables \
        (docs/backup.md)";
    CheckResult::error(check, found, remedy)
}

/// Reports the instances of all tenants that are stuck or wait for a result that became a dead
/// letter, with one example each.
fn attention(check: &str, reader: &Reader) -> Vec<CheckResult> {
    let found = match reader.attention(COUNTED) {
        Ok(found) => found,
        Err(error) => return vec![unknown(check, "number of stuck instances", &error)],
    };
    // The read stops at this number.
    let more = if found.len() == COUNTED {
        "at least "
    } else {
        ""
    };
    let finding = |kind: &str, message: &str, remedy: &str| {
        let mut instances = found
            .iter()
            .filter(|(_, attention)| attention.status.attention() == Some(kind))
            .peekable();
        let (first, attention) = *instances.peek()?;
        let since = attention.since;
        let count = instances.count();
        let found = format!("{more}{count} instances {message}, such as {first} since {since}");

        Some(CheckResult::error(check, found, remedy))
    };

    let stuck = finding(
        "stuck",
        "are stuck",
        "`orlog saga show` prints the reason; then `orlog saga retry`, `skip` or `force-complete`",
    );
    let unapplied = finding(
        "unapplied_result",
        "wait for a result that became a dead letter",
        "`orlog dlq list` prints the reason; correct it, then use `orlog dlq redrive` \
         (docs/runbooks/unapplied-result.md)",
    );

    stuck.into_iter().chain(unapplied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckStatus;

    #[test]
    fn closed_store_is_not_reported_as_damaged() {
        let closed = unknown("shard 0", "number of events", &orlog_store::Error::Closed);
        assert_eq!(closed.status, CheckStatus::Warn);
        assert!(!closed.remedy.contains("damaged"), "{closed:?}");

        let other = orlog_store::Error::Unavailable {
            reason: "no response".to_owned(),
        };
        let failed = unknown("shard 0", "number of events", &other);
        assert_eq!(failed.status, CheckStatus::Error);
        assert!(failed.remedy.contains("damaged"), "{failed:?}");
    }
}
