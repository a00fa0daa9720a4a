//! What reaches beyond the process for effects: the desk, the gateway's questions, and the workers of the role `effect`.

use std::sync::Arc;

use anyhow::Context;
use orlog_actors::{Desk, Dispatch, Metrics, Pool, PoolConfig, PoolParts};
use orlog_bus::effects::EffectQueue;
use orlog_bus::nats::{Connection, NatsEffects};
use orlog_bus::requests::Requests;
use orlog_effect::{Catalog, Provider};
use orlog_model::{Clock, TenantId};

use super::settings;
use super::transport::patiently;
use crate::config::{Config, Role, TenantMode};
use crate::upstreams::{Dispatching, Outside};

/// What a node asks of others; `None` without NATS.
pub(super) async fn outside(
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

/// The workers of a node that performs for others; `None` in every other role.
pub(super) async fn workers(
    config: &Config,
    connection: Option<&Connection>,
    catalog: &Arc<Catalog>,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Pool>> {
    let Some(connection) = connection.filter(|_| config.roles == Role::Effect) else { return Ok(None) };
    let parts = PoolParts {
        queue: queue(connection),
        catalog: Arc::clone(catalog),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
    };
    let listed = || config.tenants.list.iter().cloned().chain([TenantId::default_tenant()]).collect();
    let behaviour = PoolConfig {
        node: config.node_name(),
        in_flight: config.queue.in_flight,
        ack_wait: config.queue.ack_wait,
        tenants: (config.tenants.mode == TenantMode::Listed).then(listed),
        intensity: settings::runtime(config).intensity,
    };
    Ok(Some(Pool::start(parts, behaviour).await?))
}

fn queue(connection: &Connection) -> Arc<dyn EffectQueue> {
    Arc::new(NatsEffects::new(connection.clone()))
}
