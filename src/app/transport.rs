//! What carries events: the embedded log, or the streams of JetStream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use orlog_actors::{EventSource, Sharing};
use orlog_bus::nats::{self, AGGREGATE_EVENTS, Connection, NatsStream, WORKFLOW_COMMANDS, WORKFLOW_EVENTS};
use orlog_bus::subject::Kind;
use orlog_bus::{Bus, Embedded};
use orlog_model::{Clock, TenantId, Timestamp};
use serde::Serialize;

use super::part_config;
use crate::config::{BusKind, Config, TenantMode};

/// For how long servers that do not answer are tried when a node starts.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// What is read of which stream.
const SOURCES: [(&str, Kind); 3] = [
    (AGGREGATE_EVENTS, Kind::Aggregate),
    (WORKFLOW_EVENTS, Kind::WorkflowEvent),
    (WORKFLOW_COMMANDS, Kind::Workflow),
];

/// The carrier, opened.
pub(super) enum Transport {
    Embedded(Arc<Embedded>),
    Nats(Box<Streams>),
}

/// The streams that are read.
pub(super) struct Streams {
    connection: Connection,
    read: Vec<(&'static str, Arc<NatsStream>)>,
    sharing: Sharing,
}

/// What a node says about what carries its events.
#[derive(Clone, Debug, Serialize)]
pub struct BusInfo {
    /// `embedded` or `nats`.
    pub kind: &'static str,
    /// Whether it is connected at this moment.
    pub connected: bool,
    /// The version of the server it is connected to.
    pub server: Option<String>,
    /// The streams it reads, with their identities.
    pub streams: BTreeMap<String, String>,
}

impl Transport {
    /// Opens it; on JetStream the streams are checked, and made where they are missing and may be made.
    pub(super) async fn open(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        match config.bus.kind {
            BusKind::Embedded => {
                let (dir, options) = (config.data.join("bus"), part_config::bus(config));
                let opened = tokio::task::spawn_blocking(move || Embedded::open(dir, &options, clock)).await;
                Ok(Self::Embedded(Arc::new(opened.context("the bus did not open")??)))
            }
            BusKind::Nats => {
                let connection = patiently(|| connect(config)).await?;
                patiently(|| check_streams(&connection, config, clock.now())).await?;
                let mut streams = Vec::new();
                // Whoever runs no sagas reads nothing; through one of the streams it is seen whether the servers are there.
                let read = if config.roles.runs_sagas() { &SOURCES[..] } else { &SOURCES[1..2] };
                for (name, _) in read {
                    let open =
                        || async { Ok(NatsStream::open(&connection, name, &config.node_name()).await?) };
                    streams.push((*name, patiently(open).await?));
                }
                Ok(Self::Nats(Box::new(Streams { connection, read: streams, sharing: sharing(config) })))
            }
        }
    }

    /// Where events and facts go.
    pub(super) fn bus(&self) -> Arc<dyn Bus> {
        match self {
            Transport::Embedded(bus) => Arc::clone(bus) as Arc<dyn Bus>,
            // A publish finds the stream by its subject; what this one says about itself is what sagas live on.
            Transport::Nats(nats) => {
                let events = nats.read.iter().find(|(name, _)| *name == WORKFLOW_EVENTS);
                let (_, stream) = events.expect("every role opens it");
                Arc::clone(stream) as Arc<dyn Bus>
            }
        }
    }

