//! Effects that are emails.
//!
//! One provider sends emails to one server. An email depends only on its templates and the
//! arguments: its `Message-ID` is derived from the id of the work item, and its date from the
//! transition. All attempts therefore send the same bytes, and receivers can detect duplicates.
//! SMTP has no request for the state of an email; many servers have an HTTP API that finds it by
//! its `Message-ID`, for probes.

mod address;
mod attachment;
mod config;
mod connection;
mod helo;
mod html;
mod markdown;
mod message;
mod plain_text;
mod probe;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, WorkItem};

pub use config::{AttachmentsConfig, EmailEffectConfig, SmtpConfig};
pub use connection::TlsMode;
pub use probe::SmtpProbeConfig;

use crate::http;
use crate::operations::Operations;
use crate::provider::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use crate::template::PlaceholderScope;
use attachment::AttachmentStore;
use connection::SmtpConnectionPool;
use message::{EmailFields, EmailOrigin, EmailSender};
use probe::SmtpProbe;

struct SmtpProvider {
    connections: SmtpConnectionPool,
    attachments: AttachmentStore,
    sender: Arc<EmailSender>,
    max_size: usize,
    /// Minimum delay after a server defers an email without a time.
    delay: Duration,
    templates: Operations<EmailFields>,
    probe: Option<SmtpProbe>,
}

#[async_trait]
impl Provider for SmtpProvider {
    async fn execute(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        let (effect, template) = self.templates.find(item)?;
        let invalid = |reason: String| {
            ProviderError::permanent(
                "invalid_payload",
                format!("invalid email of {}: {reason}", effect.name),
            )
        };

        let email = template.fill(PlaceholderScope {
            item,
            payload: &effect.payload,
        });
        let email = email.map_err(|reason| reason.into_provider_error("the mail", &effect.name))?;

        let attachments = self
            .attachments
            .fetch(&item.instance.tenant, &email.attachments)
            .await?;

        // Sanitizing and encoding take time in proportion to the size of the email.
        let sender = Arc::clone(&self.sender);
        let origin = EmailOrigin {
            id: item.id,
            created_at: item.created_at,
        };
        let building =
            tokio::task::spawn_blocking(move || email.build(&sender, origin, attachments));
        let mail = building
            .await
            .map_err(|error| ProviderError::throttled("mail", error.to_string()))?
            .map_err(invalid)?;

        // Here, because only the encoded email has its final size.
        if mail.bytes.len() > self.max_size {
            return Err(invalid(format!(
                "it has {} bytes, the limit is {}",
                mail.bytes.len(),
                self.max_size
            )));
        }

        let mut scrub = SecretScrubber::default();
        let sent = self.connections.send(&mail, &mut scrub).await;
        let result = reply::classify_reply(&self.templates.upstream, &mail.id, sent, self.delay);
        let result = result.map(|reply| Reply {
            payload: scrub.scrub_json(reply.payload),
            ..reply
        });

        result.map_err(|error| http::scrub_error(error, &scrub))
    }

    fn can_probe(&self, _effect: &EffectName) -> bool {
        self.probe.is_some()
    }

    async fn probe(&self, item: &WorkItem, probe: Probe) -> ProbeResult {
        match &self.probe {
            Some(api) => api.send(&self.templates.upstream, item, probe).await,
            None => ProbeResult::Unknown,
        }
    }
}
