//! Reading records, newest first, page by page.

use std::path::Path;

use serde_json::Value;

use super::writer::{numbers, path};

/// Which records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// About this tenant; `None`: about every tenant and the node.
    pub tenant: Option<&'a str>,
    /// By whom.
    pub who: Option<&'a str>,
    /// Whose route contains this text.
    pub route: Option<&'a str>,
    /// With this outcome.
    pub outcome: Option<&'a str>,
    /// Not before this time, in milliseconds since 1970.
    pub from_millis: Option<i64>,
    /// Where an earlier page ended.
    pub cursor: Option<&'a str>,
    /// At most so many.
    pub limit: usize,
    /// Looks at no more than so many.
    pub scan: usize,
}

/// Some of the records.
#[derive(Debug, Default)]
pub struct Page {
    /// Newest first.
    pub records: Vec<Value>,
    /// Where to go on; `None`: there are no more.
    pub next: Option<String>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files cannot be read.
    #[error("the audit trail cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It was not handed out here.
    #[error("{0:?} is no cursor of the audit trail")]
    BadCursor(String),
}

pub(super) fn read(folder: &Path, wanted: &Wanted<'_>) -> Result<Page, Error> {
    let (mut page, mut looked) = (Page::default(), 0);
    let below = wanted.cursor.map(cursor).transpose()?;
    for number in numbers(folder)?.into_iter().rev() {
        if below.is_some_and(|(file, _)| number > file) {
            continue;
        }
        let mut bytes = match std::fs::read(path(folder, number)) {
            Ok(bytes) => bytes,
            // It was dropped meanwhile, being the oldest.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => return Err(error.into()),
        };
        if let Some((_, end)) = below.filter(|(file, _)| *file == number) {
            bytes.truncate(end);
        }
        let mut end = bytes.len();
        while end > 0 {
            if page.records.len() == wanted.limit || looked == wanted.scan {
                page.next = Some(format!("{number}-{end}"));
                return Ok(page);
            }
            let begin = bytes[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            looked += 1;
            // A line that a crash has cut says nothing.
            if let Ok(record) = serde_json::from_slice::<Value>(&bytes[begin..end])
                && wanted.is(&record)
            {
                page.records.push(record);
            }
            end = begin;
        }
    }
    Ok(page)
}

fn cursor(text: &str) -> Result<(u64, usize), Error> {
    let parts = text.split_once('-').and_then(|(file, end)| Some((file.parse().ok()?, end.parse().ok()?)));
    parts.ok_or_else(|| Error::BadCursor(text.chars().take(64).collect()))
}

impl Wanted<'_> {
    fn is(&self, record: &Value) -> bool {
        let has = |name: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| record[name] == *wanted);
        let at = || record["at"].as_str().and_then(|at| orlog_model::Timestamp::parse(at).ok());
        has("tenant", self.tenant)
            && has("who", self.who)
            && has("outcome", self.outcome)
            && self
                .route
                .is_none_or(|part| record["route"].as_str().is_some_and(|route| route.contains(part)))
            && self.from_millis.is_none_or(|from| at().is_some_and(|at| at.millis() >= from))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Audit, Options, Outcome, Record};
    use super::*;

    fn record(number: u32) -> Record {
        Record {
            id: uuid::Uuid::now_v7(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            who: Some(format!("who-{}", number % 2)),
            role: None,
            tenant: None,
            route: "POST /admin/reload".to_owned(),
            target: number.to_string(),
            outcome: Outcome::Done,
            status: 200,
            code: None,
            request_id: String::new(),
            source: None,
            forwarded_for: None,
            forwarded_by: None,
            node: String::new(),
        }
    }

    fn targets(page: &Page) -> Vec<u32> {
        page.records.iter().map(|record| record["target"].as_str().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn files_follow_each_other_the_oldest_go_and_pages_cross_them() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            Options { folder: Some(folder.path().to_owned()), max_bytes: 1000, keep: 3, log: false };
        let audit = Audit::open(&options).unwrap();
        (0..40).for_each(|number| audit.keep(&record(number)));
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let wanted = Wanted { cursor: next.as_deref(), limit: 2, scan: 100, ..Wanted::default() };
            let page = audit.read(&wanted).unwrap();
            found.extend(targets(&page));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(numbers(folder.path()).unwrap().len(), 3);
        assert!((6..40).contains(&found.len()), "{found:?}");
        assert_eq!(found, (0..40).rev().take(found.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_finds_by_who_and_looks_no_further_than_told() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            Options { folder: Some(folder.path().to_owned()), max_bytes: 1 << 20, keep: 1, log: false };
        let audit = Audit::open(&options).unwrap();
        (0..10).for_each(|number| audit.keep(&record(number)));
        let wanted = Wanted { who: Some("who-1"), limit: 100, scan: 5, ..Wanted::default() };
        let page = audit.read(&wanted).unwrap();
        assert_eq!(targets(&page), [9, 7, 5]);
        let rest = Wanted { cursor: page.next.as_deref(), scan: 100, ..wanted };
        assert_eq!(targets(&audit.read(&rest).unwrap()), [3, 1]);
        assert!(audit.read(&Wanted { cursor: Some("x"), ..wanted }).is_err());
    }

    #[test]
    fn a_line_that_a_crash_has_cut_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(folder.path(), 7), "{\"target\":\"1\"}\n{\"targ").unwrap();
        let options =
            Options { folder: Some(folder.path().to_owned()), max_bytes: 1 << 20, keep: 1, log: false };
        let audit = Audit::open(&options).unwrap();
        audit.keep(&record(2));
        let page = audit.read(&Wanted { limit: 9, scan: 9, ..Wanted::default() }).unwrap();
        assert_eq!(targets(&page), [2, 1]);
    }
}
