//! Benchmark that compares Orlog with Restate: the same saga, service and load. `make compare` runs it; docs/benchmarks.md describes it.

mod client;
mod load;
mod process;
mod report;
mod service;
mod system;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::load::{LOADS, Run, Target};
use crate::process::{Process, free_ports};
use crate::system::{Programs, Server, System};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Run all systems in turn and print the tables
    Run {
        /// The orlog program
        #[arg(long)]
        orlog: PathBuf,
        /// The restate-server program
        #[arg(long)]
        restate: PathBuf,
        /// Directory for data, logs and results
        #[arg(long)]
        dir: PathBuf,
        /// Runs of each system
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Measured duration of each load in seconds
        #[arg(long, default_value_t = 6)]
        seconds: u64,
        /// Run each system once with a duration of 1s
        #[arg(long)]
        quick: bool,
        /// Systems to run
        #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::OrlogExchange, System::OrlogHttp, System::RestateService, System::RestateWorkflow])]
        systems: Vec<System>,
    },
    /// Execute the steps; `run` starts it
    Service {
        system: System,
        server: u16,
        port: u16,
        control: u16,
    },
    /// Generate the load; `run` starts it
    Load {
        system: System,
        server: u16,
        control: u16,
        server_pid: u32,
        service_pid: u32,
        seconds: u64,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Arguments::parse().role {
        Role::Run {
            orlog,
            restate,
            dir,
            runs,
            seconds,
            quick,
            systems,
        } => {
            let (runs, seconds) = if quick { (1, 1) } else { (runs, seconds) };
            let (mut interrupt, mut terminate) = (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            );
            let programs = Programs { orlog, restate };
            // Dropping the runs kills their processes.
            tokio::select! {
                result = compare(&programs, &dir, runs, seconds, &systems) => result,
                _ = interrupt.recv() => bail!("interrupted"),
                _ = terminate.recv() => bail!("terminated"),
            }
        }
        Role::Service {
            system,
            server,
            port,
            control,
        } => service::run(system, server, port, control).await,
        Role::Load {
            system,
            server,
            control,
            server_pid,
            service_pid,
            seconds,
        } => {
            let target = Target {
                system,
                server,
                control,
                processes: [server_pid, service_pid],
                seconds,
            };
            println!("{}", serde_json::to_string(&load::run(&target).await?)?);
            Ok(())
        }
    }
}

async fn compare(
    programs: &Programs,
    dir: &Path,
    runs: usize,
    seconds: u64,
    systems: &[System],
) -> Result<()> {
    let mut results: BTreeMap<System, Vec<Run>> = BTreeMap::new();
    for number in 1..=runs {
        for &system in systems {
            let dir = dir.join(system.id());
            let result = run_once(system, programs, &dir, seconds).await;
            let result = result.with_context(|| {
                format!(
                    "run {number} of {} failed; logs: {}",
                    system.id(),
                    dir.display()
                )
            })?;
            let rates: Vec<String> = result
                .loads
                .iter()
                .map(|load| format!("{:.0}", load.sagas_per_s))
                .collect();
            eprintln!(
                "compare: run {number} of {runs}, {}: {} sagas/s",
                system.id(),
                rates.join(", ")
            );
            results.entry(system).or_default().push(result);
        }
    }
    let path = dir.join("results.json");
    let json: BTreeMap<String, &Vec<Run>> = results
        .iter()
        .map(|(system, runs)| (system.id(), runs))
        .collect();
    fs::write(&path, serde_json::to_string_pretty(&json)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    print!("{}", report::tables(&results));
    Ok(())
}

/// Runs all loads against a new server and a new service, with an empty directory.
async fn run_once(system: System, programs: &Programs, dir: &Path, seconds: u64) -> Result<Run> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot delete {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = fs::canonicalize(dir)?;
    let [port, control] = free_ports()?;
    let server = Server::start(system, programs, &dir, port).await?;
    let own = std::env::current_exe()?;
    let mut command = Command::new(&own);
    command
        .args(["service", &system.id()])
        .args([server.port, port, control].map(|port| port.to_string()));
    let service = Process::start("service", &mut command, &dir, false)?;
    if !system.is_orlog() {
        server.register(port).await?;
    }
    let mut command = Command::new(&own);
    command
        .args(["load", &system.id()])
        .args([server.port, control].map(|port| port.to_string()));
    command
        .args([server.process.id()?, service.id()?].map(|pid| pid.to_string()))
        .arg(seconds.to_string());
    let mut load = Process::start("load", &mut command, &dir, true)?;
    let mut output = String::new();
    let limit = Duration::from_secs((seconds + 10) * LOADS.len() as u64 + 60);
    let mut pipe = load.output()?;
    timeout(limit, pipe.read_to_string(&mut output))
        .await
        .with_context(|| format!("not done after {}s", limit.as_secs()))??;
    load.finish().await?;
    service.stop().await?;
    server.process.stop().await?;
    fs::remove_dir_all(&dir)?;
    serde_json::from_str(&output).context("the load generator printed no measurements")
}
