//! Numbers of instances by saga, definition and status: rows of the table `count`, which each group
//! commit updates once for each number that changes.

use std::ops::ControlFlow;
use std::time::Instant;

use bytes::Bytes;
use orlog_model::{DefinitionRef, Instance, InstanceKey, SagaName, Status, TenantId};

use crate::encoding::header::SnapshotHeader;
use crate::encoding::index_keys::status_number;
use crate::encoding::keys::read_instance;
use crate::encoding::range::KeyRange;
use crate::encoding::record::{KeyPresence, RecordWriter};
use crate::encoding::tuple::{Key, KeyReader, KeyWriter};
use crate::encoding::value::{EMPTY, decode, encode, readable};
use crate::error::Error;
use crate::memtable::Memtable;
use crate::merged::MergedTables;
use crate::replication::follower::RecordPosition;
use crate::table::Table;

/// Key of a row of the table `meta` that exists if the counts are complete.
pub(crate) const COUNTED: &[u8] = b"counted";

/// Common properties of the instances of one count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// Name of the saga.
    pub saga: SagaName,
    /// Version number, assigned by the author.
    pub version: u32,
    /// Hash of the definition.
    pub hash: [u8; 16],
    /// Status.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
}

/// Changes of counts, sorted by key. The writer reuses the memory.
#[derive(Debug, Default)]
pub(crate) struct CountChanges(Vec<(Key, i64)>);

impl CountChanges {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes that an instance changed, started (`before` is `None`) or was deleted (`after` is
    /// `None`).
    pub(crate) fn note(
        &mut self,
        key: &InstanceKey,
        before: Option<&Instance>,
        after: Option<&Instance>,
    ) {
        let group =
            |instance: &Instance| (instance.status, instance.paused, instance.definition.hash);
        // Most transitions change neither the status nor the definition, and cost nothing here.
        if before.map(group) == after.map(group) {
            return;
        }

        for (instance, by) in [(before, -1), (after, 1)] {
            let Some(instance) = instance else { continue };
            self.add(
                count_key(key, &instance.definition, instance.status, instance.paused),
                by,
            );
        }
    }

    fn add(&mut self, key: Key, by: i64) {
        match self.0.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => self.0[at].1 += by,
            Err(at) => self.0.insert(at, (key, by)),
        }
    }

    /// Writes the new counts.
    pub(crate) fn write(
        &self,
        tables: &MergedTables,
        record: &mut RecordWriter,
    ) -> Result<(), Error> {
        // Instances that change there and back within one group leave the count as it was.
        for (key, change) in self.0.iter().filter(|(_, change)| *change != 0) {
            let old = tables.try_get(Table::Count, key, |value| {
                decode::<u64>(Table::Count, value)
            });
            let Some(old) = readable(old)? else {
                // A damaged count must not reject the commits of its instances: the next opening
                // counts them again.
                record.delete(Table::Count, key)?;
                record.delete(Table::Meta, COUNTED)?;
                continue;
            };

            // Counts can be inexact after an unreadable instance was deleted or replaced. They must
            // not wrap.
            match old.unwrap_or_default().saturating_add_signed(*change) {
                0 => record.delete(Table::Count, key)?,
                count => put(record, key, count)?,
            }
        }
        Ok(())
    }
}

fn put(record: &mut RecordWriter, key: &[u8], count: u64) -> Result<(), Error> {
    record.put(KeyPresence::Unknown, Table::Count, key, |buffer| {
        encode(buffer, &count);
    })
}

fn count_key(key: &InstanceKey, definition: &DefinitionRef, status: Status, paused: bool) -> Key {
    KeyWriter::new()
        .text(key.tenant.as_str())
        .text(key.saga.as_str())
        .fixed(&definition.version.to_be_bytes())
        .fixed(&definition.hash)
        .u8(status_number(status))
        .u8(u8::from(paused))
        .finish()
}

/// Returns the range of the counts of a tenant.
pub(crate) fn of_tenant(tenant: &TenantId) -> KeyRange {
    KeyRange::of_prefix(KeyWriter::new().text(tenant.as_str()).finish())
}

/// Decodes the key of a count.
pub(crate) fn read_count(row: &[u8]) -> Result<(TenantId, CountKey), Error> {
    let mut fields = KeyReader::of(row);
    let tenant = fields.text()?;
    let saga = fields.text()?;
    let version = u32::from_be_bytes(fields.fixed()?);
    let hash = fields.fixed()?;
    let number = fields.u8()?;
    let paused = fields.u8()? == 1;

    let invalid = |error: orlog_model::IdError| fields.corrupt(error.to_string());
    let tenant = TenantId::new(&*tenant).map_err(invalid)?;
    let saga = SagaName::new(&*saga).map_err(invalid)?;
    let status = Status::ALL
        .into_iter()
        .find(|status| status_number(*status) == number);
    let status = status.ok_or_else(|| fields.corrupt(format!("{number} is not a status")))?;

    Ok((
        tenant,
        CountKey {
            saga,
            version,
            hash,
            status,
            paused,
        },
    ))
}

impl MergedTables {
    /// Counts all instances, unless the stored counts are complete: after an upgrade, and after an
    /// unreadable instance was deleted.
    pub(crate) fn count_if_needed(&mut self) -> Result<(), Error> {
        if self.get(Table::Meta, COUNTED, |_| ())?.is_some() {
            return Ok(());
        }

        // The counts are written below the memtables. A memtable with older counts would hide them.
        self.flush()?;
        let mut changes = CountChanges::default();
        self.scan(Table::Instance, &[], None, &mut |row, value| {
            let header: Option<SnapshotHeader<'_>> = readable(decode(Table::Instance, value))?;
            if let Some(header) = header {
                let (_, key) = read_instance(&mut KeyReader::of(row))?;
                changes.add(
                    count_key(&key, &header.definition, header.status, header.paused),
                    1,
                );
            }
            Ok(ControlFlow::Continue(()))
        })?;

        let mut record = RecordWriter::default();
        record.clear();
        // A count whose instances are gone is not written below, so all old counts are deleted
        // first.
        self.scan_keys(Table::Count, &[], None, &mut |row, _| {
            record.delete(Table::Count, row)?;
            Ok(ControlFlow::Continue(()))
        })?;

        for (key, count) in &changes.0 {
            put(&mut record, key, count.unsigned_abs())?;
        }

        let store_state = *self.state();
        let last_entry = self.active().last_entry();
        let record = Bytes::copy_from_slice(record.finish(&store_state));
        let mut counts = Memtable::new(store_state, last_entry);
        counts.apply(
            RecordPosition {
                position: store_state.position,
                last_entry,
            },
            &record,
            Instant::now(),
        )?;

        // The mark is in the same transaction: after a crash, the next opening counts again.
        self.disk()
            .tables()
            .write(Some(&counts), &Vec::new(), &[(COUNTED, EMPTY)])
    }
}
