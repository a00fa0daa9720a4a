//! `orlog bench`: measures saga throughput, from the durable publish of an event to the durable
//! end.
//!
//! | workload | description |
//! |---|---|
//! | A | sagas of three steps with in-process effects, N concurrent |
//! | B | like A, but the third step fails and two steps are compensated |
//! | C | many instances that wait for a timer; then 10,000 timers due within 1s; then a restart |
//! | D | idle instances are woken by signals, N concurrent |
//! | E | a process under load A is killed with SIGKILL; the next process recovers |
//! | F | latency of a tenant alone and beside the load of another tenant |
//! | G | flows of five trivial jobs with N runners over HTTP |
//! | H | sagas of A at a constant rate for a long time, with retention |

mod client;
mod flows;
mod idle_instances;
mod neighbors;
mod observer;
mod options;
mod recover;
mod report;
mod resources;
mod steady;
mod workload;

use std::path::PathBuf;

use report::BenchReport;

pub use options::{BenchArgs, Durability, Workload};

/// Runs a benchmark and returns its report.
///
/// # Errors
/// If the runner cannot start, or a saga does not end.
pub async fn run(bench: &BenchArgs) -> anyhow::Result<BenchReport> {
    let dir = match &bench.data_dir {
        Some(data) => {
            std::fs::create_dir_all(data)?;
            DataDir::Persistent(data.clone())
        }
        // Not in /tmp, which can be a file system in memory, where an fsync costs nothing.
        None => DataDir::Temporary(
            tempfile::Builder::new()
                .prefix(".orlog-bench-")
                .tempdir_in(".")?,
        ),
    };

    let config = bench.config(dir.path())?;
    match bench.workload {
        Workload::A | Workload::B => Box::pin(client::run(bench, config)).await,
        Workload::C => Box::pin(idle_instances::workload_c(bench, config)).await,
        Workload::D => Box::pin(idle_instances::workload_d(bench, config)).await,
        Workload::E => Box::pin(recover::run(bench, config)).await,
        Workload::F => Box::pin(neighbors::run(bench, config)).await,
        Workload::G => Box::pin(flows::run(bench, config)).await,
        Workload::H => Box::pin(steady::run(bench, config)).await,
    }
}

enum DataDir {
    Persistent(PathBuf),
    Temporary(tempfile::TempDir),
}

impl DataDir {
    fn path(&self) -> PathBuf {
        match self {
            DataDir::Persistent(path) => path.clone(),
            DataDir::Temporary(dir) => dir.path().to_owned(),
        }
    }
}
