//! Reader of audit records, newest first, by page.

use std::collections::BTreeSet;
use std::path::Path;

use orlog_model::TenantId;
use serde_json::Value;

use super::chain::{LineHash, Link};
use super::files::FileSet;

/// Filter of audit records.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    /// Tenant; `None`: all tenants and the node.
    pub tenant: Option<&'a str>,
    /// Tenants whose records are omitted.
    pub closed: Option<&'a BTreeSet<TenantId>>,
    /// User name.
    pub user: Option<&'a str>,
    /// Text in the route.
    pub route: Option<&'a str>,
    /// Outcome.
    pub outcome: Option<&'a str>,
    /// Start time in milliseconds since 1970, inclusive.
    pub from_millis: Option<i64>,
    /// Cursor of the previous page.
    pub cursor: Option<&'a str>,
    /// Maximum number of records.
    pub limit: usize,
    /// Maximum size of the records, in bytes; a larger record is alone in its page. `None`: no
    /// limit.
    pub bytes: Option<usize>,
    /// Maximum number of scanned records.
    pub scan: usize,
}

/// Page of records.
#[derive(Debug, Default)]
pub struct AuditPage {
    /// Records, newest first.
    pub records: Vec<Value>,
    /// Cursor of the next page; `None` after the last one.
    pub next: Option<String>,
    /// Sequence number of the oldest scanned record that does not contain the hash of the line
    /// before it.
    pub broken_at: Option<u64>,
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files cannot be read.
    #[error("cannot read the audit trail: {0}")]
    Io(#[from] std::io::Error),
    /// The cursor is invalid.
    #[error("invalid audit cursor {0:?}")]
    InvalidCursor(String),
}

pub(super) fn read(dir: &Path, set: FileSet, query: &AuditFilter<'_>) -> Result<AuditPage, Error> {
    let mut page = AuditPage::default();
    let mut scanned = 0;
    let mut newer = None;
    let mut bytes_read = 0;
    let below = query.cursor.map(cursor).transpose()?;
    for number in set.numbers(dir)?.into_iter().rev() {
        if below.is_some_and(|(file, _)| number > file) {
            continue;
        }

        let mut bytes = match std::fs::read(set.path(dir, number)) {
            Ok(bytes) => bytes,
            // It was deleted after the list of files was read. If older ones exist, the broken link
            // to the next record shows it, unless the page begins here.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        if let Some((_, end)) = below.filter(|(file, _)| *file == number) {
            bytes.truncate(end);
        }

        let mut end = bytes.len();
        while end > 0 {
            let start = bytes[..end - 1]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let line = bytes[start..end]
                .strip_suffix(b"\n")
                .unwrap_or(&bytes[start..end]);

            // Before the limit: the oldest record of the page is compared with the line before it,
            // too.
            page.check_link(line, newer.as_ref());
            if page.records.len() == query.limit || scanned == query.scan {
                page.next = Some(format!("{number}-{end}"));
                return Ok(page);
            }

            // A line truncated by a crash is skipped.
            let record = serde_json::from_slice::<Value>(line).ok();
            let record = record.filter(|record| query.is(record));
            if record.is_some() {
                bytes_read += line.len();
                let exceeds = query.bytes.is_some_and(|limit| bytes_read > limit);
                if exceeds && !page.records.is_empty() {
                    page.next = Some(format!("{number}-{end}"));
                    return Ok(page);
                }
            }

            page.records.extend(record);
            scanned += 1;
            newer = Link::of(line);
            end = start;
        }
    }

    Ok(page)
}

impl AuditPage {
    /// Compares the hash of a line with the record after it. The oldest broken record remains.
    fn check_link(&mut self, line: &[u8], newer: Option<&Link>) {
        if let Some(newer) = newer.filter(|newer| LineHash::of(line).to_hex() != newer.previous) {
            self.broken_at = Some(newer.sequence);
        }
    }
}

fn cursor(text: &str) -> Result<(u64, usize), Error> {
    let parts = text
        .split_once('-')
        .and_then(|(file, end)| Some((file.parse().ok()?, end.parse().ok()?)));
    parts.ok_or_else(|| Error::InvalidCursor(text.chars().take(64).collect()))
}

impl AuditFilter<'_> {
    fn is(&self, record: &Value) -> bool {
        let has =
            |name: &str, query: Option<&str>| query.is_none_or(|query| record[name] == *query);
        let at = || {
            record["at"]
                .as_str()
                .and_then(|at| orlog_model::Timestamp::parse(at).ok())
        };

        let tenant = || {
            record["tenant"]
                .as_str()
                .and_then(|tenant| TenantId::new(tenant).ok())
        };
        let is_closed = self
            .closed
            // For most callers no tenant is closed, so that the tenants of records are not parsed.
            .filter(|closed| !closed.is_empty())
            .is_some_and(|closed| tenant().is_some_and(|tenant| closed.contains(&tenant)));

        !is_closed
            && has("tenant", self.tenant)
            && has("user", self.user)
            && has("outcome", self.outcome)
            && self.route.is_none_or(|part| {
                record["route"]
                    .as_str()
                    .is_some_and(|route| route.contains(part))
            })
            && self
                .from_millis
                .is_none_or(|from| at().is_some_and(|at| at.as_millis() >= from))
    }
}
