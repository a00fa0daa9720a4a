//! Effects that notify a receiver: HTTP POST requests that are signed as Standard Webhooks
//! requires.
//!
//! A request has the headers `webhook-id` (the id of the work item, equal for all attempts),
//! `webhook-timestamp` (the time of the attempt) and `webhook-signature`: one HMAC-SHA256 of
//! `id.timestamp.body` for each secret, so that a receiver can replace its secret without a gap.
//! The client, the templates and the classification of responses are those of [`super::http`].

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::http::{Http, HttpEffectConfig, HttpResponseRule, RequestLimits, lists_hosts};
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
use crate::egress::Egress;
use crate::http::{HttpClient, HttpClientOptions, TlsConfig};
use crate::operations::Operations;
use crate::policy::Policy;
use crate::secret::SecretRef;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of webhooks.
    WebhookConfig {
        /// Keys of the signatures: `whsec_` and base64, or any text. At least one.
        #[serde(default)]
        pub secrets: Vec<SecretRef>,
        /// URL of the effects without their own; `{a.b}` is replaced by a field of the arguments.
        pub url: Option<String>,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, WebhookEffectConfig>,
        /// Certificates.
        pub tls: Option<TlsConfig>,
        /// Egress rules for addresses from a payload.
        pub egress: Option<Egress>,
        /// Maximum number of bytes that are read of a response. Default: 1048576.
        pub max_response_bytes: Option<NonZeroUsize>,
    }
}

/// One effect that notifies a receiver.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookEffectConfig {
    /// URL. Default: the URL of the upstream.
    pub url: Option<String>,
    /// Additional headers besides those of every request.
    pub headers: BTreeMap<String, String>,
    /// Body, a template as JSON or text. Default: the arguments.
    pub body: Option<Value>,
    /// Response rules; the first match decides.
    pub responses: Vec<HttpResponseRule>,
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

impl UpstreamConfig for WebhookConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let invalid = |reason: &str| Error::upstream(site.name, reason);
        if self.secrets.is_empty() {
            return Err(invalid(
                "secrets are missing; example: secrets = [\"env:WEBHOOK_SECRET\"]",
            ));
        }
        if self.effects.is_empty() {
            return Err(invalid(
                "effects are missing; example: [effects.\"shop.notify\"]",
            ));
        }

        let tls = self.tls.clone().unwrap_or_default();
        tls.check().map_err(|reason| invalid(&reason))?;
        let limits = RequestLimits {
            has_base: false,
            has_credentials: tls.cert.is_some(),
            lists_hosts: lists_hosts(self.egress.as_ref()),
        };

        let compile = |_: &EffectName, config: &WebhookEffectConfig| {
            let url = config.url.as_ref().or(self.url.as_ref());
            let url = url.ok_or("the url is missing; set it for the effect or the upstream")?;
            config.request(url).operation(limits)
        };
        let operations = Operations::new(site.name, "webhook", &self.effects, compile)?;

        let usual = HttpClientOptions::default();
        let options = HttpClientOptions {
            tls,
            egress: self.egress.clone().unwrap_or_default(),
            max_response: self
                .max_response_bytes
                .map_or(usual.max_response, NonZeroUsize::get),
            signing_keys: self.secrets.clone(),
            ..usual
        };

        let client = HttpClient::new(site.name, None, options)?;
        let upstream = self.finish(Http::upstream(
            client,
            operations,
            self.policy(Policy::default()),
        ));

        narrow(
            upstream,
            self.effects
                .iter()
                .map(|(effect, config)| (effect, &config.contexts)),
        )
    }
}

impl WebhookEffectConfig {
    fn request(&self, url: &str) -> HttpEffectConfig {
        HttpEffectConfig {
            method: "POST".to_owned(),
            path: None,
            url: Some(url.to_owned()),
            headers: self.headers.clone(),
            body: self.body.clone(),
            responses: self.responses.clone(),
            probe: None,
            contexts: None,
        }
    }
}
