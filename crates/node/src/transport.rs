//! Transport of events: the embedded log, or JetStream streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use orlog_actors::{EMBEDDED_STREAM, EventAuthority, EventSource, StreamSharing};
use orlog_bus::embedded::ConsumerCheckpoint;
use orlog_bus::nats::{
    self, AGGREGATE_EVENTS, Connection, NatsStream, WORKFLOW_COMMANDS, WORKFLOW_DEADLETTERS,
    WORKFLOW_EVENTS,
};
use orlog_bus::subject::SubjectKind;
use orlog_bus::{Bus, Embedded};
use orlog_model::{Clock, Timestamp};
use orlog_store::DurablePosition;
use serde::Serialize;

use super::admitted_tenants::AdmittedTenants;
use super::layout::StoredPosition;
use crate::access::SignedEvents;
use crate::config::{BusKind, Config};
use crate::{component_config, layout};

/// Timeout of retries against unavailable servers when a node starts.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Input streams and the kind of their messages.
const SOURCES: [(&str, SubjectKind); 4] = [
    (AGGREGATE_EVENTS, SubjectKind::Aggregate),
    (WORKFLOW_EVENTS, SubjectKind::WorkflowEvent),
    (WORKFLOW_COMMANDS, SubjectKind::Workflow),
    (WORKFLOW_DEADLETTERS, SubjectKind::DeadLetter),
];

/// Opened transport.
pub enum Transport {
    /// The log of this process.
    Embedded(Arc<Embedded>),
    /// Streams on NATS servers.
    Nats(Box<NatsTransport>),
}

/// Consumed streams.
pub struct NatsTransport {
    connection: Connection,
    read: Vec<(&'static str, Arc<NatsStream>)>,
    /// Tenants whose messages the shards apply.
    tenants: Arc<AdmittedTenants>,
}

/// Expected content of the embedded log.
pub(crate) struct LogExpectation {
    /// Durable position; `None` for a new log.
    pub(crate) durable: Option<DurablePosition>,
    /// Checkpoints of the stores.
    pub(crate) checkpoints: Vec<ConsumerCheckpoint>,
    /// Whether a log that lost messages is opened without them.
    pub(crate) accept_data_loss: bool,
}

/// State of the transport for `/info`.
#[derive(Clone, Debug, Serialize)]
pub struct BusInfo {
    /// `embedded` or `nats`.
    pub kind: &'static str,
    /// Whether the transport is connected now.
    pub connected: bool,
    /// Version of the connected server.
    pub server: Option<String>,
    /// Consumed streams and their identities.
    pub streams: BTreeMap<String, String>,
}

impl Transport {
    /// Opens the transport. On JetStream it checks the streams and creates missing ones if allowed.
    pub(crate) async fn open(
        config: &Config,
        log: LogExpectation,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        match config.bus.kind {
            BusKind::Embedded => {
                let dir = config.data_dir.join(layout::BUS);
                let mut options = component_config::bus(config);

                // The log rejects itself if it ends before its own position, or before a checkpoint
                // of a store.
                options.expected = log.durable;
                options.checkpoints = log.checkpoints;
                options.accept_data_loss = log.accept_data_loss;

                let opened =
                    tokio::task::spawn_blocking(move || Embedded::open(dir, &options, clock)).await;
                let opened = opened.context("the bus did not open")?;
                let opened = opened.map_err(layout::explain_open)?;

                Ok(Self::Embedded(Arc::new(opened)))
            }
            BusKind::Nats => {
                let connection = with_startup_retry(|| connect(config)).await?;

                // After a restart of the whole system the servers may start later than the node.
                with_startup_retry(|| check_streams(&connection, config, clock.now())).await?;

                let mut streams = Vec::new();

                // A node without sagas consumes no stream; one open stream is enough to detect
                // whether the servers are reachable.
                let read = if config.role.runs_sagas() {
                    &SOURCES[..]
                } else {
                    &SOURCES[1..2]
                };
                for (name, _) in read {
                    streams.push((
                        *name,
                        with_startup_retry(|| async {
                            Ok(NatsStream::open(&connection, name, &config.node_name()).await?)
                        })
                        .await?,
                    ));
                }

                Ok(Self::Nats(Box::new(NatsTransport {
                    connection,
                    read: streams,
                    tenants: Arc::new(AdmittedTenants::new(config.tenants.clone())),
                })))
            }
        }
    }

    /// Returns the tenants whose messages the shards apply; `None` if no other node publishes any.
    pub(crate) fn admitted_tenants(&self) -> Option<Arc<AdmittedTenants>> {
        match self {
            Transport::Embedded(_) => None,
            Transport::Nats(nats) => Some(Arc::clone(&nats.tenants)),
        }
    }

    /// Returns the bus for events and facts.
    pub(crate) fn bus(&self) -> Arc<dyn Bus> {
        match self {
            Transport::Embedded(bus) => Arc::clone(bus) as Arc<dyn Bus>,
            // A publish selects the stream by subject; the state of this stream is the relevant one
            // for sagas.
            Transport::Nats(nats) => {
                let events = nats.read.iter().find(|(name, _)| *name == WORKFLOW_EVENTS);
                let (_, stream) = events.expect("every role opens it");
                Arc::clone(stream) as Arc<dyn Bus>
            }
        }
    }

