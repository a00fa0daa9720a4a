//! Publishes the lines of the audit trail to a NATS subject: each line at least once, in order,
//! with its hash as id.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use orlog_bus::{Bus, Message, RetryLog};
use parking_lot::Mutex;

use super::AuditTrail;
use crate::background::BackgroundTasks;

/// Delay until new lines are published.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Publisher of the lines of the audit trail.
pub(crate) struct AuditPublisher {
    pub(crate) audit: Arc<AuditTrail>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) subject: String,
    /// Failed publications.
    pub(crate) retries: Mutex<RetryLog>,
}

impl AuditPublisher {
    /// Publishes the lines until the node stops, if a subject is configured.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        if self.subject.is_empty() {
            return;
        }

        background.repeat("audit publisher", self, INTERVAL, |publisher| async move {
            let published = publisher.publish().await;
            publisher.note(published)
        });
    }

    /// Notes the result of a publication; returns the delay until the next one.
    fn note(&self, published: anyhow::Result<()>) -> Duration {
        let mut retries = self.retries.lock();
        let Err(error) = published else {
            retries.succeeded(|failures| {
                tracing::info!(failures, "audit records are published again");
            });
            return INTERVAL;
        };

        self.audit.publish_failures().inc();
        retries.failed(|failures| {
            tracing::warn!(
                failures,
                "audit records are not published: {error:#}; retrying in {RETRY_DELAY:?}"
            );
        });
        RETRY_DELAY
    }

    /// Publishes all lines after the stored position.
    async fn publish(&self) -> anyhow::Result<()> {
        loop {
            let audit = Arc::clone(&self.audit);
            let batch = tokio::task::spawn_blocking(move || audit.unpublished()).await??;
            // Retention deletes files by their age only: it does not wait for a bus that is
            // unavailable.
            if batch.is_after_gap {
                tracing::error!("audit records were deleted before they were published");
            }

            if batch.lines.is_empty() {
                return Ok(());
            }

            self.bus
                .publish(
                    batch
                        .lines
                        .into_iter()
                        .map(|line| {
                            Arc::new(Message {
                                subject: self.subject.clone(),
                                id: Some(super::line_id(&line)),
                                headers: Vec::new(),
                                payload: line.into(),
                            })
                        })
                        .collect(),
                )
                .await?;

            // After the publication: a crash in between publishes the lines again, under the same
            // ids.
            let audit = Arc::clone(&self.audit);
            let end = batch.end;
            let stored = tokio::task::spawn_blocking(move || audit.set_published(end)).await?;
            stored.context("cannot store the position of the published records")?;
        }
    }
}
