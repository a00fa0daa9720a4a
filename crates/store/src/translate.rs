//! From changes to row operations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use orlog_model::{
    ArmedTimer, Change, Commit, DeadLetter, Deployment, EventId, Input, Instance, InstanceKey, OutboxKey,
    ProgramRef, Replacement, Source, Standing, StreamPosition, TaskEntry, TaskRow, Timer, Timestamp,
    WorkItem,
};
use uuid::Uuid;

use crate::encoding::definition_source::SourceRef;
use crate::encoding::keys::{self, Keys};
use crate::encoding::range::Range;
use crate::encoding::record::{Heads, Newness, Record};
use crate::encoding::value::{EMPTY, decode, encode};
use crate::error::Error;
use crate::feed::write::{self, FeedMark, Feeding};
use crate::merged::Tables;
use crate::read::attention::Attention;
use crate::table::Table;

/// How many rows one change forgets at most.
pub(crate) const PURGED_AT_ONCE: usize = 1000;
/// How many rows of the feed one change drops at most. They are small, and there may be one for every commit.
const TRIMMED_AT_ONCE: usize = 10_000;

/// A group being translated.
struct Translation<'a> {
    tables: &'a Tables,
    keys: &'a Keys,
    record: &'a mut Record,
    heads: Heads,
    bucket: i64,
    /// Outbox rows that this group deletes; each counts once.
    settled: BTreeSet<Vec<u8>>,
    /// Checkpoints that this group sets.
    checkpoints: BTreeMap<&'a Source, StreamPosition>,
    feeding: Feeding,
    /// The last row of the feed that this group drops.
    trimmed: Option<FeedMark>,
}

/// Writes the row operations of a group into `record`; the answer is where the store stands after it. Nothing is changed.
pub(crate) fn translate(
    group: &[Change],
    now: Timestamp,
    (tables, keys, feeding): (&Tables, &Keys, Feeding),
    record: &mut Record,
) -> Result<Heads, Error> {
    let mut heads = *tables.heads();
    heads.position += 1;
    heads.latest = heads.latest.max(now);
    let bucket = keys.bucket(heads.latest);
    let (settled, checkpoints) = (BTreeSet::new(), BTreeMap::new());
    record.clear();
    let mut translation =
        Translation { tables, keys, record, heads, bucket, settled, checkpoints, feeding, trimmed: None };
    group.iter().try_for_each(|change| translation.change(change))?;
    let Translation { heads, record, trimmed, .. } = translation;
    feeding.end((tables, &heads), trimmed, record)?;
    Ok(heads)
}

impl<'a> Translation<'a> {
    fn change(&mut self, change: &'a Change) -> Result<(), Error> {
        match change {
            Change::Apply(commit) => self.apply(commit),
            Change::Replace(replacement) => self.replace(replacement),
            Change::Settle(key) => self.settle(key),
            Change::Checkpoint(source, position) => self.checkpoint(source, *position),
            Change::PutDefinition { program, source } => self.define(program, source),
            Change::DropDefinition { hash } => self.record.delete(Table::Definition, hash),
            Change::Deploy(deployment) => self.deploy(deployment),
            Change::PutDeadLetter(letter) => self.dead_letter(letter),
            Change::DropDeadLetter { tenant, id } => {
                self.record.delete(Table::DeadLetter, &keys::dead_letter(tenant, *id))
            }
            Change::PublishedLetter { sequence } => {
                self.record.delete(Table::LetterOutbox, &keys::letter_outbox(*sequence))
            }
            Change::PurgeApplied { before } => self.purge(*before),
            Change::PurgeInstance { key, version } => self.purge_instance(key, *version),
            Change::PurgeTasks { instance, tasks } => self.purge_tasks(instance, tasks),
            Change::TrimFeed { before, keep } => self.trim_feed(*before, *keep),
        }
    }

