//! Verification of a backup, and its restore into a data directory.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use super::error::BackupFailure;
use super::files::{
    FileChecksum, MANIFEST, SUMS, below, checksum, io_error, new_dir, sync_dir, sync_tree,
};
use super::manifest::Manifest;
use crate::layout::{InterruptedRestore, RESTORING};

/// Reads every file of a backup and compares it with its checksum. Blocks.
///
/// # Errors
/// [`BackupFailure::NoBackup`]; [`BackupFailure::Damaged`] names every file that is changed,
/// missing or unexpected.
pub fn verify(from: &Path) -> Result<Manifest, BackupFailure> {
    let manifest = Manifest::read(from)?;
    let mut errors = Vec::new();
    for file in &manifest.files {
        // The manifest can come from another machine: such a path would lead a restore out of its
        // directory.
        if !is_within(&file.path) {
            return Err(BackupFailure::Damaged(vec![format!(
                "path {:?} is outside the backup",
                file.path
            )]));
        }

        match checksum(&from.join(&file.path)) {
            Ok(found) if found.bytes != file.bytes => {
                errors.push(format!(
                    "{} has {} bytes, expected {}",
                    file.path, found.bytes, file.bytes
                ));
            }
            Ok(found) if found.sha256 != file.sha256 => {
                errors.push(format!("{} has another checksum", file.path));
            }
            Ok(_) => {}
            Err(BackupFailure::Io { source, .. }) => {
                errors.push(format!("{}: {source}", file.path));
            }
            Err(error) => return Err(error),
        }
    }

    for path in below(from)? {
        let name = path
            .strip_prefix(from)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        // A file without a checksum could have any content.
        let is_known = [MANIFEST, SUMS].contains(&name.as_str())
            || manifest.files.iter().any(|file| file.path == name);

        if !is_known {
            errors.push(format!("{name} is not listed in the manifest"));
        }
    }

    if errors.is_empty() {
        Ok(manifest)
    } else {
        Err(BackupFailure::Damaged(errors))
    }
}

fn is_within(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Verifies a backup whose files were just written, and returns when the files are durable. Blocks.
///
/// # Errors
/// Those of [`verify`].
pub fn verify_fetched(to: &Path) -> Result<Manifest, BackupFailure> {
    let manifest = verify(to)?;
    sync_tree(to)?;
    Ok(manifest)
}

/// Restores a valid backup into a data directory. If `to` is not an empty directory, it is not
/// changed. On error, `to` is restored to its previous state. Blocks.
///
/// # Errors
/// Those of [`verify`]; [`BackupFailure::NotEmpty`], [`BackupFailure::Interrupted`].
pub fn restore(from: &Path, to: &Path) -> Result<Manifest, BackupFailure> {
    let was_there = to.exists();
    let part = to.join(RESTORING);
    if part.exists() {
        return Err(InterruptedRestore(to.to_owned()).into());
    }

    if was_there {
        // Before the backup is read, which can take long: a directory with content is rejected at
        // once.
        new_dir(to)?;
    }

    let manifest = verify(from)?;

    // Verified before the first file is written: a damaged backup leaves the directory as it was.
    new_dir(&part)?;

    // Inside the directory, not beside it: the directory may be a mount point, and renames cannot
    // cross it.
    let mut moved = Vec::new();
    let files = manifest.files.iter().map(|file| (file, file.path.as_str()));
    let filled = fill(files, from, &part).and_then(|()| move_out(&part, to, &mut moved));
    if let Err(error) = filled {
        // If the removal fails too, the next restore attempt or a node detects the files.
        for path in &moved {
            remove(path).ok();
        }
        fs::remove_dir_all(if was_there { &part } else { to }).ok();
        return Err(error);
    }

    Ok(manifest)
}

/// Copies the store of one shard from a valid backup into the directory `to`, which must be new or
/// empty. Blocks.
///
/// # Errors
/// Those of [`verify`]; [`BackupFailure::NoBackup`] if the backup does not contain the shard.
pub fn copy_shard(from: &Path, shard: u16, to: &Path) -> Result<Manifest, BackupFailure> {
    let manifest = verify(from)?;
    if manifest.shards.iter().all(|copied| copied.shard != shard) {
        let reason = format!("it does not contain shard {shard}");
        return Err(BackupFailure::NoBackup {
            path: from.to_owned(),
            reason,
        });
    }

    new_dir(to)?;
    let dir = format!("shard-{shard}/");
    let files = manifest
        .files
        .iter()
        .filter_map(|file| Some((file, file.path.strip_prefix(&dir)?)));

    fill(files, from, to)?;
    Ok(manifest)
}

/// Copies files to these paths and verifies the checksums again, because a second read can return
/// other data.
fn fill<'a>(
    files: impl Iterator<Item = (&'a FileChecksum, &'a str)>,
    from: &Path,
    to: &Path,
) -> Result<(), BackupFailure> {
    for (file, path) in files {
        let source = from.join(&file.path);
        let target = to.join(path);
        if let Some(dir) = target.parent() {
            fs::create_dir_all(dir).map_err(io_error(dir))?;
        }

        fs::copy(&source, &target).map_err(io_error(&target))?;
        if checksum(&target)?.sha256 != file.sha256 {
            return Err(BackupFailure::Damaged(vec![format!(
                "{} changed between two reads",
                file.path
            )]));
        }

        // The backup omits the zeros at the end of preallocated files.
        let written = File::options().write(true).open(&target);
        let synced =
            written.and_then(|open| open.set_len(file.length).and_then(|()| open.sync_all()));
        synced.map_err(io_error(&target))?;
    }

    sync_tree(to)
}

/// Moves all files to the target directory and removes the marker file last.
fn move_out(part: &Path, to: &Path, moved: &mut Vec<PathBuf>) -> Result<(), BackupFailure> {
    for entry in fs::read_dir(part).map_err(io_error(part))? {
        let entry = entry.map_err(io_error(part))?;
        let target = to.join(entry.file_name());
        fs::rename(entry.path(), &target).map_err(io_error(&target))?;
        moved.push(target);
    }

    // Before the marker is removed: after a power failure, a directory without it must have all
    // files.
    sync_dir(to)?;
    fs::remove_dir(part).map_err(io_error(part))?;
    sync_dir(to)?;

    let above = to
        .parent()
        .filter(|above| !above.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    sync_dir(above)
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
