//! Effects that are mails.
//!
//! One provider hands mails to one server. A mail is made from templates or from the arguments as they are, and from nothing
//! else: its `Message-ID` comes from the work item's id and its date from the transition, so all attempts hand over the same
//! bytes, and whoever receives two of them can tell. SMTP has no way to ask what became of a mail.

mod attachment;
mod connection;
mod markdown;
mod message;
mod reply;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EffectName, Work, WorkItem};

pub(crate) use attachment::Cabinet;
pub use connection::TlsMode;
pub(crate) use connection::{Place, Post};
pub(crate) use message::{Form, Templates, mailbox};

use crate::http;
use crate::placeholders::Scope;
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::secret::Scrub;
use lettre::message::Mailbox;

/// The effects of one mail server.
pub struct Smtp {
    pub(crate) upstream: String,
    pub(crate) post: Post,
    pub(crate) cabinet: Cabinet,
    pub(crate) from: Mailbox,
    /// The right side of every `Message-ID`.
    pub(crate) domain: String,
    /// The longest mail, in bytes.
    pub(crate) most: usize,
    /// The least pause after a server that puts mails off says no time itself.
    pub(crate) pause: Duration,
    pub(crate) forms: BTreeMap<EffectName, Form>,
}

impl Smtp {
    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.forms.keys().cloned().collect()
    }
}

#[async_trait]
impl Provider for Smtp {
    async fn perform(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let Some(form) = self.forms.get(&effect.name) else {
            let message = format!("{} has no mail for {}", self.upstream, effect.name);
            return Err(Refusal::failed("effect_unknown", message));
        };
        let unfit =
            |why: String| Refusal::failed("bad_payload", format!("the mail of {}: {why}", effect.name));
        let letter = form.fill(Scope { item, payload: &effect.payload });
        let letter = letter.map_err(|why| why.refusal("the mail", &effect.name))?;
        let enclosed = self.cabinet.fetch(&item.instance.tenant, &letter.attachments).await?;
        let mail = letter.mail(&self.from, &self.domain, item, enclosed).map_err(unfit)?;
        if mail.bytes.len() > self.most {
            return Err(unfit(format!("it has {} bytes, more than {}", mail.bytes.len(), self.most)));
        }
        let mut scrub = Scrub::default();
        let sent = self.post.send(&mail, &mut scrub).await;
        let judged = reply::judge(&self.upstream, &mail.id, sent, self.pause);
        let judged = judged.map(|reply| Reply { payload: scrub.value(reply.payload), ..reply });
        judged.map_err(|refusal| http::scrubbed(refusal, &scrub))
    }
}
