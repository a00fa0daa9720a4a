//! `orlog backup` and `orlog restore`: copies of what is stored, and data folders made of them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{Client, Server, path};
use super::console::{Console, remark};
use super::exit::{Exit, Failure};
use crate::app;
use crate::backup::{self, Error, MANIFEST, Manifest, SUMS};

/// What to copy, and where to.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The folder of the backup; new or empty
    #[arg(long, value_name = "DIR", required = true)]
    to: Option<PathBuf>,
    /// Copy this data folder, which no node may be using; without it, the node at --url, while it runs
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Drop a backup that was taken before and not fetched
    #[arg(long, conflicts_with = "data")]
    replace: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Compare every file of a backup with its sum
    Verify(Verify),
}

/// Which backup.
#[derive(Debug, clap::Args)]
struct Verify {
    /// The folder of the backup
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Of which backup, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    /// The folder of the backup
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The data folder to make; new or empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::NotEmpty(_) | Error::CutOff(_) | Error::Replicated => Exit::Refused,
            Error::NoBackup { .. } => Exit::NotFound,
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let manifest = match (&args.command, &args.to, &args.data) {
        (Some(Command::Verify(Verify { folder })), ..) => {
            let manifest = blocking(folder.clone(), |folder| Ok(backup::verify(&folder)?)).await?;
            return report("is whole", folder, &manifest, console);
        }
        (None, Some(to), Some(data)) => {
            let (data, to) = (data.clone(), to.clone());
            blocking((data, to), |(data, to)| app::backup_at_rest(&data, &to).map_err(failed)).await?
        }
        (None, Some(to), None) => fetch(&args, to).await?,
        (None, None, _) => return Err(Failure::usage("--to is missing")),
    };
    report("was written", args.to.as_deref().unwrap_or(Path::new("")), &manifest, console)
}

pub(super) async fn restore(args: Restore, console: &Console) -> Result<(), Failure> {
    let Restore { from, to } = args;
    let shown = to.clone();
    let manifest = blocking((from, to), |(from, to)| Ok(backup::restore(&from, &to)?)).await?;
    remark("make sure that the node it was taken from does not run any more: both would do the same work");
    report("is a data folder now", &shown, &manifest, console)
}

fn failed(error: anyhow::Error) -> Failure {
    match error.downcast::<Error>() {
        Ok(error) => error.into(),
        Err(error) => error.into(),
    }
}

async fn blocking<A, F>(argument: A, work: F) -> Result<Manifest, Failure>
where
    A: Send + 'static,
    F: FnOnce(A) -> Result<Manifest, Failure> + Send + 'static,
{
    let done = tokio::task::spawn_blocking(move || work(argument)).await;
    done.map_err(|error| Failure::internal(error.to_string()))?
}

fn report(what: &str, folder: &Path, manifest: &Manifest, console: &Console) -> Result<(), Failure> {
    if console.is_json() {
        return console.json(&serde_json::to_value(manifest).unwrap_or_default());
    }
    let shards = manifest.shards.iter().map(|shard| format!("shard {} at {}", shard.shard, shard.position));
    console.line(&format!(
        "{} {what}: taken {} of {:?}, {} files, {} bytes; {}",
        folder.display(),
        manifest.taken_at,
        manifest.node,
        manifest.files.len(),
        manifest.bytes(),
        shards.collect::<Vec<_>>().join(", ")
    ))
}

/// Has the node take a backup, fetches it, and has it removed there.
async fn fetch(args: &Args, to: &Path) -> Result<Manifest, Failure> {
    backup::new_folder(to)?;
    let client = Client::new(&args.server)?;
    let asked = format!("/admin/backup?replace={}", args.replace);
    let taken = client.post_patiently(&asked, None, PATIENCE).await?;
    let id = taken["id"].as_str().unwrap_or_default().to_owned();
    let fetched = fetch_all(&client, &id, &taken["manifest"], to).await;
    let removed = client.delete(&path(&["admin", "backup", &id])).await;
    if fetched.is_err() {
        remark(&format!("{} holds a part of the backup; remove it before the next try", to.display()));
    }
    fetched?;
    if let Err(failure) = removed {
        remark(&format!("the node keeps its copy until it is started anew: {failure}"));
    }
    let to = to.to_owned();
    blocking(to, |to| Ok(backup::fetched(&to)?)).await
}

/// A copy takes as long as it takes.
const PATIENCE: std::time::Duration = std::time::Duration::from_hours(12);

async fn fetch_all(client: &Client, id: &str, manifest: &Value, to: &Path) -> Result<(), Failure> {
    let manifest: Manifest = serde_json::from_value(json!(manifest))
        .map_err(|error| Failure::failed(format!("the node's answer is no manifest: {error}")))?;
    let names = manifest.files.iter().map(|file| file.path.as_str()).chain([MANIFEST, SUMS]);
    for name in names {
        if Path::new(name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(Failure::failed(format!("{name:?} leads out of the folder; nothing was fetched")));
        }
        let target = to.join(name);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        client.download(&path(&["admin", "backup", id, "files", name]), &target).await?;
    }
    Ok(())
}
