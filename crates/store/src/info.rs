//! Reads information about a store without opening it.

use std::path::Path;

use orlog_journal::DurablePosition;

use crate::encoding::record::StoreState;
use crate::encoding::value;
use crate::error::Error;
use crate::mdbx::inspect::read_environment;
use crate::mdbx::verified;
use crate::presence;
use crate::store_dir::{FORMAT_KEY, IDENTITY_KEY, LOG_POSITION_KEY, STATE_KEY, check_format};
use crate::table::Table;

/// Information about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// Format of the store.
    pub format: u32,
    /// Identity of the store.
    pub identity: [u8; 16],
    /// Last commit in the tables.
    pub flushed_position: u64,
    /// Records of the journal; `None` if the store follows a log and has no journal.
    pub journal: Option<orlog_journal::RecoveryReport>,
    /// Number of rows of each table, by name.
    pub rows: Vec<(&'static str, u64)>,
}

impl StoreInfo {
    /// Returns the last commit.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(self.flushed_position, |journal| journal.last_sequence)
    }
}

/// Reads information about the store in the directory `dir` without opening it: it changes nothing
/// and takes no lock. Reads the journal record by record. Returns `None` if there is no store.
///
/// # Errors
/// [`Error::Lost`] if it contradicts the expected position; [`Error::NewerFormat`],
/// [`Error::Corrupt`], [`Error::DamagedJournal`], [`Error::Damaged`], [`Error::Io`].
pub fn read_info(
    dir: &Path,
    expected: Option<DurablePosition>,
) -> Result<Option<StoreInfo>, Error> {
    let tables = dir.join("tables");
    presence::check_tables(dir, expected)?;
    if !tables.join("mdbx.dat").exists() {
        return Ok(None);
    }

    let seen = read_environment(
        &tables,
        &[FORMAT_KEY, IDENTITY_KEY, STATE_KEY, LOG_POSITION_KEY],
    )?;
    let [format, identity, store_state, journal_place] = seen.meta.as_slice() else {
        return Ok(None);
    };
    // Without a format row, the creation of the store was interrupted.
    let Some(format) = check_format(format.as_deref(), &tables)? else {
        return Ok(None);
    };

    let value = |key, row: &Option<Vec<u8>>| {
        verified(
            &tables,
            Table::Meta,
            key,
            row.as_deref().unwrap_or_default(),
        )
        .map(<[u8]>::to_vec)
    };
    let identity = value::decode(Table::Meta, &value(IDENTITY_KEY, identity)?)?;
    let store_state: StoreState = value::decode(Table::Meta, &value(STATE_KEY, store_state)?)?;

    // A store that follows a log has no journal.
    let journal = match journal_place {
        Some(_) => None,
        None => Some(orlog_journal::verify(&dir.join("journal"))?),
    };

    if let Some(journal) = &journal {
        presence::check_journal(
            dir,
            DurablePosition {
                identity,
                position: journal.last_sequence,
            },
            expected,
            store_state.position,
        )?;
    }

    Ok(Some(StoreInfo {
        format,
        identity,
        flushed_position: store_state.position,
        journal,
        rows: seen.rows,
    }))
}
