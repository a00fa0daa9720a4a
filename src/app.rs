//! The composition root: builds every part in dependency order, and is the handle to all of them.
//!
//! Nothing is scanned at the start: what it costs does not depend on how many instances there are.

pub mod attempts;
mod background;
mod backup;
mod cluster;
mod collect;
mod deploy;
mod diagnostics;
mod effects;
mod info;
mod initial_definitions;
mod layout;
mod migrate;
mod observers;
mod part_config;
mod purge_counts;
mod replay;
pub mod replication;
mod retention;
mod routing;
mod shard_startup;
mod stores;
mod transport;

use std::sync::{Arc, Mutex, OnceLock};

use anyhow::Context;
use orlog_actors::{AttemptCounts, CommitObserver, Parts, Pool, Programs, Runtime};
use orlog_bus::{Bus, Receipt, codec};
use orlog_effect::{Catalog, Observer, Upstream};
use orlog_model::{Clock, Event, Timestamp};
use orlog_program::{Problem, Program};
use orlog_store::{Device, Reader, Writer};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::audit::Audit;
use crate::auth::Access;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::dead_letters;
use crate::definitions::Definitions;
use crate::telemetry::{Shown, Telemetry};
use crate::upstreams::Upstreams;
use attempts::Attempts;
use background::Background;
use backup::store::Backups;
use cluster::Cluster;
use effects::Hands;
use observers::{Ears, FirstShown};
use purge_counts::Purges;
use stores::Ground;
use transport::Transport;

pub use backup::store::{NoBackup, Taken, backup_at_rest};
pub use cluster::{ClusterInfo, PodInfo};
pub use collect::Collected;
pub use deploy::{DeployError, Order};
pub use effects::reach;
pub use info::{Info, SagaInfo, ShardInfo, UpstreamInfo};
pub use layout::{check as check_layout, shard as shard_folder};
pub use migrate::{Move, Moved};
pub use purge_counts::Purged;
pub use replay::{Fate, Replay, ReplayError, ReplayOrder, Replayed, ReplayedWork};
pub use routing::Whose;
pub use stores::Look;
pub use transport::{BusInfo, connect, streams};

/// What an embedding program, a test or a bench puts in the place of the ordinary.
#[derive(Default)]
pub struct Seams {
    /// Where the present comes from; the host where absent.
    pub clock: Option<Arc<dyn Clock>>,
    /// Programs beside those of the definitions.
    pub programs: Vec<Arc<dyn Program>>,
    /// Upstreams beside the configured ones, for example functions in this process.
    pub upstreams: Vec<Upstream>,
    /// Hears of every commit.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// Hears of every attempt.
    pub attempts: Option<Arc<dyn Observer>>,
    /// What the journals of the stores lie on.
    pub disk: Option<Arc<dyn Device>>,
    /// What is sent to a collector; nothing where absent.
    pub telemetry: Telemetry,
}

/// A running node.
pub struct App {
    /// The actors.
    pub runtime: Runtime,
    /// Whence events come.
    pub bus: Arc<dyn Bus>,
    /// The programs, old ones too.
    pub programs: Arc<Programs>,
    /// The upstreams.
    pub catalog: Arc<Catalog>,
    /// Where the upstreams come from.
    pub upstreams: Upstreams,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// As it was started.
    pub config: Config,
    /// The definitions for new instances.
    pub definitions: Definitions,
    /// What it counts.
    pub shown: Mutex<Shown>,
    /// When it was started.
    pub started_at: Timestamp,
    /// What was tried for whom and did not go well.
    pub attempts: Arc<Attempts>,
    /// How many attempts there were.
    pub counted: Arc<AttemptCounts>,
    /// How it is found out who calls.
    pub access: Access,
    /// What is kept of what they did.
    pub audit: Audit,
    /// What is sent to a collector.
    pub(crate) telemetry: Telemetry,
    transport: Transport,
    workers: Option<Pool>,
    drained: watch::Sender<bool>,
    /// Whoever changes which definitions there are, or moves instances between them, does it alone.
    deploying: tokio::sync::Mutex<()>,
    collected: Counter,
    purges: Purges,
    background: Background,
    backups: Backups,
    /// The other pods, where there are any.
    cluster: OnceLock<Cluster>,
}

