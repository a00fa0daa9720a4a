//! Benchmark: orlog-workflow and sayiir execute a workflow of three trivial tasks, in turn, in one run (docs/benchmarks.md).

mod case;
mod load;
mod orlog;
mod report;
mod sayiir;
mod servers;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use crate::case::Case;
use crate::report::Results;
use crate::servers::Servers;

/// Compares orlog-workflow with sayiir and prints tables in Markdown
#[derive(Parser)]
struct Arguments {
    /// URL of a PostgreSQL server whose user may create databases; tools/bench-workflow.sh starts one
    #[arg(long)]
    postgres: String,
    /// URL of a NATS server with `JetStream`
    #[arg(long)]
    nats: String,
    /// Directory on the disk that the embedded store uses
    #[arg(long)]
    dir: PathBuf,
    /// Number of rounds; each executes all cases once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measured seconds of each case in a round, after one second that does not count
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Cases to execute
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    cases: Vec<Case>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let servers = Servers {
        postgres: arguments.postgres,
        nats: arguments.nats,
        dir: arguments.dir,
    };
    let mut results = Results::default();
    for round in 1..=arguments.rounds {
        for &case in &arguments.cases {
            let measurement = case.measure(&servers, arguments.seconds).await;
            let measurement =
                measurement.with_context(|| format!("round {round} of {} failed", case.title()))?;
            eprintln!(
                "round {round} of {}: {}, {}: {:.0} workflows/s, {:.0} µs CPU",
                arguments.rounds,
                case.group().title(),
                case.title(),
                measurement.rate,
                measurement.cpu_us
            );
            results.add(case, measurement);
        }
    }
    print!("{}", results.tables());
    Ok(())
}
