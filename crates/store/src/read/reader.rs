//! Reads of committed data.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use orlog_journal::DurablePosition;
use orlog_model::{
    CheckpointKey, DeadLetter, DefinitionRef, Deployment, Destination, HistoryEntry, Input, Instance,
    InstanceKey, OutboxKey, SagaName, Status, StreamPosition, TenantId, Timer, Timestamp, WorkItem,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use uuid::Uuid;

use crate::encoding::definition_source::DefinitionSourceBytes;
use crate::encoding::keys::{self, KeyEncoder};
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::{KeyReader, successor};
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::table::Table;

/// Reader of a store, from any thread, concurrent with writes. Cheap to clone.
///
/// Every method sees at least all commits before its call. Each can fail with [`Error::Closed`] after
/// the writer is dropped, with [`Error::Io`] if the disk fails, and with [`Error::Corrupt`] if a row
/// cannot be read.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the number of commits.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.shared.state().position
    }

    /// Returns a receiver of the position, to wait for the next commit.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.watch()
    }

    /// Returns the last commit that is synced to the disk; `None` for a store without a journal.
    #[must_use]
    pub fn durable_position(&self) -> Option<DurablePosition> {
        self.shared.durable_position()
    }

    /// Returns the statistics of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns the snapshot of an instance; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        self.row(Table::Instance, &self.keys().instance(key))
    }

    /// Counts the instances of a tenant by saga and status. Reads all of them.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn count(&self, tenant: &TenantId) -> Result<BTreeMap<(SagaName, Status), u64>, Error> {
        let mut counts = BTreeMap::new();
        for range in self.keys().instances(tenant, None, "") {
            self.shared.scan(Table::Instance, &range, |key, value| {
                let (_, key) = keys::read_instance(&mut KeyReader::of(key))?;
                if let Some(Instance { status, .. }) = readable(decode(Table::Instance, value))? {
                    *counts.entry((key.saga, status)).or_insert(0) += 1;
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(counts)
    }

    /// Returns the history of an instance after a state version, oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn history(
        &self,
        key: &InstanceKey,
        after_version: u64,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, Error> {
        let behind = self.keys().history(key, after_version);
        let range = KeyRange::of_prefix(self.keys().instance(key)).after(&behind);
        self.scan_rows(Table::History, &range, limit, |_, value| decode(Table::History, value))
    }

    /// Returns the inputs buffered for an instance that is paused or has not started, with their numbers,
    /// oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn buffered_inputs(&self, key: &InstanceKey, limit: usize) -> Result<Vec<(u64, Input)>, Error> {
        self.inputs_in(&self.keys().buffered_inputs(key), limit)
    }

    /// Returns the inputs of an instance that were spilled because its queue in memory was full, with their
    /// numbers, oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn spilled_inputs(&self, key: &InstanceKey, limit: usize) -> Result<Vec<(u64, Input)>, Error> {
        self.inputs_in(&self.keys().spilled_inputs(key), limit)
    }

    fn inputs_in(&self, range: &KeyRange, limit: usize) -> Result<Vec<(u64, Input)>, Error> {
        self.scan_rows(Table::BufferedInput, range, limit, |key, value| {
            Ok((keys::read_numbered(key)?.1, decode(Table::BufferedInput, value)?))
        })
    }

    /// Returns the instances with buffered or spilled inputs after a key, in key order, with one lookup for each
    /// instance.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn buffered_keys(
        &self,
        after: Option<&InstanceKey>,
        limit: usize,
    ) -> Result<Vec<InstanceKey>, Error> {
        let (mut found, mut rest) = (Vec::new(), KeyRange::all());
        if let Some(behind) = after.and_then(|key| successor(&self.keys().instance(key))) {
            rest.start = behind;
        }
        while found.len() < limit {
            let Some((key, _)) =
                self.first(Table::BufferedInput, &rest, |key, _| keys::read_numbered(key))?
            else {
                break;
            };
            let Some(behind) = successor(&self.keys().instance(&key)) else { break };
            rest.start = behind;
            found.push(key);
        }
        Ok(found)
    }

    /// Returns the last assigned outbox sequence or a later one, in constant time.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.shared.state().sequence
    }

    /// Returns the destinations with pending work, in order, with one lookup for each destination.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_destinations(&self) -> Result<Vec<Destination>, Error> {
        self.destinations_in(KeyRange::all())
    }

    /// Returns the destinations of a tenant as [`Reader::outbox_destinations`].
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn tenant_destinations(&self, tenant: &TenantId) -> Result<Vec<Destination>, Error> {
        let ranges = keys::tenant_destinations(tenant);
        let found: Result<Vec<_>, _> = ranges.into_iter().map(|range| self.destinations_in(range)).collect();
        Ok(found?.concat())
    }

    fn destinations_in(&self, mut rest: KeyRange) -> Result<Vec<Destination>, Error> {
        let mut destinations = Vec::new();
        while let Some(key) = self.first(Table::Outbox, &rest, |key, _| keys::read_outbox(key))? {
            let Some(behind) = successor(&keys::outbox_destination(&key.destination).start) else { break };
            rest.start = behind;
            destinations.push(key.destination);
        }
        Ok(destinations)
    }

    /// Returns the work items of a destination after a sequence number, in order.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox(
        &self,
        destination: &Destination,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(OutboxKey, WorkItem)>, Error> {
        let behind = keys::outbox(&OutboxKey { destination: destination.clone(), sequence: after });
        let range = keys::outbox_destination(destination).after(&behind);
        self.scan_rows(Table::Outbox, &range, limit, |key, value| {
            Ok((keys::read_outbox(key)?, decode(Table::Outbox, value)?))
        })
    }

    /// Returns one work item; `None` after it is completed.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_item(&self, key: &OutboxKey) -> Result<Option<WorkItem>, Error> {
        self.row(Table::Outbox, &keys::outbox(key))
    }

    /// Returns the number of work items, in constant time.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_depth(&self) -> Result<u64, Error> {
        self.shared.read(|tables| Ok(tables.state().outbox_depth))
    }

    /// Returns the timers due at `until` or earlier, ordered by due time.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_due(&self, until: Timestamp, limit: usize) -> Result<Vec<(InstanceKey, Timer)>, Error> {
        self.scan_rows(Table::Timer, &keys::timers_until(until), limit, |key, _| keys::read_timer(key))
    }

    /// Returns the timers after `after`, or the first ones, in the order (due time, slot, instance, name,
    /// token).
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_after(
        &self,
        after: Option<(&InstanceKey, &Timer)>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, Timer)>, Error> {
        let range = after
            .map_or_else(KeyRange::all, |(key, timer)| KeyRange::all().after(&self.keys().timer(key, timer)));
        self.scan_rows(Table::Timer, &range, limit, |key, _| keys::read_timer(key))
    }

    /// Returns the due time of the next timer.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn next_timer(&self) -> Result<Option<Timestamp>, Error> {
        let due = |key: &[u8]| KeyReader::of(key).i64().map(Timestamp::from_millis);
        self.first(Table::Timer, &KeyRange::all(), |key, _| due(key))
    }

    /// Returns the checkpoint of a source: the position up to which it is processed.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn checkpoint(&self, source: &CheckpointKey) -> Result<Option<StreamPosition>, Error> {
        self.row(Table::Checkpoint, &keys::checkpoint(source))
    }

    /// Returns all checkpoints.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn checkpoints(&self) -> Result<Vec<(CheckpointKey, StreamPosition)>, Error> {
        self.scan_rows(Table::Checkpoint, &KeyRange::all(), usize::MAX, |key, value| {
            Ok((keys::read_checkpoint(key)?, decode(Table::Checkpoint, value)?))
        })
    }

    /// Returns the dead letters of a tenant after an id, in id order, which is approximately chronological.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn dead_letters(
        &self,
        tenant: &TenantId,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut range = keys::dead_letters(tenant);
        if let Some(after) = after {
            range = range.after(&keys::dead_letter(tenant, after));
        }
        self.scan_rows(Table::DeadLetter, &range, limit, |_, value| decode(Table::DeadLetter, value))
    }

    /// Returns one dead letter.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn dead_letter(&self, tenant: &TenantId, id: Uuid) -> Result<Option<DeadLetter>, Error> {
        self.row(Table::DeadLetter, &keys::dead_letter(tenant, id))
    }

    /// Returns the dead letters after a sequence number whose copies are not on the bus yet, in the order
    /// in which they were stored.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn unpublished_dead_letters(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, DeadLetter)>, Error> {
        let range = KeyRange::all().after(&keys::dead_letter_outbox(after));
        self.scan_rows(Table::DeadLetterOutbox, &range, limit, |key, value| {
            Ok((keys::read_dead_letter_outbox(key)?, decode(Table::DeadLetterOutbox, value)?))
        })
    }

    /// Returns the definition with this hash, and its source.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn definition(&self, hash: &[u8; 16]) -> Result<Option<(DefinitionRef, Vec<u8>)>, Error> {
        let row: Option<(DefinitionRef, DefinitionSourceBytes)> = self.row(Table::Definition, hash)?;
        Ok(row.map(|(definition, DefinitionSourceBytes(source))| (definition, source)))
    }

    /// Returns all definitions with their sources.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn definitions(&self) -> Result<Vec<(DefinitionRef, Vec<u8>)>, Error> {
        let read = |_: &[u8], value: &[u8]| {
            let (definition, DefinitionSourceBytes(source)) = decode(Table::Definition, value)?;
            Ok((definition, source))
        };
        self.scan_rows(Table::Definition, &KeyRange::all(), usize::MAX, read)
    }

    /// Returns the last deployment; `None` before the first one.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn deployment(&self) -> Result<Option<Deployment>, Error> {
        self.row(Table::Meta, keys::DEPLOYMENT)
    }

    pub(crate) fn keys(&self) -> &KeyEncoder {
        &self.shared.keys
    }

    pub(crate) fn row<T: DeserializeOwned>(&self, table: Table, key: &[u8]) -> Result<Option<T>, Error> {
        self.shared.read(|tables| tables.get(table, key, |bytes| decode(table, bytes)))?.transpose()
    }

    pub(crate) fn first<T>(
        &self,
        table: Table,
        range: &KeyRange,
        read: impl Fn(&[u8], &[u8]) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        Ok(self.scan_rows(table, range, 1, read)?.pop())
    }

    pub(crate) fn scan_rows<T>(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        read: impl Fn(&[u8], &[u8]) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        self.shared.scan(table, range, |key, value| {
            rows.push(read(key, value)?);
            Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(rows)
    }
}
