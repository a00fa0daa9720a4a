//! The data folder: whether it can be written, has room, was made for this configuration, and can be read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::Access;

use super::check::Finding;
use crate::app;
use crate::backup::free_bytes;
use crate::config::{BusKind, Config};

const FOLDER: &str = "data folder";
const ROOM: &str = "disk";
/// With less, a node takes no new work soon.
const LITTLE_BYTES: u64 = 1 << 30;
/// With less, hardly a file of a journal can be made.
const NOTHING_BYTES: u64 = 128 << 20;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let data = &config.data;
    let mut findings = vec![rights(data)];
    findings.extend(room(data));
    if !data.is_dir() {
        return findings;
    }
    if let Err(error) = app::check_layout(config) {
        findings.push(Finding::bad(
            FOLDER,
            format!("{error:#}"),
            "use the configuration that the folder was made with",
        ));
    }
    let held = held();
    for shard in 0..config.shards {
        findings.extend(store(&app::shard_folder(data, shard), shard, &held));
    }
    if config.bus.kind == BusKind::Embedded {
        findings.extend(events(&data.join("bus"), &held));
    }
    findings
}

fn rights(data: &Path) -> Finding {
    let shown = data.display();
    let (what, path) = if data.exists() { ("it", data) } else { ("the folder above it", above(data)) };
    if !path.is_dir() {
        return Finding::bad(FOLDER, format!("{} is no folder", path.display()), "set `data` to a folder");
    }
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if data.exists() => Finding::ok(FOLDER, format!("{shown} can be written")),
        Ok(()) => Finding::ok(FOLDER, format!("{shown} is not there yet and can be made")),
        Err(error) => {
            let user = rustix::process::geteuid().as_raw();
            let found = format!("{shown}: {what} cannot be written by user {user}: {error}");
            Finding::bad(FOLDER, found, format!("give it to that user: chown {user} {}", path.display()))
        }
    }
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

fn room(data: &Path) -> Option<Finding> {
    let path = above(data);
    let free = free_bytes(path).ok()?;
    let found = format!("{} MiB are free at {}", free >> 20, path.display());
    Some(if free < NOTHING_BYTES {
        Finding::bad(ROOM, found, "free disk space; until then no new work is taken")
    } else if free < LITTLE_BYTES {
        Finding::warn(ROOM, found, "free disk space, or lower bus.retention_size")
    } else {
        Finding::ok(ROOM, found)
    })
}

/// The numbers of the files that somebody has locked.
fn held() -> BTreeSet<u64> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = |line: &str| line.split_whitespace().nth(5)?.rsplit(':').next()?.parse().ok();
    locks.lines().filter_map(inode).collect()
}

/// Whether a node has it open.
pub(super) fn is_open(config: &Config) -> bool {
    let held = held();
    is_held(&config.data.join("bus/log"), &held)
        || (0..config.shards)
            .any(|shard| is_held(&app::shard_folder(&config.data, shard).join("journal"), &held))
}

fn is_held(journal: &Path, held: &BTreeSet<u64>) -> bool {
    fs::metadata(journal.join("lock")).is_ok_and(|lock| held.contains(&lock.ino()))
}

fn store(dir: &Path, shard: u16, held: &BTreeSet<u64>) -> Option<Finding> {
    let check = format!("shard {shard}");
    if is_held(&dir.join("journal"), held) {
        return Some(Finding::ok(&check, "a node has it open; ask that one with --node"));
    }
    match orlog_store::look(dir) {
        Ok(None) => None,
        Ok(Some(look)) => {
            let rows =
                |name: &str| look.rows.iter().find(|(table, _)| *table == name).map_or(0, |(_, rows)| *rows);
            let last = look.journal.as_ref().map_or(look.folded_position, |journal| journal.last_sequence);
            Some(Finding::ok(
                &check,
                format!("format {}, {last} commits, {} instances", look.format, rows("instance")),
            ))
        }
        Err(error) => Some(damaged(&check, &error.to_string())),
    }
}

fn events(dir: &Path, held: &BTreeSet<u64>) -> Option<Finding> {
    const CHECK: &str = "events";
    let log = dir.join("log");
    if !log.is_dir() {
        return None;
    }
    if is_held(&log, held) {
        return Some(Finding::ok(CHECK, "a node has the log open"));
    }
    Some(match orlog_bus::embedded::inspect(dir) {
        Ok(found) => Finding::ok(CHECK, format!("{} records in {} files", found.records, found.segments)),
        Err(error) => damaged(CHECK, &error.to_string()),
    })
}

fn damaged(check: &str, error: &str) -> Finding {
    let remedy = "keep a copy of the folder as it is; then `orlog restore` a backup (docs/backup.md)";
    let is_newer = error.contains("newer release");
    Finding::bad(check, error, if is_newer { "use the newer release" } else { remedy })
}
