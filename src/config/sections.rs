//! The tables of the configuration file, one type each. What a key means stands in `config/default.toml`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use orlog_model::TenantId;
use serde::{Deserialize, Serialize};

use super::units;

const MIB: u64 = 1 << 20;

/// `[tenants]`: who is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenants {
    /// Whether anybody is, or those listed.
    pub mode: TenantMode,
    /// Those listed.
    pub list: Vec<TenantId>,
    /// Those whose instances are spread over all shards.
    pub spread: Vec<TenantId>,
}

/// Which tenants there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantMode {
    /// Any that is well formed.
    #[default]
    Open,
    /// Those listed, and the default tenant.
    Listed,
}

impl Tenants {
    /// Whether a tenant is let in.
    #[must_use]
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.mode == TenantMode::Open || tenant.as_str().is_empty() || self.list.contains(tenant)
    }
}

/// When something counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Once the disk has it.
    #[default]
    Sync,
    /// Before; the disk has it an interval later.
    Interval,
}

impl Durability {
    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Interval => "interval",
        }
    }
}

/// Where a commit is kept besides the disk of the node that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// In the shard's log on NATS, where the bus is NATS and more than one node may own the shard; else nowhere.
    #[default]
    Auto,
    /// Nowhere: a shard is tied to its folder.
    None,
    /// In the shard's log on NATS.
    JetStream,
}

impl Replication {
    /// Whether commits go to a log, given what `auto` asks for.
    #[must_use]
    pub fn is_on(self, bus_is_nats: bool, several_nodes: bool) -> bool {
        match self {
            Replication::Auto => bus_is_nats && several_nodes,
            Replication::None => false,
            Replication::JetStream => true,
        }
    }
}

/// `[store]`: how instances are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// When a commit counts as done.
    pub durability: Durability,
    /// How much a power failure may lose with [`Durability::Interval`].
    #[serde(with = "units::duration")]
    pub interval: Duration,
    /// Where a commit is kept besides this disk.
    pub replication: Replication,
    /// With replication: a snapshot is saved after so many commits.
    pub snapshot_commits: u64,
    /// Or when they take this many bytes.
    #[serde(with = "units::size")]
    pub snapshot_size: u64,
    /// For how long an applied event is remembered.
    #[serde(with = "units::duration")]
    pub dedupe_window: Duration,
    /// The largest size of the tables of one shard, in bytes.
    #[serde(with = "units::size")]
    pub max_size: u64,
    /// Changes are folded into the tables when they take this many bytes.
    #[serde(with = "units::size")]
    pub generation_size: u64,
    /// Or when the oldest of them is this old.
    #[serde(with = "units::duration")]
    pub generation_age: Duration,
    /// Bytes of one file of the journal.
    #[serde(with = "units::size")]
    pub journal_segment_size: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            interval: Duration::from_millis(20),
            replication: Replication::Auto,
            snapshot_commits: 100_000,
            snapshot_size: 256 * MIB,
            dedupe_window: Duration::from_hours(24),
            max_size: 64 << 30,
            generation_size: 64 * MIB,
            generation_age: Duration::from_secs(5),
            journal_segment_size: 64 * MIB,
        }
    }
}

/// What carries events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusKind {
    /// A log in the data folder; one process, no server.
    #[default]
    Embedded,
    /// JetStream.
    Nats,
}

impl BusKind {
    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BusKind::Embedded => "embedded",
            BusKind::Nats => "nats",
        }
    }
}

/// `[bus]`: how events are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bus {
    /// What carries events.
    pub kind: BusKind,
    /// When a published event counts as accepted.
    pub durability: Durability,
    /// How much a power failure may lose with [`Durability::Interval`].
    #[serde(with = "units::duration")]
    pub interval: Duration,
    /// Bytes of one file of the log.
    #[serde(with = "units::size")]
    pub segment_size: u64,
    /// Events that are done with are kept until the log has this many bytes.
    #[serde(with = "units::size")]
    pub retention_size: u64,
    /// The largest message, in bytes.
    #[serde(with = "units::size")]
    pub max_message_size: u64,
    /// Bytes of recent messages kept in memory.
    #[serde(with = "units::size")]
    pub recent_size: u64,
    /// For how long a published id is remembered.
    #[serde(with = "units::duration")]
    pub dedupe_window: Duration,
    /// How many published ids are remembered.
    pub dedupe_ids: usize,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            kind: BusKind::Embedded,
            durability: Durability::Sync,
            interval: Duration::from_millis(20),
            segment_size: 64 * MIB,
            retention_size: 256 * MIB,
            max_message_size: MIB,
            recent_size: 64 * MIB,
            dedupe_window: Duration::from_mins(2),
            dedupe_ids: 1_000_000,
        }
    }
}

