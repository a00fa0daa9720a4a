//! Files that only the user of the process can read, replaced atomically.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Error of a private file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing, or this user cannot read it.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Other users can access it.
    #[error("other users can access {path}; run `chmod {mode:o} {path}`", path = path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Mode without the access of other users.
        mode: u32,
    },
}

/// Writes a temporary file and renames it, so that a crash leaves a complete file or the earlier
/// one. Creates the directory. A private file with this content stays: a node must start on a full
/// disk.
///
/// # Errors
/// The error of the operating system, with the path.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_equal(path, bytes) {
        return Ok(());
    }
    write(path, bytes).map_err(with_path(path))
}

/// Adds the path to an error of the operating system, which does not contain it.
pub(crate) fn with_path(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn is_equal(path: &Path, bytes: &[u8]) -> bool {
    let is_private =
        fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o777 == 0o600);
    is_private && fs::read(path).is_ok_and(|found| found == bytes)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = dir_of(path);
    fs::create_dir_all(dir)?;

    let temporary = path.with_extension("new");

    // The file of an interrupted attempt may have other permissions, which `mode` does not change.
    fs::remove_file(&temporary).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;

    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    // Before the rename: after a power failure, the name must not lead to an empty file.
    file.sync_all()?;
    fs::rename(&temporary, path)?;

    // The rename itself is durable only with its directory.
    File::open(dir)?.sync_all()
}

/// Returns the directory of a file; the current one if the path has none.
fn dir_of(path: &Path) -> &Path {
    path.parent()
        // The parent of a bare name is an empty path, which cannot be opened.
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Reads a text file that other users cannot access; `others` are the bits of its mode that they
/// must not have.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path, others: u32) -> Result<String, ReadError> {
    let unreadable = |source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if mode & others != 0 {
        return Err(ReadError::Open {
            path: path.to_owned(),
            mode: mode & 0o777 & !others,
        });
    }

    fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_file_name_is_in_the_current_directory() {
        for (path, dir) in [("key", "."), ("a/key", "a"), ("/key", "/")] {
            assert_eq!(dir_of(Path::new(path)), Path::new(dir), "{path}");
        }
    }

    #[test]
    fn replaced_file_is_private_also_after_an_interrupted_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/secret");
        replace(&path, b"one").unwrap();
        fs::write(path.with_extension("new"), b"interrupted, longer than two").unwrap();
        fs::set_permissions(
            path.with_extension("new"),
            fs::Permissions::from_mode(0o644),
        )
        .unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(!path.with_extension("new").exists());
    }

    #[test]
    fn equal_file_is_not_written_and_an_error_has_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        replace(&path, b"one").unwrap();
        // As on a full disk: no temporary file can be created.
        fs::create_dir(path.with_extension("new")).unwrap();
        replace(&path, b"one").unwrap();
        let error = replace(&path, b"two").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{}: ", path.display())),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn file_that_others_can_access_is_rejected_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(
            read(&path, 0o077)
                .unwrap_err()
                .to_string()
                .starts_with("cannot read ")
        );
        replace(&path, b"text").unwrap();
        assert_eq!(read(&path, 0o077).unwrap(), "text");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = read(&path, 0o007).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("run `chmod 640 {}`", path.display())),
            "{error}"
        );
    }
}
