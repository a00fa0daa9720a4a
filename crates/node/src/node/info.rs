//! Node information: build, sagas, effects, upstreams, durability, limits.

use std::collections::BTreeMap;

use orlog_actors::{JobConsumer, Runtime, StreamSubscription};
use orlog_bus::effect_queue::SubscriptionState;
use orlog_effect::Catalog;
use orlog_model::Timestamp;
use orlog_program::{Program, is_built_in};
use serde::Serialize;

use crate::cluster::ClusterInfo;
use crate::component_config;
use crate::config::{self, BusKind, Config, LimitsConfig, node_subject};
use crate::definitions::DefinitionSet;
use crate::peers::NodeIdentity;
use crate::transport::BusInfo;

/// Response of `/info`.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Version of the build.
    pub version: &'static str,
    /// Name of the node.
    pub node: String,
    /// Identity for other nodes; `None` if the node has none.
    pub identity: Option<IdentityInfo>,
    /// Roles of the node.
    pub roles: Vec<&'static str>,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Whether the node accepts new work.
    pub accepting: bool,
    /// Durability of commits and accepted events: `sync`, or `interval 20ms`.
    pub durability: BTreeMap<&'static str, String>,
    /// Identity of the event stream.
    pub stream: String,
    /// The bus.
    pub bus: BusInfo,
    /// Active definitions.
    pub sagas: Vec<SagaInfo>,
    /// Effects and their upstreams; several if tenants have their own.
    pub effects: BTreeMap<String, String>,
    /// State of the upstreams.
    pub upstreams: Vec<UpstreamInfo>,
    /// Pods and shard owners; `None` if the process runs alone.
    pub cluster: Option<ClusterInfo>,
    /// Stores of this process.
    pub shards: Vec<ShardInfo>,
    /// Consumers of the effect workers of this process.
    pub effect_consumers: Vec<EffectConsumerInfo>,
    /// Limits per shard.
    pub limits: serde_json::Value,
}

/// Identity of the node for other nodes.
#[derive(Clone, Debug, Serialize)]
pub struct IdentityInfo {
    /// Name.
    pub name: String,
    /// Address that the node publishes.
    pub address: Option<String>,
    /// Subject on which the node receives requests of peers; `None` without NATS.
    pub nats_subject: Option<String>,
    /// Id of the key: its fingerprint.
    pub key: String,
    /// Public key.
    pub public_key: String,
    /// Id of the key that replaces it, during a rotation.
    pub next_key: Option<String>,
}

/// Active definition of a saga.
#[derive(Clone, Debug, Serialize)]
pub struct SagaInfo {
    /// Name of the saga.
    pub name: String,
    /// Version that the author assigned.
    pub version: u32,
    /// Hash in hexadecimal.
    pub hash: String,
    /// Consumed event types.
    pub events: Vec<String>,
    /// Start events.
    pub starts: Vec<String>,
}

/// State of an upstream.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamInfo {
    /// Name of the upstream.
    pub name: String,
    /// `closed`, `open`, `half_open`; `None` without a breaker.
    pub breaker: Option<&'static str>,
    /// Number of times the breaker has opened since the start.
    pub breaker_open_count: u64,
    /// Number of work items in flight.
    pub in_flight: usize,
    /// Retries that the budget allows now; `None`: unlimited.
    pub remaining_retries: Option<u64>,
    /// Allowed tenants; `None`: all tenants.
    pub tenants: Option<Vec<String>>,
}

/// State of the store of a shard.
#[derive(Clone, Debug, Serialize)]
pub struct ShardInfo {
    /// Number of the shard.
    pub shard: u16,
    /// First slot of the shard.
    pub first_slot: u16,
    /// Last slot of the shard.
    pub last_slot: u16,
    /// Number of commits since creation.
    pub position: u64,
    /// Number of work items in the outbox; `None`: it is unknown.
    pub outbox: Option<u64>,
    /// Why numbers of the store are unknown; absent if all are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Disk usage in bytes, journal and tables.
    pub disk_bytes: u64,
    /// Subscriptions to the streams.
    pub consumers: Vec<ConsumerInfo>,
}

