//! Converts the node configuration into the configuration of each component.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use orlog_bus::nats::{
    Credentials, Leases, NatsRegistry, NonceStream, Options, StreamRetention, StreamSet,
    StreamsConfig, TlsOptions,
};
use orlog_bus::signature::Signer;
use orlog_bus::subject::SubjectKind;
use orlog_effect::secret::{SecretRef, SecretUnavailable};
use orlog_model::{InstanceKey, SLOTS, Slot, SlotAssigner};
use orlog_store::IndexedValue;
use serde_json::Value;

use super::replication::{self, SnapshotPolicy};
use crate::config::{
    BusConfig, BusKind, ClusterMode, Config, Durability, StoreConfig, StreamLimits,
};
use crate::definitions::change::ContextLimits;

/// Time for which nonces are stored longer than they can be repeated: clocks of pods and servers
/// differ.
const NONCE_MARGIN: Duration = Duration::from_mins(1);

/// Returns the configuration of the actor runtime.
pub(crate) fn runtime(config: &Config) -> orlog_actors::RuntimeConfig {
    let limits = &config.limits;
    orlog_actors::RuntimeConfig {
        node: config.node_name(),
        limits: orlog_actors::Limits {
            max_in_flight_per_ingester: limits.max_in_flight_per_ingester,
            max_in_flight_per_tenant: limits.max_in_flight_per_tenant,
            max_in_flight_per_instance: limits.max_in_flight_per_instance,
            max_in_flight_per_window: limits.max_in_flight_per_window,
            max_group_commit: limits.max_group_commit,
            max_live_instances: limits.max_live_instances,
            idle_timeout: limits.idle_timeout,
            max_state_size: usize::try_from(limits.max_state_size).unwrap_or(usize::MAX),
            max_transition_cost: limits.max_transition_cost,
            transition_threads: limits.transition_threads,
            max_attempts_per_input: limits.max_attempts_per_input,
            history_payload_bytes: config.history.payload_bytes,
            ..orlog_actors::Limits::default()
        },
        intensity: orlog_actors::RestartIntensity {
            max_restarts: limits.max_restarts,
            period: limits.restart_period,
        },
        submitted_event_kind: submitted_event_kind(config),
        tenant_series: config.telemetry.max_tenant_series,
        accept_data_loss: false,
        publishes_results: config.results.publish,
    }
}

/// Returns the limits of the definitions of one context.
pub(crate) fn context_limits(config: &Config) -> ContextLimits {
    let limits = &config.limits;
    ContextLimits {
        definitions: limits.max_context_definitions,
        source_bytes: limits.max_context_source_size,
    }
}

/// Returns the kind of an event that is submitted here. If another system owns the aggregate
/// events, it is not one of those.
pub(crate) fn submitted_event_kind(config: &Config) -> SubjectKind {
    // Another system owns the stream of aggregate events, so that the node must not publish to it.
    let foreign = config.bus.kind == BusKind::Nats && !config.nats.manage_aggregate_stream;
    if foreign {
        SubjectKind::WorkflowEvent
    } else {
        SubjectKind::Aggregate
    }
}

/// Returns the connection options of NATS.
///
/// # Errors
/// Fails if a secret is not available under its reference, or if a signing key is too short.
pub(crate) fn nats(config: &Config) -> anyhow::Result<Options> {
    let nats = &config.nats;
    let read = |secret: &SecretRef| secret.resolve().map(|secret| secret.expose().to_owned());
    // The validation permits one kind of credentials, so that the order decides nothing.
    let credentials = if let Some(password) = &nats.password {
        Credentials::User(nats.user.clone(), read(password)?)
    } else if let Some(token) = &nats.token {
        Credentials::Token(read(token)?)
    } else if let Some(seed) = &nats.nkey {
        Credentials::Nkey(read(seed)?)
    } else if let Some(creds) = &nats.creds {
        Credentials::Creds(read(creds)?)
    } else {
        Credentials::None
    };

    let tls = TlsOptions {
        required: nats.requires_tls(),
        ca: nats.tls.ca.clone(),
        identity: nats.tls.certificate.clone().zip(nats.tls.key.clone()),
    };
    Ok(Options {
        servers: nats.servers.clone(),
        name: format!("orlog {}", config.node_name()),
        credentials,
        tls,
        only_listed_servers: nats.is_local(),
        signer: Arc::new(
            Signer::new(&signing_keys(config)?)?.accepting_unsigned(!nats.signing.required),
        ),
        ..Options::default()
    })
}

/// Returns the keys of signed messages.
///
/// # Errors
/// Fails if a key is not available under its reference.
pub(crate) fn signing_keys(config: &Config) -> Result<Vec<Vec<u8>>, SecretUnavailable> {
    config
        .nats
        .signing
        .keys
        .iter()
        .map(|key| key.resolve().map(|key| key.expose().as_bytes().to_vec()))
        .collect()
}

/// Returns the stream specifications.
pub(crate) fn streams(config: &Config) -> StreamSet {
    let nats = &config.nats;
    let retention = |limits: &StreamLimits| StreamRetention {
        age: limits.max_age,
        bytes: limits.max_size,
    };
    let mut plan = StreamSet::from_config(&StreamsConfig {
        replicas: nats.replicas,
        duplicate_window: nats.duplicate_window,
        commands: retention(&nats.commands),
        events: retention(&nats.events),
        dead_letters: retention(&nats.dead_letters),
        aggregates: nats
            .manage_aggregate_stream
            .then(|| retention(&nats.aggregates)),
    });

    // Each node on NATS needs the registry and the nonces; the others depend on its mode.
    plan.0.push(NatsRegistry::plan(nats.replicas));
    if config.replicated() {
        plan.0.extend(replication::stream_specs(nats.replicas).0);
    }

    // A nonce must outlive every signature that contains it.
    let retention = config.auth.signatures.time_window().replay_time() + NONCE_MARGIN;
    plan.0
        .push(NonceStream::stream_spec(retention, nats.replicas));

    if config.cluster.mode != ClusterMode::Standalone {
        plan.0
            .push(Leases::plan(&config.cluster.name, nats.replicas));
    }

    plan
}

