//! Reader of audit records, newest first, by page.

use std::path::Path;

use serde_json::Value;

use super::writer::{numbers, path};

/// Filter of audit records.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    /// Tenant; `None`: all tenants and the node.
    pub tenant: Option<&'a str>,
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

pub(super) fn read(dir: &Path, query: &AuditFilter<'_>) -> Result<AuditPage, Error> {
    let (mut page, mut scanned) = (AuditPage::default(), 0);
    let below = query.cursor.map(cursor).transpose()?;
    for number in numbers(dir)?.into_iter().rev() {
        if below.is_some_and(|(file, _)| number > file) {
            continue;
        }
        let mut bytes = match std::fs::read(path(dir, number)) {
            Ok(bytes) => bytes,
            // The file was deleted as the oldest one in the meantime.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => return Err(error.into()),
        };
        if let Some((_, end)) = below.filter(|(file, _)| *file == number) {
            bytes.truncate(end);
        }
        let mut end = bytes.len();
        while end > 0 {
            if page.records.len() == query.limit || scanned == query.scan {
                page.next = Some(format!("{number}-{end}"));
                return Ok(page);
            }
            let start = bytes[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            scanned += 1;
            // A line truncated by a crash is skipped.
            if let Ok(record) = serde_json::from_slice::<Value>(&bytes[start..end])
                && query.is(&record)
            {
                page.records.push(record);
            }
            end = start;
        }
    }
    Ok(page)
}

fn cursor(text: &str) -> Result<(u64, usize), Error> {
    let parts = text.split_once('-').and_then(|(file, end)| Some((file.parse().ok()?, end.parse().ok()?)));
    parts.ok_or_else(|| Error::InvalidCursor(text.chars().take(64).collect()))
}

impl AuditFilter<'_> {
    fn is(&self, record: &Value) -> bool {
        let has = |name: &str, query: Option<&str>| query.is_none_or(|query| record[name] == *query);
        let at = || record["at"].as_str().and_then(|at| orlog_model::Timestamp::parse(at).ok());
        has("tenant", self.tenant)
            && has("user", self.user)
            && has("outcome", self.outcome)
            && self
                .route
                .is_none_or(|part| record["route"].as_str().is_some_and(|route| route.contains(part)))
            && self.from_millis.is_none_or(|from| at().is_some_and(|at| at.as_millis() >= from))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuditOptions, AuditOutcome, AuditRecord, AuditTrail};
    use super::*;

    fn record(number: u32) -> AuditRecord {
        AuditRecord {
            id: uuid::Uuid::now_v7(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            user: Some(format!("user-{}", number % 2)),
            role: None,
            tenant: None,
            route: "POST /admin/reload".to_owned(),
            target: number.to_string(),
            outcome: AuditOutcome::Succeeded,
            status: 200,
            code: None,
            request_id: String::new(),
            source: None,
            forwarded_for: None,
            forwarded_by: None,
            node: String::new(),
        }
    }

    fn targets(page: &AuditPage) -> Vec<u32> {
        page.records.iter().map(|record| record["target"].as_str().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn audit_files_rotate_and_pages_span_files() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            AuditOptions { dir: Some(dir.path().to_owned()), max_bytes: 1000, max_files: 3, log: false };
        let audit = AuditTrail::open(&options).unwrap();
        (0..40).for_each(|number| audit.record(&record(number)));
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let query =
                AuditFilter { cursor: next.as_deref(), limit: 2, scan: 100, ..AuditFilter::default() };
            let page = audit.read(&query).unwrap();
            found.extend(targets(&page));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(numbers(dir.path()).unwrap().len(), 3);
        assert!((6..40).contains(&found.len()), "{found:?}");
        assert_eq!(found, (0..40).rev().take(found.len()).collect::<Vec<_>>());
    }

    #[test]
    fn audit_reader_filters_by_actor_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            AuditOptions { dir: Some(dir.path().to_owned()), max_bytes: 1 << 20, max_files: 1, log: false };
        let audit = AuditTrail::open(&options).unwrap();
        (0..10).for_each(|number| audit.record(&record(number)));
        let query = AuditFilter { user: Some("user-1"), limit: 100, scan: 5, ..AuditFilter::default() };
        let page = audit.read(&query).unwrap();
        assert_eq!(targets(&page), [9, 7, 5]);
        let rest = AuditFilter { cursor: page.next.as_deref(), scan: 100, ..query };
        assert_eq!(targets(&audit.read(&rest).unwrap()), [3, 1]);
        assert!(audit.read(&AuditFilter { cursor: Some("x"), ..query }).is_err());
    }

    #[test]
    fn torn_audit_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(path(dir.path(), 7), "{\"target\":\"1\"}\n{\"targ").unwrap();
        let options =
            AuditOptions { dir: Some(dir.path().to_owned()), max_bytes: 1 << 20, max_files: 1, log: false };
        let audit = AuditTrail::open(&options).unwrap();
        audit.record(&record(2));
        let page = audit.read(&AuditFilter { limit: 9, scan: 9, ..AuditFilter::default() }).unwrap();
        assert_eq!(targets(&page), [2, 1]);
    }
}