    fn apply(&mut self, commit: &Commit) -> Result<(), Error> {
        let key = &commit.key;
        if let Some(instance) = &commit.instance {
            let row = self.keys.instance(key);
            self.record.put(Newness::Any, Table::Instance, &row, |buffer| encode(buffer, instance))?;
            self.attention(commit.before, Standing::of(instance), commit.at, &row)?;
        }
        if let Some(history) = &commit.history {
            let row = self.keys.history(key, history.version);
            self.record.put(Newness::Any, Table::History, &row, |buffer| encode(buffer, history))?;
        }
        commit.applied.iter().try_for_each(|id| self.mark(key, id))?;
        commit.work.iter().try_for_each(|item| self.offer(item))?;
        commit.tasks.iter().try_for_each(|entry| self.task(entry))?;
        self.timers(commit)?;
        self.inputs(commit)?;
        commit.settles.iter().try_for_each(|place| self.settle(place))?;
        commit.dead_letter.iter().try_for_each(|letter| self.dead_letter(letter))
    }

    /// Remembers an event as applied.
    fn mark(&mut self, key: &InstanceKey, id: &EventId) -> Result<(), Error> {
        let row = self.keys.applied(self.bucket, key, id);
        self.record.put(Newness::Any, Table::Applied, &row, |buffer| buffer.extend_from_slice(EMPTY))
    }

    /// Sees only what is in the store: no commit of the instance may be in the group before it.
    fn replace(&mut self, replacement: &Replacement) -> Result<(), Error> {
        let Replacement { key, instance, history, .. } = replacement;
        let row = self.keys.instance(key);
        let stored = self.stored(&row)?;
        for timer in stored.iter().flat_map(|instance| &instance.timers) {
            self.record.delete(Table::Timer, &self.keys.timer(key, &row_of(timer)))?;
        }
        for timer in &instance.timers {
            // The old one of the same name and version may have been the very same.
            let row = self.keys.timer(key, &row_of(timer));
            self.record.put(Newness::Any, Table::Timer, &row, |buffer| buffer.extend_from_slice(EMPTY))?;
        }
        let before = stored.as_ref().map(Standing::of);
        self.attention(before, Standing::of(instance), instance.updated_at, &row)?;
        self.forget(Table::History, row.clone())?;
        self.forget(Table::Held, row.clone())?;
        self.record.put(Newness::Any, Table::Instance, &row, |buffer| encode(buffer, instance))?;
        for record in history {
            let row = self.keys.history(key, record.version);
            self.record.put(Newness::Any, Table::History, &row, |buffer| encode(buffer, record))?;
        }
        replacement.applied.iter().try_for_each(|id| self.mark(key, id))?;
        replacement.dropped.iter().try_for_each(|place| self.settle(place))?;
        replacement.tasks.iter().try_for_each(|entry| self.task(entry))?;
        replacement.work.iter().try_for_each(|item| self.offer(item))
    }

    /// Deletes the rows whose keys begin so.
    fn forget(&mut self, table: Table, prefix: Vec<u8>) -> Result<(), Error> {
        self.forget_some(table, prefix, &mut { usize::MAX })
    }

    /// The list of instances that do not go on by themselves follows those that come and go.
    fn attention(
        &mut self,
        before: Option<Standing>,
        now: Standing,
        since: Timestamp,
        row: &[u8],
    ) -> Result<(), Error> {
        let before = before.filter(|before| before.needs_person());
        if now.needs_person() && before != Some(now) {
            let attention = Attention { standing: now, since };
            return self.record.put(Newness::Any, Table::Attention, row, |buffer| encode(buffer, &attention));
        }
        if before.is_some() && !now.needs_person() {
            return self.record.delete(Table::Attention, row);
        }
        Ok(())
    }

