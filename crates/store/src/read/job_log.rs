//! Reads of job logs.

use std::collections::BTreeMap;

use orlog_model::{InstanceKey, JobLogChunk, LogLine, Name};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::reader::{Reader, ScanLimits};
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::table::Table;
use crate::translate::JobLogRange;

/// Maximum number of chunks of one scan.
const CHUNKS_PER_SCAN: usize = 64;

/// Line of the job log of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedLine {
    /// Number of the line in the instance, from 1.
    pub number: u64,
    /// Tag of the job.
    pub job: Name,
    /// The line.
    pub line: LogLine,
}

/// Chunk whose lines are not read.
#[derive(Deserialize)]
struct ChunkSize {
    job: Name,
    lines: Vec<IgnoredAny>,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the number of the first stored line of the job log of an instance, and the number of
    /// the next line.
    pub fn job_log_range(&self, key: &InstanceKey) -> Result<(u64, u64), Error> {
        let range = self.row::<JobLogRange>(Table::JobLog, &self.keys().history(key, 0))?;
        Ok(range.map_or((1, 1), |range| (range.first, range.next)))
    }

    /// Returns the number of stored lines of each job of an instance, by tag.
    pub fn job_log_counts(&self, key: &InstanceKey) -> Result<BTreeMap<Name, u64>, Error> {
        let mut counts = BTreeMap::new();
        // The row of the number 0 has the range of the lines.
        let mut from =
            KeyRange::of_prefix(self.keys().instance(key)).after(&self.keys().history(key, 0));

        loop {
            let chunks = self.scan_rows(Table::JobLog, &from, CHUNKS_PER_SCAN, |key, value| {
                Ok((key.to_vec(), decode::<ChunkSize>(Table::JobLog, value)?))
            })?;
            let Some((last, _)) = chunks.last() else {
                return Ok(counts);
            };

            from = from.after(last);
            for (_, ChunkSize { job, lines }) in chunks {
                *counts.entry(job).or_default() += lines.len() as u64;
            }
        }
    }

    /// Returns lines of the job log of an instance after a number, oldest first: at least `limit`
    /// if there are as many, and at most one chunk more.
    pub fn job_log(
        &self,
        key: &InstanceKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<NumberedLine>, Error> {
        // A chunk has at most `MAX_LINES` lines, so the chunk of the next line starts after this
        // number.
        let earlier = after.saturating_sub(JobLogChunk::MAX_LINES as u64);
        let mut from = KeyRange::of_prefix(self.keys().instance(key))
            .after(&self.keys().history(key, earlier));
        let mut lines = Vec::new();

        while lines.len() < limit {
            let mut count = lines.len();
            let limits = ScanLimits::rows(CHUNKS_PER_SCAN, CHUNKS_PER_SCAN);
            let chunks = self.scan_page(
                Table::JobLog,
                std::slice::from_ref(&from),
                limits,
                |key, value| {
                    // A chunk has up to 1000 lines: those after the last line of the page are not
                    // decoded.
                    if count >= limit {
                        return Ok(None);
                    }

                    let first = keys::read_numbered(key)?.1;
                    let JobLogChunk { job, lines } = decode::<JobLogChunk>(Table::JobLog, value)?;
                    let numbered = (first..).zip(lines).filter(|(number, _)| *number > after);
                    let numbered = numbered.map(|(number, line)| NumberedLine {
                        number,
                        job: job.clone(),
                        line,
                    });
                    let of_chunk: Vec<_> = numbered.collect();
                    count += of_chunk.len();
                    Ok(Some((key.to_vec(), of_chunk)))
                },
            )?;

            let Some((last, _)) = chunks.items.last() else {
                break;
            };

            from = from.after(last);
            lines.extend(chunks.items.into_iter().flat_map(|(_, of_chunk)| of_chunk));
        }
        Ok(lines)
    }
}
