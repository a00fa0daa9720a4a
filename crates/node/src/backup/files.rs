//! Files and their checksums.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::BackupFailure;

/// Name of the manifest file.
pub const MANIFEST: &str = "manifest.json";
/// Name of the checksum file, in the format of `sha256sum --check`. The manifest is its last entry.
pub const SUMS: &str = "SHA256SUMS";
/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 20;

/// Checksum and size of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChecksum {
    /// Path within the backup.
    pub path: String,
    /// Size in the backup, without trailing zeros.
    pub bytes: u64,
    /// Original size, including trailing zeros: tables and journals are preallocated.
    pub length: u64,
    /// SHA-256 of the file in the backup, in hexadecimal.
    pub sha256: String,
}

/// Returns a function that converts an I/O error to an error with this path.
pub(super) fn io_error(path: &Path) -> impl Fn(io::Error) -> BackupFailure {
    move |source| BackupFailure::Io {
        path: path.to_owned(),
        source,
    }
}

/// Creates the directory with access for this user only, or accepts an existing empty one. The root
/// of a file system is rarely empty.
///
/// # Errors
/// [`BackupFailure::NotEmpty`], [`BackupFailure::Io`].
pub fn new_dir(path: &Path) -> Result<(), BackupFailure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error(path))?;

    for entry in fs::read_dir(path).map_err(io_error(path))? {
        if entry.map_err(io_error(path))?.file_name() != "lost+found" {
            return Err(BackupFailure::NotEmpty(path.to_owned()));
        }
    }

    Ok(())
}

/// Syncs the entries of all directories below a directory to disk.
pub(super) fn sync_tree(dir: &Path) -> Result<(), BackupFailure> {
    let mut dirs = BTreeSet::from([dir.to_owned()]);
    for file in below(dir)? {
        dirs.extend(
            file.ancestors()
                .skip(1)
                .take_while(|above| above.starts_with(dir))
                .map(Path::to_owned),
        );
    }

    dirs.iter().try_for_each(|dir| sync_dir(dir))
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), BackupFailure> {
    File::open(dir)
        .and_then(|open| open.sync_all())
        .map_err(io_error(dir))
}

/// Returns the files below a directory, sorted by path.
pub(super) fn below(dir: &Path) -> Result<Vec<PathBuf>, BackupFailure> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(io_error(&dir))? {
            let entry = entry.map_err(io_error(&dir))?;
            let is_dir = entry.file_type().map_err(io_error(&dir))?.is_dir();
            if is_dir {
                dirs.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }

    files.sort();
    Ok(files)
}

/// Returns the checksums of all files below a directory, except the manifest and the checksum file.
/// Trims trailing zeros and syncs the files to disk.
pub(super) fn checksums(dir: &Path) -> Result<Vec<FileChecksum>, BackupFailure> {
    let mut sums = Vec::new();

    // The entries of the directories first: a manifest must not name files that a power failure
    // removes.
    sync_tree(dir)?;

    for path in below(dir)? {
        let name = path
            .strip_prefix(dir)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        if name != MANIFEST && name != SUMS {
            let length = trim(&path).map_err(io_error(&path))?;
            sums.push(FileChecksum {
                path: name,
                length,
                ..checksum(&path)?
            });
        }
    }

    Ok(sums)
}

/// Trims the trailing zeros of a file durably and returns its previous size.
fn trim(path: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let zeros = vec![0; CHUNK_BYTES];
    let mut piece = vec![0; CHUNK_BYTES];
    let mut end = length;
    // From the end, in chunks: most of a preallocated file can be zeros.
    while end > 0 {
        let start = end.saturating_sub(CHUNK_BYTES as u64);
        let piece = &mut piece[..usize::try_from(end - start).unwrap_or(CHUNK_BYTES)];
        file.read_exact_at(piece, start)?;

        if *piece == zeros[..piece.len()] {
            end = start;
            continue;
        }

        let left = piece
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last as u64 + 1);
        end = start + left;
        break;
    }

    file.set_len(end)?;
    file.sync_all()?;
    Ok(length)
}

/// Returns the size and the checksum of a file.
pub(super) fn checksum(path: &Path) -> Result<FileChecksum, BackupFailure> {
    let mut file = File::open(path).map_err(io_error(path))?;
    let mut digest = Sha256::new();
    let mut bytes = 0;
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut piece).map_err(io_error(path))?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        bytes += read as u64;
    }

    Ok(FileChecksum {
        path: path.display().to_string(),
        bytes,
        length: bytes,
        sha256: hex::encode(digest.finalize()),
    })
}

/// Writes a file durably.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), BackupFailure> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        path.parent()
            .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().map_err(io_error(path))
}

/// Returns the free bytes that this process can use on the file system of a path.
///
/// # Errors
/// If the system call fails.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_zeros_are_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let check = |bytes: Vec<u8>, left: usize| {
            fs::write(&path, &bytes).unwrap();
            assert_eq!(trim(&path).unwrap(), bytes.len() as u64);
            assert_eq!(fs::read(&path).unwrap(), bytes[..left]);
        };
        check(vec![], 0);
        check(vec![0; 3], 0);
        check(vec![0; 2 * CHUNK_BYTES + 5], 0);
        check(vec![0, 1, 0], 2);
        check(vec![7; 3], 3);
        let mut long = vec![0; 3 * CHUNK_BYTES];
        long[CHUNK_BYTES] = 1;
        check(long, CHUNK_BYTES + 1);
    }
}
