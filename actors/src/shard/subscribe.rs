//! Subscription of an ingester to its stream, and the check of the stream against its checkpoint.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::{Bus, Consumer, Error as BusError, MaxInFlight, RetryLog, SubscriptionStart};
use orlog_model::StreamPosition;

use crate::instance::registry::InstanceRegistry;
use crate::shard::event_source::EventSource;

/// Delay before a retry while the consumer of the previous incarnation is still active.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(20);
/// Interval at which a stream that lost messages is checked again: an operator may restore it.
const LOST_STREAM_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before a request to an unavailable bus is retried.
const BUS_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Arguments of the ingester.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) instances: Arc<InstanceRegistry>,
    /// Bus to which signals are published.
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) source: EventSource,
    /// Durable name of the subscription.
    pub(crate) name: String,
    /// Slots of the shard.
    pub(crate) slots: std::ops::Range<u16>,
}

/// Subscribes when the stream matches its checkpoint. A stream that lost messages is not read: its shard
/// would skip messages without notice. If an operator has accepted the loss, it is read from a position
/// that skips no message.
pub(crate) async fn subscribe_verified(
    arguments: &Arguments,
    after: Option<StreamPosition>,
) -> Result<Box<dyn Consumer>, BusError> {
    let (instances, stream) = (&arguments.instances, &arguments.source.name);
    let mut is_reported = false;
    loop {
        let consumer = subscribe(arguments, after).await?;
        let anomaly = consumer.subscription_start().anomaly.clone();
        if !std::mem::replace(&mut is_reported, anomaly.is_some()) {
            report_anomaly(arguments, consumer.subscription_start());
        }
        let lost = anomaly.filter(|found| found.is_loss() && !instances.context.accept_data_loss);
        let is_lost = lost.is_some();
        instances.set_lost_stream(stream, lost.map(|found| found.to_string()));
        if !is_lost {
            return Ok(consumer);
        }
        drop(consumer);
        tokio::time::sleep(LOST_STREAM_RETRY_DELAY).await;
    }
}

async fn subscribe(
    arguments: &Arguments,
    after: Option<StreamPosition>,
) -> Result<Box<dyn Consumer>, BusError> {
    let Arguments { instances, source, name, slots, .. } = arguments;
    let after = after.unwrap_or_else(|| StreamPosition::after(source.bus.stream_id(), 0));
    let limits = &instances.context.limits;
    let bound = MaxInFlight {
        total: limits.max_in_flight_per_ingester,
        per_tenant: Some(limits.max_in_flight_per_tenant),
    };
    let subscription = source.subscription(name, &instances.context.slots, slots, Some(after), bound);
    let mut retries = RetryLog::default();
    let mut failing = None;
    loop {
        match source.bus.subscribe(subscription.clone()).await {
            Err(BusError::InUse(_)) => tokio::time::sleep(RESUBSCRIBE_DELAY).await,
            // Servers that elect a leader return. A crash of this actor would stop the shard; too many crashes stop
            // the node.
            Err(error @ BusError::Unavailable(_)) if source.sharing.is_some() => {
                retries.failed(|failures| {
                    tracing::warn!(stream = source.name, shard = name, %error, failures, "subscription failed; retrying");
                });
                failing.get_or_insert_with(|| Failing::new(instances));
                tokio::time::sleep(BUS_RETRY_DELAY).await;
            }
            other => return other,
        }
    }
}

/// A subscription that fails, in the metrics; dropping it ends the failure.
struct Failing<'a>(&'a InstanceRegistry);

impl<'a> Failing<'a> {
    fn new(instances: &'a InstanceRegistry) -> Self {
        instances.context.metrics.subscriptions_failing.inc();
        Self(instances)
    }
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.context.metrics.subscriptions_failing.dec();
    }
}

/// Logs a stream anomaly at the checkpoint.
fn report_anomaly(arguments: &Arguments, start: &SubscriptionStart) {
    let Some(found) = &start.anomaly else { return };
    let (stream, shard) = (&arguments.source.name, &arguments.name);
    if found.is_loss() && !arguments.instances.context.accept_data_loss {
        tracing::error!(
            stream,
            shard,
            code = "OR0061",
            "{found}; the shard does not read the stream. Restore it, or restart with --accept-data-loss"
        );
    } else {
        tracing::error!(stream, shard, goes_on_after = start.after, "{found}");
    }
    let label = [("stream", stream.clone()), ("kind", found.as_str().to_owned())];
    arguments.instances.context.metrics.stream_anomalies.get_or_create(&label).inc();
}
