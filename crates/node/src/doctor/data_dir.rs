//! Checks of the data directory: writable, free space, matches the configuration, readable.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use orlog_bus::embedded::OpenError;
use orlog_store::{DurablePosition, Error};
use rustix::fs::{Access, Mode};
use rustix::io::Errno;

use super::check::{CheckResult, CheckStatus};
use crate::backup::free_bytes;
use crate::config::{BusKind, Config};
use crate::layout;

const DATA_DIR: &str = "data directory";
const PERMISSIONS: &str = "permissions";
const ROOM: &str = "disk";
/// Free space below which a node soon rejects new work.
const LOW_SPACE_BYTES: u64 = 1 << 30;
/// Error code of damaged tables.
pub(super) const DAMAGED_TABLES: &str = "OR0062";
pub(super) const DAMAGED_TABLES_REMEDY: &str = "keep a copy of the directory; then run `orlog \
    rebuild` or restore a backup; for a replicated shard move its directory `tables` away";
/// Remedy for an error that is neither a loss nor damage.
const OTHER_CAUSE: &str = "correct the cause in the message";
/// Free space below which a journal segment cannot be created.
const MIN_SPACE_BYTES: u64 = 128 << 20;

pub(super) fn check_data_dir(config: &Config) -> Vec<CheckResult> {
    let data = &config.data_dir;
    let rights = check_rights(config);
    // Each further check would fail for the same reason.
    if rights.status == CheckStatus::Error {
        return vec![rights];
    }

    let mut findings = vec![rights];
    findings.extend(check_exposure(config));
    findings.extend(room(data));

    if !data.is_dir() {
        return findings;
    }

    if let Err(error) = layout::check_data_dir(config) {
        findings.push(CheckResult::error(
            DATA_DIR,
            format!("{error:#}"),
            "use the configuration with which the directory was created",
        ));
    }

    // An unreadable file was reported above.
    let durable = layout::durable_positions(data).unwrap_or_default();
    for shard in 0..config.shards {
        let expected = durable.get(&layout::shard_name(shard)).copied();
        findings.extend(store(&layout::shard_dir(data, shard), shard, expected));
    }

    if config.bus.kind == BusKind::Embedded {
        findings.extend(events(&data.join("bus"), durable.get("bus").copied()));
    }

    findings
}

/// Checks that this user can read and write the data directory and the files of its stores and its
/// event log.
pub(super) fn check_rights(config: &Config) -> CheckResult {
    let data = config.data_dir.as_path();
    let displayed = data.display();

    // A node creates the directory, which requires the rights of its parent.
    let (subject, path) = if data.exists() {
        ("it", data)
    } else {
        ("its parent directory", above(data))
    };

    if !path.is_dir() {
        return CheckResult::error(
            DATA_DIR,
            format!("{} is not a directory", path.display()),
            "set `data_dir` to a directory",
        );
    }

    let user = rustix::process::geteuid().as_raw();
    if let Err(error) =
        rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
    {
        let found = format!("{displayed}: {subject} is not writable by user {user}: {error}");
        return CheckResult::error(
            DATA_DIR,
            found,
            format!("change the owner: chown {user} {}", path.display()),
        );
    }

    let shards = (0..config.shards).map(|shard| layout::shard_dir(data, shard));
    match shards
        .chain([data.join("bus")])
        .find_map(|dir| first_inaccessible(&dir))
    {
        Some((path, error)) => CheckResult::error(
            DATA_DIR,
            format!(
                "{} is not readable and writable by user {user}: {error}",
                path.display()
            ),
            format!(
                "run the node as the owner of the file, or change the owner: chown -R {user} \
                 {displayed}"
            ),
        ),
        None if data.exists() => CheckResult::ok(DATA_DIR, format!("{displayed} is writable")),
        None => CheckResult::ok(
            DATA_DIR,
            format!("{displayed} does not exist yet and can be created"),
        ),
    }
}

