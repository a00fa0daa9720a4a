//! What a node stands on: its folder, its stores, and what carries its events. Nothing moves yet.

use std::sync::Arc;

use orlog_model::Clock;
use orlog_store::{Device, Reader, Writer};

use super::transport::Transport;
use super::{layout, stores};
use crate::config::Config;

/// The stores are those that it has for good; with many pods others come and go.
pub(super) struct Ground {
    pub(super) stores: Vec<(Writer, Reader)>,
    pub(super) transport: Transport,
}

impl Ground {
    /// Claims the folder, opens the stores in it, and reaches the bus and what is stored there.
    pub(super) async fn lay(
        config: &Config,
        disk: Option<Arc<dyn Device>>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        if config.roles.runs_sagas() {
            layout::claim(config)?;
        }
        // Before anything else in the folder: who finds it in use is told so.
        let mut stores = stores::local(config, disk).await?;
        let transport = Box::pin(Transport::open(config, Arc::clone(clock))).await?;
        stores.extend(Box::pin(stores::replicated(config, &transport)).await?);
        Ok(Self { stores, transport })
    }
}
