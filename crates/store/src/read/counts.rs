//! Counts of instances, and the longest unchanged instances. Both are read from rows that are kept
//! up to date, so their cost does not depend on the number of instances.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Instance, InstanceKey, SagaName, Status, TenantId, Timestamp};

use crate::counts::{COUNTED, CountKey, of_tenant, read_count};
use crate::encoding::index_keys::StatusClass;
use crate::encoding::range::KeyRange;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::attention::Attention;
use crate::read::reader::Reader;
use crate::table::Table;

/// Maximum number of unchanged instances that are listed.
const NAMED: usize = 20;

/// Maximum number of scanned rows of instances that require an operator.
const MAX_ATTENTION: usize = 10_000;

/// Instance counts of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    /// Counts.
    pub groups: BTreeMap<CountKey, u64>,
    /// Stuck instances, longest first; at most twenty.
    pub stuck: Vec<UnchangedInstance>,
    /// Instances with a result that could not be applied, longest first; at most twenty.
    pub unapplied: Vec<UnchangedInstance>,
    /// Running or compensating instances with the longest time since a change; at most twenty.
    pub longest_unchanged: Vec<UnchangedInstance>,
    /// Number of instances.
    pub total: u64,
    /// Whether the counts are exact; after an unreadable instance was deleted they are not, until
    /// the store is opened again.
    pub complete: bool,
}

/// Instance that has not changed for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedInstance {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Status.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
    /// Time of the last change.
    pub since: Timestamp,
}

impl InstanceCounts {
    /// Adds the counts of another store.
    pub fn add(&mut self, other: Self) {
        for (group, count) in other.groups {
            *self.groups.entry(group).or_default() += count;
        }

        self.stuck.extend(other.stuck);
        self.unapplied.extend(other.unapplied);
        self.longest_unchanged.extend(other.longest_unchanged);
        self.total += other.total;
        self.complete &= other.complete;
        self.truncate(NAMED);
    }

    fn truncate(&mut self, named: usize) {
        longest(&mut self.stuck, named);
        longest(&mut self.unapplied, named);
        longest(&mut self.longest_unchanged, named);
    }
}

impl UnchangedInstance {
    fn of(key: InstanceKey, instance: &Instance) -> Self {
        Self {
            key,
            status: instance.status,
            paused: instance.paused,
            since: instance.updated_at,
        }
    }
}

fn longest(unchanged: &mut Vec<UnchangedInstance>, named: usize) {
    unchanged.sort_by(|a, b| (a.since, &a.key).cmp(&(b.since, &b.key)));
    unchanged.truncate(named);
}

/// Number of instances pinned to each definition, by hash. Definitions without instances are not
/// listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinCounts {
    /// Counts by definition hash.
    pub by_hash: BTreeMap<[u8; 16], PinCount>,
    /// Whether the counts are exact, see [`InstanceCounts::complete`].
    pub complete: bool,
}

/// Number of instances pinned to one definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PinCount {
    /// Instances that have not ended, including stuck and paused ones.
    pub live: u64,
    /// Instances that have ended and are still stored.
    pub ended: u64,
}

impl PinCounts {
    /// Returns the counts of one definition.
    #[must_use]
    pub fn of(&self, hash: &[u8; 16]) -> PinCount {
        self.by_hash.get(hash).copied().unwrap_or_default()
    }

