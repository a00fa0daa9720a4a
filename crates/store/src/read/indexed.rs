//! Reads of instances by index: rows of the table `index`, merged with the instances in the
//! memtables.
//!
//! Each row that is found names a candidate. The instance itself is read, and a candidate that has
//! changed since is skipped.

use std::collections::HashSet;
use std::ops::ControlFlow;

use orlog_model::{CorrelationId, Instance, InstanceKey, Name, SagaName, TenantId, Timestamp};

use crate::encoding::header::SnapshotHeader;
use crate::encoding::index_keys::{self, IndexedValue, StatusClass};
use crate::encoding::keys::read_instance;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::{Key, KeyReader};
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::index::{Index, VariableReader, indexed_value};
use crate::merged::Layers;
use crate::read::reader::{Reader, ScanLimits};
use crate::read::row_group::MAX_GROUP_ROWS;
use crate::read::sweep::{SweepCursor, SweepPage};
use crate::table::Table;

/// Index row of a snapshot: what a scan of one index compares.
pub(crate) type IndexRow<'a> = dyn Fn(&InstanceKey, &SnapshotHeader<'_>) -> Option<Key> + 'a;

/// Condition on an indexed variable of a saga: bounds that are inclusive. A bound of another type
/// than the value does not match.
#[derive(Debug, Clone, PartialEq)]
pub struct VariableCondition {
    /// Name of the variable.
    pub name: Name,
    /// Lower bound.
    pub lower: Option<IndexedValue>,
    /// Upper bound.
    pub upper: Option<IndexedValue>,
}

/// Instances of a saga of a tenant that changed after a position.
#[derive(Debug, Clone, Copy)]
pub struct ChangeQuery<'a> {
    /// Tenant.
    pub tenant: &'a TenantId,
    /// Saga.
    pub saga: &'a SagaName,
    /// Instances that have ended, or those that have not.
    pub has_ended: bool,
    /// Time of the last change, and the correlation id, of the last instance of the previous page.
    pub after: (Timestamp, &'a CorrelationId),
    /// Maximum number of instances.
    pub limit: usize,
}

/// Candidates of a page.
pub(crate) struct CandidatePage {
    /// Index rows and their instances, in the order of the index.
    pub(crate) found: Vec<(Key, InstanceKey, Instance)>,
    /// Last row of the page, also if its instance has changed.
    pub(crate) last: Option<Key>,
    /// Whether no row follows.
    pub(crate) is_end: bool,
    pub(crate) scanned: usize,
}

