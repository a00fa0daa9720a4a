//! Metrics of messages that wait for their delivery.

use std::time::Duration;

use orlog_actors::MetricSink as _;
use orlog_model::{Timestamp, WorkKind};
use orlog_sagas::message::{self, PeerTask};
use orlog_store::{Error, Reader};

use super::failed_reads::FailedReads;
use super::types::{float_gauge, int_gauge};
use orlog_node::app::App;
use orlog_node::telemetry::MetricsRegistry;

/// Maximum number of scanned work items per shard and tenant; more are not counted.
const SCAN_LIMIT: usize = 10_000;

/// Name of the values in the log.
const VALUES: &str = "undelivered messages";

/// Messages whose delivery is pending.
#[derive(Default)]
struct Undelivered {
    count: u64,
    oldest: Option<Timestamp>,
}

/// Registers the metrics.
pub(super) fn register(app: &App, failed: &mut FailedReads<'_>, registry: &mut MetricsRegistry) {
    let mut undelivered = Undelivered::default();
    for (shard, reader) in app.runtime.numbered_readers() {
        match undelivered.add(&reader) {
            Ok(true) => {}
            Ok(false) => failed.truncate(shard, VALUES, SCAN_LIMIT),
            Err(error) => failed.report(shard, VALUES, &error),
        }
    }

    let now = app.clock.now();
    let age = undelivered
        .oldest
        .map_or(Duration::ZERO, |oldest| now.duration_since(oldest));
    registry.register("messages_undelivered", int_gauge(undelivered.count));
    registry.register(
        "messages_undelivered_oldest_age_seconds",
        float_gauge(age.as_secs_f64()),
    );
}

impl Undelivered {
    /// Adds the messages of a shard. Returns whether all are counted.
    fn add(&mut self, reader: &Reader) -> Result<bool, Error> {
        let mut is_complete = true;
        let destinations = reader.outbox_destinations()?;
        let is_peers = |name: &str| message::EFFECTS.contains(&name);
        for to in destinations
            .iter()
            .filter(|to| to.kind == WorkKind::Effect && is_peers(&to.name))
        {
            // One more than is counted shows that there are more.
            let items = reader.outbox(to, 0, SCAN_LIMIT + 1)?;
            is_complete &= items.len() <= SCAN_LIMIT;
            for (_, item) in items.into_iter().take(SCAN_LIMIT) {
                // The same effects carry withdrawals and reports, which are not messages of users.
                if item
                    .work
                    .effect()
                    .is_some_and(|effect| PeerTask::is_delivery(&effect.payload))
                {
                    self.count += 1;
                    self.oldest = Some(
                        self.oldest
                            .map_or(item.created_at, |oldest| oldest.min(item.created_at)),
                    );
                }
            }
        }

        Ok(is_complete)
    }
}
