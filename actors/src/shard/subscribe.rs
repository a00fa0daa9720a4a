//! Subscription of an ingester to its stream, and the check of the stream against its checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_bus::{Consumer, Error as BusError, MaxInFlight, RetryLog, SubscriptionStart, subject};
use orlog_model::{InstanceKey, Slot, SlotAssigner, StreamPosition, TenantId};
use parking_lot::Mutex;

use crate::shard::event_source::EventSource;
use crate::telemetry::metrics::{GaugeGuard, Metrics};

/// Delay before a retry while the consumer of the previous incarnation is still active.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(20);
/// Interval at which a stream that lost messages is checked again: an operator may restore it.
const LOST_STREAM_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before a request to an unavailable bus is retried.
const BUS_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Subscription of a shard to a stream.
pub(crate) struct SubscriptionArguments {
    pub(crate) source: EventSource,
    /// Durable name of the subscription.
    pub(crate) name: String,
    /// Slots of the shard.
    pub(crate) slots: std::ops::Range<u16>,
    pub(crate) slot_assigner: SlotAssigner,
    pub(crate) max_in_flight: MaxInFlight,
    /// Whether streams that lost messages are read.
    pub(crate) accept_data_loss: bool,
    pub(crate) lost_streams: Arc<LostStreams>,
    pub(crate) metrics: Arc<Metrics>,
}

impl SubscriptionArguments {
    /// Returns true if the shard owns a slot.
    pub(crate) fn owns_slot(&self, slot: Slot) -> bool {
        self.slots.contains(&slot.0)
    }

    /// Returns false if a message with this subject belongs to another shard: that of its tenant.
    pub(crate) fn may_concern(&self, subject: &str) -> bool {
        let tenant = subject::tenant_of(subject).unwrap_or_default();
        self.slot_assigner.is_key_sharded(&tenant) || self.owns_tenant(&tenant)
    }

    pub(crate) fn owns(&self, key: &InstanceKey) -> bool {
        self.owns_slot(self.slot_assigner.slot_of(key))
    }

    /// Returns true if this shard handles data of the tenant that belongs to no instance.
    pub(crate) fn owns_tenant(&self, tenant: &TenantId) -> bool {
        self.owns_slot(self.slot_assigner.home_slot(tenant))
    }

    /// Returns true if instances of a tenant may run in other processes.
    pub(crate) fn sends_on(&self, tenant: &TenantId) -> bool {
        self.source.sharing.is_some() && self.slot_assigner.is_key_sharded(tenant)
    }
}

/// Streams of a shard that lost messages and are not read, with the reason.
#[derive(Default)]
pub(crate) struct LostStreams(Mutex<BTreeMap<String, String>>);

impl LostStreams {
    /// Records why a stream is not read; `None` if it is read.
    fn set(&self, stream: &str, reason: Option<String>, metrics: &Metrics) {
        let mut lost = self.0.lock();
        let is_lost = i64::from(reason.is_some());
        let before = match reason {
            Some(reason) => lost.insert(stream.to_owned(), reason),
            None => lost.remove(stream),
        };
        metrics
            .streams_lost
            .inc_by(is_lost - i64::from(before.is_some()));
    }

    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().clone()
    }
}

/// Subscribes when the stream matches its checkpoint. A stream that lost messages is not read: its
/// shard would skip messages without notice. If an operator has accepted the loss, it is read from
/// a position that skips no message.
pub(crate) async fn subscribe_verified(
    arguments: &SubscriptionArguments,
    after: Option<StreamPosition>,
) -> Result<Box<dyn Consumer>, BusError> {
    let mut is_reported = false;
    loop {
        let consumer = subscribe(arguments, after).await?;

        let anomaly = consumer.subscription_start().anomaly.clone();
        if !std::mem::replace(&mut is_reported, anomaly.is_some()) {
            report_anomaly(arguments, consumer.subscription_start());
        }

        // A shard that reads on would skip messages without notice.
        let lost = anomaly.filter(|found| found.is_loss() && !arguments.accept_data_loss);
        let is_lost = lost.is_some();
        let reason = lost.map(|found| found.to_string());
        arguments
            .lost_streams
            .set(&arguments.source.name, reason, &arguments.metrics);

        if !is_lost {
            return Ok(consumer);
        }

        drop(consumer);
        tokio::time::sleep(LOST_STREAM_RETRY_DELAY).await;
    }
}

async fn subscribe(
    arguments: &SubscriptionArguments,
    after: Option<StreamPosition>,
) -> Result<Box<dyn Consumer>, BusError> {
    let SubscriptionArguments {
        source,
        name,
        slots,
        metrics,
        ..
    } = arguments;

    let after = after.unwrap_or_else(|| StreamPosition::after(source.bus.stream_id(), 0));
    let subscription = source.subscription(
        name,
        &arguments.slot_assigner,
        slots,
        Some(after),
        arguments.max_in_flight,
    );

    let mut retries = RetryLog::default();
    let mut failing = None;
    loop {
        match source.bus.subscribe(subscription.clone()).await {
            Err(BusError::InUse(_)) => tokio::time::sleep(RESUBSCRIBE_DELAY).await,
            // Servers that elect a leader return. A crash of this actor would stop the shard; too
            // many crashes stop the node.
            Err(error @ BusError::Unavailable(_)) if source.sharing.is_some() => {
                retries.failed(|failures| {
                    tracing::warn!(
                        stream = source.name, shard = name, %error, failures,
                        "subscription failed; retrying"
                    );
                });
                failing.get_or_insert_with(|| GaugeGuard::add(&metrics.subscriptions_failing, 1));
                tokio::time::sleep(BUS_RETRY_DELAY).await;
            }
            Ok(subscribed) => {
                retries.succeeded(|failures| {
                    tracing::info!(
                        stream = source.name,
                        shard = name,
                        failures,
                        "subscription succeeded after failures"
                    );
                });
                return Ok(subscribed);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Logs a stream anomaly at the checkpoint.
fn report_anomaly(arguments: &SubscriptionArguments, start: &SubscriptionStart) {
    let Some(found) = &start.anomaly else { return };
    let stream = &arguments.source.name;
    let shard = &arguments.name;
    if found.is_loss() && !arguments.accept_data_loss {
        tracing::error!(
            stream,
            shard,
            code = "OR0061",
            "{found}; the shard does not read the stream. Restore it, or restart with \
             --accept-data-loss"
        );
    } else {
        tracing::error!(stream, shard, goes_on_after = start.after, "{found}");
    }

    let label = [
        ("stream", stream.clone()),
        ("kind", found.as_str().to_owned()),
    ];
    arguments
        .metrics
        .stream_anomalies
        .get_or_create(&label)
        .inc();
}
