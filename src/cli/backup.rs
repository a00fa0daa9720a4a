//! `orlog backup` and `orlog restore`: backs up stores and restores data directories.

pub(crate) mod rebuild;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, note};
use crate::cli::exit::{CommandError, CommandExit};
use orlog_node::backup::offline::backup_offline;
use orlog_node::backup::{self, BackupFailure, MANIFEST, Manifest, SUMS};
use orlog_node::layout::InterruptedRestore;

/// Source and target of a backup.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Backup directory; must be new or empty
    #[arg(long, value_name = "DIR", required = true)]
    to: Option<PathBuf>,
    /// Back up this data directory (the node must be stopped); default: the running node at --url
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Delete a previous backup that was not fetched
    #[arg(long, conflicts_with = "data_dir")]
    replace: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify the checksum of every file of a backup
    Verify(Verify),
}

/// Backup to verify.
#[derive(Debug, clap::Args)]
struct Verify {
    /// Backup directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Backup directory
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Target data directory; must be new or empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl From<BackupFailure> for CommandError {
    fn from(error: BackupFailure) -> Self {
        // Rejected: nothing is damaged, but the state of the directory or the kind of the store
        // forbids the command.
        let exit = match &error {
            BackupFailure::NotEmpty(_)
            | BackupFailure::Interrupted(_)
            | BackupFailure::Replicated => CommandExit::Rejected,
            BackupFailure::NoBackup { .. } => CommandExit::NotFound,
            _ => CommandExit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let manifest = match (&args.command, &args.to, &args.data_dir) {
        (Some(Command::Verify(Verify { dir })), ..) => {
            let manifest = blocking(dir.clone(), |dir| Ok(backup::verify(&dir)?)).await?;
            return report("is whole", dir, &manifest, console);
        }
        (None, Some(to), Some(data)) => {
            let data = data.clone();
            let to = to.clone();
            blocking((data, to), |(data, to)| {
                backup_offline(&data, &to).map_err(failed)
            })
            .await?
        }
        (None, Some(to), None) => fetch(&args, to).await?,
        // Not reached: clap requires `--to` unless there is a subcommand.
        (None, None, _) => return Err(CommandError::usage("--to is missing")),
    };
    report(
        "was written",
        args.to.as_deref().unwrap_or(Path::new("")),
        &manifest,
        console,
    )
}

pub(crate) async fn restore(args: Restore, console: &Console) -> Result<(), CommandError> {
    let Restore { from, to } = args;
    let target_dir = to.clone();
    let manifest = blocking((from, to), |(from, to)| Ok(backup::restore(&from, &to)?)).await?;
    // A restored node has the same pending work, and no lock excludes the node of the backup.
    note("make sure that the source node is stopped; otherwise both nodes execute the same work");
    report(
        "is restored as a data directory",
        &target_dir,
        &manifest,
        console,
    )
}

pub(crate) fn failed(error: anyhow::Error) -> CommandError {
    // These errors have exit codes of their own; every other one is a failure.
    let error = match error.downcast::<InterruptedRestore>() {
        Ok(interrupted) => return BackupFailure::from(interrupted).into(),
        Err(error) => error,
    };
    match error.downcast::<BackupFailure>() {
        Ok(error) => error.into(),
        Err(error) => error.into(),
    }
}

async fn blocking<A, F>(argument: A, work: F) -> Result<Manifest, CommandError>
where
    A: Send + 'static,
    F: FnOnce(A) -> Result<Manifest, CommandError> + Send + 'static,
{
    let done = tokio::task::spawn_blocking(move || work(argument)).await;
    done.map_err(|error| CommandError::internal(error.to_string()))?
}

fn report(
    status: &str,
    dir: &Path,
    manifest: &Manifest,
    console: &Console,
) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(&serde_json::to_value(manifest).unwrap_or_default());
    }

    let shards = manifest
        .shards
        .iter()
        .map(|shard| format!("shard {} at {}", shard.shard, shard.position));
    console.line(&format!(
        "{} {status}: taken {} of {:?}, {} files, {} bytes; {}",
        dir.display(),
        manifest.taken_at,
        manifest.node,
        manifest.files.len(),
        manifest.bytes(),
        shards.collect::<Vec<_>>().join(", ")
    ))
}

/// Creates a backup on the node, fetches it, and deletes it on the node.
async fn fetch(args: &Args, to: &Path) -> Result<Manifest, CommandError> {
    // First, so that an unusable target does not cost the node a complete copy.
    backup::new_dir(to)?;
    let client = ApiClient::new(&args.server)?;
    let route = format!("/admin/backup?replace={}", args.replace);
    let created = client
        .post_with_timeout(&route, None, CREATE_TIMEOUT)
        .await?;
    let id = created["id"].as_str().unwrap_or_default().to_owned();
    // The result is checked after the deletion: a failed transfer must not leave a copy on the disk
    // of the node.
    let fetched = fetch_all(&client, &id, &created["manifest"], to).await;
    // The node keeps one backup at a time, so that a copy that stays rejects the next backup.
    let removed = client.delete(&path(&["admin", "backup", &id]), &[]).await;

    if fetched.is_err() {
        note(&format!(
            "{} contains a partial backup; remove it before the next attempt",
            to.display()
        ));
    }

    fetched?;
    // Only a note: the fetched backup is complete without the deletion.
    if let Err(failure) = removed {
        note(&format!(
            "the node keeps its copy until the next restart: {failure}"
        ));
    }

    // The transfer has no checksums of its own. This also syncs the directories, so that a reported
    // backup survives a power failure.
    let to = to.to_owned();
    blocking(to, |to| Ok(backup::verify_fetched(&to)?)).await
}

/// Timeout of the backup request, large because the duration depends on the data size.
const CREATE_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(12);

async fn fetch_all(
    client: &ApiClient,
    id: &str,
    manifest: &Value,
    to: &Path,
) -> Result<(), CommandError> {
    let manifest: Manifest = serde_json::from_value(json!(manifest)).map_err(|error| {
        CommandError::failed(format!(
            "the response of the node is not a manifest: {error}"
        ))
    })?;
    // The checksums are last: a directory without them is no backup, so that an interrupted
    // transfer is not mistaken for one.
    let names = manifest
        .files
        .iter()
        .map(|file| file.path.as_str())
        .chain([MANIFEST, SUMS]);

    // The names are those of the node, and a wrong node could name files outside of the directory.
    // All of them are checked before the first file is written.
    if let Some(name) = names.clone().find(|name| is_outside(name)) {
        return Err(CommandError::failed(format!(
            "path {name:?} is outside the directory; nothing was fetched"
        )));
    }

    for name in names {
        let target = to.join(name);
        if let Some(dir) = target.parent() {
            std::fs::create_dir_all(dir)?;
        }
        client
            .download(&path(&["admin", "backup", id, "files", name]), &target)
            .await?;
    }

    Ok(())
}

/// Returns whether the path of a file of a backup leaves the directory of the backup.
fn is_outside(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    parts.any(|part| !matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_directory_are_detected() {
        for name in ["../orlog.toml", "/etc/passwd", "shard-0/../../x", "./x"] {
            assert!(is_outside(name), "{name}");
        }
        assert!(!is_outside("shard-0/journal/1.log"));
    }
}