impl App {
    /// Starts a node.
    ///
    /// # Errors
    /// When the data folder is in use or damaged, or the definitions or upstreams are wrong; the text says what to do.
    pub async fn start(config: Config) -> anyhow::Result<Arc<Self>> {
        Self::start_with(config, Seams::default()).await
    }

    /// Starts a node with some parts replaced.
    ///
    /// # Errors
    /// As [`App::start`].
    pub async fn start_with(config: Config, seams: Seams) -> anyhow::Result<Arc<Self>> {
        let clock = seams.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let started_at = clock.now();
        let Ground { mut stores, transport } = Box::pin(Ground::lay(&config, seams.disk, &clock)).await?;
        let telemetry = seams.telemetry;
        let Ears { tracer, attempts, counted } = observers::ears(&telemetry, seams.attempts, &clock);
        let access = Box::pin(Access::new(&config.auth)).await?;
        let audit = Audit::open(&part_config::audit(&config))?;
        let backups = Backups::open(&config)?;

        let heard = Arc::clone(&counted) as Arc<dyn Observer>;
        let hands = Hands::raise(&config, transport.connection(), seams.upstreams, &clock, &heard);
        let Hands { upstreams, catalog } = Box::pin(hands).await?;
        let folder = config.definitions.clone().filter(|_| config.roles.runs_sagas());
        let definitions = Definitions::new(folder, seams.programs);
        let occasion = (started_at, config.roles.runs_sagas());
        let programs = Arc::new(put_in_force(&definitions, &catalog, &mut stores, occasion)?);

        let bus = transport.bus();
        let parts = Parts {
            bus: Arc::clone(&bus),
            sources: transport.sources(),
            catalog: Arc::clone(&catalog),
            programs: Arc::clone(&programs),
            clock: Arc::clone(&clock),
            letters: dead_letters::published(config.redact.clone()),
            shards: stores::shards(&config, stores),
            observer: seams.observer,
            tracer: tracer.clone(),
        };
        let runtime = Box::pin(Runtime::start(parts, part_config::runtime(&config))).await?;
        let sight = (runtime.metrics(), tracer);
        let workers = effects::workers(&config, transport.connection(), &catalog, &clock, sight);
        let workers = Box::pin(workers).await?;
        let FirstShown { shown, collected, purges } = FirstShown::of(&runtime, &counted, &telemetry);
        let app = Arc::new(Self {
            runtime,
            bus,
            programs,
            catalog,
            upstreams,
            clock,
            config,
            definitions,
            shown: Mutex::new(shown),
            started_at,
            attempts,
            counted,
            access,
            audit,
            telemetry,
            transport,
            workers,
            drained: watch::Sender::new(false),
            deploying: tokio::sync::Mutex::default(),
            collected,
            purges,
            background: Background::default(),
            backups,
            cluster: OnceLock::new(),
        });
        app.collect_after_start();
        app.purge_after_start();
        Box::pin(app.join()).await?;
        Ok(app)
    }

    /// Publishes events; returns when they are durable.
    ///
    /// # Errors
    /// [`orlog_bus::Error::Unavailable`] while it drains, [`orlog_bus::Error::Full`] while there is no room in a store;
    /// else what the bus says.
    pub async fn publish(&self, events: Vec<Event>) -> Result<Vec<Receipt>, orlog_bus::Error> {
        let health = self.runtime.health();
        if !health.accepting {
            let why = "this node is draining; try another one, or this one when it is back";
            return Err(orlog_bus::Error::Unavailable(why.to_owned()));
        }
        if !health.room {
            return Err(orlog_bus::Error::Full("there is no room in the store; free disk space".to_owned()));
        }
        let kind = part_config::submitted_as(&self.config);
        let message = |event: &Event| codec::encode(event, codec::subject_under(event, kind));
        self.bus.publish(events.iter().map(message).collect()).await
    }