    /// Returns the durable position of the embedded log, with its name.
    pub(crate) fn durable_position(&self) -> Option<(String, StoredPosition)> {
        match self {
            Transport::Embedded(bus) => {
                Some((layout::BUS.to_owned(), bus.durable_position().into()))
            }
            Transport::Nats(_) => None,
        }
    }

    /// Returns the NATS connection; `None` for the embedded log.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Transport::Embedded(_) => None,
            Transport::Nats(nats) => Some(&nats.connection),
        }
    }

    /// Returns the event sources of the shards. The authority decides about the events of a shared
    /// bus.
    pub fn sources(&self, authority: &Arc<SignedEvents>) -> Vec<EventSource> {
        match self {
            Transport::Embedded(bus) => {
                vec![EventSource::embedded(Arc::clone(bus) as Arc<dyn Bus>)]
            }
            Transport::Nats(nats) => nats
                .read
                .iter()
                // The kinds match by index only while all streams are open. A node with a single
                // stream runs no shard, so no consumer reads it with the wrong kind.
                .zip(SOURCES)
                .map(|((name, stream), (_, kind))| EventSource {
                    name: (*name).to_owned(),
                    bus: Arc::clone(stream) as Arc<dyn Bus>,
                    kinds: vec![kind],
                    sharing: Some(StreamSharing {
                        admission: Some(Arc::<AdmittedTenants>::clone(&nats.tenants)),
                    }),
                    authority: Some(Arc::clone(authority) as Arc<dyn EventAuthority>),
                })
                .collect(),
        }
    }

    /// Returns the state of the transport.
    #[must_use]
    pub fn info(&self) -> BusInfo {
        match self {
            Transport::Embedded(bus) => BusInfo {
                kind: BusKind::Embedded.as_str(),
                connected: true,
                server: None,
                streams: BTreeMap::from([(
                    EMBEDDED_STREAM.to_owned(),
                    bus.stream_id().to_string(),
                )]),
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

    /// Returns why a stream or a consumer is not read further; `None` if all are read.
    #[must_use]
    pub fn read_failure(&self) -> Option<String> {
        match self {
            Transport::Embedded(_) => None,
            Transport::Nats(nats) => nats.connection.read_failure(),
        }
    }

    /// Completes accepted publishes and stores the read positions.
    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        match self {
            Transport::Embedded(bus) => {
                let bus = Arc::clone(bus);
                tokio::task::spawn_blocking(move || bus.close())
                    .await
                    .context("the bus did not close")
            }
            Transport::Nats(nats) => {
                for (name, stream) in &nats.read {
                    // Only a warning: the checkpoints in the stores decide where shards continue to
                    // read.
                    if let Err(error) = stream.save_cursors().await {
                        tracing::warn!(stream = name, %error, "consumer position update failed; \
                            reported position is stale");
                    }
                }
                Ok(())
            }
        }
    }
}

/// Retries while the servers start or elect a leader.
pub(crate) async fn with_startup_retry<T, F>(mut attempt: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let started = tokio::time::Instant::now();
    let mut logged = false;

    loop {
        match attempt().await {
            Err(error) if passes(&error) && started.elapsed() < STARTUP_TIMEOUT => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!("{error:#}; retrying for {STARTUP_TIMEOUT:?}");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
            result => return result,
        }
    }
}

fn passes(error: &anyhow::Error) -> bool {
    let connect = error.downcast_ref();
    matches!(
        connect,
        Some(nats::ConnectError::Rejected { .. } | nats::ConnectError::Unavailable(_))
    ) || error.is::<nats::ProvisionError>()
        || matches!(error.downcast_ref(), Some(orlog_bus::Error::Unavailable(_)))
}

/// Connects to the configured servers.
///
/// # Errors
/// Fails if a secret is missing, no server responds, or the server is too old.
pub async fn connect(config: &Config) -> anyhow::Result<Connection> {
    Ok(Connection::open(&component_config::nats(config)?).await?)
}

/// Returns the differences between the streams and the configuration. Applies allowed changes if
/// `update` is set.
///
/// # Errors
/// Fails if the servers do not respond or reject the change.
pub async fn streams(
    connection: &Connection,
    config: &Config,
    now: Timestamp,
    change: bool,
) -> Result<Vec<nats::StreamDiff>, nats::ProvisionError> {
    let plan = component_config::streams(config);
    if change {
        nats::apply(connection, &plan, now).await
    } else {
        nats::diff(connection, &plan, now).await
    }
}

async fn check_streams(
    connection: &Connection,
    config: &Config,
    now: Timestamp,
) -> anyhow::Result<()> {
    let provision = config.nats.provision;
    for difference in streams(connection, config, now, provision).await? {
        // A node without sagas does not consume this stream.
        if difference.stream == AGGREGATE_EVENTS && !config.role.runs_sagas() {
            continue;
        }

        let open = !provision || difference.rejected.is_some();
        // A missing stream cannot be opened, while a stream with other settings still works: it
        // only causes a warning.
        if open && difference.missing {
            let remedy = if difference.rejected.is_some() {
                ""
            } else {
                "; make it with `orlog streams apply`"
            };
            bail!("{difference}{remedy}");
        }

        if open {
            tracing::warn!("{difference}; `orlog streams diff` lists the differences");
        } else {
            tracing::info!(
                stream = difference.stream,
                "streams created or updated: {}",
                difference.field
            );
        }
    }

    Ok(())
}
