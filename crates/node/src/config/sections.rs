//! Tables of the configuration file, one type each. `config/default.toml` describes the keys.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};

use super::units;

/// Configuration of `[tenants]`: the tenants that a node accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantsConfig {
    /// Whether all tenants are accepted, or only those in the allowlist.
    pub mode: TenantMode,
    /// Allowlist of tenants.
    pub allowed: Vec<TenantId>,
    /// Tenants whose instances are distributed over all shards.
    pub key_sharded: Vec<TenantId>,
}

/// Mode of tenant admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantMode {
    /// Any valid tenant id.
    #[default]
    Open,
    /// Only the tenants in the allowlist, and the default tenant.
    Allowlist,
}

impl TenantsConfig {
    /// Returns whether a tenant is accepted.
    #[must_use]
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.mode == TenantMode::Open || tenant.as_str().is_empty() || self.allowed.contains(tenant)
    }
}

/// Configuration of `[tenant_storage]`: maximum sizes of the stored rows of one tenant on this
/// node, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantStorageConfig {
    /// Dead letters; `None`: unlimited.
    #[serde(with = "units::optional")]
    pub dead_letters: Option<u64>,
    /// Inputs that are not applied yet; `None`: unlimited.
    #[serde(with = "units::optional")]
    pub buffered_inputs: Option<u64>,
    /// Instances and their history; `None`: unlimited.
    #[serde(with = "units::optional")]
    pub instances: Option<u64>,
    /// Lines of jobs; `None`: unlimited.
    #[serde(with = "units::optional")]
    pub job_lines: Option<u64>,
}

/// Configuration of `[history]`: content of history entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryConfig {
    /// Maximum size of each recorded payload in bytes; 0: payloads are not recorded.
    pub payload_bytes: usize,
}

/// Configuration of `[jobs]`: jobs of flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsConfig {
    /// Number of lines that each flow keeps.
    pub lines: u64,
}

/// Configuration of `[messages]`: messages between contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesConfig {
    /// Effect that sends received messages of the type `mail` by SMTP; `None`: they are not sent.
    #[serde(with = "units::optional")]
    pub mail_effect: Option<EffectName>,
}

/// Configuration of `[results]`: results of effects as events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultsConfig {
    /// Whether the node publishes the results of the effects that it executes.
    pub publish: bool,
}

/// Durability of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The write completes after the fsync.
    #[default]
    Sync,
    /// The write completes before the fsync, which follows within one interval.
    Interval,
}

impl Durability {
    /// Returns the name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Interval => "interval",
        }
    }
}

/// Replication of commits beyond the local disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicationMode {
    /// Replicates to the shard log on NATS if the bus is NATS and several nodes can own the shard;
    /// else none.
    #[default]
    Auto,
    /// No replication: a shard is bound to its directory.
    None,
    /// Replicates to the shard log on NATS.
    JetStream,
}

impl ReplicationMode {
    /// Returns whether commits are replicated, given the conditions of `auto`.
    #[must_use]
    pub fn is_on(self, bus_is_nats: bool, several_nodes: bool) -> bool {
        match self {
            ReplicationMode::Auto => bus_is_nats && several_nodes,
            ReplicationMode::None => false,
            ReplicationMode::JetStream => true,
        }
    }
}

/// Configuration of `[store]`: storage of instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// Durability of commits.
    pub durability: Durability,
    /// Fsync interval: maximum data loss on a power failure with [`Durability::Interval`].
    #[serde(with = "units::text")]
    pub interval: Duration,
    /// Replication of commits beyond the local disk.
    pub replication: ReplicationMode,
    /// With replication: number of commits between snapshots.
    pub snapshot_commits: u64,
    /// With replication: bytes of commits between snapshots.
    #[serde(with = "units::text")]
    pub snapshot_size: u64,
    /// Time for which the dedupe key of an applied event is stored.
    #[serde(with = "units::text")]
    pub dedupe_window: Duration,
    /// Maximum size of the tables of one shard, in bytes.
    #[serde(with = "units::text")]
    pub max_size: u64,
    /// File pages in memory of the process above which a flush releases the pages of the tables, in
    /// bytes.
    #[serde(with = "units::text")]
    pub resident_size: u64,
    /// Memtable size in bytes that triggers a flush.
    #[serde(with = "units::text")]
    pub memtable_size: u64,
    /// Memtable age that triggers a flush.
    #[serde(with = "units::text")]
    pub memtable_max_age: Duration,
    /// Size of one journal segment in bytes.
    #[serde(with = "units::text")]
    pub journal_segment_size: u64,
    /// Maximum duration of the check of the tables before a node starts; zero: no check.
    #[serde(with = "units::duration_or_zero")]
    pub start_check_timeout: Duration,
}

/// Transport of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusKind {
    /// Embedded log in the data directory; one process, no server.
    #[default]
    Embedded,
    /// NATS JetStream.
    Nats,
}

impl BusKind {
    /// Returns the name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BusKind::Embedded => "embedded",
            BusKind::Nats => "nats",
        }
    }
}

/// Configuration of `[bus]`: storage of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusConfig {
    /// Transport of events.
    pub kind: BusKind,
    /// Durability of published events.
    pub durability: Durability,
    /// Fsync interval: maximum data loss on a power failure with [`Durability::Interval`].
    #[serde(with = "units::text")]
    pub interval: Duration,
    /// Size of one log segment in bytes.
    #[serde(with = "units::text")]
    pub segment_size: u64,
    /// Log size in bytes up to which processed events are retained.
    #[serde(with = "units::text")]
    pub retention_size: u64,
    /// Maximum message size in bytes.
    #[serde(with = "units::text")]
    pub max_message_size: u64,
    /// Cache size for recent messages in bytes.
    #[serde(with = "units::text")]
    pub cache_size: u64,
    /// Time for which a published id is deduplicated.
    #[serde(with = "units::text")]
    pub dedupe_window: Duration,
    /// Maximum number of published ids for deduplication.
    pub dedupe_ids: usize,
}

/// Configuration of `[export]`: change feed for exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// Whether commits record the changed rows.
    pub enabled: bool,
    /// Retention of the change feed.
    #[serde(with = "units::text")]
    pub retention: Duration,
    /// Maximum number of commits in the change feed of a shard.
    pub max_commits: NonZeroU64,
}

/// Configuration of `[backup]`: backups of the stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackupConfig {
    /// Directory of backups that are not fetched yet; `backups` in the data directory if empty.
    #[serde(with = "units::optional")]
    pub dir: Option<PathBuf>,
}

/// Configuration of `[drain]`: drain of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainConfig {
    /// Maximum time to finish in-flight work.
    #[serde(with = "units::text")]
    pub timeout: Duration,
}

/// Configuration of `[log]`: log format and filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Log format: text or JSON.
    pub format: LogFormat,
    /// Log filter.
    pub filter: String,
}

/// Log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    #[default]
    Auto,
    /// Text.
    Human,
    /// JSON, one object a line.
    Json,
}

/// Configuration of `[telemetry]`: export of spans and logs, and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Base URL of the OTLP collector; empty: none.
    pub otlp_endpoint: String,
    /// Whether spans are exported.
    pub traces: bool,
    /// Whether logs are exported.
    pub logs: bool,
    /// Sampling ratio of traces that start in this process, from 0 to 1.
    pub sample_ratio: f64,
    /// Maximum number of tenants with their own metric series.
    pub max_tenant_series: usize,
    /// Maximum queued spans and log records; more are dropped and counted.
    pub queue_size: usize,
}