    /// The catalog of the upstreams as their files describe them now, not in force yet.
    fn next_catalog(&self) -> Result<Arc<Catalog>, Vec<Problem>> {
        let next = self.catalog.renewed(self.upstreams.read()?);
        next.map(Arc::new).map_err(|error| {
            let file = "the upstreams".to_owned();
            let message = error.to_string();
            vec![Problem { file, line: 0, column: 0, path: String::new(), message, suggestion: None }]
        })
    }

    /// Takes no more work and waits until nothing is under way, as long as the configuration says. `false` when something
    /// still is: it goes on at the next start.
    pub async fn drain(&self) -> bool {
        let deadline = self.config.drain.deadline;
        let workers = async {
            match &self.workers {
                Some(workers) => workers.drain(deadline).await,
                None => true,
            }
        };
        let sagas = async {
            let end = tokio::time::Instant::now() + deadline;
            if let Some(cluster) = self.cluster.get() {
                cluster.hand_over(deadline).await;
            }
            self.runtime.drain(end - tokio::time::Instant::now()).await
        };
        let (sagas, workers) = tokio::join!(sagas, workers);
        let at_rest = sagas && workers;
        self.drained.send_replace(true);
        at_rest
    }

    /// Returns once somebody has drained the node: then it is time to stop.
    pub async fn drained(&self) {
        // The sender lives as long as `self`.
        drop(self.drained.subscribe().wait_for(|drained| *drained).await);
    }

    /// Returns when a part of it has died too often.
    pub async fn gave_up(&self) {
        let workers = async {
            match &self.workers {
                Some(workers) => workers.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.runtime.ended() => {}
            () = workers => {}
        }
    }

    /// Whether those who perform for others are up, where there are any.
    #[must_use]
    pub fn workers_are_up(&self) -> bool {
        self.workers.as_ref().is_none_or(Pool::is_up)
    }

    /// Whether what carries the events can be reached.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.transport.info().connected
    }

    /// Stops everything and brings the files up to date.
    ///
    /// # Errors
    /// When the store cannot be brought up to date; what was committed is safe in its journal.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.background.stop().await;
        if let Some(workers) = &self.workers {
            workers.stop().await;
        }
        if let Some(cluster) = self.cluster.get() {
            cluster.leave().await;
        }
        let stopped = self.runtime.stop().await;
        self.transport.close().await?;
        stopped.context("the tables could not be brought up to date; the journal has everything")
    }

    /// What the node says about itself.
    #[must_use]
    pub fn info(&self) -> Info {
        info::of(info::Sight {
            config: &self.config,
            runtime: &self.runtime,
            catalog: &self.catalog,
            definitions: &self.definitions,
            stream: self.bus.stream_id().to_string(),
            bus: self.transport.info(),
            cluster: self.cluster.get().map(Cluster::info),
            started_at: self.started_at,
        })
    }
}

/// Decides which definitions are in force and keeps that in every store, the first one first.
fn put_in_force(
    definitions: &Definitions,
    catalog: &Catalog,
    stores: &mut [(Writer, Reader)],
    (now, runs_sagas): (Timestamp, bool),
) -> anyhow::Result<Programs> {
    if !runs_sagas {
        return Ok(Programs::new(Vec::new()));
    }
    let chosen =
        initial_definitions::choose(definitions, catalog, stores.first().map(|(_, reader)| reader), now)?;
    stores
        .iter_mut()
        .try_for_each(|(writer, reader)| initial_definitions::keep(writer, reader, &chosen, now))?;
    let kept = stores.first().map(|(_, reader)| reader.definitions()).transpose()?.unwrap_or_default();
    let programs = Programs::new(Definitions::programs(&chosen.definitions, &kept));
    definitions.put_in_force(chosen.definitions, chosen.deployment);
    Ok(programs)
}
