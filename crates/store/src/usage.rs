//! Size of the stored rows of each tenant, by kind: rows of the table `meta`.
//!
//! A flush compares the rows of its memtable with those that they replace, and writes the new sizes
//! in its transaction. So a commit costs nothing, and the sizes lack what was committed since the
//! last flush: at most the memtables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use orlog_model::TenantId;
use serde::{Deserialize, Serialize};

use crate::encoding::tuple::KeyReader;
use crate::encoding::value::{decode, encode, readable};
use crate::error::Error;
use crate::memtable::{Memtable, MemtableRow};
use crate::table::Table;
use crate::tables::{RowAccess, ScanRange, Tables};

/// Key of the position of the tables whose rows are counted. After a release that does not count,
/// it differs from that of the tables.
const COUNTED_KEY: &[u8] = b"usage";
/// Prefix of the keys of tenants.
const PREFIX: &[u8] = b"usage/";
/// First key after those of tenants.
const END: &[u8] = b"usage0";

/// Size of the stored rows of a tenant, in bytes: keys and values, without the overhead of the
/// tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUsage {
    /// Dead letters.
    pub dead_letters: u64,
    /// Inputs that are stored and not applied yet: early events, and inputs of paused or busy
    /// instances.
    pub buffered_inputs: u64,
    /// Instances and their history.
    pub instances: u64,
    /// Lines of jobs.
    pub job_lines: u64,
}

/// Kind of counted rows.
#[derive(Debug, Clone, Copy)]
enum UsageKind {
    DeadLetters,
    BufferedInputs,
    Instances,
    JobLines,
}

/// Tables whose rows are counted. The keys of each start with a slot and the tenant.
const COUNTED: [(Table, UsageKind); 5] = [
    (Table::Instance, UsageKind::Instances),
    (Table::History, UsageKind::Instances),
    (Table::DeadLetter, UsageKind::DeadLetters),
    (Table::BufferedInput, UsageKind::BufferedInputs),
    (Table::JobLog, UsageKind::JobLines),
];

/// Sizes of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Usages(BTreeMap<TenantId, TenantUsage>);

/// Rows of the table `meta`, in key order.
pub(crate) type UsageRows = Vec<(Vec<u8>, Vec<u8>)>;

