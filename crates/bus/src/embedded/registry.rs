//! Registry in a journal of the data directory.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use orlog_journal::{DurablePosition, Error as JournalError, Journal, Options};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::options::OpenError;
use super::writer::append_error;
use crate::Error;
use crate::registry::{IDENTITY, Registry, RegistryView};

const SEGMENT_BYTES: u64 = 256 << 10;
/// Number of outdated entries above which the journal is rewritten at the start, in addition to one
/// for each record.
const MAX_OUTDATED: u64 = 1000;

/// Registry of a single node. The first write creates its journal.
pub struct JournalRegistry {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    journal: Mutex<Option<Journal>>,
    view: watch::Sender<Arc<RegistryView>>,
}

/// Entry of the journal: a write, or the revision of a copy (with an empty key).
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

impl JournalRegistry {
    /// Opens the registry in a directory. `expected` is the position that is known to be durable.
    ///
    /// # Errors
    /// If the journal is in use, damaged, or ends before the expected position
    /// ([`OpenError::Lost`]).
    pub fn open(dir: &Path, expected: Option<DurablePosition>) -> Result<Self, OpenError> {
        let mut view = RegistryView {
            is_current: true,
            ..RegistryView::default()
        };

        let expected_last = expected.map_or(0, |expected| expected.position);
        let mut journal = None;
        // A node without records has no journal. With an expected position, a missing directory is
        // a loss.
        if dir.is_dir() || expected_last > 0 {
            let mut opened = open_journal(dir, expected_last).map_err(|error| lost(dir, error))?;
            read(&opened, &mut view)?;
            compact(&mut opened, &view)?;
            journal = Some(opened);
        }

        let shared = Shared {
            dir: dir.to_owned(),
            journal: Mutex::new(journal),
            view: watch::Sender::new(Arc::new(view)),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Copies all records into a new registry in the directory `to`; does nothing without records.
    /// Blocks.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn copy_to(&self, to: &Path) -> Result<(), Error> {
        let view = Arc::clone(&self.shared.view.borrow());
        if view.revision == 0 {
            return Ok(());
        }
        let copied = open_journal(to, 0).and_then(|mut copy| append_all(&mut copy, &view));
        copied.map_err(append_error)
    }
}

#[async_trait]
impl Registry for JournalRegistry {
    fn view(&self) -> watch::Receiver<Arc<RegistryView>> {
        self.shared.view.subscribe()
    }

    fn durable_position(&self) -> Option<DurablePosition> {
        let journal = self.shared.journal.lock();
        let position = journal.as_ref()?.reader().last_synced();
        (position > 0).then_some(DurablePosition {
            identity: IDENTITY,
            position,
        })
    }

    async fn refresh(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn put(&self, key: &str, value: Option<String>, seen: u64) -> Result<Option<u64>, Error> {
        let shared = Arc::clone(&self.shared);
        let key = key.to_owned();
        // A sync blocks.
        let written = tokio::task::spawn_blocking(move || shared.put(&key, value, seen)).await;
        written
            .map_err(|_| Error::Unavailable("the process is shutting down".to_owned()))?
            .map_err(append_error)
    }
}

impl Shared {
    fn put(
        &self,
        key: &str,
        value: Option<String>,
        seen: u64,
    ) -> Result<Option<u64>, JournalError> {
        // One lock covers the comparison and the write: of two writers that have seen the same
        // revision, one succeeds.
        let mut journal = self.journal.lock();
        let mut view = RegistryView::clone(&self.view.borrow());
        if view.revision_of(key) != seen {
            return Ok(None);
        }

        let journal = match &mut *journal {
            Some(journal) => journal,
            none => none.insert(open_journal(&self.dir, 0)?),
        };

        // One counter for all keys: a record that is removed and created again must not repeat a
        // revision, or a stale writer would match it.
        let revision = view.revision + 1;
        let entry = Entry {
            key: key.into(),
            revision,
            value,
        };
        append(journal, &entry)?;
        // A failed sync poisons the journal. A later write cannot succeed while this one is in
        // doubt.
        journal.sync()?;
        // Only now: readers see durable records.
        view.apply(key, revision, entry.value.as_deref());
        self.view.send_replace(Arc::new(view));
        Ok(Some(revision))
    }
}

fn lost(dir: &Path, error: JournalError) -> OpenError {
    match error {
        JournalError::LostEnd { .. } => OpenError::Lost {
            path: dir.to_owned(),
            reason: error.to_string(),
        },
        other => other.into(),
    }
}

fn open_journal(dir: &Path, expected_last: u64) -> Result<Journal, JournalError> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        spare_segments: 0,
        expected_last,
        ..Options::new(IDENTITY)
    };
    Ok(Journal::open(dir, options)?.0)
}

fn read(journal: &Journal, view: &mut RegistryView) -> Result<(), JournalError> {
    let reader = journal.reader();
    // A compaction that was interrupted leaves old entries before their copies. The copies repeat
    // the last value of each key.
    reader.for_each(reader.first_sequence(), |_, payload| {
        let entry: Entry<'_> =
            serde_json::from_slice(payload).map_err(|error| JournalError::Corrupt {
                path: journal.path().to_owned(),
                offset: error.column() as u64,
                reason: "a record is no entry of a registry",
            })?;
        view.apply(&entry.key, entry.revision, entry.value.as_deref());
        Ok(())
    })
}

/// Writes all records again and drops the entries before them, if most entries are outdated.
fn compact(journal: &mut Journal, view: &RegistryView) -> Result<(), JournalError> {
    let first = journal.first_sequence();
    let next = journal.next_sequence();
    let needed = 2 * (view.records.len() as u64 + 1);
    if next - first <= needed + MAX_OUTDATED {
        return Ok(());
    }

    // Copied first, then dropped: a crash in between leaves both.
    append_all(journal, view)?;
    journal.truncate_before(next)
}

fn append_all(journal: &mut Journal, view: &RegistryView) -> Result<(), JournalError> {
    for (key, record) in &view.records {
        append(
            journal,
            &Entry {
                key: key.into(),
                revision: record.revision,
                value: Some(record.value.to_string()),
            },
        )?;
    }

    // The largest revision can belong to a removed record, which is not copied. Without this entry
    // the number would be assigned again.
    append(
        journal,
        &Entry {
            key: "".into(),
            revision: view.revision,
            value: None,
        },
    )?;
    journal.sync().map(|_| ())
}

fn append(journal: &mut Journal, entry: &Entry<'_>) -> Result<u64, JournalError> {
    journal.append(&[&serde_json::to_vec(entry).expect("an entry is plain data")])
}
