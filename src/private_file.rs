//! Files that only the user of the process can read, replaced atomically.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a temporary file and renames it, so that a crash leaves a complete file or the earlier one. Creates the
/// directory.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let temporary = path.with_extension("new");
    // The file of an interrupted attempt may have other permissions, which `mode` does not change.
    fs::remove_file(&temporary).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn replaced_file_is_private_also_after_an_interrupted_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/secret");
        replace(&path, b"one").unwrap();
        fs::write(path.with_extension("new"), b"interrupted, longer than two").unwrap();
        fs::set_permissions(path.with_extension("new"), fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!path.with_extension("new").exists());
    }
}
