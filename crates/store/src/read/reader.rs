//! Reads of committed data.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlog_journal::DurablePosition;
use orlog_model::{
    CheckpointKey, DeadLetter, DefinitionRef, Deployment, HistoryEntry, Input, Instance,
    InstanceKey, StreamPosition, TenantId,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use uuid::Uuid;

use crate::cancellation::Cancellation;
use crate::encoding::keys::{self, KeyEncoder};
use crate::encoding::range::{KeyRange, successor_key};
use crate::encoding::tuple::{Key, successor};
use crate::encoding::value::{DefinitionSourceBytes, decode};
use crate::error::Error;
use crate::memtable::MemtableLookup;
use crate::merged::Layers;
use crate::read::row_group::{MAX_GROUP_ROWS, RowGroup};
use crate::shared::Shared;
use crate::stats::{PageStats, Stats};
use crate::table::Table;
use crate::tables::{RowAccess, ScanRange};
use crate::usage::TenantUsage;

/// Reader of a store, from any thread, concurrent with writes. Cheap to clone.
///
/// Every method sees at least all commits before its call.
///
/// # Errors
/// Each method can fail with [`Error::Closed`] after the writer is dropped, with [`Error::Io`] if
/// the disk fails, and with [`Error::Corrupt`] if a row cannot be read; a scan also with
/// [`Error::Cancelled`].
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
    cancellation: Cancellation,
}

/// Maximum size of the stored rows of a page, in bytes. Each list reads at most this much and one
/// row, so that a page of large rows does not occupy memory in proportion to its number of rows.
pub(crate) const MAX_PAGE_BYTES: usize = 4 << 20;

/// Limits of a scan. Each of them is at least 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanLimits {
    /// Maximum number of matching rows.
    pub(crate) found: usize,
    /// Maximum number of scanned rows.
    pub(crate) scanned: usize,
    /// Size of the matching rows in bytes at which the scan ends.
    pub(crate) bytes: usize,
}

impl ScanLimits {
    /// Returns limits of the numbers of rows only.
    pub(crate) fn rows(found: usize, scanned: usize) -> Self {
        Self {
            found,
            scanned,
            bytes: usize::MAX,
        }
    }

    /// Returns the number of rows after which a scan probably ends.
    pub(crate) fn first_group(&self) -> usize {
        self.found.min(self.scanned)
    }

    /// Returns limits of a page.
    pub(crate) fn page(found: usize, scanned: usize) -> Self {
        Self {
            found,
            scanned,
            bytes: MAX_PAGE_BYTES,
        }
    }
}

/// Result of [`Reader::copy_group`].
pub(crate) struct CopiedGroup {
    /// Start of the next group; `None` at the end of the range.
    pub(crate) next: Option<Key>,
    /// Number of commits of which the group has the rows.
    pub(crate) position: u64,
}

