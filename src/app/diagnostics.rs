//! What only a running node knows about how it does: for the doctor.

use std::time::Duration;

use orlog_effect::limits::breaker;
use orlog_model::Status;
use orlog_store::Reader;

use super::App;
use crate::backup::free_bytes;
use crate::config::BusKind;
use crate::doctor::check::Finding;

/// Work that waits longer than this is looked at.
const OLD_SECONDS: u64 = 300;
/// A disk that takes longer to sync is slow.
const SLOW_SYNC: Duration = Duration::from_millis(100);
/// With less, a node takes no new work soon.
const LITTLE_BYTES: u64 = 1 << 30;
/// Instances that are counted.
const COUNTED: usize = 1000;
/// Messages that are not read yet.
const LAG: u64 = 100_000;

impl App {
    /// Looks at the parts of the running node. Blocks.
    #[must_use]
    pub fn examined(&self, last_sequence: Option<u64>) -> Vec<Finding> {
        let mut findings = vec![self.state()];
        findings.extend(self.breakers());
        for (shard, reader) in self.runtime.numbered_readers() {
            findings.extend(self.shard(shard, &reader, last_sequence));
        }
        findings.extend(self.room());
        findings
    }

    fn state(&self) -> Finding {
        let health = self.runtime.health();
        let wrong = [
            (!health.up, "a shard is restarting; the log says why"),
            (!health.room, "there is no room in a store; free disk space"),
            (!health.accepting, "it drains and takes no new work; start it anew when it has ended"),
        ];
        match wrong.iter().find(|(wrong, _)| *wrong) {
            Some((_, what)) => Finding::bad("node", self.config.node_name(), *what),
            None => Finding::ok("node", format!("{} takes work", self.config.node_name())),
        }
    }

    fn breakers(&self) -> Vec<Finding> {
        let conditions = self.catalog.conditions();
        let open: Vec<_> = conditions
            .iter()
            .filter(|condition| condition.breaker.is_some_and(|state| state != breaker::State::Closed))
            .collect();
        if open.is_empty() {
            return vec![Finding::ok("breakers", format!("all of {} upstreams are asked", conditions.len()))];
        }
        let finding = |condition: &&orlog_effect::Condition| {
            let state = condition.breaker.map_or("", breaker::State::as_str);
            let found = format!("{} is not asked ({state}): it failed too often", condition.upstream);
            let remedy = "look whether it answers; its effects wait and go on by themselves";
            Finding::bad("breakers", found, remedy)
        };
        open.iter().map(finding).collect()
    }

    fn shard(&self, shard: u16, reader: &Reader, last_sequence: Option<u64>) -> Vec<Finding> {
        let check = format!("shard {shard}");
        let stats = reader.stats();
        let mut findings = Vec::new();
        if let Some(why) = &stats.fold_failure {
            let found = format!("the tables lag behind the journal: {why}");
            findings.push(Finding::bad(
                &check,
                found,
                "free disk space, or raise store.max_size and start it anew",
            ));
        }
        if let Some(why) = stats.replication.as_ref().and_then(|log| log.unavailable.as_ref()) {
            let found = format!("its log on NATS does not answer, and commits wait: {why}");
            findings.push(Finding::bad(&check, found, "see to the servers of NATS"));
        }
        let sync = stats
            .fsync
            .sum
            .checked_div(u32::try_from(stats.fsync.count()).unwrap_or(u32::MAX))
            .unwrap_or_default();
        if sync > SLOW_SYNC {
            let found = format!("a sync of the disk takes {sync:?}");
            findings.push(Finding::warn(&check, found, "look who else uses the disk, or use a faster one"));
        }
        if let Some(found) = stuck(reader) {
            let remedy = "`orlog saga show` says why; then `orlog saga retry`, `skip` or `force-complete`";
            findings.push(Finding::bad(&check, found, remedy));
        }
        match self.oldest(reader) {
            Ok(Some((age, lane))) if age > OLD_SECONDS => {
                let found = format!("work for {lane} has waited for {age} s");
                findings.push(Finding::warn(
                    &check,
                    found,
                    "look at the upstream: `orlog inspect outbox` shows what waits",
                ));
            }
            Err(error) => {
                findings.push(Finding::bad(&check, error.to_string(), "the log of the node says more"));
            }
            Ok(_) => {}
        }
        findings.extend(self.lag(&check, reader, last_sequence));
        if findings.is_empty() {
            let depth = reader.outbox_depth().unwrap_or_default();
            let found = format!("{} commits, {depth} items of work", stats.position);
            findings.push(Finding::ok(&check, found));
        }
        findings
    }

    /// The oldest item of work, in seconds, and whom it is for.
    fn oldest(&self, reader: &Reader) -> Result<Option<(u64, String)>, orlog_store::Error> {
        let mut oldest = None;
        for lane in reader.lanes()? {
            if let Some((_, item)) = reader.outbox(&lane, 0, 1)?.pop() {
                let age = self.clock.now().since(item.created_at).as_secs();
                let name = if lane.name.is_empty() { "the bus".to_owned() } else { lane.name.to_string() };
                oldest = oldest.max(Some((age, name)));
            }
        }
        Ok(oldest)
    }

    /// How far a store is behind the stream of this process.
    fn lag(&self, check: &str, reader: &Reader, last_sequence: Option<u64>) -> Option<Finding> {
        let last = last_sequence.filter(|_| self.config.bus.kind == BusKind::Embedded)?;
        let read = reader.checkpoints().ok()?.into_iter().map(|(_, position)| position.sequence).max()?;
        let behind = last.saturating_sub(read);
        let found = format!("{behind} events are not done with");
        let remedy = "it reads more than it can take: look at upstreams and the disk, or publish less";
        (behind > LAG).then(|| Finding::warn(check, found, remedy))
    }

    fn room(&self) -> Option<Finding> {
        let free = free_bytes(&self.config.data).ok()?;
        let found = format!("{} MiB are free at {}", free >> 20, self.config.data.display());
        Some(if free < LITTLE_BYTES {
            Finding::warn("disk", found, "free disk space: without room no new work is taken")
        } else {
            Finding::ok("disk", found)
        })
    }
}

/// How many instances wait for a person, of all tenants, and one of them.
fn stuck(reader: &Reader) -> Option<String> {
    let found = reader.attention(COUNTED).ok()?;
    let stuck: Vec<_> =
        found.iter().filter(|(_, attention)| attention.standing.status == Status::Stuck).collect();
    let (first, attention) = stuck.first()?;
    let more = if found.len() == COUNTED { "at least " } else { "" };
    Some(format!("{more}{} instances are stuck, such as {first} since {}", stuck.len(), attention.since))
}
