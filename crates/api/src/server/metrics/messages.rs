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

/// Messages whose delivery is pending.
#[derive(Default)]
struct Undelivered {
    count: u64,
    oldest: Option<Timestamp>,
}

/// Registers the metrics.
pub(super) fn register(app: &App, failed: &mut FailedReads, registry: &mut MetricsRegistry) {
    let mut undelivered = Undelivered::default();
    for (shard, reader) in app.runtime.numbered_readers() {
        if let Err(error) = undelivered.add(&reader) {
            failed.report(shard, "undelivered messages", &error);
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
    fn add(&mut self, reader: &Reader) -> Result<(), Error> {
        let destinations = reader.outbox_destinations()?;
        let is_peers = |name: &str| message::EFFECTS.contains(&name);
        for to in destinations
            .iter()
            .filter(|to| to.kind == WorkKind::Effect && is_peers(&to.name))
        {
            for (_, item) in reader.outbox(to, 0, SCAN_LIMIT)? {
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

        Ok(())
    }
}
