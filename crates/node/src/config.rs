//! Configuration: its keys and its layers.
//!
//! Precedence: defaults (`config/default.toml`, embedded in the binary) < file < environment
//! (`ORLOG_…`) < flags. An unknown key is rejected with its location and the most similar known
//! name.

mod actors;
mod audit;
mod auth;
mod cluster;
mod defaults;
mod diagnostics;
mod http_server;
mod key_rules;
mod layers;
mod limits;
mod loopback;
mod nats;
mod node_address;
mod oidc;
mod peers;
mod reload;
mod retention;
mod roles;
mod sections;
mod units;
mod validate;
mod violations;
mod webhooks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use orlog_effect::providers::gateway::GatewayConfig;
use orlog_effect::providers::http::HttpConfig;
use orlog_model::{AddressError, NodeName};
use serde::{Deserialize, Serialize};

use crate::redact::Redaction;
pub use actors::{ActorConfig, ActorKeyConfig, SignaturesConfig};
pub use audit::AuditConfig;
pub use auth::{AdminTokenConfig, AuthConfig, AuthMode, JwtConfig, TrustedGatewayConfig};
pub use cluster::{ClusterConfig, ClusterMode, ClusterTlsConfig, ordinal};
pub use diagnostics::ConfigDiagnostic;
pub use diagnostics::similar_name;
pub use http_server::MIN_CONNECTIONS;
pub use http_server::{CallerQuotaConfig, HostPattern, HttpServerConfig, HttpTlsConfig};
pub use key_rules::{Agreement, ChangeMethod, KEY_RULES, KeyRule, rule_of};
pub use layers::{Layers, Setting};
pub use limits::LimitsConfig;
pub use loopback::{is_loopback_url, is_protected};
pub use nats::{NatsConfig, NatsTlsConfig, SigningConfig, StreamLimits};
pub use node_address::{NATS_REQUIRED, node_subject};
pub use node_address::{NodeAddress, NodeAddressError};
pub use oidc::OidcConfig;
pub use peers::{IdentityConfig, PeerConfig};
pub use reload::ConfigSource;
pub(crate) use reload::NextConfig;
pub use retention::{RetentionConfig, RetentionPeriod, SagaRetention, TenantRetention};
pub use roles::{QueueConfig, Role};
pub use sections::{
    BackupConfig, BusConfig, BusKind, DrainConfig, Durability, ExportConfig, HistoryConfig,
    JobsConfig, LogConfig, LogFormat, MessagesConfig, ReplicationMode, ResultsConfig, StoreConfig,
    TelemetryConfig, TenantMode, TenantStorageConfig, TenantsConfig,
};
pub(crate) use webhooks::WebhookTemplates;
pub use webhooks::{SignatureEncoding, WebhookConfig, WebhookScheme, WebhookSignatureConfig};

/// Default configuration as text: every key with its description.
pub const DEFAULT: &str = include_str!("../../../config/default.toml");

