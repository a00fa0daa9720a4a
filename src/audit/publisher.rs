//! Publishes the lines of the audit trail to a NATS subject: each line at least once, in order, with its hash as id.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use orlog_bus::Message;

use crate::app::App;

/// Delay until new lines are published.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);

impl App {
    /// Publishes the lines of the audit trail until the node stops, if a subject is configured.
    pub(crate) fn publish_audit_later(self: &Arc<Self>) {
        if !self.config.audit.nats_subject.is_empty() {
            self.publish_audit_after(INTERVAL);
        }
    }

    fn publish_audit_after(self: &Arc<Self>, delay: Duration) {
        let app = Arc::downgrade(self);
        self.background.spawn(delay, async move {
            let Some(app) = app.upgrade() else { return };
            let published = tokio::select! {
                biased;
                () = app.background.stopping() => return,
                published = app.publish_audit() => published,
            };
            let delay = match published {
                Ok(()) => INTERVAL,
                Err(error) => {
                    app.audit.publish_failures().inc();
                    tracing::warn!("audit records are not published: {error:#}; retrying in {RETRY_DELAY:?}");
                    RETRY_DELAY
                }
            };
            app.publish_audit_after(delay);
        });
    }

    /// Publishes all lines after the stored position.
    async fn publish_audit(self: &Arc<Self>) -> anyhow::Result<()> {
        loop {
            let app = Arc::clone(self);
            let batch = tokio::task::spawn_blocking(move || app.audit.unpublished()).await??;
            if batch.is_after_gap {
                tracing::error!("audit records were deleted before they were published");
            }
            if batch.lines.is_empty() {
                return Ok(());
            }
            let message = |line: Vec<u8>| Message {
                subject: self.config.audit.nats_subject.clone(),
                id: Some(crate::audit::line_id(&line)),
                headers: Vec::new(),
                payload: line.into(),
            };
            self.bus.publish(batch.lines.into_iter().map(message).collect()).await?;
            let (app, end) = (Arc::clone(self), batch.end);
            let stored = tokio::task::spawn_blocking(move || app.audit.set_published(end)).await?;
            stored.context("cannot store the position of the published records")?;
        }
    }
}
