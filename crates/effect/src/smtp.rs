//! Effects that are emails.
//!
//! One provider sends emails to one server. An email depends only on its templates and the arguments:
//! its `Message-ID` is derived from the id of the work item, and its date from the transition. All
//! attempts therefore send the same bytes, and receivers can detect duplicates. SMTP has no request for
//! the state of an email.

mod attachment;
mod connection;
mod markdown;
mod message;
mod reply;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, Work, WorkItem};

pub(crate) use attachment::AttachmentStore;
pub use connection::TlsMode;
pub(crate) use connection::{SmtpConnectionPool, SmtpEndpoint};
pub(crate) use message::{EmailFields, EmailTemplate, mailbox};

use crate::http;
use crate::placeholders::PlaceholderScope;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use lettre::message::Mailbox;

/// Provider of the effects of one SMTP server.
pub struct SmtpProvider {
    pub(crate) upstream: String,
    pub(crate) post: SmtpConnectionPool,
    pub(crate) cabinet: AttachmentStore,
    pub(crate) from: Mailbox,
    /// Domain of every `Message-ID`.
    pub(crate) domain: String,
    /// Maximum size of an email, in bytes.
    pub(crate) max_size: usize,
    /// Minimum delay after a server defers an email without a time.
    pub(crate) delay: Duration,
    pub(crate) forms: BTreeMap<EffectName, EmailTemplate>,
}

impl SmtpProvider {
    /// Returns the effects in order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.forms.keys().cloned().collect()
    }
}

#[async_trait]
impl Provider for SmtpProvider {
    async fn execute(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        let Work::Effect(effect) = &item.work else {
            return Err(ProviderError::permanent(
                "not_an_effect",
                format!("{} is not an effect", item.work.label()),
            ));
        };
        let Some(form) = self.forms.get(&effect.name) else {
            let message = format!("{} has no email for {}", self.upstream, effect.name);
            return Err(ProviderError::permanent("effect_unknown", message));
        };
        let unfit = |reason: String| {
            ProviderError::permanent("invalid_payload", format!("invalid email of {}: {reason}", effect.name))
        };
        let email = form.fill(PlaceholderScope { item, payload: &effect.payload });
        let email = email.map_err(|reason| reason.into_provider_error("the mail", &effect.name))?;
        let enclosed = self.cabinet.fetch(&item.instance.tenant, &email.attachments).await?;
        let mail = email.build(&self.from, &self.domain, item, enclosed).map_err(unfit)?;
        if mail.bytes.len() > self.max_size {
            return Err(unfit(format!("it has {} bytes, the limit is {}", mail.bytes.len(), self.max_size)));
        }
        let mut scrub = SecretScrubber::default();
        let sent = self.post.send(&mail, &mut scrub).await;
        let result = reply::classify_reply(&self.upstream, &mail.id, sent, self.delay);
        let result = result.map(|reply| Reply { payload: scrub.scrub_json(reply.payload), ..reply });
        result.map_err(|error| http::scrub_error(error, &scrub))
    }
}
