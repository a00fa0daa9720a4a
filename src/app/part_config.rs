//! What the parts of the runner are told, from the configuration.

use std::ops::Range;

use orlog_bus::nats::{Credentials, Keep, Leases, Options, Plan, Tls, Wanted};
use orlog_bus::subject::Kind;
use orlog_effect::secret::{SecretRef, Unavailable};
use orlog_model::{SLOTS, Slot, Slots};

use super::replication::{self, Pace};
use crate::config::{Bus, BusKind, ClusterMode, Config, Durability, Store, StreamLimits};

/// How the running system behaves.
pub(super) fn runtime(config: &Config) -> orlog_actors::Config {
    let limits = &config.limits;
    orlog_actors::Config {
        node: config.node_name(),
        limits: orlog_actors::Limits {
            in_flight_per_ingester: limits.in_flight_per_ingester,
            in_flight_per_instance: limits.in_flight_per_instance,
            offered_per_lane: limits.offered_per_lane,
            group: limits.group,
            live_instances: limits.live_instances,
            idle: limits.idle,
            attempts_per_input: limits.attempts_per_input,
        },
        intensity: orlog_actors::Intensity { restarts: limits.restarts, period: limits.restart_period },
        slots: slots(config),
        submitted_as: submitted_as(config),
        tenant_series: config.telemetry.tenants,
    }
}

/// The kind of an event that is submitted here: where somebody else owns the events of aggregates, it is none of those.
pub(super) fn submitted_as(config: &Config) -> Kind {
    let foreign = config.bus.kind == BusKind::Nats && !config.nats.own_aggregate_stream;
    if foreign { Kind::WorkflowEvent } else { Kind::Aggregate }
}

/// How the servers of NATS are reached.
///
/// # Errors
/// When a secret is not where its reference says.
pub(super) fn nats(config: &Config) -> Result<Options, Unavailable> {
    let nats = &config.nats;
    let read = |secret: &SecretRef| secret.resolve().map(|secret| secret.expose().to_owned());
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
    let tls = Tls {
        required: nats.tls.required,
        ca: nats.tls.ca.clone(),
        identity: nats.tls.certificate.clone().zip(nats.tls.key.clone()),
    };
    Ok(Options {
        servers: nats.servers.clone(),
        name: format!("orlog {}", config.node_name()),
        credentials,
        tls,
        ..Options::default()
    })
}

/// The streams as they should be.
pub(super) fn streams(config: &Config) -> Plan {
    let nats = &config.nats;
    let keep = |limits: &StreamLimits| Keep { age: limits.max_age, bytes: limits.max_size };
    let mut plan = Plan::of(&Wanted {
        replicas: nats.replicas,
        duplicate_window: nats.duplicate_window,
        commands: keep(&nats.commands),
        events: keep(&nats.events),
        dead_letters: keep(&nats.dead_letters),
        aggregates: nats.own_aggregate_stream.then(|| keep(&nats.aggregates)),
    });
    if config.replicated() {
        plan.0.extend(replication::plan(nats.replicas).0);
    }
    if config.cluster.mode != ClusterMode::Alone {
        plan.0.push(Leases::plan(&config.cluster.name, nats.replicas));
    }
    plan
}

/// When a shard that follows a log saves a snapshot.
pub(super) fn pace(config: &Config) -> Pace {
    Pace { commits: config.store.snapshot_commits, bytes: config.store.snapshot_size }
}

/// What is kept of what callers did. A node that has no data keeps nothing, unless it is told where.
pub(super) fn audit(config: &Config) -> crate::audit::Options {
    let audit = &config.audit;
    let usual = || config.roles.runs_sagas().then(|| config.data.join("audit"));
    crate::audit::Options {
        folder: audit.folder.clone().or_else(usual),
        max_bytes: audit.max_size,
        keep: audit.keep,
        log: audit.log,
    }
}

/// How a store behaves.
pub(super) fn store(config: &Config) -> orlog_store::Options {
    let store: &Store = &config.store;
    orlog_store::Options {
        slots: slots(config),
        durability: match store.durability {
            Durability::Sync => orlog_store::Durability::Sync,
            Durability::Interval => orlog_store::Durability::Interval(store.interval),
        },
        dedupe_window: store.dedupe_window,
        feed: config.export.enabled,
        max_bytes: store.max_size,
        generation_bytes: bytes(store.generation_size),
        generation_age: store.generation_age,
        journal_segment_bytes: store.journal_segment_size,
    }
}

/// How the embedded bus behaves.
pub(super) fn bus(config: &Config) -> orlog_bus::embedded::Options {
    let bus: &Bus = &config.bus;
    orlog_bus::embedded::Options {
        durability: match bus.durability {
            Durability::Sync => orlog_bus::embedded::Durability::Sync,
            Durability::Interval => orlog_bus::embedded::Durability::Interval(bus.interval),
        },
        segment_bytes: bus.segment_size,
        retention_bytes: bus.retention_size,
        max_message_bytes: bytes(bus.max_message_size),
        recent_bytes: bytes(bus.recent_size),
        dedupe_window: bus.dedupe_window,
        dedupe_ids: bus.dedupe_ids,
    }
}

/// The slots of each shard: ranges of nearly the same length.
pub(super) fn ranges(shards: u16) -> impl Iterator<Item = Range<u16>> {
    let bound = move |index: u16| {
        let slot = u32::from(index) * u32::from(SLOTS) / u32::from(shards);
        u16::try_from(slot).expect("a slot is at most 1024")
    };
    (0..shards).map(move |index| bound(index)..bound(index + 1))
}

/// The number of the shard that has a slot.
pub(super) fn shard_of(slot: Slot, shards: u16) -> u16 {
    let found = (0..).zip(ranges(shards)).find(|(_, range)| range.contains(&slot.0));
    found.map(|(index, _)| index).expect("ranges cover every slot")
}

/// How instances find their slots.
pub(super) fn slots(config: &Config) -> Slots {
    Slots::spreading(config.tenants.spread.iter().cloned())
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_parts() {
        let config = Config::default();
        assert_eq!(runtime(&config).limits, orlog_actors::Limits::default());
        assert_eq!(runtime(&config).intensity, orlog_actors::Intensity::default());
        assert_eq!(bus(&config), orlog_bus::embedded::Options::default());
        let (ours, theirs) = (store(&config), orlog_store::Options::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn the_ranges_cover_every_slot_once() {
        for shards in [1, 2, 3, 7, SLOTS] {
            let slots: Vec<u16> = ranges(shards).flatten().collect();
            assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>(), "{shards}");
        }
    }
}
