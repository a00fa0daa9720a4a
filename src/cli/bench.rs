//! `orlog bench`: how fast this machine runs sagas, from the durable publish of an event to the durable end.
//!
//! | workload | what |
//! |---|---|
//! | A | sagas of three steps with effects in this process, N at once |
//! | B | the same, but the third step fails and two are undone |
//! | C | many instances that sleep on a timer; then 10,000 timers due within one second; then a restart |
//! | D | instances that sleep are woken by signals, N at once |
//! | E | a process under load A is killed with SIGKILL; the next one recovers |

mod client;
mod idle_instances;
mod observer;
mod options;
mod recover;
mod report;
mod resources;
mod workload;

use std::path::PathBuf;

use report::Report;

pub use options::{Bench, Durability, Workload};

/// Measures, and returns what was measured.
///
/// # Errors
/// When the runner cannot start, or a saga does not end.
pub async fn run(bench: &Bench) -> anyhow::Result<Report> {
    let folder = match &bench.data {
        Some(data) => {
            std::fs::create_dir_all(data)?;
            Folder::Kept(data.clone())
        }
        None => Folder::Passing(tempfile::Builder::new().prefix(".orlog-bench-").tempdir_in(".")?),
    };
    let config = bench.config(folder.path());
    match bench.workload {
        Workload::A | Workload::B => client::run(bench, config).await,
        Workload::C => idle_instances::sleep(bench, config).await,
        Workload::D => idle_instances::wake(bench, config).await,
        Workload::E => recover::run(bench, config).await,
    }
}

enum Folder {
    Kept(PathBuf),
    Passing(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> PathBuf {
        match self {
            Folder::Kept(path) => path.clone(),
            Folder::Passing(folder) => folder.path().to_owned(),
        }
    }
}