/// Returns the snapshot policy of a replicated shard.
pub(crate) fn snapshot_policy(config: &Config) -> SnapshotPolicy {
    SnapshotPolicy {
        commits: config.store.snapshot_commits,
        bytes: config.store.snapshot_size,
    }
}

/// Returns the audit options. A node without data stores no audit log unless a path is configured.
pub(crate) fn audit(config: &Config) -> crate::audit::AuditOptions {
    let audit = &config.audit;

    crate::audit::AuditOptions {
        dir: audit.dir.clone().or_else(|| {
            config
                .role
                .runs_sagas()
                .then(|| config.data_dir.join("audit"))
        }),
        max_file_bytes: audit.max_file_size,
        max_total_bytes: audit.max_size,
        retention: audit.retention,
        // A required record is written before its change, so that each change has one.
        summarizes: !audit.required,
        log: audit.also_log,
        node: config.node_name(),
    }
}

/// Returns the values of indexed variables in the state of a program.
fn indexed_values(state: &[u8], names: &[&str]) -> Vec<Option<IndexedValue>> {
    orlog_program::stored_variables(state, names)
        .into_iter()
        .map(|value| indexed_value(&value?))
        .collect()
}

/// Returns the value by which an index finds a JSON value; `None` if no index contains it.
pub fn indexed_value(value: &Value) -> Option<IndexedValue> {
    match value {
        Value::Bool(value) => Some(IndexedValue::Bool(*value)),
        Value::Number(number) => number.as_f64().map(IndexedValue::Number),
        Value::String(text) => Some(IndexedValue::Text(text.clone())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the options of a store.
pub(crate) fn store(config: &Config) -> orlog_store::Options {
    let store: &StoreConfig = &config.store;
    orlog_store::Options {
        slots: slots(config),
        durability: match store.durability {
            Durability::Sync => orlog_store::Durability::Sync,
            Durability::Interval => orlog_store::Durability::Interval(store.interval),
        },
        dedupe_window: store.dedupe_window,
        feed: config.export.enabled,
        max_bytes: store.max_size,
        resident_bytes: store.resident_size,
        memtable_bytes: bytes(store.memtable_size),
        memtable_max_age: store.memtable_max_age,
        journal_segment_bytes: store.journal_segment_size,
        variables: indexed_values,
        // A node sets the expected position of each store; tools that read offline data have none.
        expected: None,
        accept_data_loss: false,
    }
}

/// Returns the options of the embedded bus.
pub(crate) fn bus(config: &Config) -> orlog_bus::embedded::Options {
    let bus: &BusConfig = &config.bus;
    orlog_bus::embedded::Options {
        durability: match bus.durability {
            Durability::Sync => orlog_bus::embedded::Durability::Sync,
            Durability::Interval => orlog_bus::embedded::Durability::Interval(bus.interval),
        },
        segment_bytes: bus.segment_size,
        retention_bytes: bus.retention_size,
        max_message_bytes: bytes(bus.max_message_size),
        cache_bytes: bytes(bus.cache_size),
        dedupe_window: bus.dedupe_window,
        dedupe_ids: bus.dedupe_ids,
        ..orlog_bus::embedded::Options::default()
    }
}

/// Returns the slots of each shard: ranges of nearly equal length.
pub(crate) fn ranges(shards: u16) -> impl Iterator<Item = Range<u16>> {
    let bound = move |index: u16| {
        let slot = u32::from(index) * u32::from(SLOTS) / u32::from(shards);
        u16::try_from(slot).expect("a slot is at most 1024")
    };
    (0..shards).map(move |index| bound(index)..bound(index + 1))
}

/// Returns the number of the shard that contains a slot.
pub(crate) fn shard_of(slot: Slot, shards: u16) -> u16 {
    let found = (0..)
        .zip(ranges(shards))
        .find(|(_, range)| range.contains(&slot.0));
    found
        .map(|(index, _)| index)
        .expect("ranges cover every slot")
}

/// Returns the number of the shard of an instance.
pub(crate) fn shard_of_instance(config: &Config, key: &InstanceKey) -> u16 {
    shard_of(slots(config).slot_of(key), config.shards)
}

/// Returns the mapping of instances to slots.
pub(crate) fn slots(config: &Config) -> SlotAssigner {
    SlotAssigner::with_key_sharded(config.tenants.key_sharded.iter().cloned())
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_defaults_match_component_defaults() {
        let config = Config::default();
        assert_eq!(runtime(&config).limits, orlog_actors::Limits::default());
        assert_eq!(
            runtime(&config).intensity,
            orlog_actors::RestartIntensity::default()
        );
        assert_eq!(bus(&config), orlog_bus::embedded::Options::default());
        // The variables are those of the programs.
        let theirs = orlog_store::Options {
            variables: indexed_values,
            ..orlog_store::Options::default()
        };
        let ours = store(&config);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn slot_ranges_are_complete_and_disjoint() {
        for shards in [1, 2, 3, 7, SLOTS] {
            let slots: Vec<u16> = ranges(shards).flatten().collect();
            assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>(), "{shards}");
        }
    }
}