/// Configuration of a node. `config/default.toml` describes every key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of this node; the host name if empty.
    pub node_name: String,
    /// Role of this node.
    pub role: Role,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Listen address of the HTTP API.
    pub listen: SocketAddr,
    /// Directory with the definitions.
    #[serde(with = "units::optional")]
    pub definitions_dir: Option<PathBuf>,
    /// Directory with the upstream files.
    #[serde(with = "units::optional")]
    pub upstreams_dir: Option<PathBuf>,
    /// Number of shards.
    pub shards: u16,
    /// Tenants that the node accepts.
    pub tenants: TenantsConfig,
    /// Maximum sizes of the stored rows of one tenant.
    pub tenant_storage: TenantStorageConfig,
    /// Storage of instances.
    pub store: StoreConfig,
    /// Storage of events.
    pub bus: BusConfig,
    /// JetStream, if it is the bus.
    pub nats: NatsConfig,
    /// Effects between nodes.
    pub queue: QueueConfig,
    /// Assignment of shards to pods.
    pub cluster: ClusterConfig,
    /// Limits of one shard.
    pub limits: LimitsConfig,
    /// Content of history entries.
    pub history: HistoryConfig,
    /// Jobs of flows.
    pub jobs: JobsConfig,
    /// Messages between contexts.
    pub messages: MessagesConfig,
    /// Results of effects as events.
    pub results: ResultsConfig,
    /// Retention of ended instances and dead letters.
    pub retention: RetentionConfig,
    /// Change feed for exports.
    pub export: ExportConfig,
    /// Limits of the HTTP API.
    pub http: HttpServerConfig,
    /// Authentication of API callers.
    pub auth: AuthConfig,
    /// Identity of the node for its peers.
    pub identity: IdentityConfig,
    /// Audit trail of API calls.
    pub audit: AuditConfig,
    /// Backups of the stores.
    pub backup: BackupConfig,
    /// Drain of the process.
    pub drain: DrainConfig,
    /// Log format and filter.
    pub log: LogConfig,
    /// Export of spans and logs.
    pub telemetry: TelemetryConfig,
    /// Redaction of values.
    pub redact: Redaction,
    /// Upstreams that execute effects, by name.
    #[serde(default)]
    pub upstreams: BTreeMap<String, HttpConfig>,
    /// Received webhooks, by name.
    #[serde(default)]
    pub webhooks: BTreeMap<String, WebhookConfig>,
    /// Other nodes, by name.
    #[serde(default)]
    pub peers: BTreeMap<NodeName, PeerConfig>,
    /// Gateway that accepts commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayConfig>,
}

/// Error in a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("cannot read configuration {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A layer contains an invalid key or value.
    #[error("{location}: {message}")]
    Invalid {
        /// Location: `orlog.toml:3:1`, the environment variable, or the flag.
        location: String,
        /// Reason, with a suggestion.
        message: String,
    },
}

/// Host name of the machine, read once: requests, audit records and the routing of a cluster use
/// the name of the node. A node keeps its name until it restarts.
static HOST_NAME: LazyLock<String> = LazyLock::new(|| {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
});

impl Config {
    /// Returns the name of this node: the configured one, else the host name.
    #[must_use]
    pub fn node_name(&self) -> String {
        if self.node_name.is_empty() {
            HOST_NAME.clone()
        } else {
            self.node_name.clone()
        }
    }

    /// Returns the name of this node for its peers: the configured one, else that of the process.
    ///
    /// # Errors
    /// If it is no name of a node.
    pub fn identity_name(&self) -> Result<NodeName, AddressError> {
        self.identity
            .name
            .clone()
            .map_or_else(|| NodeName::new(self.node_name()), Ok)
    }

    /// Returns the upstreams and the gateway as configuration of `orlog_effect`.
    #[must_use]
    pub fn upstreams(&self) -> orlog_effect::EffectsConfig {
        orlog_effect::EffectsConfig {
            upstreams: self.upstreams.clone(),
            gateway: self.gateway.clone(),
        }
    }

    /// Returns whether the node shares shards or their logs with others, and compares its
    /// configuration with the record of the cluster.
    #[must_use]
    pub(crate) fn shares_state(&self) -> bool {
        let is_shared = self.cluster.mode != ClusterMode::Standalone || self.replicated();
        self.role.runs_sagas() && is_shared
    }

