//! Detects a log that is missing, replaced or shortened, before anything is written.
//!
//! The node keeps the identity of the log and a recent durable position elsewhere, and the stores
//! keep their checkpoints. A log that contradicts them lost messages. It is opened only if the loss
//! is accepted; then it assigns higher sequences than every lost message had.

use std::path::Path;
use std::sync::Arc;

use orlog_journal::{Disk, DurablePosition, Error as JournalError, Journal, RecoveryReport};
use uuid::Uuid;

use super::cursors::Cursors;
use super::log;
use super::options::{ConsumerCheckpoint, OpenError, Options};

/// Opens the journal of the log with its identity, or creates it. Also returns whether messages are
/// missing and the loss is accepted.
pub(super) fn open_journal(
    dir: &Path,
    options: &Options,
    disk: Arc<dyn Disk>,
) -> Result<(Uuid, Journal, bool), OpenError> {
    let path = dir.join("log");
    let lost = |reason: String| OpenError::Lost {
        path: dir.to_owned(),
        reason,
    };
    let mut is_lost = false;
    let stored = log::read_id(dir)?;
    let has_log = orlog_journal::has_segments(&path)?;
    // A log without records is compared before its first segment is created.
    let reason = missing(stored, has_log, options.expected)
        .or_else(|| check_checkpoints(options, stored.unwrap_or_default(), 1).filter(|_| !has_log));
    if let Some(reason) = reason {
        if !options.accept_data_loss {
            return Err(lost(reason));
        }
        is_lost = true;
        // Records of an unknown identity cannot be continued.
        if stored.is_none() {
            orlog_journal::move_aside(&path)?;
        }
    }

    let stream_id = stored.map_or_else(|| log::make_id(dir), Ok)?;
    // A position of another log says nothing about this one. The difference was accepted above.
    let known = options
        .expected
        .filter(|expected| expected.identity == stream_id.into_bytes());
    let mut open = options.journal(stream_id);
    open.expected_last = known.map_or(0, |known| known.position);

    let journal = match Journal::open_on(&path, open.clone(), Arc::clone(&disk)) {
        Err(JournalError::LostEnd { .. }) if options.accept_data_loss => {
            // The failed attempt has changed nothing on the disk, so a second one without the
            // expectation is safe.
            is_lost = true;
            open.expected_last = 0;
            Journal::open_on(&path, open, disk)?.0
        }
        Err(error @ JournalError::LostEnd { .. }) => return Err(lost(error.to_string())),
        opened => opened?.0,
    };
    Ok((stream_id, journal, is_lost))
}

/// Verifies a closed log; see [`super::verify`].
pub(super) fn verify(
    dir: &Path,
    expected: Option<DurablePosition>,
) -> Result<RecoveryReport, OpenError> {
    let path = dir.join("log");
    let lost = |reason: String| OpenError::Lost {
        path: dir.to_owned(),
        reason,
    };
    if let Some(reason) = missing(
        log::read_id(dir)?,
        orlog_journal::has_segments(&path)?,
        expected,
    ) {
        return Err(lost(reason));
    }

    let position = expected.map_or(0, |expected| expected.position);
    let found = orlog_journal::verify(&path)?;
    if found.last_sequence < position {
        let short = JournalError::LostEnd {
            path,
            last: found.last_sequence,
            expected: position,
        };
        return Err(lost(short.to_string()));
    }
    Ok(found)
}

/// Returns the missing part of the log, if it existed before.
fn missing(
    stored: Option<Uuid>,
    has_log: bool,
    expected: Option<DurablePosition>,
) -> Option<String> {
    match (stored, expected) {
        (None, _) if has_log => {
            Some("the log exists, but the file stream-id is missing".to_owned())
        }
        (None, Some(_)) => Some("it is missing".to_owned()),
        (Some(found), Some(expected)) if expected.identity != found.into_bytes() => {
            let expected = hex::encode(expected.identity);
            Some(format!(
                "it is log {}, but log {expected} was here",
                found.simple()
            ))
        }
        _ => None,
    }
}

/// Returns the missing part if a consumer has read to a sequence that is not assigned yet, or if it
/// has read another log.
pub(super) fn check_checkpoints(options: &Options, stream_id: Uuid, next: u64) -> Option<String> {
    options
        .checkpoints
        .iter()
        .filter_map(|checkpoint| checkpoint.position)
        .find_map(|checkpoint| {
            let sequence = checkpoint.sequence;
            if checkpoint.stream_id != stream_id {
                let expected = checkpoint.stream_id.simple();
                let found = stream_id.simple();
                return Some(format!(
                    "it is log {found}, but a checkpoint belongs to log {expected}"
                ));
            }
            // A checkpoint at the next number would skip the next message.
            (sequence >= next).then(|| {
                format!(
                    "it ends at message {}, but message {sequence} was read",
                    next - 1
                )
            })
        })
}

/// Rejects a consumer whose cursor is ahead of its checkpoint: the cursor only follows durable
/// checkpoints.
pub(super) fn check_cursors(options: &Options, cursors: &Cursors) -> Result<(), OpenError> {
    let checkpoints = options
        .checkpoints
        .iter()
        .filter(|_| !options.accept_data_loss);
    for ConsumerCheckpoint { name, position } in checkpoints {
        let cursor = cursors.cursor(name);
        let checkpoint = position.map_or(0, |position| position.sequence);
        if cursor > checkpoint {
            return Err(OpenError::ConsumerBehind {
                name: name.clone(),
                checkpoint,
                cursor,
            });
        }
    }
    Ok(())
}
