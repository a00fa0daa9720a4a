//! Workload E: a process under load is killed, and the next one goes on.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use orlog_model::Status;

use super::client::start;
use super::idle_instances::until;
use super::options::{Bench, Durability};
use super::report::{Report, float};
use super::resources::Used;
use super::workload;
use crate::app::App;
use crate::config::Config;

/// How many sagas are accepted before the kill.
const BEFORE_KILL: usize = 20_000;

pub(super) async fn run(bench: &Bench, config: Config) -> anyhow::Result<Report> {
    let accepted_file = config.data.with_extension("accepted");
    let mut child = Killed(load(bench, &config.data, &accepted_file)?);
    let enough = || lines(&accepted_file).is_ok_and(|n| n >= BEFORE_KILL);
    until("the load has begun", enough).await?;
    child.0.kill().context("the load cannot be killed")?;
    child.0.wait()?;

    let accepted = numbers(&accepted_file)?;
    std::fs::remove_file(&accepted_file)?;
    let (before, begun) = (Used::now()?, Instant::now());
    let (app, _) = start(config).await?;
    let opened = begun.elapsed();
    let mut left = accepted.clone();
    let recovered = until("every accepted saga has ended", || {
        left.retain(|number| !has_ended(&app, *number));
        left.is_empty()
    });
    if let Err(error) = recovered.await {
        tracing::error!(%error, sagas = ?left, "not all accepted sagas ended");
    }
    let took = begun.elapsed();
    let transitions = app.runtime.metrics().transitions();
    let mut report = Report::of(bench);
    report.rates(accepted.len() as u64, transitions, took, Used::now()?.since(before));
    report.more.insert("open_ms", millis(opened));
    report.more.insert("recovered_ms", millis(took));
    report.more.insert("recovered_transitions", float(transitions));
    report.more.insert("lost", float(left.len() as u64));
    app.stop().await?;
    Ok(report)
}

/// A child that does not outlive the bench.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn load(bench: &Bench, data: &Path, accepted: &Path) -> anyhow::Result<Child> {
    let durability = match bench.durability {
        Durability::Sync => "sync",
        Durability::Interval => "interval",
    };
    Command::new(std::env::current_exe()?)
        .args(["bench", "--workload", "A", "--durability", durability, "--sagas"])
        .arg(bench.sagas().to_string())
        .arg("--concurrency")
        .arg(bench.concurrency.to_string())
        .arg("--data")
        .arg(data)
        .arg("--accepted")
        .arg(accepted)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("the load cannot be started")
}

fn has_ended(app: &App, number: u64) -> bool {
    let ended = || -> anyhow::Result<bool> {
        let key = workload::key("bench", number)?;
        let reader = app.runtime.reader(&key).context("no shard owns it")?;
        Ok(reader.instance(&key)?.is_some_and(|instance| instance.status == Status::Completed))
    };
    ended().unwrap_or(false)
}

fn lines(file: &Path) -> anyhow::Result<usize> {
    Ok(std::io::BufReader::new(std::fs::File::open(file)?).lines().count())
}

/// The numbers in the file; the kill may have cut the last line.
fn numbers(file: &Path) -> anyhow::Result<Vec<u64>> {
    let text = std::fs::read_to_string(file)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().context("a damaged line")).collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
