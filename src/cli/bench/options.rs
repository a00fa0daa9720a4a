//! Options of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use orlog_node::config::{BusKind, ClusterMode, Config, Layers};

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Three steps, all succeed.
    #[value(name = "A", alias = "a")]
    A,
    /// Three steps, the third fails.
    #[value(name = "B", alias = "b")]
    B,
    /// Wait for a timer.
    #[value(name = "C", alias = "c")]
    C,
    /// Wake by signal.
    #[value(name = "D", alias = "d")]
    D,
    /// Kill and recover.
    #[value(name = "E", alias = "e")]
    E,
    /// Noisy neighbor.
    #[value(name = "F", alias = "f")]
    F,
    /// Flows of five jobs.
    #[value(name = "G", alias = "g")]
    G,
    /// Constant rate with retention.
    #[value(name = "H", alias = "h")]
    H,
}

/// Sync mode of the files of the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// A commit returns after the fsync.
    Sync,
    /// The fsync follows within one interval.
    Interval,
}

/// Arguments of the benchmark.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Workload to run.
    #[arg(long, value_enum, ignore_case = true, default_value = "A")]
    pub workload: Workload,
    /// Concurrent sagas (A, B, D, E), or runners (G).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: u32,
    /// Total number of sagas; default: enough for a stable result within seconds.
    #[arg(long)]
    pub sagas: Option<u64>,
    /// Seconds after which no new saga starts (A, B, G, H, each load of F)
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Sagas started per second (H)
    #[arg(
        long,
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    pub rate: u32,
    /// Seconds after which ended sagas are purged (H)
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub retention: u64,
    /// Sync mode of the files.
    #[arg(long, value_enum, default_value = "sync")]
    pub durability: Durability,
    /// Data directory; default: a temporary directory beside the current one, removed at the end.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// NATS server URL. Commits are replicated to its streams (A, B).
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// Process id of the NATS server, to include its CPU time.
    #[arg(long, value_name = "PID", requires = "nats")]
    pub server: Option<u32>,
    /// Number of shards.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: u16,
    /// OTLP collector for the spans of every saga, to measure the overhead of tracing (A, B).
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// File that records the number of every accepted saga; for workload E.
    #[arg(long, hide = true)]
    pub accepted: Option<PathBuf>,
}

impl BenchArgs {
    pub(super) fn sagas(&self) -> u64 {
        let by_default = match self.workload {
            // Each client runs 200 sagas. Few clients need a minimum for a stable result, and many
            // of them a bound of the time.
            Workload::A | Workload::B => (u64::from(self.concurrency) * 200).clamp(2_000, 150_000),
            Workload::C | Workload::G | Workload::H => 100_000,
            Workload::D => 10_000,
            // More than the process can end before it is killed.
            Workload::E => 1_000_000,
            Workload::F => 20_000,
        };
        self.sagas.unwrap_or(by_default)
    }

    /// Returns the tenant of a saga. With several shards there are many tenants, so that each shard
    /// has some.
    pub(super) fn tenant(&self, number: u64) -> String {
        if self.shards == 1 {
            String::new()
        } else {
            format!("t{}", number % 64)
        }
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Returns the configuration of the node; the sections `limits` and `results` are those of the
    /// environment (`ORLOG_LIMITS__…`).
    pub(super) fn config(&self, data: PathBuf) -> anyhow::Result<Config> {
        // Only these sections: other variables of a shell would make runs incomparable without
        // notice.
        let is_read = |name: &str| {
            ["ORLOG_LIMITS__", "ORLOG_RESULTS__"]
                .iter()
                .any(|of| name.starts_with(of))
        };
        let variables = std::env::vars_os().filter(|(name, _)| is_read(&name.to_string_lossy()));
        let Config {
            limits, results, ..
        } = Layers::none().environment(variables).load()?;

        let node_name = "bench".to_owned();
        let mut config = Config {
            data_dir: data,
            node_name,
            limits,
            results,
            ..Config::default()
        };
        let durability = match self.durability {
            Durability::Sync => orlog_node::config::Durability::Sync,
            Durability::Interval => orlog_node::config::Durability::Interval,
        };
        config.store.durability = durability;
        config.bus.durability = durability;
        config.shards = self.shards;
        config.telemetry.otlp_endpoint = self.otlp.clone().unwrap_or_default();

        // With leases, commits are replicated, so that the run measures them as in a cluster.
        if let Some(server) = &self.nats {
            config.bus.kind = BusKind::Nats;
            config.nats.servers = vec![server.clone()];
            config.nats.manage_aggregate_stream = true;
            config.cluster.mode = ClusterMode::Leases;
        }

        Ok(config)
    }
}