impl TenantUsage {
    /// Returns the size of each kind of rows, with its name.
    #[must_use]
    pub fn kinds(&self) -> [(&'static str, u64); 4] {
        [
            ("dead_letters", self.dead_letters),
            ("buffered_inputs", self.buffered_inputs),
            ("instances", self.instances),
            ("job_lines", self.job_lines),
        ]
    }

    /// Returns the size of all rows.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Adds the sizes in another store.
    pub fn add(&mut self, other: &Self) {
        self.dead_letters += other.dead_letters;
        self.buffered_inputs += other.buffered_inputs;
        self.instances += other.instances;
        self.job_lines += other.job_lines;
    }

    fn of(&mut self, kind: UsageKind) -> &mut u64 {
        match kind {
            UsageKind::DeadLetters => &mut self.dead_letters,
            UsageKind::BufferedInputs => &mut self.buffered_inputs,
            UsageKind::Instances => &mut self.instances,
            UsageKind::JobLines => &mut self.job_lines,
        }
    }
}

impl Usages {
    /// Reads the sizes of tables at this position, or counts all rows of tables of an earlier
    /// release.
    pub(crate) fn open(tables: &dyn Tables, position: u64) -> Result<Self, Error> {
        let counted = tables.row(Table::Meta, COUNTED_KEY, |value| {
            decode::<u64>(Table::Meta, value)
        })?;
        // The store is new, or an earlier release, which does not count, has flushed since.
        if counted.transpose()? != Some(position) {
            return Self::count_all(tables);
        }

        let mut usages = Self::default();
        let _flow = tables.scan(
            ScanRange {
                table: Table::Meta,
                access: RowAccess::Values,
                from: PREFIX,
                end: Some(END),
            },
            &mut |key, value| {
                let name = std::str::from_utf8(&key[PREFIX.len()..]).unwrap_or_default();
                if let Ok(tenant) = TenantId::new(name) {
                    usages.0.insert(tenant, decode(Table::Meta, value)?);
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(usages)
    }

    fn count_all(tables: &dyn Tables) -> Result<Self, Error> {
        let mut usages = Self::default();
        for (table, kind) in COUNTED {
            let all = ScanRange::of_table(table, RowAccess::Values);
            let _flow = tables.scan(all, &mut |key, value| {
                *usages.of(key, kind)? += row_bytes(key, value);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(usages)
    }

    /// Returns the sizes of a tenant.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> TenantUsage {
        self.0.get(tenant).copied().unwrap_or_default()
    }

    /// Returns the sizes of all tenants.
    pub(crate) fn all(&self) -> BTreeMap<TenantId, TenantUsage> {
        self.0.clone()
    }

    fn of(&mut self, key: &[u8], kind: UsageKind) -> Result<&mut u64, Error> {
        Ok(self.0.entry(tenant_of(key)?).or_default().of(kind))
    }

    /// Returns the sizes of the tenants that the rows of a memtable change, compared with the
    /// tables below it.
    pub(crate) fn changed(&self, tables: &dyn Tables, memtable: &Memtable) -> Result<Self, Error> {
        let mut changed = Self::default();
        for (table, kind) in COUNTED {
            for row in memtable.rows_of(table) {
                let MemtableRow { key, value, is_new } = row;
                // A damaged row has an unknown size.
                let stored = if is_new {
                    None
                } else {
                    readable(tables.row(table, key, |value| row_bytes(key, value)))?.flatten()
                };

                // A flush writes whole sizes, so it starts from the known one.
                let tenant = tenant_of(key)?;
                let known = self.tenant(&tenant);
                let bytes = changed.0.entry(tenant).or_insert(known).of(kind);
                *bytes += value.map_or(0, |value| row_bytes(key, value));
                // A row that was damaged when all rows were counted is not part of the size.
                *bytes = bytes.saturating_sub(stored.unwrap_or_default());
            }
        }
        Ok(changed)
    }

    /// Returns the rows of the table `meta` for these sizes, which are those of the tables at this
    /// position.
    pub(crate) fn rows(&self, position: u64) -> UsageRows {
        let mut marker = Vec::new();
        encode(&mut marker, &position);
        let mut rows = vec![(COUNTED_KEY.to_vec(), marker)];

        for (tenant, usage) in &self.0 {
            let mut value = Vec::new();
            encode(&mut value, usage);
            rows.push(([PREFIX, tenant.as_str().as_bytes()].concat(), value));
        }
        rows
    }

    /// Replaces the sizes of the tenants in `changed`.
    pub(crate) fn replace(&mut self, changed: Self) {
        self.0.extend(changed.0);
    }
}

fn row_bytes(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// Returns the tenant in the key of a counted row.
fn tenant_of(key: &[u8]) -> Result<TenantId, Error> {
    let mut fields = KeyReader::of(key);
    let _slot = fields.u16()?;
    let tenant = fields.text()?;
    TenantId::new(&*tenant).map_err(|error| fields.corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orlog_model::{
        Change, Commit, DeadLetter, DeadLetterOriginal, DeadLetterReason, Instance, JobLogAppend,
        JobLogChunk, LogLine, Name, Status,
    };
    use uuid::Uuid;

    use super::*;
    use crate::samples::{at, instance, key, small};
    use crate::{Reader, Writer};

    /// Size of the large part of each row.
    const LARGE: usize = 10_000;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn letter(number: u128) -> DeadLetter {
        DeadLetter {
            id: Uuid::from_u128(number),
            tenant: tenant("acme"),
            instance: None,
            reason: DeadLetterReason::Undecodable,
            message: "no event".to_owned(),
            original: DeadLetterOriginal::Message {
                subject: "s".to_owned(),
                headers: vec![],
                payload: vec![b'x'; LARGE],
            },
            attempts: 1,
            node: "node-1".to_owned(),
            at: at(1),
        }
    }

    fn large(version: u64, bytes: usize) -> Change {
        let snapshot = Instance {
            state: vec![b'x'; bytes],
            ..instance(version, Status::Running)
        };
        Change::Apply(Box::new(Commit {
            instance: Some(Arc::new(snapshot)),
            ..Commit::empty(key("acme", "o-1"), at(1))
        }))
    }

    fn lines() -> Change {
        let line = LogLine {
            at: at(1),
            text: "x".repeat(LARGE),
        };
        Change::AppendJobLog(Box::new(JobLogAppend {
            instance: key("acme", "o-1"),
            chunk: JobLogChunk {
                job: Name::new("cut").unwrap(),
                lines: vec![line],
            },
            max_lines: 100,
        }))
    }

    fn commit(writer: &mut Writer, change: Change) {
        writer.commit(&[change], at(1)).unwrap();
        writer.flush().unwrap();
    }

    #[track_caller]
    fn assert_large(bytes: u64, count: usize) {
        let expected = (count * LARGE) as u64;
        assert!(
            (expected..expected + 1000).contains(&bytes),
            "{bytes} bytes for {count} large rows"
        );
    }

    fn usage(reader: &Reader) -> TenantUsage {
        reader.usage(&tenant("acme")).unwrap()
    }

    #[test]
    fn sizes_of_a_tenant_follow_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        assert_eq!(usage(&reader), TenantUsage::default());

        for number in 1..=3 {
            commit(&mut writer, Change::PutDeadLetter(Box::new(letter(number))));
        }
        commit(&mut writer, Change::PutDeadLetter(Box::new(letter(3))));
        assert_large(usage(&reader).dead_letters, 3);
        commit(
            &mut writer,
            Change::DropDeadLetter {
                tenant: tenant("acme"),
                id: letter(2).id,
            },
        );
        assert_large(usage(&reader).dead_letters, 2);

        commit(&mut writer, large(1, 2 * LARGE));
        assert_large(usage(&reader).instances, 2);
        commit(&mut writer, large(2, LARGE));
        assert_large(usage(&reader).instances, 1);
        commit(&mut writer, lines());
        assert_large(usage(&reader).job_lines, 1);
        assert_eq!(
            reader.usage(&tenant("other")).unwrap(),
            TenantUsage::default()
        );
        let before = usage(&reader);
        let all = BTreeMap::from([(tenant("acme"), before)]);
        assert_eq!(reader.usages().unwrap(), all);

        drop((writer, reader));
        let (_writer, reader) = crate::open(dir.path(), small()).unwrap();
        assert_eq!(usage(&reader), before, "the sizes are stored");
    }

    #[test]
    fn sizes_are_counted_again_after_a_release_that_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        commit(&mut writer, Change::PutDeadLetter(Box::new(letter(1))));
        let disk = reader.shared.read(|tables| Ok(Arc::clone(tables.disk())));
        let stale = Usages::default().rows(0);
        let meta = [(stale[0].0.as_slice(), stale[0].1.as_slice())];
        disk.unwrap()
            .tables()
            .write(None, &Vec::new(), &meta)
            .unwrap();
        drop((writer, reader));

        let (_writer, reader) = crate::open(dir.path(), small()).unwrap();
        assert_large(usage(&reader).dead_letters, 1);
    }
}
