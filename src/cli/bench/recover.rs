//! Workload E: a process under load is killed, and the next process recovers.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_model::Status;

use super::client::start;
use super::idle_instances::wait_until;
use super::options::{BenchArgs, Durability};
use super::report::{BenchReport, float};
use super::resources::ResourceUsage;
use super::workload;
use orlog_node::app::App;
use orlog_node::config::Config;

/// Number of accepted sagas before the kill.
const BEFORE_KILL: usize = 20_000;

pub(super) async fn run(bench: &BenchArgs, config: Config) -> anyhow::Result<BenchReport> {
    // Beside the data directory: the next process must find only files of a node in it.
    let accepted_file = config.data_dir.with_extension("accepted");
    // If this process fails meanwhile, the load must not continue in the background.
    let mut child = KillOnDrop(load(bench, &config.data_dir, &accepted_file)?);
    wait_until("the load has started", || {
        lines(&accepted_file).is_ok_and(|n| n >= BEFORE_KILL)
    })
    .await?;
    // SIGKILL: no drain and no flush. The page cache survives, so that this is no test of fsync.
    child.0.kill().context("cannot kill the load process")?;
    // Until the process has ended, it holds the lock of the data directory.
    child.0.wait()?;

    let accepted = numbers(&accepted_file)?;
    std::fs::remove_file(&accepted_file)?;
    let before = ResourceUsage::now()?;
    let started = Instant::now();
    let (app, _) = start(config).await?;
    let opened = started.elapsed();
    // Read from the stores, not from an observer: a saga that ended before the kill has no further
    // commit.
    let mut left = accepted.clone();
    let recovered = wait_until("every accepted saga has ended", || {
        left.retain(|number| !has_ended(&app, *number));
        left.is_empty()
    });

    if let Err(error) = recovered.await {
        // An error would replace the report, in which `lost` is the result.
        tracing::error!(%error, sagas = ?left, "some accepted sagas did not end");
    }
    let took = started.elapsed();
    let transitions = app.runtime.metrics().transitions();
    let mut report = BenchReport::of(bench);
    report.rates(
        accepted.len() as u64,
        transitions,
        took,
        ResourceUsage::now()?.since(before),
    );
    report.extra.insert("open_ms", millis(opened));
    report.extra.insert("recovered_ms", millis(took));
    report
        .extra
        .insert("recovered_transitions", float(transitions));
    report.extra.insert("lost", float(left.len() as u64));
    app.stop().await?;

    Ok(report)
}

/// Child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn load(bench: &BenchArgs, data: &Path, accepted: &Path) -> anyhow::Result<Child> {
    let durability = match bench.durability {
        Durability::Sync => "sync",
        Durability::Interval => "interval",
    };
    Command::new(std::env::current_exe()?)
        .args([
            "bench",
            "--workload",
            "A",
            "--durability",
            durability,
            "--sagas",
        ])
        .arg(bench.sagas().to_string())
        .arg("--concurrency")
        .arg(bench.concurrency.to_string())
        .arg("--data-dir")
        .arg(data)
        .arg("--accepted")
        .arg(accepted)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the load process")
}

fn has_ended(app: &App, number: u64) -> bool {
    let ended = || -> anyhow::Result<bool> {
        let key = workload::key("bench", number)?;
        let reader = app
            .runtime
            .reader(&key)
            .context("no shard owns the instance")?;
        Ok(reader
            .instance(&key)?
            .is_some_and(|instance| instance.status == Status::Completed))
    };
    // A shard that is not open yet counts as not ended: the next poll reads again.
    ended().unwrap_or(false)
}

fn lines(file: &Path) -> anyhow::Result<usize> {
    Ok(std::io::BufReader::new(std::fs::File::open(file)?)
        .lines()
        .count())
}

/// Returns the numbers in the file. The kill can truncate the last line.
fn numbers(file: &Path) -> anyhow::Result<Vec<u64>> {
    let text = std::fs::read_to_string(file)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| line.parse().context("invalid line"))
        .collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
