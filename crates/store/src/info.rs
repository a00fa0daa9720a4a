//! Looking at a store without opening it.

use std::path::Path;

use crate::encoding::record::Heads;
use crate::encoding::value;
use crate::error::Error;
use crate::store_dir::{FORMAT_KEY, HEADS_KEY, PLACE_KEY, admitted};
use crate::table::Table;

/// What a store says about itself to whoever looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its format.
    pub format: u32,
    /// The last commit that is in its tables.
    pub folded_position: u64,
    /// Records of its journal; `None`: it follows a log and has none.
    pub journal: Option<orlog_journal::Recovery>,
    /// Rows of each table, by its name.
    pub rows: Vec<(&'static str, u64)>,
}

impl Look {
    /// Its last commit.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.journal.as_ref().map_or(self.folded_position, |journal| journal.last_sequence)
    }
}

/// Looks at the store in the folder `dir` without opening it: nothing of it is changed, nobody is kept out. Reads its journal
/// record by record. `None`: there is no store.
///
/// # Errors
/// [`Error::NewerFormat`], [`Error::Corrupt`], [`Error::Io`], and what is wrong with its journal.
pub fn look(dir: &Path) -> Result<Option<Look>, Error> {
    let tables = dir.join("tables");
    if !tables.join("mdbx.dat").exists() {
        return Ok(None);
    }
    let seen = crate::mdbx::look(&tables, &[FORMAT_KEY, HEADS_KEY, PLACE_KEY])?;
    let [format, heads, place] = seen.meta.as_slice() else { return Ok(None) };
    let Some(format) = admitted(format.as_deref(), &tables)? else { return Ok(None) };
    let heads: Heads = value::decode(Table::Meta, heads.as_deref().unwrap_or_default())?;
    let journal = match place {
        Some(_) => None,
        None => Some(orlog_journal::inspect(&dir.join("journal"))?),
    };
    if let Some(journal) = journal.as_ref().filter(|journal| journal.last_sequence < heads.position) {
        let (last, held) = (journal.last_sequence, heads.position);
        let reason = format!("it ends at record {last}, but the tables hold record {held}");
        return Err(Error::Corrupt { place: dir.join("journal").display().to_string(), reason });
    }
    Ok(Some(Look { format, folded_position: heads.position, journal, rows: seen.rows }))
}
