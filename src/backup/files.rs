//! Files and their sums.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::Error;

/// The file with the manifest.
pub const MANIFEST: &str = "manifest.json";
/// The file with the sums, as `sha256sum --check` reads them; the manifest's is the last.
pub const SUMS: &str = "SHA256SUMS";
/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A file as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Its path within the backup.
    pub path: String,
    /// Its size in the backup, without the zeros at its end.
    pub bytes: u64,
    /// Its size with them: tables and journals are allocated ahead.
    pub length: u64,
    /// SHA-256 of what is in the backup, in hexadecimal.
    pub sha256: String,
}

/// For an error about a path.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Makes the folder, for this user alone, or finds it empty. (The root of a file system never is quite.)
///
/// # Errors
/// [`Error::NotEmpty`], [`Error::Io`].
pub fn new_folder(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
    for entry in fs::read_dir(path).map_err(at(path))? {
        if entry.map_err(at(path))?.file_name() != "lost+found" {
            return Err(Error::NotEmpty(path.to_owned()));
        }
    }
    Ok(())
}

/// Returns once the disk has the names of everything below a folder.
pub(super) fn settle(folder: &Path) -> Result<(), Error> {
    let mut folders = BTreeSet::from([folder.to_owned()]);
    for file in below(folder)? {
        folders.extend(
            file.ancestors().skip(1).take_while(|above| above.starts_with(folder)).map(Path::to_owned),
        );
    }
    folders.iter().try_for_each(|folder| sync_folder(folder))
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(at(folder))
}

/// The files below a folder, in the order of their paths.
pub(super) fn below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let entry = entry.map_err(at(&folder))?;
            let is_folder = entry.file_type().map_err(at(&folder))?.is_dir();
            if is_folder { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    Ok(files)
}

/// The sums of all files below a folder but the manifest and the sums, without the zeros at their ends. The files are on the disk then.
pub(super) fn sums(folder: &Path) -> Result<Vec<FileSum>, Error> {
    let mut sums = Vec::new();
    settle(folder)?;
    for path in below(folder)? {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
        if name != MANIFEST && name != SUMS {
            let length = trim(&path).map_err(at(&path))?;
            sums.push(FileSum { path: name, length, ..sum(&path)? });
        }
    }
    Ok(sums)
}

/// Cuts off the zeros at the end of a file, durably; answers how long it was.
fn trim(path: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let (zeros, mut piece) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut end = length;
    while end > 0 {
        let begin = end.saturating_sub(PIECE_BYTES as u64);
        let piece = &mut piece[..usize::try_from(end - begin).unwrap_or(PIECE_BYTES)];
        file.read_exact_at(piece, begin)?;
        if *piece == zeros[..piece.len()] {
            end = begin;
            continue;
        }
        let left = piece.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        end = begin + left;
        break;
    }
    file.set_len(end)?;
    file.sync_all()?;
    Ok(length)
}

/// The size and the sum of a file.
pub(super) fn sum(path: &Path) -> Result<FileSum, Error> {
    let mut file = File::open(path).map_err(at(path))?;
    let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let read = file.read(&mut piece).map_err(at(path))?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        bytes += read as u64;
    }
    Ok(FileSum { path: path.display().to_string(), bytes, length: bytes, sha256: hex(&digest.finalize()) })
}

/// In hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a text does not fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Writes a file, durably.
pub(super) fn written(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(at(path))
}

/// Bytes that are free for this process on the file system of a path.
///
/// # Errors
/// When the system does not say.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zeros_at_the_end_of_a_file_are_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let check = |bytes: Vec<u8>, left: usize| {
            fs::write(&path, &bytes).unwrap();
            assert_eq!(trim(&path).unwrap(), bytes.len() as u64);
            assert_eq!(fs::read(&path).unwrap(), bytes[..left]);
        };
        check(vec![], 0);
        check(vec![0; 3], 0);
        check(vec![0; 2 * PIECE_BYTES + 5], 0);
        check(vec![0, 1, 0], 2);
        check(vec![7; 3], 3);
        let mut long = vec![0; 3 * PIECE_BYTES];
        long[PIECE_BYTES] = 1;
        check(long, PIECE_BYTES + 1);
    }
}
