//! Translates changes to row operations.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orlog_model::count::{Operation, count};
use orlog_model::{
    ArmedTimer, Change, CheckpointKey, Commit, DeadLetter, DeadLetterOriginal, DedupeKey,
    DefinitionRef, Deployment, InstanceKey, InstanceReplacement, OutboxKey, StatusSnapshot,
    StreamPosition, TaskUpdate, Timer, Timestamp, WorkItem,
};
use serde::Serialize;

use crate::counts::{COUNTED, CountChanges};
use crate::encoding::keys::{self, KeyEncoder};
use crate::encoding::range::KeyRange;
use crate::encoding::record::{KeyPresence, RecordWriter, StoreState};
use crate::encoding::value::{DefinitionSourceRef, EMPTY, encode};
use crate::error::Error;
use crate::feed::write::{self, FeedOffset, FeedWriter, TrimBounds};
use crate::merged::MergedTables;
use crate::read::attention::Attention;
use crate::read::dedupe::buckets_before;
use crate::table::Table;

mod job_claim;
mod job_log;
mod purge;
mod request_key;
mod unbound_key;

pub(crate) use job_claim::result_key;
pub(crate) use job_log::JobLogRange;
pub(crate) use purge::{DedupePurge, PURGE_BATCH, is_orphaned_task};
pub(crate) use request_key::request_key;

/// Maximum size of the record of several changes, in bytes. It limits the memory and the duration
/// of a commit; a larger change is a group of its own.
const GROUP_BYTES: usize = 32 << 20;
/// Number of expired dedupe keys that a group deletes for each of its changes. A change adds at
/// most one key, so the purge is faster than the growth.
const PURGED_PER_CHANGE: usize = 2;
/// Maximum number of feed rows that one change deletes. They are small, and every commit may have
/// one.
const TRIM_BATCH: usize = 10_000;

/// Group under translation.
struct ChangeTranslator<'a> {
    tables: &'a MergedTables,
    keys: &'a KeyEncoder,
    record: &'a mut RecordWriter,
    /// Sequences of the work items of the group.
    work: &'a mut Vec<u64>,
    store_state: StoreState,
    bucket: i64,
    /// Sequences of the outbox rows that this group deletes; each counts once.
    completed: BTreeSet<u64>,
    feeding: FeedWriter,
    /// Last feed row that this group deletes.
    trimmed: Option<FeedOffset>,
    purge: Option<DedupePurge>,
    counts: &'a mut CountChanges,
}

/// Result of a translation.
#[derive(Debug)]
pub(crate) struct Translation {
    /// State of the store after the group.
    pub(crate) store_state: StoreState,
    /// Rest of the purge; `None` if no expired key remains.
    pub(crate) purge: Option<DedupePurge>,
    /// Number of dedupe keys that the group deletes.
    pub(crate) purged: usize,
}

/// State of the store that a translation reads.
#[derive(Clone, Copy)]
pub(crate) struct TranslationSource<'a> {
    pub(crate) tables: &'a MergedTables,
    pub(crate) keys: &'a KeyEncoder,
    pub(crate) feeding: FeedWriter,
}

/// Buffers that a translation fills. The writer uses them again for each group.
pub(crate) struct TranslationOutput<'a> {
    pub(crate) record: &'a mut RecordWriter,
    /// Outbox sequences of the work items of the group.
    pub(crate) work: &'a mut Vec<u64>,
    pub(crate) counts: &'a mut CountChanges,
}

