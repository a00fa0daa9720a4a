//! What a node says about itself: build, sagas, effects, upstreams, durability, bounds.

use std::collections::BTreeMap;

use orlog_actors::Runtime;
use orlog_effect::Catalog;
use orlog_model::Timestamp;
use orlog_program::Program;
use serde::Serialize;

use super::cluster::ClusterInfo;
use super::part_config;
use super::transport::BusInfo;
use crate::config::{self, BusKind, Config};
use crate::definitions::Definitions;

/// What `/info` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Of the build.
    pub version: &'static str,
    /// The node's name.
    pub node: String,
    /// What it does.
    pub roles: Vec<&'static str>,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// Whether it takes new work.
    pub accepting: bool,
    /// When a commit and an accepted event are on the disk: `sync`, or `interval 20ms`.
    pub durability: BTreeMap<&'static str, String>,
    /// The stream of events, by its identity.
    pub stream: String,
    /// What carries events.
    pub bus: BusInfo,
    /// The definitions for new instances.
    pub sagas: Vec<SagaInfo>,
    /// The effects and who performs each; several where tenants have their own.
    pub effects: BTreeMap<String, String>,
    /// How the upstreams do.
    pub upstreams: Vec<UpstreamInfo>,
    /// The pods and who runs which shard; `None` where this process is alone.
    pub cluster: Option<ClusterInfo>,
    /// The stores of this process.
    pub shards: Vec<ShardInfo>,
    /// The bounds of each shard.
    pub limits: serde_json::Value,
}

/// A definition.
#[derive(Clone, Debug, Serialize)]
pub struct SagaInfo {
    /// Its name.
    pub name: String,
    /// The author's number for it.
    pub version: u32,
    /// Its identity, in hexadecimal.
    pub hash: String,
    /// The events it takes.
    pub events: Vec<String>,
    /// Those that begin an instance.
    pub starts: Vec<String>,
}

/// An upstream.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamInfo {
    /// Its name.
    pub name: String,
    /// `closed`, `open`, `half_open`; `None` without a breaker.
    pub breaker: Option<&'static str>,
    /// How often the breaker has opened since the start.
    pub opened: u64,
    /// Items it is at work on.
    pub in_flight: usize,
    /// Retries that its budget allows at once; `None`: any number.
    pub retries_left: Option<u64>,
    /// For whom it works; `None`: for all tenants.
    pub tenants: Option<Vec<String>>,
}

/// A store.
#[derive(Clone, Debug, Serialize)]
pub struct ShardInfo {
    /// Its number.
    pub shard: u16,
    /// The first slot it owns.
    pub first_slot: u16,
    /// The last slot it owns.
    pub last_slot: u16,
    /// Commits ever made.
    pub position: u64,
    /// Work items in the outbox.
    pub outbox: u64,
    /// Bytes on disk, journal and tables.
    pub disk_bytes: u64,
}

/// What it looks at.
pub(super) struct Sight<'a> {
    pub(super) config: &'a Config,
    pub(super) runtime: &'a Runtime,
    pub(super) catalog: &'a Catalog,
    pub(super) definitions: &'a Definitions,
    pub(super) stream: String,
    pub(super) bus: BusInfo,
    pub(super) cluster: Option<ClusterInfo>,
    pub(super) started_at: Timestamp,
}

/// Gathers it all.
pub(super) fn of(sight: Sight<'_>) -> Info {
    let config = sight.config;
    let mut logs = sight.runtime.readers().filter_map(|reader| reader.stats().replication);
    let store = match logs.next() {
        Some(_) => format!("jetstream, {} replicas", config.nats.replicas),
        None => durability(config.store.durability, config.store.interval),
    };
    let bus = match config.bus.kind {
        BusKind::Embedded => durability(config.bus.durability, config.bus.interval),
        BusKind::Nats => format!("jetstream, {} replicas", config.nats.replicas),
    };
    Info {
        version: env!("CARGO_PKG_VERSION"),
        node: config.node_name(),
        roles: config.roles.parts(),
        started_at: sight.started_at.to_string(),
        accepting: sight.runtime.health().accepting,
        durability: BTreeMap::from([("store", store), ("bus", bus)]),
        stream: sight.stream,
        bus: sight.bus,
        sagas: sight.definitions.in_force().iter().map(|d| saga(d.program.as_ref())).collect(),
        effects: sight
            .catalog
            .effects()
            .into_iter()
            .map(|(effect, upstreams)| (effect, upstreams.join(", ")))
            .collect(),
        upstreams: upstreams(sight.catalog),
        cluster: sight.cluster,
        shards: shards(config, sight.runtime),
        limits: serde_json::to_value(&config.limits).unwrap_or_default(),
    }
}

fn durability(mode: config::Durability, interval: std::time::Duration) -> String {
    match mode {
        config::Durability::Sync => mode.as_str().to_owned(),
        config::Durability::Interval => format!("{} {interval:?}", mode.as_str()),
    }
}

fn saga(program: &dyn Program) -> SagaInfo {
    let (reference, triggers) = (program.reference(), &program.manifest().triggers);
    SagaInfo {
        name: reference.saga.to_string(),
        version: reference.version,
        hash: uuid::Uuid::from_bytes(reference.hash).simple().to_string(),
        events: triggers.iter().map(|trigger| trigger.kind.to_string()).collect(),
        starts: triggers
            .iter()
            .filter(|trigger| trigger.starts)
            .map(|trigger| trigger.kind.to_string())
            .collect(),
    }
}

fn upstreams(catalog: &Catalog) -> Vec<UpstreamInfo> {
    let conditions = catalog.conditions().into_iter();
    let info = conditions.map(|condition| UpstreamInfo {
        name: condition.upstream,
        breaker: condition.breaker.map(orlog_effect::limits::breaker::State::as_str),
        opened: condition.opened,
        in_flight: condition.in_flight,
        retries_left: condition.retries_left,
        tenants: condition.tenants,
    });
    info.collect()
}

fn shards(config: &Config, runtime: &Runtime) -> Vec<ShardInfo> {
    let ranges: Vec<_> = part_config::ranges(config.shards).collect();
    let info = runtime.numbered_readers().map(|(index, reader)| {
        let (stats, slots) = (reader.stats(), &ranges[usize::from(index)]);
        ShardInfo {
            shard: index,
            first_slot: slots.start,
            last_slot: slots.end - 1,
            position: stats.position,
            outbox: reader.outbox_depth().unwrap_or_default(),
            disk_bytes: stats.journal_bytes + stats.tables_bytes,
        }
    });
    info.collect()
}