/// Subscription of a shard to a stream.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerInfo {
    /// Stream name.
    pub stream: String,
    /// Name of the subscription; on NATS, the metadata `orlog.cursor.<name>` of the durable
    /// consumer has its position.
    pub name: String,
    /// Durable consumer of the pod on the servers; `None` on the embedded bus.
    pub durable: Option<String>,
    /// Subject filters: the tenants of the shard.
    pub filters: Vec<String>,
    /// Highest sequence with no unacknowledged message at or below it.
    pub ack_floor: u64,
}

/// Consumer of the jobs of an effect.
#[derive(Clone, Debug, Serialize)]
pub struct EffectConsumerInfo {
    /// Effect.
    pub effect: String,
    /// Tenant of the jobs; `None`: all tenants.
    pub tenant: Option<String>,
    /// Consumer on the servers; `None`: there is none.
    pub consumer: Option<String>,
    /// Why no jobs are received, or which settings differ from those of this node; `None`: no
    /// problem.
    pub problem: Option<String>,
    /// Jobs that no worker has received; `None`: the servers do not respond.
    pub waiting: Option<u64>,
    /// Jobs that workers have received and not acknowledged.
    pub in_flight: Option<u64>,
    /// Time of the oldest of them, RFC 3339.
    pub oldest: Option<String>,
}

impl From<&JobConsumer> for EffectConsumerInfo {
    fn from(consumer: &JobConsumer) -> Self {
        let problem = match &consumer.state {
            SubscriptionState::Open { difference, .. } => difference.clone(),
            SubscriptionState::Opening(reason) => Some(match reason {
                Some(reason) => reason.clone(),
                None => "not open yet".to_owned(),
            }),
            SubscriptionState::Conflict(reason) => Some(reason.clone()),
        };

        let backlog = consumer.backlog;
        let oldest = backlog.and_then(|backlog| backlog.oldest);

        Self {
            effect: consumer.group.effect.to_string(),
            tenant: consumer.group.tenant.as_ref().map(ToString::to_string),
            consumer: consumer.name().map(str::to_owned),
            problem,
            waiting: backlog.map(|backlog| backlog.waiting),
            in_flight: backlog.map(|backlog| backlog.in_flight),
            oldest: oldest.map(|oldest| oldest.to_string()),
        }
    }
}

/// Sources of the node information.
pub(crate) struct InfoSources<'a> {
    pub(crate) config: &'a Config,
    /// Limits that apply, with those of a reload.
    pub(crate) limits: LimitsConfig,
    pub(crate) runtime: &'a Runtime,
    pub(crate) catalog: &'a Catalog,
    pub(crate) definitions: &'a DefinitionSet,
    pub(crate) stream: String,
    pub(crate) bus: BusInfo,
    pub(crate) cluster: Option<ClusterInfo>,
    pub(crate) started_at: Timestamp,
    pub(crate) identity: Option<&'a NodeIdentity>,
    pub(crate) consumers: &'a [JobConsumer],
}

/// Collects the node information.
pub(crate) fn collect(sources: InfoSources<'_>) -> Info {
    let config = sources.config;
    let mut logs = sources
        .runtime
        .readers()
        .filter_map(|reader| reader.stats().replication);
    // Without a replicated shard on this node, the configuration states the durability.
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
        identity: sources.identity.map(|own| identity(own, config.bus.kind)),
        roles: config.role.parts(),
        started_at: sources.started_at.to_string(),
        accepting: sources.runtime.health().accepting,
        durability: BTreeMap::from([("store", store), ("bus", bus)]),
        stream: sources.stream,
        bus: sources.bus,
        sagas: sources
            .definitions
            .active()
            .iter()
            .map(|d| saga(d.program.as_ref()))
            .collect(),
        effects: sources
            .catalog
            .effects()
            .into_iter()
            .filter(|(effect, _)| !is_built_in(effect.as_str()))
            .map(|(effect, upstreams)| (effect, upstreams.join(", ")))
            .collect(),
        upstreams: upstreams(sources.catalog),
        cluster: sources.cluster,
        shards: shards(config, sources.runtime),
        effect_consumers: sources
            .consumers
            .iter()
            .map(EffectConsumerInfo::from)
            .collect(),
        limits: serde_json::to_value(&sources.limits).unwrap_or_default(),
    }
}

