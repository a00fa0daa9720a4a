//! Appends to the job log of an instance. Lines are numbered from 1; the row of the number 0 has
//! the range of the stored lines.

use orlog_model::{JobLogAppend, JobLogChunk};
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::record::{KeyPresence, RecordWriter};
use crate::encoding::value::{decode, encode};
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

/// Appends lines, and deletes the oldest chunks above the limit. The last chunk stays.
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
    let range = tables.get(Table::JobLog, &head, |value| decode(Table::JobLog, value))?;
    let JobLogRange { mut first, next } = range
        .transpose()?
        .unwrap_or(JobLogRange { first: 1, next: 1 });

    let chunk = keys::history(row, next);
    // The numbers only increase, so the key is new.
    record.put(KeyPresence::Absent, Table::JobLog, &chunk, |buffer| {
        encode(buffer, &append.chunk);
    })?;

    let after = next + append.chunk.lines.len() as u64;
    while first < next && after - first > append.max_lines {
        let oldest = keys::history(row, first);
        let chunk = tables.get(Table::JobLog, &oldest, |value| {
            decode::<JobLogChunk>(Table::JobLog, value)
        })?;

        record.delete(Table::JobLog, &oldest)?;
        // A damaged chunk has an unknown length: the lines before the new ones are lost with it.
        first = chunk
            .and_then(Result::ok)
            .map_or(next, |chunk| first + chunk.lines.len().max(1) as u64);
    }

    let range = JobLogRange { first, next: after };
    record.put(KeyPresence::Unknown, Table::JobLog, &head, |buffer| {
        encode(buffer, &range);
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, JobLogAppend, JobLogChunk, LogLine, Name};

    use crate::samples::{apply, at, key, small, transition};
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