/// Returns the first path at or below `path` that this user cannot read and write, with the error.
fn first_inaccessible(path: &Path) -> Option<(PathBuf, Errno)> {
    let enter = if path.is_dir() {
        Access::EXEC_OK
    } else {
        Access::empty()
    };
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | enter) {
        Ok(()) => {}
        // A node may not have created it yet, and a running node deletes files.
        Err(Errno::NOENT) => return None,
        Err(error) => return Some((path.to_owned(), error)),
    }

    fs::read_dir(path)
        .ok()?
        .flatten()
        .find_map(|entry| first_inaccessible(&entry.path()))
}

/// Checks whether other users of the machine can read data. Nodes create private files; earlier
/// releases did not.
fn check_exposure(config: &Config) -> Option<CheckResult> {
    let dirs = [
        Some(&config.data_dir),
        config.audit.dir.as_ref(),
        config.backup.dir.as_ref(),
    ];
    let (dir, file) = dirs
        .into_iter()
        .flatten()
        .find_map(|dir| Some((dir, readable_by_others(dir)?)))?;
    let found = format!("other users can read {}", file.display());

    Some(CheckResult::warn(
        PERMISSIONS,
        found,
        format!("chmod -R o= {}", dir.display()),
    ))
}

/// Returns the first file below a path that other users can read; `None` if their access ends at a
/// directory.
fn readable_by_others(path: &Path) -> Option<PathBuf> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let mode = Mode::from_raw_mode(metadata.mode());
    if metadata.is_file() {
        return mode.contains(Mode::ROTH).then(|| path.to_owned());
    }
    if !metadata.is_dir() || !mode.contains(Mode::XOTH) {
        return None;
    }

    fs::read_dir(path)
        .ok()?
        .flatten()
        .find_map(|entry| readable_by_others(&entry.path()))
}

fn above(path: &Path) -> &Path {
    let mut above = path;
    while !above.exists() {
        match above
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            Some(parent) => above = parent,
            None => return Path::new("."),
        }
    }

    above
}

fn room(data: &Path) -> Option<CheckResult> {
    let path = above(data);
    let free = free_bytes(path).ok()?;
    let found = format!("{} MiB free at {}", free >> 20, path.display());

    Some(if free < MIN_SPACE_BYTES {
        CheckResult::error(
            ROOM,
            found,
            "free disk space; until then, new work is rejected",
        )
    } else if free < LOW_SPACE_BYTES {
        CheckResult::warn(ROOM, found, "free disk space, or lower bus.retention_size")
    } else {
        CheckResult::ok(ROOM, found)
    })
}