/// Result of [`Reader::scan_page`].
pub(crate) struct RowPage<T> {
    pub(crate) items: Vec<T>,
    /// Last scanned key; `None` if all rows were scanned.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) scanned: usize,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            cancellation: Cancellation::default(),
        }
    }

    /// Returns a reader of the same store whose scans end when `cancellation` is cancelled.
    #[must_use]
    pub fn with_cancellation(&self, cancellation: &Cancellation) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            cancellation: cancellation.clone(),
        }
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

    /// Returns the page statistics of the tables on disk; zero for a store in memory.
    pub fn pages(&self) -> Result<PageStats, Error> {
        self.shared.read(|tables| tables.disk().tables().pages())
    }

    /// Returns the snapshot of an instance; `None` if it does not exist.
    pub fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        self.row(Table::Instance, &self.keys().instance(key))
    }

    /// Returns the history of an instance after a state version, oldest first.
    pub fn history(
        &self,
        key: &InstanceKey,
        after_version: u64,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, Error> {
        let behind = self.keys().history(key, after_version);
        let range = KeyRange::of_prefix(self.keys().instance(key)).after(&behind);
        self.scan_rows(Table::History, &range, limit, |_, value| {
            decode(Table::History, value)
        })
    }

    /// Returns the inputs buffered for an instance that is paused or has not started, with their
    /// numbers, oldest first.
    pub fn buffered_inputs(
        &self,
        key: &InstanceKey,
        limit: usize,
    ) -> Result<Vec<(u64, Input)>, Error> {
        self.inputs_in(&self.keys().buffered_inputs(key), limit)
    }

    /// Returns the inputs of an instance that were spilled because its queue in memory was full,
    /// with their numbers, oldest first.
    pub fn spilled_inputs(
        &self,
        key: &InstanceKey,
        limit: usize,
    ) -> Result<Vec<(u64, Input)>, Error> {
        self.inputs_in(&self.keys().spilled_inputs(key), limit)
    }

    fn inputs_in(&self, range: &KeyRange, limit: usize) -> Result<Vec<(u64, Input)>, Error> {
        self.scan_rows(Table::BufferedInput, range, limit, |key, value| {
            Ok((
                keys::read_numbered(key)?.1,
                decode(Table::BufferedInput, value)?,
            ))
        })
    }

    /// Returns the instances with buffered or spilled inputs after a key, in key order, with one
    /// lookup for each instance.
    pub fn buffered_keys(
        &self,
        after: Option<&InstanceKey>,
        limit: usize,
    ) -> Result<Vec<InstanceKey>, Error> {
        let mut rest = KeyRange::all();
        // The rows of one instance have its key as their prefix, so the search continues after all
        // of them.
        if let Some(behind) = after.and_then(|key| successor(&self.keys().instance(key))) {
            rest.start = behind;
        }

        let mut found = Vec::new();
        while found.len() < limit {
            let Some((key, _)) = self.first(Table::BufferedInput, &rest, |key, _| {
                keys::read_numbered(key)
            })?
            else {
                break;
            };
            let Some(behind) = successor(&self.keys().instance(&key)) else {
                break;
            };

            rest.start = behind;
            found.push(key);
        }
        Ok(found)
    }

    /// Returns the checkpoint of a source: the position up to which it is processed.
    pub fn checkpoint(&self, source: &CheckpointKey) -> Result<Option<StreamPosition>, Error> {
        self.row(Table::Checkpoint, &keys::checkpoint(source))
    }

    /// Returns all checkpoints.
    pub fn checkpoints(&self) -> Result<Vec<(CheckpointKey, StreamPosition)>, Error> {
        self.scan_rows(
            Table::Checkpoint,
            &KeyRange::all(),
            usize::MAX,
            |key, value| {
                Ok((
                    keys::read_checkpoint(key)?,
                    decode(Table::Checkpoint, value)?,
                ))
            },
        )
    }

    /// Returns the dead letters of a tenant after an id, in id order, which is approximately
    /// chronological.
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

        self.scan_rows(Table::DeadLetter, &range, limit, |_, value| {
            decode(Table::DeadLetter, value)
        })
    }

    /// Returns the size of the rows of a tenant at the last flush.
    pub fn usage(&self, tenant: &TenantId) -> Result<TenantUsage, Error> {
        self.shared.read(|tables| Ok(tables.disk().usage(tenant)))
    }

    /// Returns the size of the rows of each tenant at the last flush.
    pub fn usages(&self) -> Result<BTreeMap<TenantId, TenantUsage>, Error> {
        // Commits do not wait for the copy.
        let disk = self.shared.read(|tables| Ok(Arc::clone(tables.disk())))?;
        Ok(disk.usages())
    }

    /// Returns one dead letter.
    pub fn dead_letter(&self, tenant: &TenantId, id: Uuid) -> Result<Option<DeadLetter>, Error> {
        self.row(Table::DeadLetter, &keys::dead_letter(tenant, id))
    }

    /// Returns whether an instance still waits for the result that a dead letter contains.
    pub fn is_awaited(&self, dead_letter: &DeadLetter) -> Result<bool, Error> {
        let Some(key) = &dead_letter.instance else {
            return Ok(false);
        };
        let Some(instance) = self.instance(key)? else {
            return Ok(false);
        };
        Ok(instance
            .pending_work
            .iter()
            .any(|work| work.dead_letter == Some(dead_letter.id)))
    }

    /// Returns the dead letters after a sequence number whose copies are not on the bus yet, in the
    /// order in which they were stored.
    pub fn unpublished_dead_letters(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, DeadLetter)>, Error> {
        let range = KeyRange::all().after(&keys::dead_letter_outbox(after));
        self.scan_rows(Table::DeadLetterOutbox, &range, limit, |key, value| {
            Ok((
                keys::read_dead_letter_outbox(key)?,
                decode(Table::DeadLetterOutbox, value)?,
            ))
        })
    }

    /// Returns the definition with this hash, and its source.
    pub fn definition(&self, hash: &[u8; 16]) -> Result<Option<(DefinitionRef, Vec<u8>)>, Error> {
        let row: Option<(DefinitionRef, DefinitionSourceBytes)> =
            self.row(Table::Definition, hash)?;
        Ok(row.map(|(definition, DefinitionSourceBytes(source))| (definition, source)))
    }

    /// Returns all definitions with their sources.
    pub fn definitions(&self) -> Result<Vec<(DefinitionRef, Vec<u8>)>, Error> {
        self.scan_rows(
            Table::Definition,
            &KeyRange::all(),
            usize::MAX,
            |_, value| {
                let (definition, DefinitionSourceBytes(source)) = decode(Table::Definition, value)?;
                Ok((definition, source))
            },
        )
    }

    /// Returns the last deployment of the shared definitions; `None` before the first one.
    pub fn deployment(&self) -> Result<Option<Deployment>, Error> {
        self.row(Table::Meta, keys::DEPLOYMENT)
    }

    /// Returns the last deployment of each context, ordered by tenant.
    pub fn context_deployments(&self) -> Result<Vec<Deployment>, Error> {
        self.scan_rows(
            Table::Meta,
            &keys::context_deployments(),
            usize::MAX,
            |_, value| decode(Table::Meta, value),
        )
    }

    /// Returns the last deployment of a context; `None`: of the shared definitions.
    pub fn deployment_of(&self, context: Option<&TenantId>) -> Result<Option<Deployment>, Error> {
        match context {
            None => self.deployment(),
            Some(context) => self.row(Table::Meta, &keys::context_deployment(context)),
        }
    }

    pub(crate) fn keys(&self) -> &KeyEncoder {
        &self.shared.keys
    }

    pub(crate) fn row<T: DeserializeOwned>(
        &self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<T>, Error> {
        // The row is shared, and decoded without the lock.
        let in_memory = self
            .shared
            .read(|tables| Ok(tables.shared_entry(table, key)))?;
        if let Some(MemtableLookup(row)) = in_memory {
            return row.map(|bytes| decode(table, &bytes)).transpose();
        }

        // Commits do not wait for a read on disk. A row that was flushed meanwhile is a later one.
        let disk = self.shared.disk_guard();
        let disk = disk.as_ref().ok_or(Error::Closed)?;
        disk.tables()
            .row(table, key, |bytes| decode(table, bytes))?
            .transpose()
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
        // A page contains at least one row, so a limit of 0 is handled here.
        if limit == 0 {
            return Ok(Vec::new());
        }

        let page = self.scan_page(
            table,
            std::slice::from_ref(range),
            ScanLimits::rows(limit, usize::MAX),
            |key, value| read(key, value).map(Some),
        )?;
        Ok(page.items)
    }

    /// Reads the rows of ranges, in key order, until a limit is reached. `read` returns `None` for
    /// a row that does not match.
    pub(crate) fn scan_page<T>(
        &self,
        table: Table,
        ranges: &[KeyRange],
        limits: ScanLimits,
        mut read: impl FnMut(&[u8], &[u8]) -> Result<Option<T>, Error>,
    ) -> Result<RowPage<T>, Error> {
        let mut page = RowPage {
            items: Vec::new(),
            last: None,
            scanned: 0,
        };
        let mut bytes = 0;

        for range in ranges {
            self.scan_groups(
                Layers::All,
                table,
                range,
                limits.first_group(),
                |key, value| {
                    // Only matching rows are kept, so only they count for the size.
                    if let Some(item) = read(key, value)? {
                        page.items.push(item);
                        bytes += value.len();
                    }
                    page.scanned += 1;

                    let is_full = page.items.len() >= limits.found
                        || page.scanned >= limits.scanned
                        || bytes >= limits.bytes;
                    if !is_full {
                        return Ok(ControlFlow::Continue(()));
                    }
                    page.last = Some(key.to_vec());
                    Ok(ControlFlow::Break(()))
                },
            )?;
            if page.last.is_some() {
                break;
            }
        }
        Ok(page)
    }

    /// Passes the rows of a range to `visit`, in key order, until it breaks. A scan of several
    /// groups of rows is not atomic.
    pub(crate) fn scan(
        &self,
        table: Table,
        range: &KeyRange,
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        self.scan_groups(Layers::All, table, range, MAX_GROUP_ROWS, visit)
    }

    /// Scans these layers as [`Reader::scan`]. The first group has at most `first_group` rows, for
    /// a scan that probably ends after them.
    pub(crate) fn scan_groups(
        &self,
        layers: Layers,
        table: Table,
        range: &KeyRange,
        first_group: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        self.shared.scans[table as usize].fetch_add(1, Ordering::Relaxed);

        let mut group = RowGroup::of_rows(first_group);
        let mut rest = range.clone();
        while !rest.is_empty() {
            self.check_cancelled()?;

            let copied = self.copy_group(layers, table, &rest, &mut group);

            // A row that cannot be read is an error only for a scan that reaches it.
            for (key, value) in group.iter() {
                if visit(key, value)?.is_break() {
                    return Ok(());
                }
            }
            let Some(next) = copied?.next else { break };
            rest.start = next;
            group.clear();
        }
        Ok(())
    }

    /// Returns an error if the request of this reader has ended.
    pub(crate) fn check_cancelled(&self) -> Result<(), Error> {
        if self.cancellation.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Copies the first rows of a range, as of one commit. Commits wait only while the entries of
    /// the memtables are found.
    pub(crate) fn copy_group(
        &self,
        layers: Layers,
        table: Table,
        range: &KeyRange,
        group: &mut RowGroup,
    ) -> Result<CopiedGroup, Error> {
        let range = ScanRange {
            table,
            access: RowAccess::Values,
            from: &range.start,
            end: range.end.as_deref(),
        };
        // Acquired before the lock of the tables, as the close of the store does.
        let disk = self.shared.disk_guard();
        let disk = disk.as_ref().ok_or(Error::Closed)?;

        // Both with the lock: a flush in between would move rows from one to the other.
        let mut snapshot = None;
        let mut position = 0;
        let entries = self.shared.read(|tables| {
            if layers == Layers::All {
                snapshot = Some(disk.tables().snapshot()?);
            }
            position = tables.state().position;
            Ok(tables.memtable_entries(range, group.rows_left()))
        })?;

        // Without a cut, the entries of the range are complete, and only a full group leaves rows.
        let mut next = entries.cut.clone();
        entries.scan(snapshot.as_deref(), range, &mut |key, value| {
            let flow = group.push(key, value);
            if flow.is_break() {
                next = Some(successor_key(key));
            }
            Ok(flow)
        })?;
        Ok(CopiedGroup { next, position })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use orlog_model::{Change, Commit, Status, TenantId};

    use crate::cancellation::Cancellation;
    use crate::encoding::range::KeyRange;
    use crate::samples::{at, instance, key, small};
    use crate::table::Table;
    use crate::{
        Error, FeedEntityKind, FeedQuery, InstanceQuery, Options, Reader, Writer, open_in_memory,
    };

    const INSTANCES: usize = 8;
    const STATE_BYTES: usize = 50_000;

    /// Returns a store with a few large instances.
    fn large_instances() -> (Writer, Reader) {
        let (mut writer, reader) = open_in_memory(Options {
            feed: true,
            ..small()
        });
        for number in 0..INSTANCES {
            commit_instance(&mut writer, number);
        }
        (writer, reader)
    }

    fn commit_instance(writer: &mut Writer, number: usize) {
        let mut large = instance(1, Status::Running);
        large.state = vec![b' '; STATE_BYTES];
        let commit = Commit {
            instance: Some(Arc::new(large)),
            ..Commit::empty(key("acme", &format!("o-{number}")), at(1))
        };
        writer
            .commit(&[Change::Apply(Box::new(commit))], at(1))
            .unwrap();
    }

    /// The thread of a scan can be stopped while it decodes a row, and a row can be large.
    #[test]
    fn commits_do_not_wait_for_the_visitor_of_a_row() {
        let (mut writer, reader) = large_instances();
        let (visiting, is_visiting) = mpsc::channel();
        let (committed, is_committed) = mpsc::channel();

        std::thread::scope(|scope| {
            scope.spawn(move || {
                is_visiting.recv().unwrap();
                commit_instance(&mut writer, INSTANCES);
                committed.send(()).unwrap();
            });

            let scanned = reader.scan(Table::Instance, &KeyRange::all(), |_, _| {
                visiting.send(()).unwrap();
                let waited = is_committed.recv_timeout(Duration::from_mins(1));
                waited.expect("the commit waits for the scan");
                Ok(ControlFlow::Break(()))
            });
            scanned.unwrap();
        });
    }

    /// The lock of a group of rows delays commits, so that few large rows are a group, too. The
    /// cancellation shows where the group ends.
    #[test]
    fn group_of_rows_is_bounded_by_its_size() {
        let (_writer, reader) = large_instances();
        let cancellation = Cancellation::default();
        let mut rows = 0;
        let scanned = reader.with_cancellation(&cancellation).scan(
            Table::Instance,
            &KeyRange::all(),
            |_, _| {
                rows += 1;
                cancellation.cancel();
                Ok(ControlFlow::Continue(()))
            },
        );
        assert!(matches!(scanned, Err(Error::Cancelled)));
        assert_eq!(rows, 2, "64 KiB are reached with the second row");
    }

    /// Each of these reads several groups.
    #[test]
    fn reads_of_large_rows_are_complete() {
        let (_writer, reader) = large_instances();
        let running = InstanceQuery {
            statuses: vec![Status::Running],
            tenant: TenantId::new("acme").unwrap(),
            ..InstanceQuery::default()
        };
        let listed = reader.instances(&running).unwrap();
        assert_eq!(listed.items.len(), INSTANCES);

        let instances = FeedQuery {
            tenant: None,
            kinds: vec![FeedEntityKind::Instances],
            limit: 100,
            bytes: INSTANCES * STATE_BYTES * 2,
        };
        let page = reader.feed_scan(&instances, None).unwrap();
        assert_eq!(page.items.len(), INSTANCES);
        assert!(!page.more);
    }
}
