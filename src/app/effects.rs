//! What reaches beyond the process for effects: the desk, the gateway's questions, and the workers of the role `effect`.

use std::sync::Arc;

use anyhow::Context;
use orlog_actors::{Desk, Dispatch, Metrics, Pool, PoolConfig, PoolParts, Tracer};
use orlog_bus::effect_queue::EffectQueue;
use orlog_bus::nats::{Connection, NatsEffects};
use orlog_bus::requests::Requests;
use orlog_effect::{Catalog, Observer, Provider, Upstream};
use orlog_model::{Clock, TenantId};

use super::part_config;
use super::transport::patiently;
use crate::config::{Config, Role, TenantMode};
use crate::definitions::Refused;
use crate::upstreams::{Dispatching, Outside, Upstreams};

/// Who performs effects, and where that is written.
pub(super) struct Hands {
    pub(super) upstreams: Upstreams,
    pub(super) catalog: Arc<Catalog>,
}

impl Hands {
    /// Reads who performs what; `others` are upstreams beside the configured ones.
    pub(super) async fn raise(
        config: &Config,
        connection: Option<&Connection>,
        others: Vec<Upstream>,
        clock: &Arc<dyn Clock>,
        heard: &Arc<dyn Observer>,
    ) -> anyhow::Result<Self> {
        let outside = outside(config, connection, clock).await?;
        let upstreams =
            Upstreams::new(config.upstreams(), config.effects.clone(), others).in_role(config.roles, outside);
        let catalog = Arc::new(Catalog::new(upstreams.read().map_err(Refused)?, clock, heard)?);
        Ok(Self { upstreams, catalog })
    }
}

/// What a node asks of others; `None` without NATS.
async fn outside(
    config: &Config,
    connection: Option<&Connection>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<Outside>> {
    let Some(connection) = connection else { return Ok(None) };
    let mut dispatch = None;
    if config.roles.runs_sagas() {
        let open = || async { Ok(Desk::open(queue(connection), Arc::clone(clock)).await?) };
        let opened = patiently(open).await;
        let desk = opened.context("results of effects cannot be heard")?;
        let offering =
            move |patience| Arc::new(Dispatch::new(Arc::clone(&desk), patience)) as Arc<dyn Provider>;
        dispatch = Some(Arc::new(offering) as Dispatching);
    }
    let requests = Arc::new(connection.clone()) as Arc<dyn Requests>;
    Ok(Some(Outside { dispatch, requests, patience: config.queue.patience }))
}

/// What reaches others over this connection, for whoever only looks: what it makes offers nothing.
pub async fn reach(config: &Config, connection: &Connection) -> Option<Outside> {
    let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock);
    let opened = tokio::time::timeout(PATIENCE, outside(config, Some(connection), &clock)).await;
    opened.ok()?.ok()?
}

/// How long a desk may take to open.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The workers of a node that performs for others; `None` in every other role.
pub(super) async fn workers(
    config: &Config,
    connection: Option<&Connection>,
    catalog: &Arc<Catalog>,
    clock: &Arc<dyn Clock>,
    (metrics, tracer): (&Arc<Metrics>, Option<Arc<dyn Tracer>>),
) -> anyhow::Result<Option<Pool>> {
    let Some(connection) = connection.filter(|_| config.roles == Role::Effect) else { return Ok(None) };
    let parts = PoolParts {
        queue: queue(connection),
        catalog: Arc::clone(catalog),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        tracer,
    };
    let listed = || config.tenants.list.iter().cloned().chain([TenantId::default_tenant()]).collect();
    let behaviour = PoolConfig {
        node: config.node_name(),
        in_flight: config.queue.in_flight,
        ack_wait: config.queue.ack_wait,
        tenants: (config.tenants.mode == TenantMode::Listed).then(listed),
        intensity: part_config::runtime(config).intensity,
    };
    Ok(Some(Pool::start(parts, behaviour).await?))
}

fn queue(connection: &Connection) -> Arc<dyn EffectQueue> {
    Arc::new(NatsEffects::new(connection.clone()))
}
