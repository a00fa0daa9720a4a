//! Appends to the job log of an instance. Lines are numbered from 1; the row of the number 0 has
//! the range of the stored lines.

use std::ops::ControlFlow;

use orlog_model::{JobLogAppend, JobLogChunk};
use serde::{Deserialize, Serialize};

use super::purge::PURGE_BATCH;
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::record::{KeyPresence, RecordWriter};
use crate::encoding::tuple::Key;
use crate::encoding::value::{decode, encode, readable};
use crate::error::Error;
use crate::merged::MergedTables;
use crate::table::Table;

/// Range of the stored lines of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobLogRange {
    /// Number of the first stored line.
    pub(crate) first: u64,
    /// Number of the next line.
    pub(crate) next: u64,
}

/// Appends lines, and deletes the oldest chunks above the limit, at most [`PURGE_BATCH`]: later
/// appends delete the others. The last chunk stays.
pub(super) fn append(
    tables: &MergedTables,
    record: &mut RecordWriter,
    row: &[u8],
    append: &JobLogAppend,
) -> Result<(), Error> {
    // The purge of the instance deletes its lines. Later lines would stay for ever.
    if append.chunk.lines.is_empty() || !tables.contains(Table::Instance, row)? {
        return Ok(());
    }

    let head = keys::history(row, 0);
    let range = tables.try_get(Table::JobLog, &head, |value| decode(Table::JobLog, value));
    let JobLogRange { first, next } = match readable(range)? {
        Some(range) => range.unwrap_or(JobLogRange { first: 1, next: 1 }),
        // A damaged range must not reject the lines of its instance: the chunks have it too.
        None => stored_range(tables, row)?,
    };

    let chunk = keys::history(row, next);
    // The numbers only increase, so the key is new.
    record.put(KeyPresence::Absent, Table::JobLog, &chunk, |buffer| {
        encode(buffer, &append.chunk);
    })?;

    let after = next + append.chunk.lines.len() as u64;
    let stored = JobLogRange { first, next };
    let keep_from = after.saturating_sub(append.max_lines);
    let range = JobLogRange {
        first: delete_oldest(tables, record, row, stored, keep_from)?,
        next: after,
    };
    record.put(KeyPresence::Unknown, Table::JobLog, &head, |buffer| {
        encode(buffer, &range);
    })
}

