//! Whether a backup is still what was written, and making a data folder of it.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use super::error::Error;
use super::files::{MANIFEST, SUMS, at, below, new_folder, settle, sum, sync_folder};
use super::manifest::Manifest;

/// Reads every file of a backup and compares it with its sum. Blocks.
///
/// # Errors
/// [`Error::NoBackup`]; [`Error::Damaged`] names every file that is not what was written, is missing, or is too many.
pub fn verify(from: &Path) -> Result<Manifest, Error> {
    let manifest = Manifest::read(from)?;
    let mut wrong = Vec::new();
    for file in &manifest.files {
        if !is_within(&file.path) {
            return Err(Error::Damaged(vec![format!("{:?} leads out of the backup", file.path)]));
        }
        match sum(&from.join(&file.path)) {
            Ok(found) if found.bytes != file.bytes => {
                wrong.push(format!("{} has {} bytes, {} were written", file.path, found.bytes, file.bytes));
            }
            Ok(found) if found.sha256 != file.sha256 => wrong.push(format!("{} was changed", file.path)),
            Ok(_) => {}
            Err(Error::Io { source, .. }) => wrong.push(format!("{}: {source}", file.path)),
            Err(error) => return Err(error),
        }
    }
    for path in below(from)? {
        let name = path.strip_prefix(from).unwrap_or(&path).to_string_lossy().into_owned();
        let is_known =
            [MANIFEST, SUMS].contains(&name.as_str()) || manifest.files.iter().any(|file| file.path == name);
        if !is_known {
            wrong.push(format!("{name} does not belong to it"));
        }
    }
    if wrong.is_empty() { Ok(manifest) } else { Err(Error::Damaged(wrong)) }
}

fn is_within(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Verifies a backup whose files were just written, and returns once the disk has all of it. Blocks.
///
/// # Errors
/// Those of [`verify`].
pub fn fetched(to: &Path) -> Result<Manifest, Error> {
    let manifest = verify(to)?;
    settle(to)?;
    Ok(manifest)
}

/// What a data folder holds while it is being made. No node starts on such a folder.
pub const RESTORING: &str = "restoring";

/// Makes a data folder of a backup that is whole. What is at `to` is not touched unless it is an empty folder; when this returns an
/// error it is as it was. Blocks.
///
/// # Errors
/// Those of [`verify`]; [`Error::NotEmpty`], [`Error::CutOff`].
pub fn restore(from: &Path, to: &Path) -> Result<Manifest, Error> {
    let (was_there, part) = (to.exists(), to.join(RESTORING));
    if part.exists() {
        return Err(Error::CutOff(to.to_owned()));
    }
    if was_there {
        new_folder(to)?;
    }
    let manifest = verify(from)?;
    new_folder(&part)?;
    // Within the folder, not beside it: that may be a mount, over which nothing can be renamed.
    let mut moved = Vec::new();
    let made = fill(&manifest, from, &part).and_then(|()| move_out(&part, to, &mut moved));
    if let Err(error) = made {
        // What cannot be removed either is found by the next attempt, and by a node.
        for path in &moved {
            remove(path).ok();
        }
        fs::remove_dir_all(if was_there { &part } else { to }).ok();
        return Err(error);
    }
    Ok(manifest)
}

/// Copies, and compares once more: what was read a moment ago may be read otherwise now.
fn fill(manifest: &Manifest, from: &Path, to: &Path) -> Result<(), Error> {
    for file in &manifest.files {
        let (source, target) = (from.join(&file.path), to.join(&file.path));
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        fs::copy(&source, &target).map_err(at(&target))?;
        if sum(&target)?.sha256 != file.sha256 {
            return Err(Error::Damaged(vec![format!("{} was read otherwise than before", file.path)]));
        }
        let written = File::options().write(true).open(&target);
        let settled = written.and_then(|open| open.set_len(file.length).and_then(|()| open.sync_all()));
        settled.map_err(at(&target))?;
    }
    settle(to)
}

/// Moves everything up, and removes the mark last.
fn move_out(part: &Path, to: &Path, moved: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(part).map_err(at(part))? {
        let entry = entry.map_err(at(part))?;
        let target = to.join(entry.file_name());
        fs::rename(entry.path(), &target).map_err(at(&target))?;
        moved.push(target);
    }
    sync_folder(to)?;
    fs::remove_dir(part).map_err(at(part))?;
    sync_folder(to)?;
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(above)
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
