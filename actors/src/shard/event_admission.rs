//! Admission of events: the authority of a stream decides whether an event is applied, and
//! rejections are bounded.
//!
//! A rejected event becomes a dead letter. Anyone who may publish can send any number of them, so a
//! tenant has a limited number of these dead letters in each interval; the others are counted and
//! logged at a bounded rate.
//!
//! A message of a tenant that this node does not accept becomes a dead letter without that limit:
//! another node, with another list, may have accepted it.

use std::collections::HashMap;
use std::time::Duration;

use orlog_bus::Delivery;
use orlog_model::{Event, TenantId, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::shard::event_source::EventSource;
use crate::telemetry::metrics::Metrics;

/// Maximum number of dead letters of a tenant in an interval.
const MAX_DEAD_LETTERS: u32 = 100;
/// Interval of the limit.
const INTERVAL: Duration = Duration::from_mins(1);
/// A rejection is logged if its number is a power of two or a multiple of this.
const LOG_INTERVAL: u64 = 1024;

/// Admission of the events of one subscription.
#[derive(Default)]
pub(crate) struct EventAdmission(Mutex<Rejections>);

#[derive(Default)]
struct Rejections {
    interval_start: Timestamp,
    in_interval: HashMap<TenantId, u32>,
    total: u64,
}

impl EventAdmission {
    /// Checks an event. A rejection is repeated with the current records, once in a batch that was
    /// read before.
    pub(crate) async fn check(
        source: &EventSource,
        delivery: &Delivery,
        event: &mut Event,
        is_refreshed: &mut bool,
    ) -> Result<(), String> {
        let Some(authority) = &source.authority else {
            return Ok(());
        };

        let checked = source.check(delivery, event);
        if checked.is_ok() || *is_refreshed {
            return checked;
        }

        // The records of the authority may be older than the event: a signer can be new.
        authority.refresh().await;
        *is_refreshed = true;
        source.check(delivery, event)
    }

    /// Returns why a message of a tenant is rejected, and counts the rejection; `None` if the node
    /// accepts the tenant.
    pub(crate) fn reject_tenant(
        &self,
        source: &EventSource,
        tenant: &TenantId,
        metrics: &Metrics,
    ) -> Option<String> {
        if source.allows(tenant) {
            return None;
        }
        let reason = format!(
            "this node does not accept the tenant {:?} (OR0007); add it to tenants.allowed and \
             reload the node, which then redrives the message",
            tenant.as_str()
        );

        drop(self.count(tenant, &reason, metrics));
        Some(reason)
    }

    /// Counts a rejection, and logs it at a bounded rate.
    fn count(
        &self,
        tenant: &TenantId,
        reason: &str,
        metrics: &Metrics,
    ) -> MutexGuard<'_, Rejections> {
        metrics.events_rejected.inc();
        let mut rejections = self.0.lock();
        rejections.total += 1;

        let number = rejections.total;
        if number.is_power_of_two() || number.is_multiple_of(LOG_INTERVAL) {
            tracing::warn!(%tenant, number, reason, "event rejected");
        }
        rejections
    }

    /// Counts a rejection. Returns whether it becomes a dead letter.
    pub(crate) fn reject(
        &self,
        tenant: &TenantId,
        reason: &str,
        now: Timestamp,
        metrics: &Metrics,
    ) -> bool {
        let mut rejections = self.count(tenant, reason, metrics);
        let age = now
            .as_millis()
            .saturating_sub(rejections.interval_start.as_millis());

        // Also if the clock was set back: the interval must not become longer.
        if !(0..i64::try_from(INTERVAL.as_millis()).unwrap_or(i64::MAX)).contains(&age) {
            rejections.interval_start = now;
            rejections.in_interval.clear();
        }

        let count = rejections.in_interval.entry(tenant.clone()).or_default();
        *count += 1;
        *count <= MAX_DEAD_LETTERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_of_a_tenant_are_limited_in_each_interval() {
        let (admission, metrics) = (EventAdmission::default(), Metrics::default());
        let stored = |tenant: &str, at: i64, count: usize| {
            let tenant = TenantId::new(tenant).unwrap();
            let at = Timestamp::from_millis(at);
            (0..count)
                .filter(|_| admission.reject(&tenant, "unsigned", at, &metrics))
                .count()
        };
        assert_eq!(
            (stored("acme", 100_000, 300), stored("acme", 159_999, 10)),
            (100, 0)
        );
        assert_eq!(
            stored("beta", 159_999, 10),
            10,
            "another tenant has its own limit"
        );
        assert_eq!(stored("acme", 160_000, 300), 100);
        assert_eq!(
            stored("acme", 0, 300),
            100,
            "a clock that was set back does not extend an interval"
        );
        assert_eq!(metrics.events_rejected.get(), 920);
    }
}
