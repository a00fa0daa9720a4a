//! Reading what was committed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use orlog_model::{
    DeadLetter, Deployment, Input, Instance, InstanceKey, Lane, OutboxKey, ProgramRef, Record, SagaName,
    Source, Status, StreamPosition, TenantId, Timer, Timestamp, WorkItem,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use uuid::Uuid;

use crate::encoding::definition_source::SourceBytes;
use crate::encoding::keys::{self, Keys};
use crate::encoding::range::Range;
use crate::encoding::tuple::{Fields, successor};
use crate::encoding::value::decode;
use crate::error::Error;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::table::Table;

/// Reads a store, from any thread, while it is written. Cheap to clone.
///
/// Every method sees at least what was committed before it was called. Each can fail with [`Error::Closed`] once the
/// writer is gone, with [`Error::Io`] if the disk fails, and with [`Error::Corrupt`] if a row cannot be read.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// How many commits there were.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.shared.heads().position
    }

    /// The position, to wait for the next commit.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.watch()
    }

    /// Figures about the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The snapshot of an instance; `None` if there is no such instance.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        self.row(Table::Instance, &self.keys().instance(key))
    }

    /// How many instances of a tenant each saga has in each status. Reads all of them.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn count(&self, tenant: &TenantId) -> Result<BTreeMap<(SagaName, Status), u64>, Error> {
        let mut counts = BTreeMap::new();
        for range in self.keys().instances(tenant, None, "") {
            self.shared.scan(Table::Instance, &range, |key, value| {
                let (_, key) = keys::read_instance(&mut Fields::of(key))?;
                let instance: Instance = decode(Table::Instance, value)?;
                *counts.entry((key.saga, instance.status)).or_insert(0) += 1;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(counts)
    }

    /// The history of an instance behind a state version, oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn history(&self, key: &InstanceKey, after_version: u64, limit: usize) -> Result<Vec<Record>, Error> {
        let behind = self.keys().history(key, after_version);
        let range = Range::of_prefix(self.keys().instance(key)).after(&behind);
        self.rows_of(Table::History, &range, limit, |_, value| decode(Table::History, value))
    }

    /// The inputs that are kept for an instance, because it is paused or has not begun, with their numbers, oldest first.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn held(&self, key: &InstanceKey, limit: usize) -> Result<Vec<(u64, Input)>, Error> {
        let range = Range::of_prefix(self.keys().instance(key));
        self.rows_of(Table::Held, &range, limit, |key, value| {
            Ok((keys::read_numbered(key)?.1, decode(Table::Held, value)?))
        })
    }

    /// The instances for which inputs are kept, behind one of them, in the order of their keys. One look an instance.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn held_keys(&self, after: Option<&InstanceKey>, limit: usize) -> Result<Vec<InstanceKey>, Error> {
        let (mut held, mut rest) = (Vec::new(), Range::all());
        if let Some(behind) = after.and_then(|key| successor(&self.keys().instance(key))) {
            rest.start = behind;
        }
        while held.len() < limit {
            let Some((key, _)) = self.first(Table::Held, &rest, |key, _| keys::read_numbered(key))? else {
                break;
            };
            let Some(behind) = successor(&self.keys().instance(&key)) else { break };
            rest.start = behind;
            held.push(key);
        }
        Ok(held)
    }

    /// The number of the last item of work that was ever put into the outbox, or of something later. Costs nothing.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.shared.heads().sequence
    }

    /// The lanes that have work, in order. One look a lane, however much work it has.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn lanes(&self) -> Result<Vec<Lane>, Error> {
        let (mut lanes, mut rest) = (Vec::new(), Range::all());
        while let Some(key) = self.first(Table::Outbox, &rest, |key, _| keys::read_outbox(key))? {
            let Some(behind) = successor(&keys::outbox_lane(&key.lane).start) else { break };
            rest.start = behind;
            lanes.push(key.lane);
        }
        Ok(lanes)
    }

    /// The work of a lane behind a sequence number, in order.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox(&self, lane: &Lane, after: u64, limit: usize) -> Result<Vec<(OutboxKey, WorkItem)>, Error> {
        let behind = keys::outbox(&OutboxKey { lane: lane.clone(), sequence: after });
        let range = keys::outbox_lane(lane).after(&behind);
        self.rows_of(Table::Outbox, &range, limit, |key, value| {
            Ok((keys::read_outbox(key)?, decode(Table::Outbox, value)?))
        })
    }

    /// One item of work; `None` once it is settled.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_item(&self, key: &OutboxKey) -> Result<Option<WorkItem>, Error> {
        self.row(Table::Outbox, &keys::outbox(key))
    }

    /// How many items of work there are. Costs nothing.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_depth(&self) -> Result<u64, Error> {
        self.shared.read(|tables| Ok(tables.heads().outbox_depth))
    }

    /// The timers due at `until` or earlier, in the order in which they fall due.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_due(&self, until: Timestamp, limit: usize) -> Result<Vec<(InstanceKey, Timer)>, Error> {
        self.rows_of(Table::Timer, &keys::timers_until(until), limit, |key, _| keys::read_timer(key))
    }

    /// When the next timer falls due.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn next_timer(&self) -> Result<Option<Timestamp>, Error> {
        let due = |key: &[u8]| Fields::of(key).i64().map(Timestamp::from_millis);
        self.first(Table::Timer, &Range::all(), |key, _| due(key))
    }

    /// Up to where a source is done with.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn checkpoint(&self, source: &Source) -> Result<Option<StreamPosition>, Error> {
        self.row(Table::Checkpoint, &keys::checkpoint(source))
    }

    /// All checkpoints.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn checkpoints(&self) -> Result<Vec<(Source, StreamPosition)>, Error> {
        self.rows_of(Table::Checkpoint, &Range::all(), usize::MAX, |key, value| {
            Ok((keys::read_checkpoint(key)?, decode(Table::Checkpoint, value)?))
        })
    }

    /// The dead letters of a tenant behind one of them, in the order of their ids, which is about that of time.
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
        self.rows_of(Table::DeadLetter, &range, limit, |_, value| decode(Table::DeadLetter, value))
    }

    /// One dead letter.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn dead_letter(&self, tenant: &TenantId, id: Uuid) -> Result<Option<DeadLetter>, Error> {
        self.row(Table::DeadLetter, &keys::dead_letter(tenant, id))
    }

    /// The dead letters whose copies the bus does not have yet, behind a sequence number, in the order in which they were kept.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn unpublished_letters(&self, after: u64, limit: usize) -> Result<Vec<(u64, DeadLetter)>, Error> {
        let range = Range::all().after(&keys::letter_outbox(after));
        self.rows_of(Table::LetterOutbox, &range, limit, |key, value| {
            Ok((keys::read_letter_outbox(key)?, decode(Table::LetterOutbox, value)?))
        })
    }

    /// The definition with this hash, and its source.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn definition(&self, hash: &[u8; 16]) -> Result<Option<(ProgramRef, Vec<u8>)>, Error> {
        let row: Option<(ProgramRef, SourceBytes)> = self.row(Table::Definition, hash)?;
        Ok(row.map(|(program, SourceBytes(source))| (program, source)))
    }

    /// All definitions with their sources.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn definitions(&self) -> Result<Vec<(ProgramRef, Vec<u8>)>, Error> {
        let read = |_: &[u8], value: &[u8]| {
            let (program, SourceBytes(source)) = decode(Table::Definition, value)?;
            Ok((program, source))
        };
        self.rows_of(Table::Definition, &Range::all(), usize::MAX, read)
    }

    /// Which definitions were put in force last; `None` before the first deployment.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn deployment(&self) -> Result<Option<Deployment>, Error> {
        self.row(Table::Meta, keys::DEPLOYMENT)
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    pub(crate) fn row<T: DeserializeOwned>(&self, table: Table, key: &[u8]) -> Result<Option<T>, Error> {
        self.shared.read(|tables| tables.get(table, key, |bytes| decode(table, bytes)))?.transpose()
    }

    pub(crate) fn first<T>(
        &self,
        table: Table,
        range: &Range,
        read: impl Fn(&[u8], &[u8]) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        Ok(self.rows_of(table, range, 1, read)?.pop())
    }

    pub(crate) fn rows_of<T>(
        &self,
        table: Table,
        range: &Range,
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