/// Writes the row operations of a group, and those of its share of a purge, into the record.
/// Changes nothing else.
pub(crate) fn translate(
    group: &[Change],
    now: Timestamp,
    source: TranslationSource<'_>,
    output: TranslationOutput<'_>,
    purge: Option<DedupePurge>,
) -> Result<Translation, Error> {
    let TranslationSource {
        tables,
        keys,
        feeding,
    } = source;
    let TranslationOutput {
        record,
        work,
        counts,
    } = output;

    let mut store_state = *tables.state();
    store_state.position += 1;
    // With a clock that was set back, keys would be stored in buckets that may be purged.
    store_state.latest = store_state.latest.max(now);
    let bucket = keys.bucket(store_state.latest);

    record.clear();
    work.clear();
    counts.clear();
    let mut translation = ChangeTranslator {
        tables,
        keys,
        record,
        work,
        store_state,
        bucket,
        completed: BTreeSet::new(),
        feeding,
        trimmed: None,
        purge,
        counts,
    };

    for change in group {
        translation.change(change)?;
        let bytes = translation.record.bytes().len();
        // A single change cannot be divided. It has only the limit of the journal.
        if bytes > GROUP_BYTES && group.len() > 1 {
            return Err(Error::TooLarge {
                bytes: bytes as u64,
                limit: GROUP_BYTES as u64,
            });
        }
    }

    // An empty group, or a request to purge, has time for a whole batch; other groups delete more
    // keys than they add.
    let requests_purge = group
        .iter()
        .any(|change| matches!(change, Change::PurgeDedupe { .. }));
    let share = if group.is_empty() || requests_purge {
        PURGE_BATCH
    } else {
        PURGED_PER_CHANGE * group.len()
    };

    let ChangeTranslator {
        store_state,
        record,
        trimmed,
        purge,
        counts,
        ..
    } = translation;

    // After all changes, so that each count is read and written once for the group.
    counts.write(tables, record)?;
    let (purged, purge) = purge.map_or(Ok((0, None)), |purge| purge.run(tables, record, share))?;
    // Last: the feed lists the rows of all other operations.
    feeding.write_group(tables, &store_state, trimmed, record)?;
    Ok(Translation {
        store_state,
        purge,
        purged,
    })
}

impl<'a> ChangeTranslator<'a> {
    fn change(&mut self, change: &'a Change) -> Result<(), Error> {
        match change {
            Change::Apply(commit) => self.apply(commit),
            Change::Replace(replacement) => self.replace(replacement),
            Change::Settle(key) => self.settle(key),
            Change::Checkpoint(source, position) => self.checkpoint(source, *position),
            Change::PutDefinition { program, source } => self.define(program, source),
            Change::DropDefinition { hash } => self.record.delete(Table::Definition, hash),
            Change::Deploy(deployment) => self.deploy(deployment),
            Change::PutDeadLetter(dead_letter) => self.dead_letter(dead_letter),
            Change::DropDeadLetter { tenant, id } => self
                .record
                .delete(Table::DeadLetter, &keys::dead_letter(tenant, *id)),
            Change::DeadLetterPublished { sequence } => self.record.delete(
                Table::DeadLetterOutbox,
                &keys::dead_letter_outbox(*sequence),
            ),
            Change::PurgeDedupe { before } => {
                let end = self.keys.dedupe_before(*before).end.unwrap_or_default();
                self.purge = Some(DedupePurge::extended(self.purge.take(), end));
                Ok(())
            }
            Change::PurgeInstance { key, version } => {
                let row = self.keys.instance(key);
                let purged = purge::purge_instance(self.tables, self.record, &row, *version)?;
                // The count changes with the part of the purge that deletes the snapshot.
                self.counts.note(key, purged.as_ref(), None);
                Ok(())
            }
            Change::DropInstance { key } => self.drop_instance(key),
            Change::PurgeTasks { instance, tasks } => {
                purge::purge_tasks(self.tables, self.record, self.keys, instance, tasks)
            }
            Change::AppendJobLog(append) => job_log::append(
                self.tables,
                self.record,
                &self.keys.instance(&append.instance),
                append,
            ),
            Change::UpdateJobClaims(updates) => {
                job_claim::update(self.tables, self.record, self.keys, updates)
            }
            Change::JobResult { tenant, job, claim } => {
                // A report of a worker does not state the instance, so the result has a key of its
                // own.
                let (key, id) = job_claim::result_key(tenant, *job, *claim);
                self.put_dedupe_key(&self.keys.instance(&key), id)
            }
            Change::RequestKey {
                tenant,
                key,
                fingerprint,
            } => {
                let (key, id) = request_key(tenant, *key, *fingerprint);
                self.put_dedupe_key(&self.keys.instance(&key), id)
            }
            Change::TrimFeed {
                before,
                retained_commits: keep,
            } => self.trim_feed(*before, *keep),
        }
    }

