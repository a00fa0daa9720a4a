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
mod count;
mod recover;
mod report;
mod resources;
mod sleep;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::config::Config;
use report::Report;

/// See the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Three steps, all good.
    #[value(name = "A", alias = "a")]
    A,
    /// Three steps, the third fails.
    #[value(name = "B", alias = "b")]
    B,
    /// Sleep on a timer.
    #[value(name = "C", alias = "c")]
    C,
    /// Wake by signal.
    #[value(name = "D", alias = "d")]
    D,
    /// Kill and recover.
    #[value(name = "E", alias = "e")]
    E,
}

/// How the runner's files are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// A commit returns after the disk has it.
    Sync,
    /// The disk has it at most one interval later.
    Interval,
}

/// What shall be measured.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Which workload.
    #[arg(long, value_enum, ignore_case = true, default_value = "A")]
    pub workload: Workload,
    /// Sagas under way at once (A, B, D, E).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Sagas in all; by default as many as give a steady figure in some seconds.
    #[arg(long)]
    pub sagas: Option<u64>,
    /// No new saga is begun after this many seconds (A, B).
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// How the files are synced.
    #[arg(long, value_enum, default_value = "sync")]
    pub durability: Durability,
    /// Where to keep the data; by default a folder beside the present one that is removed afterwards.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// A file that gets the number of every accepted saga; for workload E.
    #[arg(long, hide = true)]
    pub accepted: Option<PathBuf>,
}

impl Bench {
    fn sagas(&self) -> u64 {
        let by_default = match self.workload {
            Workload::A | Workload::B => (u64::from(self.concurrency) * 200).clamp(2_000, 150_000),
            Workload::C => 100_000,
            Workload::D => 10_000,
            Workload::E => 1_000_000,
        };
        self.sagas.unwrap_or(by_default)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn config(&self, data: PathBuf) -> Config {
        let mut config = Config { data, node: "bench".to_owned(), ..Config::default() };
        let durability = match self.durability {
            Durability::Sync => crate::config::Durability::Sync,
            Durability::Interval => crate::config::Durability::Interval,
        };
        config.store.durability = durability;
        config.bus.durability = durability;
        config
    }
}

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
        Workload::C => sleep::sleep(bench, config).await,
        Workload::D => sleep::wake(bench, config).await,
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