    /// The servers; nobody where events are carried in this process.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Transport::Embedded(_) => None,
            Transport::Nats(nats) => Some(&nats.connection),
        }
    }

    /// What the shards read.
    pub(super) fn sources(&self) -> Vec<EventSource> {
        match self {
            Transport::Embedded(bus) => vec![EventSource::embedded(Arc::clone(bus) as Arc<dyn Bus>)],
            Transport::Nats(nats) => {
                let source =
                    |((name, stream), (_, kind)): (&(&str, Arc<NatsStream>), (&str, Kind))| EventSource {
                        name: (*name).to_owned(),
                        bus: Arc::clone(stream) as Arc<dyn Bus>,
                        kinds: vec![kind],
                        sharing: Some(nats.sharing.clone()),
                    };
                nats.read.iter().zip(SOURCES).map(source).collect()
            }
        }
    }

    /// What it says about itself.
    pub(super) fn info(&self) -> BusInfo {
        match self {
            Transport::Embedded(bus) => BusInfo {
                kind: BusKind::Embedded.as_str(),
                connected: true,
                server: None,
                streams: BTreeMap::from([("events".to_owned(), bus.stream_id().to_string())]),
            },
            Transport::Nats(nats) => BusInfo {
                kind: BusKind::Nats.as_str(),
                connected: nats.connection.is_up(),
                server: Some(nats.connection.server_version()),
                streams: nats
                    .read
                    .iter()
                    .map(|(name, stream)| ((*name).to_owned(), stream.stream_id().to_string()))
                    .collect(),
            },
        }
    }

    /// Finishes what was accepted, and notes how far everything was read.
    pub(super) async fn close(&self) -> anyhow::Result<()> {
        match self {
            Transport::Embedded(bus) => {
                let bus = Arc::clone(bus);
                tokio::task::spawn_blocking(move || bus.close()).await.context("the bus did not close")
            }
            Transport::Nats(nats) => {
                for (name, stream) in &nats.read {
                    if let Err(error) = stream.save_cursors().await {
                        tracing::warn!(stream = name, %error, "operators see an old position until the next start");
                    }
                }
                Ok(())
            }
        }
    }
}

/// Tries again while the servers are only just starting, or choose a leader.
pub(super) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let begun = tokio::time::Instant::now();
    let mut told = false;
    loop {
        match attempt().await {
            Err(error) if passes(&error) && begun.elapsed() < PATIENCE => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("{error:#}; it is tried for {PATIENCE:?}");
                }
                tokio::time::sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

fn passes(error: &anyhow::Error) -> bool {
    let connect = error.downcast_ref();
    matches!(connect, Some(nats::ConnectError::Refused { .. } | nats::ConnectError::NotYet(_)))
        || error.is::<nats::StreamsError>()
        || matches!(error.downcast_ref(), Some(orlog_bus::Error::Unavailable(_)))
}

/// Connects to the servers as the configuration says.
///
/// # Errors
/// When a secret is not there, nobody answers, or the server is too old.
pub async fn connect(config: &Config) -> anyhow::Result<Connection> {
    Ok(Connection::open(&part_config::nats(config)?).await?)
}

/// What is different about the streams from what the configuration wants; changed where it may be, with `change`.
///
/// # Errors
/// When the servers do not answer, or refuse.
pub async fn streams(
    connection: &Connection,
    config: &Config,
    now: Timestamp,
    change: bool,
) -> Result<Vec<nats::Difference>, nats::StreamsError> {
    let plan = part_config::streams(config);
    if change { nats::apply(connection, &plan, now).await } else { nats::diff(connection, &plan, now).await }
}

async fn check_streams(connection: &Connection, config: &Config, now: Timestamp) -> anyhow::Result<()> {
    let provision = config.nats.provision;
    for difference in streams(connection, config, now, provision).await? {
        if difference.stream == AGGREGATE_EVENTS && !config.roles.runs_sagas() {
            continue;
        }
        let open = !provision || difference.refused.is_some();
        if open && difference.missing {
            let remedy =
                if difference.refused.is_some() { "" } else { "; make it with `orlog streams apply`" };
            bail!("{difference}{remedy}");
        }
        if open {
            tracing::warn!("{difference}; `orlog streams diff` shows what differs");
        } else {
            tracing::info!(stream = difference.stream, "made or changed: {}", difference.what);
        }
    }
    Ok(())
}

fn sharing(config: &Config) -> Sharing {
    let listed = || config.tenants.list.iter().cloned().chain([TenantId::default_tenant()]).collect();
    Sharing { tenants: (config.tenants.mode == TenantMode::Listed).then(listed) }
}