    fn task(&mut self, TaskEntry { row, event }: &TaskEntry) -> Result<(), Error> {
        let key = self.keys.task(&row.instance, row.task.id);
        self.record.put(Newness::Any, Table::Task, &key, |buffer| encode(buffer, row))?;
        let key = self.keys.task_event(&row.instance, row.task.id, self.next_sequence());
        self.record.put(Newness::New, Table::TaskEvent, &key, |buffer| encode(buffer, event))
    }

    fn timers(&mut self, commit: &Commit) -> Result<(), Error> {
        for timer in &commit.disarm {
            self.record.delete(Table::Timer, &self.keys.timer(&commit.key, timer))?;
        }
        for timer in &commit.arm {
            let row = self.keys.timer(&commit.key, timer);
            // A token is a state version and never comes again, so neither does the key.
            self.record.put(Newness::New, Table::Timer, &row, |buffer| buffer.extend_from_slice(EMPTY))?;
        }
        Ok(())
    }

    fn inputs(&mut self, commit: &Commit) -> Result<(), Error> {
        for number in &commit.release {
            self.record.delete(Table::Held, &self.keys.history(&commit.key, *number))?;
        }
        commit.hold.iter().try_for_each(|input| self.hold(&commit.key, input))
    }

    fn hold(&mut self, key: &InstanceKey, input: &Input) -> Result<(), Error> {
        let row = self.keys.history(key, self.next_sequence());
        self.record.put(Newness::New, Table::Held, &row, |buffer| encode(buffer, input))
    }

    fn offer(&mut self, item: &WorkItem) -> Result<(), Error> {
        let place = OutboxKey { lane: item.work.lane(), sequence: self.next_sequence() };
        self.heads.outbox_depth += 1;
        self.record.put(Newness::New, Table::Outbox, &keys::outbox(&place), |buffer| encode(buffer, item))
    }

    /// An item that is gone already is left alone, so that the depth stays true.
    fn settle(&mut self, place: &OutboxKey) -> Result<(), Error> {
        let row = keys::outbox(place);
        if self.settled.contains(&row) || self.tables.get(Table::Outbox, &row, |_| ())?.is_none() {
            return Ok(());
        }
        self.record.delete(Table::Outbox, &row)?;
        self.heads.outbox_depth = self.heads.outbox_depth.saturating_sub(1);
        self.settled.insert(row);
        Ok(())
    }

    /// Within a stream a checkpoint only grows; a stream that was made anew begins anew.
    fn checkpoint(&mut self, source: &'a Source, position: StreamPosition) -> Result<(), Error> {
        let row = keys::checkpoint(source);
        let stored = || self.tables.get(Table::Checkpoint, &row, |bytes| decode(Table::Checkpoint, bytes));
        let old: Option<StreamPosition> = match self.checkpoints.get(source) {
            Some(position) => Some(*position),
            None => stored()?.transpose()?,
        };
        if old.is_some_and(|old| old.stream_id == position.stream_id && old.sequence >= position.sequence) {
            return Ok(());
        }
        self.checkpoints.insert(source, position);
        self.record.put(Newness::Any, Table::Checkpoint, &row, |buffer| encode(buffer, &position))
    }

    fn define(&mut self, program: &ProgramRef, source: &[u8]) -> Result<(), Error> {
        let value = |buffer: &mut Vec<u8>| encode(buffer, &(program, SourceRef(source)));
        self.record.put(Newness::Any, Table::Definition, &program.hash, value)
    }

    fn deploy(&mut self, deployment: &Deployment) -> Result<(), Error> {
        let value = |buffer: &mut Vec<u8>| encode(buffer, deployment);
        self.record.put(Newness::Any, Table::Meta, keys::DEPLOYMENT, value)
    }

    /// The copy to be published is a row of its own: a letter may be sent again or discarded before the bus has it.
    fn dead_letter(&mut self, letter: &DeadLetter) -> Result<(), Error> {
        let row = keys::dead_letter(&letter.tenant, letter.id);
        self.record.put(Newness::Any, Table::DeadLetter, &row, |buffer| encode(buffer, letter))?;
        let row = keys::letter_outbox(self.next_sequence());
        self.record.put(Newness::New, Table::LetterOutbox, &row, |buffer| encode(buffer, letter))
    }

