//! Recent failed attempts by instance, stored in memory.
//!
//! Limits: the most recent affected instances, and the most recent attempts of each. A successful
//! attempt is stored only after a failed one, so an instance without failures costs one lookup.

use std::collections::{HashMap, VecDeque};

use orlog_effect::{AttemptReport, EffectObserver};
use orlog_model::{AttemptOutcome, AttemptRecord, InstanceKey};
use parking_lot::Mutex;
use uuid::Uuid;

/// Maximum number of instances with stored attempts.
const MAX_INSTANCES: usize = 10_000;
/// Maximum number of stored attempts per instance.
const MAX_PER_INSTANCE: usize = 50;

/// Stored attempt.
#[derive(Clone, Debug)]
pub struct FailedAttemptRecord {
    /// Id of the work item.
    pub work: Uuid,
    /// Display label of the work item.
    pub label: String,
    /// Upstream of the attempt.
    pub upstream: String,
    /// How the attempt ended.
    pub attempt: AttemptRecord,
}

/// Recent attempts of instances with failures.
#[derive(Default)]
pub struct RecentAttempts {
    buffer: Mutex<AttemptBuffer>,
}

#[derive(Default)]
struct AttemptBuffer {
    of: HashMap<InstanceKey, VecDeque<FailedAttemptRecord>>,
    /// Instances by time of their first failure, oldest first.
    order: VecDeque<InstanceKey>,
}

impl RecentAttempts {
    /// Returns the recent attempts of an instance with failures, oldest first.
    #[must_use]
    pub fn for_instance(&self, key: &InstanceKey) -> Vec<FailedAttemptRecord> {
        let buffer = self.buffer.lock();
        buffer
            .of
            .get(key)
            .map(|failed| failed.iter().cloned().collect())
            .unwrap_or_default()
    }
}

impl AttemptBuffer {
    fn note(
        &mut self,
        key: &InstanceKey,
        succeeded: bool,
        record: impl FnOnce() -> FailedAttemptRecord,
    ) {
        if let Some(before) = self.of.get_mut(key) {
            if before.len() == MAX_PER_INSTANCE {
                before.pop_front();
            }
            before.push_back(record());

        // Only instances with failures are kept: on a healthy node, an attempt costs one look-up.
        } else if !succeeded {
            if self.order.len() == MAX_INSTANCES
                && let Some(oldest) = self.order.pop_front()
            {
                self.of.remove(&oldest);
            }
            self.order.push_back(key.clone());
            self.of.insert(key.clone(), VecDeque::from([record()]));
        }
    }
}

impl EffectObserver for RecentAttempts {
    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        let succeeded = attempted.outcome == AttemptOutcome::Succeeded;
        let mut buffer = self.buffer.lock();
        buffer.note(&attempted.item.instance, succeeded, || {
            FailedAttemptRecord {
                work: attempted.item.id,
                label: attempted.item.work.label().into(),
                upstream: attempted.upstream.to_owned(),
                attempt: attempted.record(),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId, Timestamp};

    use super::*;

    fn key(number: usize) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
        }
    }

    fn failed_attempt(millis: i64) -> FailedAttemptRecord {
        FailedAttemptRecord {
            work: Uuid::nil(),
            label: "payments.charge".to_owned(),
            upstream: "payments".to_owned(),
            attempt: AttemptRecord {
                number: 1,
                at: Timestamp::from_millis(millis),
                duration_ms: 0,
                outcome: AttemptOutcome::Unavailable,
                code: "unreachable".to_owned(),
                message: "connection refused".to_owned(),
                response: None,
            },
        }
    }

    #[test]
    fn recent_failed_attempts_are_bounded() {
        let mut buffer = AttemptBuffer::default();
        buffer.note(&key(0), true, || failed_attempt(0));
        assert!(buffer.of.is_empty(), "what goes well at once is not kept");
        for n in 0..60 {
            buffer.note(&key(1), n == 59, || failed_attempt(n));
        }
        let of_one = &buffer.of[&key(1)];
        assert_eq!(
            (
                of_one.len(),
                of_one[0].attempt.at.as_millis(),
                of_one[49].attempt.at.as_millis()
            ),
            (50, 10, 59)
        );
        for number in 2..MAX_INSTANCES + 2 {
            buffer.note(&key(number), false, || failed_attempt(1));
        }
        assert_eq!(
            (buffer.of.len(), buffer.order.len()),
            (MAX_INSTANCES, MAX_INSTANCES)
        );
        assert!(!buffer.of.contains_key(&key(1)));
    }
}
