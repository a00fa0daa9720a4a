//! What can be asked of the bench.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::config::{BusKind, ClusterMode, Config};

/// What kind of load.
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
    /// On NATS: the server's address. Commits are replicated on its streams (A, B).
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// The process of that server, whose processor time is counted too.
    #[arg(long, value_name = "PID", requires = "nats")]
    pub server: Option<u32>,
    /// Stores that the instances are divided into.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: u16,
    /// Send spans of every saga to this collector, to see what tracing costs (A, B).
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// A file that gets the number of every accepted saga; for workload E.
    #[arg(long, hide = true)]
    pub accepted: Option<PathBuf>,
}

impl Bench {
    pub(super) fn sagas(&self) -> u64 {
        let by_default = match self.workload {
            Workload::A | Workload::B => (u64::from(self.concurrency) * 200).clamp(2_000, 150_000),
            Workload::C => 100_000,
            Workload::D => 10_000,
            Workload::E => 1_000_000,
        };
        self.sagas.unwrap_or(by_default)
    }

    /// Whose saga this is: with several stores many tenants, so that each has some.
    pub(super) fn tenant(&self, number: u64) -> String {
        if self.shards == 1 { String::new() } else { format!("t{}", number % 64) }
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(super) fn config(&self, data: PathBuf) -> Config {
        let mut config = Config { data, node: "bench".to_owned(), ..Config::default() };
        let durability = match self.durability {
            Durability::Sync => crate::config::Durability::Sync,
            Durability::Interval => crate::config::Durability::Interval,
        };
        config.store.durability = durability;
        config.bus.durability = durability;
        config.shards = self.shards;
        config.telemetry.otlp_endpoint = self.otlp.clone().unwrap_or_default();
        if let Some(server) = &self.nats {
            config.bus.kind = BusKind::Nats;
            config.nats.servers = vec![server.clone()];
            config.nats.own_aggregate_stream = true;
            config.cluster.mode = ClusterMode::Leased;
        }
        config
    }
}