impl CandidatePage {
    fn instances(self) -> impl Iterator<Item = (InstanceKey, Instance)> {
        self.found
            .into_iter()
            .map(|(_, key, instance)| (key, instance))
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Declares all indexed variables, by saga. New indexes are built in the background, and
    /// indexes that are not declared any more are deleted.
    pub fn declare_indexes(&self, variables: &[(SagaName, Vec<Name>)]) -> Result<(), Error> {
        self.shared.declare_indexes(variables)
    }

    /// Returns whether a variable of a saga is indexed and its index is complete.
    pub fn is_indexed(&self, saga: &SagaName, name: &Name) -> Result<bool, Error> {
        self.is_ready(&Index::Variable(saga.clone(), name.clone()))
    }

    pub(crate) fn is_ready(&self, index: &Index) -> Result<bool, Error> {
        self.shared
            .read(|tables| Ok(tables.disk().indexes().is_ready(index)))
    }

    /// Returns instances that have ended, with their versions, oldest first in each saga: at most
    /// `found`, among at most `scanned`. `ended_before` returns the end of the time for the
    /// instances of a saga, or `None` to skip them. Instances that have ended since the last flush
    /// are not returned.
    pub fn sweep_ended(
        &self,
        from: &SweepCursor,
        found: usize,
        scanned: usize,
        ended_before: impl Fn(&TenantId, &SagaName) -> Option<Timestamp>,
    ) -> Result<SweepPage<(InstanceKey, u64)>, Error> {
        let mut page = SweepPage {
            found: Vec::new(),
            next: None,
            scanned: 0,
        };
        // An incomplete index would skip instances, so retention waits until it is built.
        if !self.is_ready(&Index::Instances)? {
            return Ok(page);
        }

        let mut remaining = index_keys::all_changed();
        if let Some(row) = from.row() {
            remaining = remaining.after(row);
        }
        while let Some(row) =
            self.first(Table::Index, &remaining, |row, _| Ok(Key::from_slice(row)))?
        {
            if page.found.len() >= found || page.scanned >= scanned {
                page.next = Some(SweepCursor::at(&remaining.start));
                break;
            }

            let InstanceKey { tenant, saga, .. } = index_keys::read(&row)?;
            if let Some(end) = ended_before(&tenant, &saga) {
                let range =
                    index_keys::changed_range(&tenant, &saga, StatusClass::Ended, Some(end));
                // The page can start in the middle of the range.
                let range = KeyRange {
                    start: range.start.max(remaining.start.clone()),
                    ..range
                };
                let limits = ScanLimits::page(found - page.found.len(), scanned - page.scanned);
                let candidates = self.on_disk(&range, limits, &by_change(StatusClass::Ended))?;
                page.scanned += candidates.scanned;

                // An ended instance with pending work stays, because a late success must be
                // compensated.
                let finished = candidates
                    .found
                    .into_iter()
                    .filter(|(_, _, instance)| instance.is_finished());
                page.found
                    .extend(finished.map(|(_, key, instance)| (key, instance.version)));

                if let Some(last) = candidates.last.filter(|_| !candidates.is_end) {
                    page.next = Some(SweepCursor::at(&last));
                    break;
                }
            }

            // The other rows of this saga are not due.
            remaining = index_keys::after_saga(remaining, &tenant, &saga);
        }
        Ok(page)
    }

    /// Returns instances in the order of their last changes, also those that have changed since the
    /// last flush; fewer than the limit only if no other matches. `None` while the index is built
    /// after an upgrade.
    pub fn changed_since(
        &self,
        query: &ChangeQuery<'_>,
    ) -> Result<Option<Vec<(InstanceKey, Instance)>>, Error> {
        if !self.is_ready(&Index::Instances)? {
            return Ok(None);
        }

        let ChangeQuery {
            tenant,
            saga,
            has_ended,
            after: (at, correlation),
            limit,
        } = *query;

        let key = InstanceKey {
            tenant: tenant.clone(),
            saga: saga.clone(),
            correlation: correlation.clone(),
        };
        let classes: &[_] = if has_ended {
            &[StatusClass::Ended]
        } else {
            &[StatusClass::Live, StatusClass::Stuck]
        };

        let rows = self.keys().instances(tenant, Some(saga), "");
        let mut found = Vec::new();
        for class in classes {
            let after = index_keys::changed(&key, *class, at);
            let range = index_keys::changed_range(tenant, saga, *class, None).after(&after);
            let later = self.first_candidates(range, &rows, limit, &by_change(*class))?;
            extend(&mut found, later);
        }

        // Two classes are two ranges of the index, each in order.
        found.sort_by(|(a, x), (b, y)| {
            (x.updated_at, &a.correlation).cmp(&(y.updated_at, &b.correlation))
        });
        found.truncate(limit);
        Ok(Some(found))
    }

    /// Returns the instances of a saga in a class that have not changed for the longest time.
    pub(crate) fn longest_unchanged(
        &self,
        tenant: &TenantId,
        saga: &SagaName,
        class: StatusClass,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, Instance)>, Error> {
        let range = index_keys::changed_range(tenant, saga, class, None);
        let limits = ScanLimits::rows(limit, usize::MAX);
        let page = self.on_disk(&range, limits, &by_change(class))?;

        // The instances in the memtables have changed later.
        if page.found.len() < limit {
            let rows = self.keys().instances(tenant, Some(saga), "");
            return self.first_candidates(range, &rows, limit, &by_change(class));
        }
        Ok(page.instances().collect())
    }

    /// Returns the first `limit` instances of an index range as [`Reader::candidates`]; fewer only
    /// if no row follows.
    fn first_candidates(
        &self,
        range: KeyRange,
        rows: &[KeyRange],
        limit: usize,
        row_of: &IndexRow<'_>,
    ) -> Result<Vec<(InstanceKey, Instance)>, Error> {
        collect_pages(range, limit, |range, missing| {
            self.candidates(range, rows, ScanLimits::rows(missing, usize::MAX), row_of)
        })
    }

    /// Returns the instances of an index range, also those whose index rows are not on disk yet:
    /// these have their rows in the ranges `rows`. Limits: instances found, candidates read.
    pub(crate) fn candidates(
        &self,
        range: &KeyRange,
        rows: &[KeyRange],
        limits: ScanLimits,
        row_of: &IndexRow<'_>,
    ) -> Result<CandidatePage, Error> {
        let limit = limits.found;
        // The memtables first: an instance that a flush moves in between is found twice, not
        // missed.
        let mut in_memory = self.in_memory(range, rows, limit, row_of)?;
        let mut page = self.on_disk(range, limits, row_of)?;

        // Rows after the first end of the two belong to the next page.
        let disk_end = page.last.take().filter(|_| !page.is_end);
        let memory_end = in_memory
            .get(limit)
            .and_then(|_| Some(in_memory.get(limit - 1)?.0.clone()));
        in_memory.truncate(limit);
        let mut end = disk_end.into_iter().chain(memory_end).min();
        in_memory.retain(|(row, _)| end.as_ref().is_none_or(|end| row <= end));

        let mut bytes = 0;
        let mut last_read = None;
        for (row, key) in in_memory {
            if bytes >= limits.bytes {
                end = last_read;
                break;
            }
            page.scanned += 1;
            last_read = Some(row.clone());

            let verified = self.verified(row, key, row_of)?;
            bytes += verified.as_ref().map_or(0, |(.., found)| found.state.len());
            page.found.extend(verified);
        }

        page.found
            .retain(|(row, ..)| end.as_ref().is_none_or(|end| row <= end));
        page.found.sort_by(|a, b| a.0.cmp(&b.0));
        // An instance that was flushed between the two reads is in both.
        page.found.dedup_by(|a, b| a.0 == b.0);

        // Each of the two reads kept the limit of bytes, not their sum.
        let kept = rows_within(&page.found, limits.bytes);
        if kept < page.found.len() {
            page.found.truncate(kept);
            end = page.found.last().map(|(row, ..)| row.clone());
        }

        page.is_end = end.is_none() && page.found.len() <= limit;
        page.found.truncate(limit);
        let last = page.found.last().map(|(row, ..)| row.clone());
        // A full page ends with its last result. Another one ends where the read stopped, also at
        // an instance that has changed.
        page.last = if page.found.len() == limit {
            last
        } else {
            end.or(last)
        };
        Ok(page)
    }

    /// Returns the instances of an index range whose index rows are on disk.
    fn on_disk(
        &self,
        range: &KeyRange,
        limits: ScanLimits,
        row_of: &IndexRow<'_>,
    ) -> Result<CandidatePage, Error> {
        let mut bytes = 0;
        let mut page = CandidatePage {
            found: Vec::new(),
            last: None,
            is_end: true,
            scanned: 0,
        };

        let first_group = limits.first_group();
        self.scan_groups(Layers::All, Table::Index, range, first_group, |row, _| {
            let row = Key::from_slice(row);
            let key = index_keys::read(&row)?;
            page.scanned += 1;
            // Also if the instance has changed: the next page must not read this row again.
            page.last = Some(row.clone());

            let verified = self.verified(row, key, row_of)?;
            bytes += verified.as_ref().map_or(0, |(.., found)| found.state.len());
            page.found.extend(verified);

            let is_full = page.found.len() >= limits.found
                || page.scanned >= limits.scanned
                || bytes >= limits.bytes;
            if !is_full {
                return Ok(ControlFlow::Continue(()));
            }
            page.is_end = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(page)
    }

    /// Returns the first `limit` index rows of the instances in the memtables, and one more if
    /// there is one.
    fn in_memory(
        &self,
        range: &KeyRange,
        rows: &[KeyRange],
        limit: usize,
        row_of: &IndexRow<'_>,
    ) -> Result<Vec<(Key, InstanceKey)>, Error> {
        let mut found = Vec::new();
        for within in rows {
            self.scan_groups(
                Layers::Memtables,
                Table::Instance,
                within,
                MAX_GROUP_ROWS,
                |row, value| {
                    let header: Option<SnapshotHeader<'_>> =
                        readable(decode(Table::Instance, value))?;
                    let (_, key) = read_instance(&mut KeyReader::of(row))?;
                    let indexed = header.and_then(|header| row_of(&key, &header));
                    found.extend(
                        indexed
                            .filter(|row| range.contains(row))
                            .map(|row| (row, key)),
                    );

                    // The memtables can contain many more instances than a page, so the list is cut
                    // in between.
                    if found.len() / 2 > limit.saturating_add(MAX_GROUP_ROWS) {
                        smallest(&mut found, limit);
                    }
                    Ok(ControlFlow::Continue(()))
                },
            )?;
        }

        smallest(&mut found, limit);
        Ok(found)
    }

    /// Returns the candidate if its instance still has this index row.
    fn verified(
        &self,
        row: Key,
        key: InstanceKey,
        row_of: &IndexRow<'_>,
    ) -> Result<Option<(Key, InstanceKey, Instance)>, Error> {
        let Some(instance) = readable(self.instance(&key))?.flatten() else {
            return Ok(None);
        };

        let current = row_of(&key, &SnapshotHeader::from_instance(&instance));
        if current.as_ref() == Some(&row) {
            Ok(Some((row, key, instance)))
        } else {
            Ok(None)
        }
    }
}

/// Reads pages of a range until they have `limit` instances or no row follows. `read` receives the
/// rest of the range and the number of missing instances.
fn collect_pages(
    mut range: KeyRange,
    limit: usize,
    mut read: impl FnMut(&KeyRange, usize) -> Result<CandidatePage, Error>,
) -> Result<Vec<(InstanceKey, Instance)>, Error> {
    let mut found = Vec::new();
    while found.len() < limit {
        let page = read(&range, limit - found.len())?;
        // A page lacks the candidates that changed while it was read, so a short page is not the
        // end.
        let rest = page.last.clone().filter(|_| !page.is_end);
        extend(&mut found, page.instances().collect());

        let Some(last) = rest else { break };
        range = range.after(&last);
    }
    Ok(found)
}

/// Adds instances that were read later. They replace those that have changed in between, and thus
/// have two rows.
fn extend(found: &mut Vec<(InstanceKey, Instance)>, later: Vec<(InstanceKey, Instance)>) {
    let keys: HashSet<_> = later.iter().map(|(key, _)| key).collect();
    found.retain(|(key, _)| !keys.contains(key));
    found.extend(later);
}

/// Sorts rows, and removes those after the first `limit` and one more.
fn smallest(rows: &mut Vec<(Key, InstanceKey)>, limit: usize) {
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    rows.truncate(limit.saturating_add(1));
}

/// Returns the rows of the index by status.
pub(crate) fn by_status() -> impl Fn(&InstanceKey, &SnapshotHeader<'_>) -> Option<Key> {
    |key, header| Some(index_keys::status(key, header.status))
}

/// Returns the number of rows until their states have this size.
fn rows_within(rows: &[(Key, InstanceKey, Instance)], limit: usize) -> usize {
    let mut bytes = 0;
    for (index, (.., instance)) in rows.iter().enumerate() {
        if bytes >= limit {
            return index;
        }
        bytes += instance.state.len();
    }
    rows.len()
}

/// Returns the rows of the index by time, of one class.
fn by_change(class: StatusClass) -> impl Fn(&InstanceKey, &SnapshotHeader<'_>) -> Option<Key> {
    move |key, header| {
        (StatusClass::of(header.status) == class)
            .then(|| index_keys::changed(key, class, header.updated_at))
    }
}

/// Returns the rows of the index of a variable.
pub(crate) fn by_variable(
    name: &Name,
    variables: VariableReader,
) -> impl Fn(&InstanceKey, &SnapshotHeader<'_>) -> Option<Key> {
    move |key, header| {
        let value = indexed_value(header, name, variables);
        value.map(|value| index_keys::variable(key, name, &value))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use orlog_model::{Commit, Status};

    use super::*;
    use crate::samples::{apply, at, instance, key, small, transition};

    fn state_size(state: &[u8], names: &[&str]) -> Vec<Option<IndexedValue>> {
        let text = String::from_utf8(state.to_vec()).unwrap();
        vec![Some(IndexedValue::Text(text)); names.len()]
    }

    #[test]
    fn declared_indexes_are_complete_without_a_flush() {
        let dir = tempfile::tempdir().unwrap();
        let options = crate::Options {
            variables: state_size,
            ..small()
        };
        let (mut writer, reader) = crate::open(dir.path(), options).unwrap();
        let order = key("acme", "o-1");
        writer
            .commit(&[apply(transition(&order, 1))], at(1))
            .unwrap();
        let text = Name::new("text").unwrap();
        reader
            .declare_indexes(&[(order.saga.clone(), vec![text.clone()])])
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reader.is_indexed(&order.saga, &text).unwrap() {
            assert!(Instant::now() < deadline, "the index is not built");
            std::thread::yield_now();
        }
    }

    #[test]
    fn short_page_is_continued_until_the_limit_or_the_end() {
        let row = |number: u8| Key::from_slice(&[number]);
        // Candidates 2, 3 and 5 changed while their pages were read.
        let read = |range: &KeyRange, limit: usize| {
            let pages: Vec<u8> = (1..=7).filter(|n| range.contains(&row(*n))).collect();
            let last = pages.get(limit - 1).or(pages.last()).copied();
            let found = pages.iter().take(limit).filter(|n| ![2, 3, 5].contains(*n));
            Ok(CandidatePage {
                found: found
                    .map(|n| {
                        let id = key("acme", &n.to_string());
                        (row(*n), id, instance(1, Status::Running))
                    })
                    .collect(),
                last: last.map(row),
                is_end: pages.len() <= limit,
                scanned: 0,
            })
        };
        let ids = |limit| -> Vec<String> {
            let found = collect_pages(KeyRange::all(), limit, read).unwrap();
            found
                .into_iter()
                .map(|(key, _)| key.correlation.to_string())
                .collect()
        };
        assert_eq!(ids(3), ["1", "4", "6"]);
        assert_eq!(ids(9), ["1", "4", "6", "7"]);
    }

    #[test]
    fn instance_that_changes_between_two_pages_is_returned_once() {
        let ids = ["a", "b", "a", "c"];
        // Each page has one row.
        let read = |range: &KeyRange, _| {
            let start = (0..4)
                .position(|number| range.contains(&Key::from_slice(&[number])))
                .expect("the last page ends the read");
            let number = u8::try_from(start).expect("small");
            let row = Key::from_slice(&[number]);
            let version = u64::from(number) + 1;
            Ok(CandidatePage {
                found: vec![(
                    row.clone(),
                    key("acme", ids[start]),
                    instance(version, Status::Running),
                )],
                last: Some(row),
                is_end: start == 3,
                scanned: 0,
            })
        };

        let found = collect_pages(KeyRange::all(), 3, read).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(key, instance)| (key.correlation.to_string(), instance.version))
            .collect();
        assert_eq!(
            found,
            [
                ("b".to_owned(), 2),
                ("a".to_owned(), 3),
                ("c".to_owned(), 4)
            ]
        );
    }

    #[test]
    fn changes_are_read_in_order_from_memory_and_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let mut put = |id: &str, millis: i64, status: Status, flush: bool| {
            let snapshot = Instance {
                updated_at: at(millis),
                ..instance(1, status)
            };
            let commit = Commit {
                instance: Some(Arc::new(snapshot)),
                ..Commit::empty(key("acme", id), at(millis))
            };
            writer
                .commit(&[orlog_model::Change::Apply(Box::new(commit))], at(millis))
                .unwrap();
            if flush {
                writer.flush().unwrap();
            }
        };
        put("c", 1, Status::Completed, false);
        put("b", 2, Status::Failed, true);
        put("d", 3, Status::Running, false);
        put("e", 4, Status::Stuck, true);
        put("a", 5, Status::Cancelled, false);
        let read = |has_ended, after: (i64, &str), limit| {
            let InstanceKey {
                tenant,
                saga,
                correlation,
            } = key("acme", after.1);
            let after = (at(after.0), &correlation);
            let query = ChangeQuery {
                tenant: &tenant,
                saga: &saga,
                has_ended,
                after,
                limit,
            };
            let found = reader
                .changed_since(&query)
                .unwrap()
                .expect("the index is ready");
            found
                .into_iter()
                .map(|(key, _)| key.correlation.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(read(true, (0, "z"), 9), ["c", "b", "a"]);
        assert_eq!(read(true, (0, "z"), 2), ["c", "b"]);
        assert_eq!(read(true, (2, "b"), 9), ["a"]);
        assert_eq!(
            read(true, (2, "a"), 9),
            ["b", "a"],
            "the same time, a later id"
        );
        assert_eq!(read(false, (0, "z"), 9), ["d", "e"]);
        assert_eq!(read(false, (3, "d"), 1), ["e"]);
    }
}
