//! Detects a store that is missing, replaced or shortened, before anything is written.
//!
//! The tables contain commits that were durable in the journal, and the owner of the store keeps
//! its identity and a recent durable position elsewhere ([`Options::expected`]). A store that
//! contradicts them lost data. It is opened only if the loss is accepted; a journal that cannot be
//! continued is then moved aside, never deleted.

use std::path::Path;
use std::sync::Arc;

use orlog_journal::{Disk, DurablePosition, Error as JournalError, Journal};

use crate::error::Error;
use crate::options::Options;

/// Directory of the new tables, in the directory of the store.
pub(crate) const REBUILD_DIR: &str = "rebuild";

/// Checks that the tables exist if the store existed before.
pub(crate) fn check_tables(dir: &Path, expected: Option<DurablePosition>) -> Result<(), Error> {
    if dir.join("tables/mdbx.dat").exists() {
        return Ok(());
    }

    let reason = match (orlog_journal::has_segments(&dir.join("journal"))?, expected) {
        // The tables are created before the journal, so a journal alone proves that they are lost.
        (true, _) => "the journal exists, but the tables are missing".to_owned(),
        (false, Some(expected)) => format!(
            "it is missing; its commit {} was durable",
            expected.position
        ),
        (false, None) => return Ok(()),
    };

    Err(Error::Lost {
        path: dir.to_owned(),
        reason,
    })
}

/// Checks that the journal that ends with the commit `end` contains the expected commit and those
/// of the tables.
pub(crate) fn check_journal(
    dir: &Path,
    end: DurablePosition,
    expected: Option<DurablePosition>,
    flushed: u64,
) -> Result<(), Error> {
    check_identity(dir, expected, end.identity)?;

    let expected = expected_last(expected, end.identity, flushed);
    if end.position < expected {
        return Err(JournalError::LostEnd {
            path: dir.join("journal"),
            last: end.position,
            expected,
        }
        .into());
    }
    Ok(())
}

/// Checks that the store is the expected one.
fn check_identity(
    dir: &Path,
    expected: Option<DurablePosition>,
    found: [u8; 16],
) -> Result<(), Error> {
    match expected {
        Some(DurablePosition { identity, .. }) if identity != found => {
            let reason = format!(
                "it is store {}, but store {} was here",
                hex::encode(found),
                hex::encode(identity)
            );
            Err(Error::Lost {
                path: dir.to_owned(),
                reason,
            })
        }
        _ => Ok(()),
    }
}

fn expected_last(expected: Option<DurablePosition>, identity: [u8; 16], flushed: u64) -> u64 {
    // With an accepted loss, the position may be that of another store. It does not apply to this
    // one.
    let known = expected.filter(|expected| expected.identity == identity);
    known.map_or(0, |known| known.position).max(flushed)
}

/// Checks the directory before it is opened. A loss that is accepted moves the journal without
/// tables aside.
pub(crate) fn admit(dir: &Path, options: &Options) -> Result<(), Error> {
    match check_tables(dir, options.expected) {
        // The journal and the new tables exist: nothing is lost.
        Err(Error::Lost { path, .. }) if is_rebuild_interrupted(dir) => {
            let reason =
                "the rebuild of its tables was interrupted; run `orlog rebuild` again".to_owned();
            Err(Error::Lost { path, reason })
        }
        Err(Error::Lost { reason, .. }) if options.accept_data_loss => {
            tracing::error!(path = %dir.display(), reason, "loss of the store accepted");
            move_aside(&dir.join("journal"))
        }
        checked => checked,
    }
}

/// Returns whether a rebuild ended before the new tables were in place.
fn is_rebuild_interrupted(dir: &Path) -> bool {
    dir.join(REBUILD_DIR).join("tables").exists()
}

/// Opens the journal of the tables whose last commit is `flushed`, or creates it for a new store.
pub(crate) fn open_journal(
    dir: &Path,
    options: &Options,
    flushed: DurablePosition,
    device: Arc<dyn Disk>,
) -> Result<Journal, Error> {
    check_identity(
        dir,
        options.expected.filter(|_| !options.accept_data_loss),
        flushed.identity,
    )?;

    let path = dir.join("journal");
    let mut open = orlog_journal::Options::new(flushed.identity);
    open.segment_bytes = options.journal_segment_bytes;
    open.expected_last = expected_last(options.expected, flushed.identity, flushed.position);

    match Journal::open_on(&path, open.clone(), Arc::clone(&device)) {
        Err(JournalError::LostEnd { last, expected, .. }) if options.accept_data_loss => {
            tracing::error!(path = %path.display(), last, expected, "loss of commits accepted");
            // The loss is accepted, so the records that remain are opened without the expectation.
            open.expected_last = 0;
            if last < flushed.position {
                // The tables continue after their own position; the journal does not reach it.
                move_aside(&path)?;
                open.first_sequence = flushed.position + 1;
            }
            Ok(Journal::open_on(&path, open, device)?.0)
        }
        opened => Ok(opened?.0),
    }
}

fn move_aside(journal: &Path) -> Result<(), Error> {
    if let Some(aside) = orlog_journal::move_aside(journal)? {
        tracing::error!(
            journal = %journal.display(), aside = %aside.display(),
            "journal moved aside"
        );
    }
    Ok(())
}
