//! Commands for definitions: checked, tested and simulated without a node, deployed and migrated on
//! one.

use std::path::{Path, PathBuf};

use orlog_program::Diagnostic;

use orlog_node::definitions::list_files;

pub(crate) mod check;
pub(crate) mod deploy;
pub(crate) mod explore;
pub(crate) mod graph;
pub(crate) mod migrate;
pub(crate) mod prove;
pub(crate) mod reload;
pub(crate) mod simulate;
pub(crate) mod test;

/// Returns the definition files at a path: the file, or those of a directory.
fn definition_files(path: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    if path.is_dir() {
        list_files(path)
    } else {
        vec![Ok(path.to_owned())]
    }
}