    fn apply(&mut self, commit: &Commit) -> Result<(), Error> {
        let key = &commit.key;
        let row = self.keys.instance(key);
        if let Some(instance) = &commit.instance {
            self.put(Table::Instance, &row, &**instance)?;
            // The commit contains the previous snapshot, so no row is read.
            let before = commit.before.as_deref();
            self.counts.note(key, before, Some(instance));
            let before = before.map(StatusSnapshot::from_instance);
            self.attention(
                before,
                StatusSnapshot::from_instance(instance),
                commit.at,
                &row,
            )?;
        }

        if let Some(history) = &commit.history {
            self.put(
                Table::History,
                &keys::history(&row, history.version),
                history,
            )?;
        }

        if let Some(version) = commit.forgets {
            self.record
                .delete(Table::History, &keys::history(&row, version))?;
        }

        if let Some(id) = commit.dedupe_key {
            self.put_dedupe_key(&row, id)?;
        }
        for item in &commit.work {
            self.add_work(item)?;
        }
        for entry in &commit.tasks {
            self.task(entry)?;
        }
        self.timers(commit, &row)?;
        self.inputs(commit, &row)?;
        if let Some(outbox_key) = &commit.settles {
            self.settle(outbox_key)?;
        }

        let Some(dead_letter) = &commit.dead_letter else {
            return Ok(());
        };

        // The key was stored when the input was buffered; without it, the input can be redriven.
        if let DeadLetterOriginal::Input(input) = &dead_letter.original
            && let Some(id) = input.dedupe_key()
        {
            self.delete_dedupe_key(&row, id)?;
        }
        self.dead_letter(dead_letter)
    }

    /// Deletes the dedupe key of a dead letter, so that it can be redriven: it was stored when the
    /// input was buffered.
    fn delete_dedupe_key(&mut self, row: &[u8], id: DedupeKey) -> Result<(), Error> {
        // The input may have been buffered for a long time, so its bucket is unknown.
        let buckets = buckets_before(self.tables, self.bucket)?;
        for bucket in buckets.into_iter().chain([self.bucket]) {
            self.record
                .delete(Table::Dedupe, &keys::dedupe(bucket, row, id))?;
        }
        Ok(())
    }

    /// Writes the dedupe key of an event.
    fn put_dedupe_key(&mut self, row: &[u8], id: DedupeKey) -> Result<(), Error> {
        // A buffered input stores its key twice: when it is buffered and when it is applied.
        self.put_empty(
            KeyPresence::Unknown,
            Table::Dedupe,
            &keys::dedupe(self.bucket, row, id),
        )
    }

    /// Replaces an instance. It reads only the store, so the group must not contain an earlier
    /// commit of the instance.
    fn replace(&mut self, replacement: &InstanceReplacement) -> Result<(), Error> {
        let InstanceReplacement {
            key,
            instance,
            history,
            ..
        } = replacement;

        let row = self.keys.instance(key);
        let stored = match purge::stored(self.tables, &row) {
            // Repairs the instance. Its timers are unknown; they are stale, or armed again below.
            Err(error) if error.is_damage() => {
                self.record.delete(Table::Attention, &row)?;
                self.uncounted()?;
                None
            }
            stored => stored?,
        };
        self.counts.note(key, stored.as_ref(), Some(instance));

        for timer in stored.iter().flat_map(|instance| &instance.timers) {
            self.record
                .delete(Table::Timer, &keys::timer(&row, &row_of(timer)))?;
        }
        for timer in &instance.timers {
            // A replay can arm the same timer for the same time, so its row may exist.
            let row = keys::timer(&row, &row_of(timer));
            self.put_empty(KeyPresence::Unknown, Table::Timer, &row)?;
        }

        let before = stored.as_ref().map(StatusSnapshot::from_instance);
        self.attention(
            before,
            StatusSnapshot::from_instance(instance),
            instance.updated_at,
            &row,
        )?;

        // All entries are deleted, because the rebuilt instance can have fewer versions.
        self.delete_range(Table::History, &KeyRange::of_prefix(row.clone()))?;
        // Spilled inputs were not applied yet.
        self.delete_range(Table::BufferedInput, &self.keys.buffered_inputs(key))?;

        self.put(Table::Instance, &row, instance)?;
        for record in history {
            self.put(Table::History, &keys::history(&row, record.version), record)?;
        }
        for id in &replacement.dedupe_keys {
            self.put_dedupe_key(&row, *id)?;
        }
        for outbox_key in &replacement.removed_work {
            self.settle(outbox_key)?;
        }
        for entry in &replacement.tasks {
            self.task(entry)?;
        }
        for item in &replacement.work {
            self.add_work(item)?;
        }
        Ok(())
    }

