//! Remote dependencies of effects: result listener, gateway requests, and workers of the role
//! `effect`.

pub mod built_in;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use orlog_actors::{
    Metrics, QueueProvider, ResultListener, Tracer, WorkerPool, WorkerPoolConfig,
    WorkerPoolDependencies,
};
use orlog_bus::effect_queue::EffectQueue;
use orlog_bus::nats::{self, Connection, ConsumerLayout, NatsEffectQueue, StreamDiff};
use orlog_bus::requests::RequestClient;
use orlog_effect::{Catalog, EffectObserver, Provider, Upstream};
use orlog_model::{Clock, TenantId};

use super::component_config;
use super::transport::with_startup_retry;
use crate::config::{Config, Role, TenantMode};
use crate::definitions::DefinitionErrors;
use crate::effects::built_in::BuiltInEffects;
use crate::upstreams::{QueueProviderFactory, RemoteDependencies, UpstreamSources};

/// Returns the sources of the upstreams: the configuration, the directory of upstreams, the
/// built-in sagas, and `added` upstreams.
pub(crate) fn upstream_sources(
    config: &Config,
    added: Vec<Upstream>,
    built_in: &BuiltInEffects,
    remote: Option<RemoteDependencies>,
) -> UpstreamSources {
    UpstreamSources::new(config.upstreams(), config.upstreams_dir.clone(), added)
        .with_built_in_sagas(built_in.upstreams())
        .in_role(config.role, remote)
        // A node of the role `effect` executes what it receives over NATS; without signatures every
        // publisher could run a script there.
        .reject_scripts(config.role == Role::Effect && !config.nats.permits_scripts())
}

/// Builds the executors of the upstreams.
///
/// # Errors
/// If an upstream is invalid, or needs what the system of this node does not support.
pub(crate) async fn open_catalog(
    upstreams: &UpstreamSources,
    clock: &Arc<dyn Clock>,
    observer: &Arc<dyn EffectObserver>,
) -> anyhow::Result<Catalog> {
    let read = upstreams.read().map_err(DefinitionErrors)?;

    for upstream in &read {
        // What the system of this node cannot support is an error of the start, not of the first
        // saga that uses the upstream.
        let checked = upstream.provider.check().await;
        checked.map_err(|reason| anyhow::anyhow!("upstream {}: {reason}", upstream.name))?;
    }

    Ok(Catalog::new(read, clock, observer)?)
}

/// Connects the remote dependencies of a node; `None` without NATS.
pub(crate) async fn remote_dependencies(
    config: &Config,
    connection: Option<&Connection>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<RemoteDependencies>> {
    let Some(connection) = connection else {
        return Ok(None);
    };

    let mut dispatch = None;
    // Only nodes with sagas put effects into the queue and wait for their results.
    if config.role.runs_sagas() {
        let opened = with_startup_retry(|| async {
            Ok(ResultListener::subscribe(queue(connection), Arc::clone(clock)).await?)
        })
        .await;
        let listener = opened.context("effect results cannot be received")?;

        dispatch = Some(Arc::new(move |timeout| {
            Arc::new(QueueProvider::new(Arc::clone(&listener), timeout)) as Arc<dyn Provider>
        }) as QueueProviderFactory);
    }

    let requests = Arc::new(connection.clone()) as Arc<dyn RequestClient>;
    Ok(Some(RemoteDependencies {
        dispatch,
        requests,
        redispatch_after: config.queue.redispatch_after,
    }))
}

/// Connects remote dependencies for diagnostics only; they dispatch no work.
pub async fn probe_dependencies(
    config: &Config,
    connection: &Connection,
) -> Option<RemoteDependencies> {
    let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock);
    let opened = tokio::time::timeout(
        CONNECT_TIMEOUT,
        remote_dependencies(config, Some(connection), &clock),
    )
    .await;
    opened.ok()?.ok()?
}

/// Timeout of opening a result listener.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Starts the workers of a node of the role `effect`; `None` for other roles.
pub(crate) async fn workers(
    config: &Config,
    connection: Option<&Connection>,
    catalog: &Arc<Catalog>,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
    tracer: Option<Arc<dyn Tracer>>,
) -> anyhow::Result<Option<WorkerPool>> {
    // A combined node executes its own effects without the queue.
    let Some(connection) = connection.filter(|_| config.role == Role::Effect) else {
        return Ok(None);
    };

    let dependencies = WorkerPoolDependencies {
        queue: queue(connection),
        catalog: Arc::clone(catalog),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        tracer,
    };

    let behavior = WorkerPoolConfig {
        node: config.node_name(),
        max_in_flight: config.queue.max_in_flight,
        ack_wait: config.queue.ack_wait,
        tenants: tenants(config),
        intensity: component_config::runtime(config).intensity,
    };
    Ok(Some(WorkerPool::start(dependencies, behavior).await?))
}

/// Returns the tenants whose effects this node executes; `None`: all tenants.
fn tenants(config: &Config) -> Option<Arc<BTreeSet<TenantId>>> {
    (config.tenants.mode == TenantMode::Allowlist).then(|| {
        // An allowlist always admits the default tenant, as `TenantsConfig::admits` does.
        let allowed = config.tenants.allowed.iter().cloned();
        Arc::new(allowed.chain([TenantId::default_tenant()]).collect())
    })
}

/// Compares the consumers of effects with the configuration of a node of the role `effect`, and
/// changes them if `change` is set. Other nodes have no consumers of effects.
///
/// # Errors
/// If the servers do not respond or reject a change.
pub async fn arrange_consumers(
    connection: &Connection,
    config: &Config,
    change: bool,
) -> Result<Vec<StreamDiff>, orlog_bus::Error> {
    if config.role != Role::Effect {
        return Ok(Vec::new());
    }
    let layout = ConsumerLayout {
        tenants: tenants(config),
        ack_wait: config.queue.ack_wait,
    };
    nats::arrange_consumers(connection, &layout, change).await
}

fn queue(connection: &Connection) -> Arc<dyn EffectQueue> {
    Arc::new(NatsEffectQueue::new(connection.clone()))
}