/// Deletes the stored chunks that start before the line `keep_from`, at most [`PURGE_BATCH`].
/// Returns the number of the first remaining line.
fn delete_oldest(
    tables: &MergedTables,
    record: &mut RecordWriter,
    row: &[u8],
    stored: JobLogRange,
    keep_from: u64,
) -> Result<u64, Error> {
    // Most appends stay within the limit, and need no scan.
    if stored.first >= keep_from {
        return Ok(stored.first);
    }

    let mut first = stored.next;
    let mut remaining = PURGE_BATCH;
    let start = keys::history(row, stored.first);
    let end = keys::history(row, stored.next);

    // A chunk ends where the next one starts, so its lines are not decoded, and a damaged chunk is
    // deleted like any other.
    tables.scan_keys(Table::JobLog, &start, Some(&end), &mut |key, _| {
        let (_, number) = keys::read_numbered(key)?;
        if number >= keep_from || remaining == 0 {
            first = number;
            return Ok(ControlFlow::Break(()));
        }

        remaining -= 1;
        record.delete(Table::JobLog, key)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(first)
}

/// Returns the range of the chunks of an instance.
fn stored_range(tables: &MergedTables, row: &[u8]) -> Result<JobLogRange, Error> {
    let chunks = KeyRange::of_prefix(Key::from_slice(row)).after(&keys::history(row, 0));
    let mut first = None;
    let mut last = None;
    tables.scan_keys(
        Table::JobLog,
        &chunks.start,
        chunks.end.as_deref(),
        &mut |key, _| {
            let (_, number) = keys::read_numbered(key)?;
            first.get_or_insert(number);
            last = Some(number);
            Ok(ControlFlow::Continue(()))
        },
    )?;

    let Some((first, last)) = first.zip(last) else {
        return Ok(JobLogRange { first: 1, next: 1 });
    };

    let chunk = tables.try_get(Table::JobLog, &keys::history(row, last), |value| {
        decode::<JobLogChunk>(Table::JobLog, value)
    });
    // The length of a damaged chunk is unknown. A gap in the numbers is harmless, an overlap is
    // not.
    let lines = readable(chunk)?
        .flatten()
        .map_or(JobLogChunk::MAX_LINES, |chunk| chunk.lines.len());
    Ok(JobLogRange {
        first,
        next: last + lines as u64,
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, JobLogAppend, JobLogChunk, LogLine, Name};

    use crate::samples::{apply, at, key, small, transition};
    use crate::table::Table;
    use crate::{Reader, open, open_in_memory};

    fn append(instance: &str, job: &str, texts: &[&str], max_lines: u64) -> Change {
        let lines = texts
            .iter()
            .map(|text| LogLine {
                at: at(7),
                text: (*text).to_owned(),
            })
            .collect();
        let chunk = JobLogChunk {
            job: Name::new(job).unwrap(),
            lines,
        };
        Change::AppendJobLog(Box::new(JobLogAppend {
            instance: key("acme", instance),
            chunk,
            max_lines,
        }))
    }

    fn texts(reader: &Reader, after: u64) -> Vec<(u64, String)> {
        let lines = reader.job_log(&key("acme", "o-1"), after, 100).unwrap();
        lines
            .into_iter()
            .map(|line| (line.number, line.line.text))
            .collect()
    }

    #[test]
    fn page_has_at_most_one_chunk_more_than_its_limit() {
        let (mut writer, reader) = open_in_memory(small());
        writer
            .commit(&[apply(transition(&key("acme", "o-1"), 1))], at(5))
            .unwrap();
        for _ in 0..100 {
            writer
                .commit(&[append("o-1", "a", &["x"; 10], 10_000)], at(5))
                .unwrap();
        }
        let read = |after, limit| reader.job_log(&key("acme", "o-1"), after, limit).unwrap();
        for (after, limit, expected) in [
            (0, 12, 20),
            (15, 12, 15),
            (995, 100, 5),
            (0, 1, 10),
            (0, 990, 990),
        ] {
            let lines = read(after, limit);
            assert_eq!(
                (lines.len(), lines[0].number),
                (expected, after + 1),
                "after {after}, limit {limit}"
            );
        }
        assert_eq!(read(1000, 10), []);
    }

    #[test]
    fn lines_are_numbered_and_the_oldest_chunks_are_deleted() {
        let (mut writer, reader) = open_in_memory(small());
        writer
            .commit(&[apply(transition(&key("acme", "o-1"), 1))], at(5))
            .unwrap();
        for (job, lines) in [
            ("a", &["1", "2"][..]),
            ("b", &["3"]),
            ("a", &["4", "5", "6"]),
        ] {
            writer
                .commit(&[append("o-1", job, lines, 5)], at(5))
                .unwrap();
        }
        assert_eq!(reader.job_log_range(&key("acme", "o-1")).unwrap(), (3, 7));
        let expected = [3, 4, 5, 6].map(|number: u64| (number, number.to_string()));
        assert_eq!(texts(&reader, 0), expected);
        assert_eq!(texts(&reader, 4), expected[2..]);
        assert_eq!(texts(&reader, 6), []);
        let counts = reader.job_log_counts(&key("acme", "o-1")).unwrap();
        assert_eq!(
            counts
                .into_iter()
                .map(|(job, lines)| (job.to_string(), lines))
                .collect::<Vec<_>>(),
            [("a".to_owned(), 3), ("b".to_owned(), 1)]
        );
        // One chunk above the limit stays.
        writer
            .commit(&[append("o-1", "a", &["7", "8"], 1)], at(5))
            .unwrap();
        assert_eq!(
            texts(&reader, 0),
            [(7, "7".to_owned()), (8, "8".to_owned())]
        );
    }

    #[test]
    fn lowered_limit_deletes_chunks_in_steps() {
        let (mut writer, reader) = open_in_memory(small());
        writer
            .commit(&[apply(transition(&key("acme", "o-1"), 1))], at(5))
            .unwrap();
        let chunks = super::PURGE_BATCH + 500;
        for _ in 0..chunks {
            writer
                .commit(&[append("o-1", "a", &["x"], 10_000)], at(5))
                .unwrap();
        }
        let mut append_one = || {
            writer
                .commit(&[append("o-1", "a", &["x"], 10)], at(5))
                .unwrap();
            reader.job_log_range(&key("acme", "o-1")).unwrap()
        };
        let end = chunks as u64 + 1;
        assert_eq!(append_one(), (super::PURGE_BATCH as u64 + 1, end + 1));
        assert_eq!(append_one(), (end + 2 - 10, end + 2));
        assert_eq!(texts(&reader, 0).len(), 10);
    }

    #[test]
    fn damaged_rows_do_not_reject_later_lines() {
        let dir = tempfile::tempdir().unwrap();
        let of = key("acme", "o-1");
        let (mut writer, _) = open(dir.path(), small()).unwrap();
        writer.commit(&[apply(transition(&of, 1))], at(5)).unwrap();
        for texts in [["1", "2"], ["3", "4"], ["5", "6"]] {
            writer
                .commit(&[append("o-1", "a", &texts, 9)], at(5))
                .unwrap();
        }
        writer.close().unwrap();
        {
            // The range and the oldest chunk.
            let tables = crate::damage_tests::tables(dir.path());
            for (key, mut row) in tables.stored_rows(Table::JobLog).into_iter().take(2) {
                row[0] ^= 4;
                tables.store_row(Table::JobLog, &key, &row);
            }
        }

        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        writer
            .commit(&[append("o-1", "a", &["7"], 9)], at(5))
            .unwrap();
        assert_eq!(reader.job_log_range(&of).unwrap(), (1, 8));
        writer
            .commit(&[append("o-1", "a", &["8"], 6)], at(5))
            .unwrap();
        assert_eq!(reader.job_log_range(&of).unwrap(), (3, 9));
        let expected = [3, 4, 5, 6, 7, 8].map(|number: u64| (number, number.to_string()));
        assert_eq!(texts(&reader, 0), expected);
    }

    #[test]
    fn lines_are_durable_and_belong_to_their_instance() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        writer
            .commit(&[append("o-1", "a", &["lost"], 9)], at(5))
            .unwrap();
        assert_eq!(texts(&reader, 0), [], "the instance does not exist");
        writer
            .commit(&[apply(transition(&key("acme", "o-1"), 1))], at(5))
            .unwrap();
        writer
            .commit(&[append("o-1", "a", &["kept"], 9)], at(5))
            .unwrap();
        drop((writer, reader));
        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        assert_eq!(texts(&reader, 0), [(1, "kept".to_owned())]);
        let rows = reader.inspect_rows("job_log", None, 9).unwrap();
        assert_eq!(rows.len(), 2, "the range and a chunk");
        writer
            .commit(
                &[Change::DropInstance {
                    key: key("acme", "o-1"),
                }],
                at(5),
            )
            .unwrap();
        assert_eq!(reader.inspect_rows("job_log", None, 9).unwrap(), []);
    }
}
