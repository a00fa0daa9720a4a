//! The shop as a program: `serve` runs it with an existing runner, `demo` runs the demo.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use orlog_example_shop::demo;
use orlog_example_shop::shop::{Options, Shop};

/// Example shop that implements the aggregates and the gateway for Orlog
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve an existing runner until interrupted
    Serve {
        /// Listen address
        #[arg(long, default_value = "127.0.0.1:7171")]
        listen: SocketAddr,
        /// Base URL of the runner, for events
        #[arg(long, default_value = "http://127.0.0.1:7070")]
        orlog: String,
        /// Seed of all random faults
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run the demo: exit code 0 if the records match, else 1
    Demo(demo::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve {
            listen,
            orlog,
            seed,
        } => serve(listen, orlog, seed).await.map(|()| true),
        Command::Demo(options) => demo::run(options).await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(listen: SocketAddr, orlog: String, seed: u64) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(listen);
    let listener = listener
        .await
        .with_context(|| format!("cannot listen at {listen}"))?;
    let shop = Shop::open(
        listener,
        &Options {
            orlog,
            seed,
            pace: Duration::from_millis(20),
        },
    )?;
    println!(
        "shop listens at {}; its record is at {}/book",
        shop.url(),
        shop.url()
    );
    tokio::signal::ctrl_c()
        .await
        .context("cannot wait for an interrupt")
}