/// `[limits]`: bounds of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Messages taken from the bus whose consequences are not durable yet.
    pub in_flight_per_ingester: usize,
    /// Inputs that wait for one instance before no more is read.
    pub in_flight_per_instance: usize,
    /// Work items for one destination that are offered and not done.
    pub offered_per_lane: usize,
    /// Changes in one commit.
    pub group: usize,
    /// Instances held in memory.
    pub live_instances: usize,
    /// An instance that has nothing to do for this long leaves memory.
    #[serde(with = "units::duration")]
    pub idle: Duration,
    /// How often an input may crash its instance.
    pub attempts_per_input: u32,
    /// Restarts within the period before the process gives up.
    pub restarts: usize,
    /// The period.
    #[serde(with = "units::duration")]
    pub restart_period: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_per_ingester: 8192,
            in_flight_per_instance: 256,
            offered_per_lane: 4096,
            group: 1024,
            live_instances: 50_000,
            idle: Duration::from_secs(30),
            attempts_per_input: 3,
            restarts: 10,
            restart_period: Duration::from_mins(1),
        }
    }
}

/// `[export]`: what is told to whoever keeps a copy elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Export {
    /// Whether commits note what they touch.
    pub enabled: bool,
    /// For how long that is kept.
    #[serde(with = "units::duration")]
    pub keep: Duration,
    /// And of how many commits of a shard at most.
    pub keep_commits: NonZeroU64,
}

impl Default for Export {
    fn default() -> Self {
        let keep_commits = NonZeroU64::new(1_000_000).expect("a million is not zero");
        Self { enabled: false, keep: Duration::from_hours(24), keep_commits }
    }
}

/// `[http]`: bounds of the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The largest body with one event or instruction, in bytes.
    #[serde(with = "units::size")]
    pub max_body_size: u64,
    /// The largest body with a batch of events, in bytes.
    #[serde(with = "units::size")]
    pub max_batch_size: u64,
    /// The longest page of a list.
    pub page_limit: usize,
    /// Rows that one request for a list may look at.
    pub scan_limit: usize,
    /// The time a request may take.
    #[serde(with = "units::duration")]
    pub request_timeout: Duration,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            max_body_size: MIB,
            max_batch_size: 8 * MIB,
            page_limit: 1000,
            scan_limit: 20_000,
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// `[backup]`: copies of what is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backup {
    /// Where copies lie until they are fetched; `backups` in the data folder where it is empty.
    #[serde(with = "units::optional")]
    pub folder: Option<PathBuf>,
}

/// `[drain]`: how the process comes to rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How long it waits for what is under way.
    #[serde(with = "units::duration")]
    pub deadline: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30) }
    }
}

/// `[log]`: what is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// For people or for programs.
    pub format: LogFormat,
    /// Which lines.
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, filter: "info".to_owned() }
    }
}

/// For whom a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// People on a terminal, else programs.
    #[default]
    Auto,
    /// People.
    Human,
    /// Programs: one JSON object a line.
    Json,
}

/// `[telemetry]`: what goes to a collector, and what is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector's base URL; nowhere where it is empty.
    pub otlp_endpoint: String,
    /// Whether spans go there.
    pub traces: bool,
    /// Whether log lines go there.
    pub logs: bool,
    /// The share of the traces that begin here that is kept, from 0 to 1.
    pub sample_ratio: f64,
    /// Tenants with metrics of their own.
    pub tenants: usize,
    /// Spans, and log lines, that wait to be sent at most; more are dropped and counted.
    pub queue: usize,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: String::new(),
            traces: true,
            logs: false,
            sample_ratio: 1.0,
            tenants: 50,
            queue: 32_768,
        }
    }
}
