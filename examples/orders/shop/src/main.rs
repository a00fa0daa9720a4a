//! The shop as a program: `serve` runs it beside a runner of your own, `demo` plays the demonstration.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use orlog_example_shop::demo;
use orlog_example_shop::shop::{Options, Shop};

/// A small shop that plays the Aggregates and the Gateway beside Orlog
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve beside a runner, until interrupted
    Serve {
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:7171")]
        listen: SocketAddr,
        /// The base URL of the runner, where events go
        #[arg(long, default_value = "http://127.0.0.1:7070")]
        orlog: String,
        /// Decides what is left to chance
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Play the demonstration: exit code 0 when the books agree, else 1
    Demo(demo::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve { listen, orlog, seed } => serve(listen, orlog, seed).await.map(|()| true),
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
    let listener = listener.await.with_context(|| format!("cannot listen at {listen}"))?;
    let shop = Shop::open(listener, &Options { orlog, seed, pace: Duration::from_millis(20) })?;
    println!("the shop is open at {}; its record is at {}/book", shop.url(), shop.url());
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")
}
