//! Stores the durable positions of the stores and the embedded log in the layout, periodically and at the
//! end.

use std::sync::Arc;
use std::time::Duration;

use super::{App, layout};

/// Interval between two updates. A loss of later data alone is detected by the other evidence only: the
/// tables, the checkpoints and the cursors.
const INTERVAL: Duration = Duration::from_secs(2);

impl App {
    /// Stores the positions periodically until the node stops.
    pub(crate) fn store_positions_later(self: &Arc<Self>) {
        let app = Arc::downgrade(self);
        self.background.spawn(INTERVAL, async move {
            let Some(app) = app.upgrade() else { return };
            app.store_positions().await;
            app.store_positions_later();
        });
    }

    /// Stores the current positions.
    pub(crate) async fn store_positions(&self) {
        let shards = self.runtime.numbered_readers();
        let mut found: Vec<_> =
            shards.filter_map(|(shard, reader)| layout::shard_position(shard, &reader)).collect();
        found.extend(self.transport.durable_position());
        let positions = Arc::clone(&self.local.positions);
        // A panic is reported by the runtime.
        drop(tokio::task::spawn_blocking(move || positions.store(found)).await);
    }
}
