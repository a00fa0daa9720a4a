//! Diagnostics of a running node, for `orlog doctor`.

use std::time::Duration;

use orlog_actors::Runtime;
use orlog_effect::Catalog;
use orlog_effect::limits::breaker;
use orlog_model::{Status, Timestamp};
use orlog_store::Reader;

use crate::backup::free_bytes;
use crate::config::{BusKind, Config};
use crate::doctor::check::CheckResult;

/// Age in seconds after which waiting work is reported.
const STALE_WORK_SECONDS: u64 = 300;
/// Sync duration above which a disk is slow.
const SLOW_SYNC: Duration = Duration::from_millis(100);
/// Free disk space in bytes below which a warning is reported; the node soon rejects new work.
const LOW_SPACE_BYTES: u64 = 1 << 30;
/// Maximum number of instances that are counted.
const COUNTED: usize = 1000;
/// Number of unread messages above which a warning is reported.
const LAG: u64 = 100_000;

/// Components of a running node that are checked.
pub(crate) struct NodeParts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) runtime: &'a Runtime,
    pub(crate) catalog: &'a Catalog,
    pub(crate) now: Timestamp,
}

impl NodeParts<'_> {
    /// Checks the components. Blocks.
    pub(crate) fn diagnose(&self, last_sequence: Option<u64>) -> Vec<CheckResult> {
        let mut findings = vec![self.state()];
        findings.extend(self.lost_streams());
        findings.extend(self.breakers());
        for (shard, reader) in self.runtime.numbered_readers() {
            findings.extend(self.shard(shard, &reader, last_sequence));
        }
        findings.extend(self.room());
        findings
    }

    fn state(&self) -> CheckResult {
        let health = self.runtime.health();
        let failed = [
            (!health.is_running, "a shard is restarting; see the log for the reason"),
            (!health.has_capacity, "a store has no free space; free disk space"),
            (!health.accepting, "the node drains and rejects new work; restart it after it has stopped"),
        ];
        match failed.iter().find(|(failed, _)| *failed) {
            Some((_, message)) => CheckResult::error("node", self.config.node_name(), *message),
            None => CheckResult::ok("node", format!("{} accepts work", self.config.node_name())),
        }
    }

    fn lost_streams(&self) -> Vec<CheckResult> {
        let finding = |(stream, reason): (String, String)| {
            let found = format!("OR0061: stream {stream} is not read: {reason}");
            let remedy = "restore the stream, or restart the node with --accept-data-loss";
            CheckResult::error("streams", found, remedy)
        };
        self.runtime.lost_streams().into_iter().map(finding).collect()
    }

    fn breakers(&self) -> Vec<CheckResult> {
        let conditions = self.catalog.upstream_statuses();
        let open: Vec<_> = conditions
            .iter()
            .filter(|condition| condition.breaker.is_some_and(|state| state != breaker::BreakerState::Closed))
            .collect();
        if open.is_empty() {
            return vec![CheckResult::ok(
                "breakers",
                format!("circuit breakers of all {} upstreams are closed", conditions.len()),
            )];
        }
        let finding = |condition: &&orlog_effect::UpstreamStatus| {
            let state = condition.breaker.map_or("", breaker::BreakerState::as_str);
            let found = format!("circuit breaker of {} is {state}: too many failures", condition.upstream);
            let remedy = "check the upstream; its effects wait and continue automatically";
            CheckResult::error("breakers", found, remedy)
        };
        open.iter().map(finding).collect()
    }

    fn shard(&self, shard: u16, reader: &Reader, last_sequence: Option<u64>) -> Vec<CheckResult> {
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
        if let Some(reason) = stats.replication.as_ref().and_then(|log| log.unavailable.as_ref()) {
            let found = format!("replicated log on NATS unavailable, commits are blocked: {reason}");
            findings.push(CheckResult::error(&check, found, "check the NATS servers"));
        }
        let sync = stats
            .fsync
            .sum
            .checked_div(u32::try_from(stats.fsync.count()).unwrap_or(u32::MAX))
            .unwrap_or_default();
        if sync > SLOW_SYNC {
            let found = format!("a disk sync takes {sync:?}");
            findings.push(CheckResult::warn(
                &check,
                found,
                "find other users of the disk, or use a faster one",
            ));
        }
        if let Some(found) = stuck(reader) {
            let remedy =
                "`orlog saga show` prints the reason; then `orlog saga retry`, `skip` or `force-complete`";
            findings.push(CheckResult::error(&check, found, remedy));
        }
        match self.oldest(reader) {
            Ok(Some((age, destination))) if age > STALE_WORK_SECONDS => {
                let found = format!("work for {destination} has waited for {age} s");
                findings.push(CheckResult::warn(
                    &check,
                    found,
                    "check the upstream: `orlog inspect outbox` lists the pending work",
                ));
            }
            Err(error) => {
                findings.push(CheckResult::error(&check, error.to_string(), "see the log of the node"));
            }
            Ok(_) => {}
        }
        findings.extend(self.lag(&check, reader, last_sequence));
        if findings.is_empty() {
            let depth = reader.outbox_depth().unwrap_or_default();
            let found = format!("{} commits, {depth} work items", stats.position);
            findings.push(CheckResult::ok(&check, found));
        }
        findings
    }

    /// Returns the age in seconds and the destination of the oldest work item.
    fn oldest(&self, reader: &Reader) -> Result<Option<(u64, String)>, orlog_store::Error> {
        let mut oldest = None;
        for destination in reader.outbox_destinations()? {
            if let Some((_, item)) = reader.outbox(&destination, 0, 1)?.pop() {
                let age = self.now.duration_since(item.created_at).as_secs();
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
        let read = reader.checkpoints().ok()?.into_iter().map(|(_, position)| position.sequence).max()?;
        let behind = last.saturating_sub(read);
        let found = format!("{behind} events are not processed");
        let remedy =
            "the node receives more than it processes: check upstreams and the disk, or publish less";
        (behind > LAG).then(|| CheckResult::warn(check, found, remedy))
    }

    fn room(&self) -> Option<CheckResult> {
        let free = free_bytes(&self.config.data_dir).ok()?;
        let found = format!("{} MiB are free at {}", free >> 20, self.config.data_dir.display());
        Some(if free < LOW_SPACE_BYTES {
            CheckResult::warn("disk", found, "free disk space: without free space the node rejects new work")
        } else {
            CheckResult::ok("disk", found)
        })
    }
}

/// Returns the number of stuck instances of all tenants, with one example.
fn stuck(reader: &Reader) -> Option<String> {
    let found = reader.attention(COUNTED).ok()?;
    let stuck: Vec<_> =
        found.iter().filter(|(_, attention)| attention.status.status == Status::Stuck).collect();
    let (first, attention) = stuck.first()?;
    let more = if found.len() == COUNTED { "at least " } else { "" };
    Some(format!("{more}{} instances are stuck, such as {first} since {}", stuck.len(), attention.since))
}
