//! Check of the tables of the stores in child processes: a damaged page can end a process with a
//! signal.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures::future::join_all;
use tokio::process::Command;

use super::check::{CheckResult, CheckStatus};
use super::data_dir;
use crate::config::Config;
use crate::layout;

/// Internal command of the child process.
pub const COMMAND: &str = "check-tables";
const CODE: &str = data_dir::DAMAGED_TABLES;

/// Result of the check of one store.
enum TableCheck {
    /// All rows are readable.
    Intact(String),
    /// Only single rows are damaged, which a running node skips or quarantines.
    DamagedRows(String),
    /// Description of the damage.
    Damaged(String),
    /// The time limit was reached without damage.
    Incomplete,
}

/// Checks the stores before a node opens them, within a time limit.
///
/// # Errors
/// Returns the first file that this user cannot use, or the damage of the first damaged store, with
/// the remedy.
pub async fn check_before_start(config: &Config) -> Result<(), String> {
    let rights = data_dir::check_rights(config);
    if config.role.runs_sagas() && rights.status == CheckStatus::Error {
        return Err(format!("{}; {}", rights.message, rights.remedy));
    }

    let limit = config.store.start_check_timeout;
    if limit.is_zero() {
        return Ok(());
    }

    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            tracing::warn!(%error, "tables not checked: the path of this program is unknown");
            return Ok(());
        }
    };

    // At the same time, each within the limit: the start waits no longer for many stores than for
    // one.
    let checks = stores(config).map(|(_, dir)| {
        let program = program.clone();
        async move {
            match tokio::time::timeout(limit, check(&program, &dir)).await {
                Ok(result) => (dir, result),
                Err(_) => (dir, TableCheck::Incomplete),
            }
        }
    });
    for (dir, result) in join_all(checks).await {
        match result {
            TableCheck::Damaged(reason) => {
                let dir = dir.display();
                return Err(format!(
                    "{CODE}: the tables of {dir} are damaged: {reason}; {}",
                    data_dir::DAMAGED_TABLES_REMEDY
                ));
            }
            TableCheck::DamagedRows(reason) => {
                tracing::error!(path = %dir.display(), reason, "{CODE}: damaged rows; see `orlog \
                    doctor --deep`");
            }
            // The time limit is no damage: a running node skips or quarantines rows that it cannot
            // read.
            TableCheck::Intact(_) | TableCheck::Incomplete => {}
        }
    }

    Ok(())
}

/// Checks all rows of all stores.
pub(super) async fn check_all(config: &Config) -> Vec<CheckResult> {
    let mut results = Vec::new();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            let cause = format!(
                "the tables were not checked: the path of this program is unknown: {error}"
            );
            return vec![CheckResult::warn(
                "tables",
                cause,
                "start the program by its path",
            )];
        }
    };
    for (shard, dir) in stores(config) {
        let name = format!("shard {shard}");
        if data_dir::is_store_in_use(&dir) {
            let found = "the tables were not read: a running node uses them";
            results.push(CheckResult::warn(
                &name,
                found,
                "stop the node and run the command again",
            ));
            continue;
        }

        results.push(match check(&program, &dir).await {
            TableCheck::Intact(found) => CheckResult::ok(&name, found),
            TableCheck::Incomplete => CheckResult::warn(
                &name,
                "the tables were not checked",
                "run the command again",
            ),
            // Unlike at the start of a node, single damaged rows count as damage, too.
            TableCheck::Damaged(reason) | TableCheck::DamagedRows(reason) => CheckResult::error(
                &name,
                format!("{CODE}: the tables are damaged: {reason}"),
                data_dir::DAMAGED_TABLES_REMEDY,
            ),
        });
    }

    results
}

fn stores(config: &Config) -> impl Iterator<Item = (u16, PathBuf)> {
    let dirs = (0..config.shards).map(|shard| (shard, layout::shard_dir(&config.data_dir, shard)));
    dirs.filter(|(_, dir)| config.role.runs_sagas() && dir.join("tables/mdbx.dat").exists())
}

/// Checks one store in a child process.
async fn check(program: &Path, dir: &Path) -> TableCheck {
    let mut command = Command::new(program);
    command
        .arg(COMMAND)
        .arg(dir)
        .stdin(Stdio::null())
        // After the time limit, the child must not read the tables while the node opens them.
        .kill_on_drop(true);

    let output = match command.output().await {
        Ok(output) => output,
        Err(error) => {
            tracing::warn!(%error, "tables not checked: the child process did not start");
            return TableCheck::Incomplete;
        }
    };
    let lines = String::from_utf8_lossy(&output.stdout);
    let problems = |prefix: &str| -> Option<String> {
        let found: Vec<&str> = lines
            .lines()
            .filter_map(|line| line.strip_prefix(prefix))
            .collect();
        Some(format!("{} (problems: {})", found.first()?, found.len()))
    };

    if let Some(reason) = problems("damaged ") {
        return TableCheck::Damaged(reason);
    }

    match lines.lines().find_map(|line| line.strip_prefix("checked ")) {
        Some(rows) if output.status.success() => match problems("row ") {
            Some(reason) => TableCheck::DamagedRows(reason),
            None => TableCheck::Intact(format!("all {rows} rows are readable")),
        },
        _ => {
            // A damaged page can end the child with a signal, without a line about the damage.
            let errors = String::from_utf8_lossy(&output.stderr);
            let errors = errors.lines().last().unwrap_or_default();
            TableCheck::Damaged(format!("the check ended with {} {errors}", output.status))
        }
    }
}
