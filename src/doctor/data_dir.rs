//! Checks of the data directory: writable, free space, matches the configuration, readable.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use orlog_store::DurablePosition;
use rustix::fs::{Access, Mode};

use super::check::CheckResult;
use crate::app;
use crate::backup::free_bytes;
use crate::config::{BusKind, Config};

const DATA_DIR: &str = "data directory";
const PERMISSIONS: &str = "permissions";
const ROOM: &str = "disk";
/// Free space below which a node soon rejects new work.
const LOW_SPACE_BYTES: u64 = 1 << 30;
/// Free space below which a journal segment cannot be created.
const MIN_SPACE_BYTES: u64 = 128 << 20;

pub(super) fn check_data_dir(config: &Config) -> Vec<CheckResult> {
    let data = &config.data_dir;
    let mut findings = vec![rights(data)];
    findings.extend(check_exposure(config));
    findings.extend(room(data));
    if !data.is_dir() {
        return findings;
    }
    if let Err(error) = app::check_data_dir(config) {
        findings.push(CheckResult::error(
            DATA_DIR,
            format!("{error:#}"),
            "use the configuration with which the directory was created",
        ));
    }
    // An unreadable file was reported above.
    let durable = app::durable_positions(data).unwrap_or_default();
    for shard in 0..config.shards {
        let expected = durable.get(&app::shard_name(shard)).copied();
        findings.extend(store(&app::shard_dir(data, shard), shard, expected));
    }
    if config.bus.kind == BusKind::Embedded {
        findings.extend(events(&data.join("bus"), durable.get("bus").copied()));
    }
    findings
}

fn rights(data: &Path) -> CheckResult {
    let displayed = data.display();
    let (subject, path) = if data.exists() { ("it", data) } else { ("its parent directory", above(data)) };
    if !path.is_dir() {
        return CheckResult::error(
            DATA_DIR,
            format!("{} is not a directory", path.display()),
            "set `data_dir` to a directory",
        );
    }
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if data.exists() => CheckResult::ok(DATA_DIR, format!("{displayed} is writable")),
        Ok(()) => CheckResult::ok(DATA_DIR, format!("{displayed} does not exist yet and can be created")),
        Err(error) => {
            let user = rustix::process::geteuid().as_raw();
            let found = format!("{displayed}: {subject} is not writable by user {user}: {error}");
            CheckResult::error(DATA_DIR, found, format!("change the owner: chown {user} {}", path.display()))
        }
    }
}

/// Checks whether other users of the machine can read data. Nodes create private files; earlier releases did not.
fn check_exposure(config: &Config) -> Option<CheckResult> {
    let dirs = [Some(&config.data_dir), config.audit.dir.as_ref(), config.backup.dir.as_ref()];
    let (dir, file) = dirs.into_iter().flatten().find_map(|dir| Some((dir, readable_by_others(dir)?)))?;
    let found = format!("other users can read {}", file.display());
    Some(CheckResult::warn(PERMISSIONS, found, format!("chmod -R o= {}", dir.display())))
}

/// Returns the first file below a path that other users can read; `None` if their access ends at a directory.
fn readable_by_others(path: &Path) -> Option<PathBuf> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let mode = Mode::from_raw_mode(metadata.mode());
    if metadata.is_file() {
        return mode.contains(Mode::ROTH).then(|| path.to_owned());
    }
    if !metadata.is_dir() || !mode.contains(Mode::XOTH) {
        return None;
    }
    fs::read_dir(path).ok()?.flatten().find_map(|entry| readable_by_others(&entry.path()))
}

fn above(path: &Path) -> &Path {
    let mut above = path;
    while !above.exists() {
        match above.parent().filter(|parent| !parent.as_os_str().is_empty()) {
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
        CheckResult::error(ROOM, found, "free disk space; until then, new work is rejected")
    } else if free < LOW_SPACE_BYTES {
        CheckResult::warn(ROOM, found, "free disk space, or lower bus.retention_size")
    } else {
        CheckResult::ok(ROOM, found)
    })
}

/// Returns the inode numbers of locked files.
fn locked_inodes() -> BTreeSet<u64> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = |line: &str| line.split_whitespace().nth(5)?.rsplit(':').next()?.parse().ok();
    locks.lines().filter_map(inode).collect()
}

/// Returns whether a node uses the data directory.
pub(super) fn is_in_use(config: &Config) -> bool {
    is_locked(&config.data_dir.join("bus/log"), &locked_inodes())
        || (0..config.shards).any(|shard| is_store_in_use(&app::shard_dir(&config.data_dir, shard)))
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
    if is_store_in_use(dir) {
        return Some(CheckResult::ok(&check, "in use by a running node; check that node with --node"));
    }
    match orlog_store::read_info(dir, expected) {
        Ok(None) => None,
        Ok(Some(info)) => {
            let rows =
                |name: &str| info.rows.iter().find(|(table, _)| *table == name).map_or(0, |(_, rows)| *rows);
            let last = info.journal.as_ref().map_or(info.flushed_position, |journal| journal.last_sequence);
            Some(CheckResult::ok(
                &check,
                format!("format {}, {last} commits, {} instances", info.format, rows("instance")),
            ))
        }
        Err(error @ orlog_store::Error::Lost { .. }) => Some(lost(&check, &error)),
        Err(error) => Some(damaged(&check, &error.to_string())),
    }
}

fn events(dir: &Path, expected: Option<DurablePosition>) -> Option<CheckResult> {
    const CHECK: &str = "events";
    let log = dir.join("log");
    if !log.is_dir() && expected.is_none() {
        return None;
    }
    if is_locked(&log, &locked_inodes()) {
        return Some(CheckResult::ok(CHECK, "the log is in use by a running node"));
    }
    Some(match orlog_bus::embedded::verify(dir, expected) {
        Ok(found) => CheckResult::ok(CHECK, format!("{} records in {} files", found.records, found.segments)),
        Err(error @ orlog_bus::embedded::OpenError::Lost { .. }) => lost(CHECK, &error),
        Err(error) => damaged(CHECK, &error.to_string()),
    })
}

fn lost(check: &str, error: &impl std::fmt::Display) -> CheckResult {
    let remedy = "restore the missing files or a backup; `orlog rebuild` creates missing tables again; to continue \
                  without the lost data, start once with --accept-data-loss";
    CheckResult::error(check, format!("OR0061: {error}"), remedy)
}

fn damaged(check: &str, error: &str) -> CheckResult {
    let remedy = "keep a copy of the directory; then rebuild damaged tables with `orlog rebuild`, or restore a backup with \
                  `orlog restore` (docs/backup.md)";
    let is_newer = error.contains("newer release");
    CheckResult::error(check, error, if is_newer { "use a newer release" } else { remedy })
}