fn identity(own: &NodeIdentity, bus: BusKind) -> IdentityInfo {
    IdentityInfo {
        name: own.name.to_string(),
        address: own.address.as_ref().map(ToString::to_string),
        nats_subject: (bus == BusKind::Nats).then(|| node_subject(&own.name)),
        key: own.key.key_id().to_string(),
        public_key: own.key.public_key().to_string(),
        next_key: own.next.as_ref().map(|next| next.key_id().to_string()),
    }
}

fn durability(mode: config::Durability, interval: std::time::Duration) -> String {
    match mode {
        config::Durability::Sync => mode.as_str().to_owned(),
        config::Durability::Interval => format!("{} {interval:?}", mode.as_str()),
    }
}

fn saga(program: &dyn Program) -> SagaInfo {
    let reference = program.definition_ref();
    let triggers = &program.manifest().subscriptions;

    SagaInfo {
        name: reference.saga.to_string(),
        version: reference.version,
        hash: uuid::Uuid::from_bytes(reference.hash).simple().to_string(),
        events: triggers
            .iter()
            .map(|trigger| trigger.kind.to_string())
            .collect(),
        starts: triggers
            .iter()
            .filter(|trigger| trigger.starts)
            .map(|trigger| trigger.kind.to_string())
            .collect(),
    }
}

fn upstreams(catalog: &Catalog) -> Vec<UpstreamInfo> {
    let conditions = catalog.upstream_statuses().into_iter();

    // The effects of built-in sagas are executed by the node itself.
    let conditions = conditions.filter(|condition| !is_built_in(&condition.upstream));
    let info = conditions.map(|condition| UpstreamInfo {
        name: condition.upstream,
        breaker: condition
            .breaker
            .map(orlog_effect::limits::breaker::BreakerState::as_str),
        breaker_open_count: condition.breaker_open_count,
        in_flight: condition.in_flight,
        remaining_retries: condition.remaining_retries,
        tenants: condition.tenants,
    });

    info.collect()
}

fn shards(config: &Config, runtime: &Runtime) -> Vec<ShardInfo> {
    let ranges: Vec<_> = component_config::ranges(config.shards).collect();
    let subscriptions = runtime.subscriptions();
    let info = runtime.numbered_readers().map(|(index, reader)| {
        let stats = reader.stats();
        // A range excludes its end, but the information contains the last slot.
        let slots = &ranges[usize::from(index)];
        let outbox = reader.outbox_depth();

        ShardInfo {
            shard: index,
            first_slot: slots.start,
            last_slot: slots.end - 1,
            position: stats.position,
            failure: outbox.as_ref().err().map(ToString::to_string),
            outbox: outbox.ok(),
            disk_bytes: stats.journal_bytes + stats.tables_bytes,
            consumers: subscriptions
                .iter()
                .filter(|(shard, _)| *shard == index)
                .map(|(_, it)| consumer(config, it))
                .collect(),
        }
    });

    info.collect()
}

fn consumer(config: &Config, subscription: &StreamSubscription) -> ConsumerInfo {
    let StreamSubscription {
        stream,
        name,
        filters,
        ack_floor,
    } = subscription.clone();

    let durable = (config.bus.kind == BusKind::Nats)
        .then(|| orlog_bus::nats::durable_consumer(&config.node_name()));
    ConsumerInfo {
        stream,
        name,
        durable,
        filters,
        ack_floor,
    }
}