/// Returns the inode numbers of locked files.
fn locked_inodes() -> BTreeSet<u64> {
    // A try to take the lock would make the start of a node at that moment fail.
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();

    locks
        .lines()
        .filter_map(|line| {
            // The sixth field is `major:minor:inode`.
            line.split_whitespace()
                .nth(5)?
                .rsplit(':')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

/// Returns whether a node uses the data directory.
pub(super) fn is_in_use(config: &Config) -> bool {
    is_locked(&config.data_dir.join("bus/log"), &locked_inodes())
        || (0..config.shards)
            .any(|shard| is_store_in_use(&layout::shard_dir(&config.data_dir, shard)))
}

/// Returns whether a node has the store in this directory open.
pub(super) fn is_store_in_use(dir: &Path) -> bool {
    is_locked(&dir.join("journal"), &locked_inodes())
}

fn is_locked(journal: &Path, locked_inodes: &BTreeSet<u64>) -> bool {
    fs::metadata(journal.join("lock")).is_ok_and(|lock| locked_inodes.contains(&lock.ino()))
}

fn store(dir: &Path, shard: u16, expected: Option<DurablePosition>) -> Option<CheckResult> {
    let check = format!("shard {shard}");

    // The files change while a node runs; only the node itself can check them.
    if is_store_in_use(dir) {
        return Some(CheckResult::ok(
            &check,
            "in use by a running node; check that node with --node",
        ));
    }

    match orlog_store::read_info(dir, expected) {
        // A node creates the store at its first start.
        Ok(None) => None,
        Ok(Some(info)) => {
            let rows = |name: &str| {
                info.rows
                    .iter()
                    .find(|(table, _)| *table == name)
                    .map_or(0, |(_, rows)| *rows)
            };

            let last = info
                .journal
                .as_ref()
                .map_or(info.flushed_position, |journal| journal.last_sequence);
            Some(CheckResult::ok(
                &check,
                format!(
                    "format {}, {last} commits, {} instances",
                    info.format,
                    rows("instance")
                ),
            ))
        }
        Err(error @ Error::Lost { .. }) => Some(lost(&check, &error)),
        Err(error) => Some(unreadable(&check, &error)),
    }
}

fn events(dir: &Path, expected: Option<DurablePosition>) -> Option<CheckResult> {
    const CHECK: &str = "events";

    let log = dir.join("log");
    // With a stored position, a missing log is a loss, which `verify` reports.
    if !log.is_dir() && expected.is_none() {
        return None;
    }
    if is_locked(&log, &locked_inodes()) {
        return Some(CheckResult::ok(
            CHECK,
            "the log is in use by a running node",
        ));
    }

    Some(match orlog_bus::embedded::verify(dir, expected) {
        Ok(found) => CheckResult::ok(
            CHECK,
            format!("{} records in {} files", found.records, found.segments),
        ),
        Err(error @ OpenError::Lost { .. }) => lost(CHECK, &error),
        Err(error) => match layout::damaged_log_remedy(&error) {
            Some(remedy) => CheckResult::error(CHECK, format!("OR0063: {error}"), remedy),
            None => CheckResult::error(CHECK, error.to_string(), OTHER_CAUSE),
        },
    })
}

fn lost(check: &str, error: &impl std::fmt::Display) -> CheckResult {
    let remedy = "restore the missing files or a backup; `orlog rebuild` creates missing tables \
        again; to continue without the lost data, start once with --accept-data-loss";
    CheckResult::error(check, format!("OR0061: {error}"), remedy)
}

fn unreadable(check: &str, error: &Error) -> CheckResult {
    match error {
        Error::DamagedJournal { .. } => CheckResult::error(
            check,
            format!("OR0063: {error}"),
            layout::DAMAGED_JOURNAL_REMEDY,
        ),
        damage if damage.is_damage() => {
            let found = format!("{DAMAGED_TABLES}: {error}");
            CheckResult::error(check, found, DAMAGED_TABLES_REMEDY)
        }
        Error::NewerFormat { .. } => {
            CheckResult::error(check, error.to_string(), "use a newer release")
        }
        _ => CheckResult::error(check, error.to_string(), OTHER_CAUSE),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn file_of_another_user_is_not_reported_as_damage() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        assert_eq!(check_rights(&config).status, CheckStatus::Ok);
        let tables = config.data_dir.join("shard-0/tables");
        fs::create_dir_all(&tables).unwrap();
        fs::write(tables.join("mdbx.dat"), "").unwrap();
        assert_eq!(check_rights(&config).status, CheckStatus::Ok);
        fs::set_permissions(tables.join("mdbx.dat"), fs::Permissions::from_mode(0o400)).unwrap();
        // Only this thread loses the rights of root.
        let checked = std::thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            let bypass = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            sets.effective.remove(bypass);
            sets.permitted.remove(bypass);
            set_capabilities(None, sets).unwrap();
            check_data_dir(&config)
        });
        let checked = checked.join().unwrap();
        assert_eq!(checked.len(), 1, "{checked:?}");
        assert!(
            checked[0]
                .message
                .contains("mdbx.dat is not readable and writable by user"),
            "{checked:?}"
        );
        assert!(checked[0].remedy.contains("chown -R"), "{checked:?}");
    }
}