    fn delete_range(&mut self, table: Table, range: &KeyRange) -> Result<(), Error> {
        purge::delete_some(self.tables, self.record, table, range, &mut { usize::MAX })
    }

    /// Updates the list of instances that require attention.
    fn attention(
        &mut self,
        before: Option<StatusSnapshot>,
        now: StatusSnapshot,
        since: Timestamp,
        row: &[u8],
    ) -> Result<(), Error> {
        let before = before.filter(|before| before.needs_attention());
        // An equal status is not written again, because the row has the time of its start.
        if now.needs_attention() && before != Some(now) {
            let attention = Attention { status: now, since };
            return self.put(Table::Attention, row, &attention);
        }
        if before.is_some() && !now.needs_attention() {
            return self.record.delete(Table::Attention, row);
        }
        Ok(())
    }

    fn task(&mut self, TaskUpdate { row, event }: &TaskUpdate) -> Result<(), Error> {
        let key = self.keys.task(&row.instance, row.task.id);
        self.put(Table::Task, &key, row)?;

        let key = self
            .keys
            .task_event(&row.instance, row.task.id, self.next_sequence());
        self.insert(Table::TaskEvent, &key, event)
    }

    fn timers(&mut self, commit: &Commit, row: &[u8]) -> Result<(), Error> {
        for timer in &commit.disarm {
            self.record.delete(Table::Timer, &keys::timer(row, timer))?;
        }
        for timer in &commit.arm {
            let row = keys::timer(row, timer);
            // A token is a hash of the arming input, which is applied once, so the key never
            // repeats.
            self.put_empty(KeyPresence::Absent, Table::Timer, &row)?;
        }
        Ok(())
    }

    fn inputs(&mut self, commit: &Commit, row: &[u8]) -> Result<(), Error> {
        for number in &commit.unbuffer {
            self.record
                .delete(Table::BufferedInput, &keys::history(row, *number))?;
        }

        let buffer = commit.buffer.as_deref();
        let spill = commit.spill.as_deref();
        for (input, first) in [(buffer, 0), (spill, keys::FIRST_SPILLED)] {
            let Some(input) = input else { continue };
            // Sequences only increase, so the inputs keep the order of their commits.
            let number = first + self.next_sequence();
            self.insert(Table::BufferedInput, &keys::history(row, number), input)?;
        }
        Ok(())
    }

    fn add_work(&mut self, item: &WorkItem) -> Result<(), Error> {
        let outbox_key = OutboxKey {
            destination: item.destination(),
            sequence: self.next_sequence(),
        };

        self.store_state.outbox_depth += 1;
        count(Operation::WorkItemEncode);
        self.work.push(outbox_key.sequence);
        self.insert(Table::Outbox, &keys::outbox(&outbox_key), item)
    }

    /// Deletes an outbox row. A missing row is ignored, so that the depth stays correct.
    fn settle(&mut self, outbox_key: &OutboxKey) -> Result<(), Error> {
        let row = keys::outbox(outbox_key);
        // The tables do not contain the deletions of this group, hence both checks.
        if self.completed.contains(&outbox_key.sequence)
            || !self.tables.contains(Table::Outbox, &row)?
        {
            return Ok(());
        }

        self.record.delete(Table::Outbox, &row)?;
        self.store_state.outbox_depth = self.store_state.outbox_depth.saturating_sub(1);
        self.completed.insert(outbox_key.sequence);
        Ok(())
    }

    fn checkpoint(
        &mut self,
        source: &CheckpointKey,
        position: StreamPosition,
    ) -> Result<(), Error> {
        let row = keys::checkpoint(source);
        self.put(Table::Checkpoint, &row, &position)
    }