    /// Returns whether this node is a pod that runs shards of a cluster.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.cluster.mode != ClusterMode::Standalone && self.role.runs_sagas()
    }

    /// Returns whether commits are replicated to NATS.
    #[must_use]
    pub fn replicated(&self) -> bool {
        let leased = self.cluster.mode == ClusterMode::Leases;
        self.store
            .replication
            .is_on(self.bus.kind == BusKind::Nats, leased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(config: &Config) -> toml::Table {
        toml::Table::try_from(config).unwrap()
    }

    fn keys(table: &toml::Table) -> Vec<String> {
        let nested = table.iter().flat_map(|(key, value)| match value {
            toml::Value::Table(inner) => keys(inner)
                .into_iter()
                .map(|k| format!("{key}.{k}"))
                .collect(),
            _ => vec![key.clone()],
        });
        nested.collect()
    }

    fn with_defaults(text: &str) -> Config {
        let mut table = defaults::TABLE.clone();
        layers::merge(&mut table, text.parse().unwrap());
        table.try_into().unwrap()
    }

    #[test]
    fn default_file_is_valid_and_keeps_its_values() {
        assert_eq!(
            table(&Config::default()),
            table(&toml::from_str(DEFAULT).unwrap())
        );
        assert!(Config::default().validate().is_empty());
    }

    #[test]
    fn default_file_lists_every_key() {
        assert_eq!(
            keys(&DEFAULT.parse().unwrap()),
            keys(&table(&Config::default()))
        );
    }

    #[test]
    fn zero_disables_the_limits_that_document_it() {
        let text = "[store]\nstart_check_timeout = \"0s\"\n\
                    [http.per_caller]\nmax_query_time_per_minute = \"0s\"\n";
        let config = with_defaults(text);
        assert!(config.store.start_check_timeout.is_zero());
        assert!(config.http.per_caller.max_query_time_per_minute.is_zero());
        assert_eq!(
            table(&with_defaults(&toml::to_string(&config).unwrap())),
            table(&config)
        );

        let mut rejected = defaults::TABLE.clone();
        let other = "[store]\nmemtable_max_age = \"0s\"\n";
        layers::merge(&mut rejected, other.parse().unwrap());
        assert!(rejected.try_into::<Config>().is_err());
    }

    #[test]
    fn validation_reports_existing_keys() {
        let invalid = [
            "listen = \"0.0.0.0:1\"\n[http]\nmax_page_size = 0\n[auth]\npublic_routes = \
             [\"/x\"]\n[queue]\nmax_in_flight = 0\n\
             [audit]\nrequired = true\nmax_file_size = \"1KiB\"\nexclude_routes = \
                 [\"x\"]\nnats_subject = \"audit\"",
            "role = \"effect\"\n[audit]\nrequired = true\n[store]\nreplication = \
             \"jetstream\"\n[queue]\nack_wait = \"1ms\"",
            "[bus]\nkind = \"nats\"\n[nats]\nservers = []\n[cluster]\nmode = \"leases\"\nname = \
             \"a.b\"",
            "[bus]\nkind = \"nats\"\n[nats]\nreplicas = 9\n[cluster]\nmode = \"leases\"\nlease_ttl \
             = \"1ms\"",
            "listen = \"0.0.0.0:1\"\n[bus]\nkind = \"nats\"\n[nats]\nservers = \
             [\"x\"]\n[cluster]\nmode = \"leases\"\nname = \"a\"",
        ];
        let known = keys(&DEFAULT.parse().unwrap());
        for text in invalid {
            let config = with_defaults(text);
            let errors = config.validate();
            assert!(!errors.is_empty(), "{text}");
            for error in errors {
                let Error::Invalid { location, .. } = &error else {
                    panic!("{error}")
                };
                let is_key =
                    |key: &String| key == location || key.starts_with(&format!("{location}."));
                assert!(known.iter().any(is_key), "{error}");
            }
        }
    }

    #[test]
    fn default_file_examples_are_valid() {
        let (_, examples) = DEFAULT.split_once("one table for each upstream:").unwrap();
        let is_key = |line: &&str| line.starts_with('[') || line.contains(" = ");
        let lines: Vec<_> = examples
            .lines()
            .filter_map(|l| l.strip_prefix("# "))
            .filter(is_key)
            .collect();
        let config = with_defaults(&lines.join("\n"));
        assert!(config.gateway.is_some() && config.webhooks.contains_key("stripe"));
        assert_eq!(
            config
                .validate()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            [""; 0]
        );
        assert_eq!(config.upstreams().upstreams().unwrap().len(), 2);
    }
}
