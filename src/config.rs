//! The configuration: what can be set, and from which layers it comes.
//!
//! Defaults (`config/default.toml`, which is part of the binary) < file < environment (`ORLOG_…`) < flags. A key that does
//! not exist is refused with its place and the nearest name that does.

mod auth;
mod cluster;
mod defaults;
mod diagnostics;
mod layers;
mod nats;
mod retention;
mod roles;
mod sections;
mod units;
mod validate;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use orlog_effect::config::{GatewayConfig, HttpConfig};
use serde::{Deserialize, Serialize};

use crate::redact::Redact;
pub use auth::{Audit, Auth, AuthMode, Jwt, TrustedGateway};
pub use cluster::{Cluster, ClusterMode, ordinal};
pub use diagnostics::Mistake;
pub use layers::{Layers, Setting};
pub use nats::{Nats, NatsTls, StreamLimits};
pub use retention::{Retention, SagaRetention, TenantRetention, Window};
pub use roles::{Queue, Role};
pub use sections::{
    Backup, Bus, BusKind, Drain, Durability, Export, Http, Limits, Log, LogFormat, Replication, Store,
    Telemetry, TenantMode, Tenants,
};

/// The defaults as people read them: every key with what it means.
pub const DEFAULT: &str = include_str!("../config/default.toml");

/// Everything that can be set. `config/default.toml` says what each key means.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The name of this node; the host's where it is empty.
    pub node: String,
    /// What this node does.
    pub roles: Role,
    /// Where everything durable lives.
    pub data: PathBuf,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// The folder with the definitions.
    #[serde(with = "units::optional")]
    pub definitions: Option<PathBuf>,
    /// The folder with the upstreams that have a file of their own.
    #[serde(with = "units::optional")]
    pub effects: Option<PathBuf>,
    /// Into how many stores the instances are divided.
    pub shards: u16,
    /// Who is let in.
    pub tenants: Tenants,
    /// How instances are kept.
    pub store: Store,
    /// How events are kept.
    pub bus: Bus,
    /// JetStream, where it carries them.
    pub nats: Nats,
    /// Effects between nodes.
    pub queue: Queue,
    /// Which shards this pod runs.
    pub cluster: Cluster,
    /// Bounds of one shard.
    pub limits: Limits,
    /// For how long what is over is kept.
    pub retention: Retention,
    /// What is told to whoever keeps a copy elsewhere.
    pub export: Export,
    /// Bounds of the HTTP API.
    pub http: Http,
    /// Who may call it.
    pub auth: Auth,
    /// What is kept of what they did.
    pub audit: Audit,
    /// Copies of what is stored.
    pub backup: Backup,
    /// How the process comes to rest.
    pub drain: Drain,
    /// What is logged, and how.
    pub log: Log,
    /// Where spans go.
    pub telemetry: Telemetry,
    /// What is not shown.
    pub redact: Redact,
    /// Where effects are performed, by the upstream's name.
    pub upstreams: BTreeMap<String, HttpConfig>,
    /// Where commands go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: String::new(),
            roles: Role::default(),
            data: PathBuf::from("data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            definitions: None,
            effects: None,
            shards: 1,
            tenants: Tenants::default(),
            store: Store::default(),
            bus: Bus::default(),
            nats: Nats::default(),
            queue: Queue::default(),
            cluster: Cluster::default(),
            limits: Limits::default(),
            retention: Retention::default(),
            export: Export::default(),
            http: Http::default(),
            auth: Auth::default(),
            audit: Audit::default(),
            backup: Backup::default(),
            drain: Drain::default(),
            log: Log::default(),
            telemetry: Telemetry::default(),
            redact: Redact::default(),
            upstreams: BTreeMap::new(),
            gateway: None,
        }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or cannot be read.
    #[error("the configuration {} cannot be read: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A layer says something that cannot be.
    #[error("{place}: {what}")]
    Wrong {
        /// `orlog.toml:3:1`, the variable, the flag.
        place: String,
        /// What is wrong, and what was probably meant.
        what: String,
    },
}

impl Config {
    /// The name of this node: as configured, else the host's.
    #[must_use]
    pub fn node_name(&self) -> String {
        if self.node.is_empty() {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        } else {
            self.node.clone()
        }
    }

    /// The upstreams and the gateway, as `orlog_effect` takes them.
    #[must_use]
    pub fn upstreams(&self) -> orlog_effect::EffectsConfig {
        orlog_effect::EffectsConfig { upstreams: self.upstreams.clone(), gateway: self.gateway.clone() }
    }

    /// What is wrong about where commands go.
    fn gateway_mistake(&self) -> Option<&'static str> {
        let gateway = self.gateway.as_ref()?;
        match (&gateway.base_url, &gateway.subject) {
            (None, None) => Some("it has neither base_url nor subject; write one"),
            (Some(_), Some(_)) => Some("it has a base_url and a subject; keep one"),
            (None, Some(_)) if self.bus.kind != BusKind::Nats => {
                Some("its subject needs NATS; write bus.kind = \"nats\" and [nats]")
            }
            (Some(_), None) | (None, Some(_)) => None,
        }
    }

    /// Checks what no single key shows.
    fn check(&self) -> Result<(), Error> {
        self.mistakes().into_iter().next().map_or(Ok(()), Err)
    }

    /// Whether commits are kept on NATS.
    #[must_use]
    pub fn replicated(&self) -> bool {
        let leased = self.cluster.mode == ClusterMode::Leased;
        self.store.replication.is_on(self.bus.kind == BusKind::Nats, leased)
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
            toml::Value::Table(inner) => keys(inner).into_iter().map(|k| format!("{key}.{k}")).collect(),
            _ => vec![key.clone()],
        });
        nested.collect()
    }

    #[test]
    fn the_file_of_defaults_says_what_the_code_does() {
        let read: Config = toml::from_str(DEFAULT).unwrap();
        assert_eq!(table(&read), table(&Config::default()));
        assert!(read.check().is_ok());
    }

    #[test]
    fn the_file_of_defaults_lists_every_key() {
        assert_eq!(keys(&DEFAULT.parse().unwrap()), keys(&table(&Config::default())));
    }

    #[test]
    fn the_examples_in_the_file_of_defaults_are_accepted() {
        let (_, examples) = DEFAULT.split_once("one table for each upstream:").unwrap();
        let is_key = |line: &&str| line.starts_with('[') || line.contains(" = ");
        let lines: Vec<_> = examples.lines().filter_map(|l| l.strip_prefix("# ")).filter(is_key).collect();
        let config: Config = toml::from_str(&lines.join("\n")).unwrap();
        assert!(config.gateway.is_some());
        assert_eq!(config.upstreams().upstreams().unwrap().len(), 2);
    }
}