    /// Adds the counts of another store.
    pub fn add(&mut self, other: &Self) {
        for (hash, pinned) in &other.by_hash {
            let sum = self.by_hash.entry(*hash).or_default();
            sum.live += pinned.live;
            sum.ended += pinned.ended;
        }
        self.complete &= other.complete;
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the numbers of instances of a tenant by saga and status.
    pub fn count(&self, tenant: &TenantId) -> Result<BTreeMap<(SagaName, Status), u64>, Error> {
        let mut counts = BTreeMap::new();
        for (_, group, count) in self.counts(Some(tenant))? {
            *counts.entry((group.saga, group.status)).or_default() += count;
        }
        Ok(counts)
    }

    /// Returns the numbers of instances of a tenant, and its longest unchanged instances.
    pub fn count_instances(&self, tenant: &TenantId) -> Result<InstanceCounts, Error> {
        let mut counts = InstanceCounts {
            complete: self.has_counts()?,
            ..InstanceCounts::default()
        };

        let mut active = BTreeSet::new();
        for (_, group, count) in self.counts(Some(tenant))? {
            counts.total += count;
            // Only sagas with active instances can have stuck or unchanged ones.
            if !group.status.is_final() {
                active.insert(group.saga.clone());
            }
            counts.groups.insert(group, count);
        }

        // The rows of the index start with the tenant and the saga, so each saga is a range of its
        // own.
        for saga in &active {
            let longest = |class| {
                let found = self.longest_unchanged(tenant, saga, class, NAMED)?;
                Ok::<_, Error>(
                    found
                        .into_iter()
                        .map(|(key, instance)| UnchangedInstance::of(key, &instance)),
                )
            };
            counts.stuck.extend(longest(StatusClass::Stuck)?);
            counts.longest_unchanged.extend(longest(StatusClass::Live)?);
        }

        counts.unapplied = self.unapplied_results(tenant)?;
        counts.truncate(NAMED);
        Ok(counts)
    }

    /// Returns the numbers of instances by definition, of one tenant or of all.
    pub fn pin_counts(&self, tenant: Option<&TenantId>) -> Result<PinCounts, Error> {
        let mut pins = PinCounts {
            complete: self.has_counts()?,
            ..PinCounts::default()
        };

        for (_, group, count) in self.counts(tenant)? {
            let pinned = pins.by_hash.entry(group.hash).or_default();
            *(if group.status.is_final() {
                &mut pinned.ended
            } else {
                &mut pinned.live
            }) += count;
        }
        Ok(pins)
    }

    /// Returns the instances of a tenant with a result that could not be applied.
    fn unapplied_results(&self, tenant: &TenantId) -> Result<Vec<UnchangedInstance>, Error> {
        // The list contains only instances that require an operator, so it is usually short.
        let found = self.attention(MAX_ATTENTION)?.into_iter();
        let found =
            found.filter(|(key, row)| key.tenant == *tenant && row.status.has_unapplied_result);
        let unapplied = found.map(|(key, Attention { status, since })| UnchangedInstance {
            key,
            status: status.status,
            paused: status.paused,
            since,
        });
        Ok(unapplied.collect())
    }

    fn has_counts(&self) -> Result<bool, Error> {
        self.shared
            .read(|tables| tables.contains(Table::Meta, COUNTED))
    }

    fn counts(&self, tenant: Option<&TenantId>) -> Result<Vec<(TenantId, CountKey, u64)>, Error> {
        let range = tenant.map_or_else(KeyRange::all, of_tenant);
        self.scan_rows(Table::Count, &range, usize::MAX, |row, value| {
            let (tenant, group) = read_count(row)?;
            Ok((tenant, group, decode(Table::Count, value)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit};

    use super::*;
    use crate::samples::{at, instance, key, small};

    fn changed(correlation: &str, status: Status, paused: bool, when: i64) -> Change {
        let mut snapshot = instance(1, status);
        (snapshot.paused, snapshot.updated_at) = (paused, at(when));
        let empty = Commit::empty(key("acme", correlation), at(1));
        Change::Apply(Box::new(Commit {
            instance: Some(std::sync::Arc::new(snapshot)),
            ..empty
        }))
    }

    #[test]
    fn instance_counts_include_the_longest_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let running = |n: i64| changed(&format!("r-{n}"), Status::Running, n == 7, 10_000 - n);
        writer
            .commit(&(0..1_500).map(running).collect::<Vec<_>>(), at(1))
            .unwrap();
        writer.flush().unwrap();
        let stuck = |n: i64| changed(&format!("s-{n}"), Status::Stuck, false, n);
        writer
            .commit(&(0..3).map(stuck).collect::<Vec<_>>(), at(2))
            .unwrap();
        writer
            .commit(&[changed("done", Status::Completed, false, 0)], at(3))
            .unwrap();

        let acme = TenantId::new("acme").unwrap();
        let counts = reader.count_instances(&acme).unwrap();
        assert_eq!((counts.total, counts.complete), (1_504, true));
        let count = |status, paused| -> u64 {
            let of =
                |(group, _): &(&CountKey, &u64)| group.status == status && group.paused == paused;
            counts
                .groups
                .iter()
                .filter(of)
                .map(|(_, count)| count)
                .sum()
        };
        assert_eq!(
            (count(Status::Running, false), count(Status::Running, true)),
            (1_499, 1)
        );
        assert_eq!(
            (count(Status::Stuck, false), count(Status::Completed, false)),
            (3, 1)
        );
        let names = |unchanged: &[UnchangedInstance]| -> Vec<_> {
            unchanged
                .iter()
                .map(|unchanged| unchanged.key.correlation.to_string())
                .collect()
        };
        assert_eq!(names(&counts.stuck), ["s-0", "s-1", "s-2"]);
        assert_eq!(names(&counts.longest_unchanged)[..2], ["r-1499", "r-1498"]);
        assert_eq!(counts.longest_unchanged.len(), NAMED);

        let mut sum = counts.clone();
        sum.add(InstanceCounts {
            complete: false,
            ..counts
        });
        assert_eq!(
            (sum.total, sum.complete, sum.longest_unchanged.len()),
            (3_008, false, NAMED)
        );
        assert_eq!(
            reader
                .count_instances(&TenantId::new("zeta").unwrap())
                .unwrap()
                .total,
            0
        );
    }

    fn pinned(correlation: &str, hash: u8, status: Status) -> Change {
        let mut snapshot = instance(1, status);
        snapshot.definition.hash = [hash; 16];
        let empty = Commit::empty(key("acme", correlation), at(1));
        Change::Apply(Box::new(Commit {
            instance: Some(std::sync::Arc::new(snapshot)),
            ..empty
        }))
    }

    #[test]
    fn instances_of_one_tenant_are_counted_without_those_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let of_other = |change| match change {
            Change::Apply(mut commit) => {
                commit.key = key("other", commit.key.correlation.as_str());
                Change::Apply(commit)
            }
            other => other,
        };
        let others = (0..600).map(|n| of_other(pinned(&format!("a-{n}"), 1, Status::Running)));
        let group: Vec<_> = others.chain([pinned("own", 1, Status::Running)]).collect();
        writer.commit(&group, at(1)).unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let counted = reader.pin_counts(Some(&tenant)).unwrap();
        assert_eq!(
            (counted.of(&[1; 16]), counted.complete),
            (PinCount { live: 1, ended: 0 }, true)
        );
        assert_eq!(reader.pin_counts(None).unwrap().of(&[1; 16]).live, 601);
    }

    #[test]
    fn instances_are_counted_by_definition_on_disk_and_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let group: Vec<_> = (0..600)
            .map(|n| pinned(&format!("a-{n}"), 1, Status::Running))
            .collect();
        writer.commit(&group, at(1)).unwrap();
        writer.flush().unwrap();
        let ended = [
            Status::Completed,
            Status::Failed,
            Status::Cancelled,
            Status::Stuck,
        ];
        let group: Vec<_> = ended
            .iter()
            .map(|status| pinned(&format!("b-{status}"), 2, *status))
            .collect();
        writer.commit(&group, at(2)).unwrap();
        let Change::Apply(mut migrated) = pinned("a-0", 2, Status::Running) else {
            unreachable!()
        };
        migrated.before = reader
            .instance(&migrated.key)
            .unwrap()
            .map(std::sync::Arc::new);
        writer.commit(&[Change::Apply(migrated)], at(3)).unwrap();

        let mut pins = reader.pin_counts(None).unwrap();
        assert!(pins.complete);
        assert_eq!(
            pins.of(&[1; 16]),
            PinCount {
                live: 599,
                ended: 0
            }
        );
        assert_eq!(pins.of(&[2; 16]), PinCount { live: 2, ended: 3 });
        assert_eq!(pins.of(&[3; 16]), PinCount::default());
        pins.add(&PinCounts {
            complete: false,
            ..pins.clone()
        });
        assert_eq!((pins.complete, pins.of(&[1; 16]).live), (false, 1198));
    }
}