    fn purge(&mut self, before: Timestamp) -> Result<(), Error> {
        let range = self.keys.applied_before(before);
        let (record, mut left) = (&mut *self.record, PURGED_AT_ONCE);
        self.tables.scan(Table::Applied, &range.start, range.end.as_deref(), &mut |key, _| {
            record.delete(Table::Applied, key)?;
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    /// What is kept for an instance is about to be applied to it: then it stays.
    fn purge_instance(&mut self, key: &InstanceKey, version: u64) -> Result<(), Error> {
        let row = self.keys.instance(key);
        let stands = self.stored(&row)?.is_some_and(|stored| stored.version == version && stored.is_over());
        if !stands || self.has_any(Table::Held, &row)? {
            return Ok(());
        }
        let mut left = PURGED_AT_ONCE;
        self.forget_some(Table::History, row.clone(), &mut left)?;
        if left > 0 { self.record.delete(Table::Instance, &row) } else { Ok(()) }
    }

    fn purge_tasks(&mut self, instance: &InstanceKey, tasks: &[Uuid]) -> Result<(), Error> {
        let stored = self.stored(&self.keys.instance(instance))?;
        let mut left = PURGED_AT_ONCE;
        for id in tasks {
            let key = self.keys.task(instance, *id);
            let row = self.tables.get(Table::Task, &key, |bytes| decode::<TaskRow>(Table::Task, bytes))?;
            let is_left = |row: &TaskRow| stored.as_ref().is_none_or(|of| row.updated_at < of.created_at);
            if row.transpose()?.is_some_and(|row| is_left(&row)) {
                self.forget_some(Table::TaskEvent, key.clone(), &mut left)?;
                if left == 0 {
                    return Ok(());
                }
                self.record.delete(Table::Task, &key)?;
            }
        }
        Ok(())
    }

    fn trim_feed(&mut self, before: Timestamp, keep: u64) -> Result<(), Error> {
        let (record, trimmed, mut left) = (&mut *self.record, &mut self.trimmed, TRIMMED_AT_ONCE);
        let (is_kept, last) = (self.feeding.life.is_some(), self.heads.position);
        self.tables.scan(Table::Feed, &[], None, &mut |key, row| {
            let (mark, at) = write::head(key, row)?;
            if left == 0 || is_kept && !write::is_old(&mark, at, (before, keep, last)) {
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            *trimmed = Some(mark);
            record.delete(Table::Feed, key)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn stored(&self, row: &[u8]) -> Result<Option<Instance>, Error> {
        self.tables.get(Table::Instance, row, |bytes| decode(Table::Instance, bytes))?.transpose()
    }

    fn has_any(&self, table: Table, prefix: &[u8]) -> Result<bool, Error> {
        let (range, mut any) = (Range::of_prefix(prefix.to_vec()), false);
        self.tables.scan(table, &range.start, range.end.as_deref(), &mut |_, _| {
            any = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(any)
    }

    /// Deletes the rows whose keys begin so, while any are `left` to be deleted.
    fn forget_some(&mut self, table: Table, prefix: Vec<u8>, left: &mut usize) -> Result<(), Error> {
        let (range, record) = (Range::of_prefix(prefix), &mut *self.record);
        self.tables.scan(table, &range.start, range.end.as_deref(), &mut |key, _| {
            if *left == 0 {
                return Ok(ControlFlow::Break(()));
            }
            *left -= 1;
            record.delete(table, key)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn next_sequence(&mut self) -> u64 {
        self.heads.sequence += 1;
        self.heads.sequence
    }
}

fn row_of(timer: &ArmedTimer) -> Timer {
    Timer { due: timer.due, name: timer.name.clone(), token: timer.token }
}