    fn define(&mut self, program: &DefinitionRef, source: &[u8]) -> Result<(), Error> {
        self.put(
            Table::Definition,
            &program.hash,
            &(program, DefinitionSourceRef(source)),
        )
    }

    fn deploy(&mut self, deployment: &Deployment) -> Result<(), Error> {
        match &deployment.context {
            None => self.put(Table::Meta, keys::DEPLOYMENT, deployment),
            Some(context) => self.put(Table::Meta, &keys::context_deployment(context), deployment),
        }
    }

    /// Stores a dead letter. The copy to publish is a separate row, because the dead letter may be
    /// redriven or discarded before the copy is on the bus.
    fn dead_letter(&mut self, dead_letter: &DeadLetter) -> Result<(), Error> {
        let row = keys::dead_letter(&dead_letter.tenant, dead_letter.id);
        self.put(Table::DeadLetter, &row, dead_letter)?;

        let row = keys::dead_letter_outbox(self.next_sequence());
        self.insert(Table::DeadLetterOutbox, &row, dead_letter)
    }

    /// Deletes an unreadable instance. Its timers and work items are ignored when they fire or
    /// complete; the sweep of tasks finds its open tasks.
    fn drop_instance(&mut self, key: &InstanceKey) -> Result<(), Error> {
        let row = self.keys.instance(key);
        // Without a limit: the instance can start again and must not find rows of the old one.
        self.delete_range(Table::History, &KeyRange::of_prefix(row.clone()))?;
        self.delete_range(Table::BufferedInput, &KeyRange::of_prefix(row.clone()))?;
        self.delete_range(Table::JobLog, &KeyRange::of_prefix(row.clone()))?;
        self.delete_range(Table::JobClaim, &KeyRange::of_prefix(row.clone()))?;

        self.record.delete(Table::Attention, &row)?;
        self.uncounted()?;
        self.record.delete(Table::Instance, &row)
    }

    /// Makes the next opening count all instances: the status of an unreadable one is unknown.
    fn uncounted(&mut self) -> Result<(), Error> {
        self.record.delete(Table::Meta, COUNTED)
    }

    fn trim_feed(&mut self, before: Timestamp, retained_commits: u64) -> Result<(), Error> {
        let record = &mut *self.record;
        let trimmed = &mut self.trimmed;
        let mut remaining = TRIM_BATCH;
        let is_feed_enabled = self.feeding.writer_id.is_some();
        let bounds = TrimBounds {
            before,
            retained_commits,
            last: self.store_state.position,
        };

        // The rows are in the order of the commits, so the first one to retain ends the trim.
        self.tables
            .scan_keys(Table::Feed, &[], None, &mut |key, row| {
                let (offset, at) = write::read_offset(key, row)?;

                // Without a feed, all of it is deleted.
                if remaining == 0 || is_feed_enabled && !bounds.is_expired(&offset, at) {
                    return Ok(ControlFlow::Break(()));
                }

                remaining -= 1;
                *trimmed = Some(offset);
                record.delete(Table::Feed, key)?;
                Ok(ControlFlow::Continue(()))
            })
    }

    /// Writes a row that may replace one.
    fn put(&mut self, table: Table, key: &[u8], value: &impl Serialize) -> Result<(), Error> {
        self.record.put(KeyPresence::Unknown, table, key, |buffer| {
            encode(buffer, value);
        })
    }

    /// Writes a row whose key is new.
    fn insert(&mut self, table: Table, key: &[u8], value: &impl Serialize) -> Result<(), Error> {
        self.record.put(KeyPresence::Absent, table, key, |buffer| {
            encode(buffer, value);
        })
    }

    /// Writes a row whose key contains all data.
    fn put_empty(&mut self, newness: KeyPresence, table: Table, key: &[u8]) -> Result<(), Error> {
        self.record.put(newness, table, key, |buffer| {
            buffer.extend_from_slice(EMPTY);
        })
    }

    fn next_sequence(&mut self) -> u64 {
        self.store_state.sequence += 1;
        self.store_state.sequence
    }
}

fn row_of(timer: &ArmedTimer) -> Timer {
    Timer {
        due: timer.due,
        name: timer.name.clone(),
        token: timer.token,
    }
}
