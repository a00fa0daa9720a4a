//! Configuration of an HTTP upstream.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use orlog_model::EffectName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::probe::HttpProbeConfig;
use super::request::{RequestConfig, RequestLimits, RequestTemplate};
use super::rules::HttpResponseRule;
use super::{Http, HttpOperation};
use crate::config::{Error, UpstreamConfig, UpstreamSite, upstream_config};
use crate::egress::Egress;
use crate::http::{HttpAuthConfig, HttpClient, HttpClientOptions, TlsConfig};
use crate::operations::Operations;
use crate::policy::Policy;
use crate::response_rules::check_rules;
use crate::secret::SecretRef;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of an HTTP upstream.
    HttpConfig {
        /// Prefix of every URL, except for effects with their own `url`.
        pub base_url: Option<String>,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, HttpEffectConfig>,
        /// Authorization of requests.
        pub auth: Option<HttpAuthConfig>,
        /// Signature of requests, as for webhooks.
        pub signature: Option<SignatureConfig>,
        /// Certificates.
        pub tls: Option<TlsConfig>,
        /// Egress rules for addresses from a payload or a redirect.
        pub egress: Option<Egress>,
        /// Maximum number of redirects. Default: 0.
        pub redirects: Option<u8>,
        /// Maximum number of bytes that are read of a response. Default: 1048576.
        pub max_response_bytes: Option<NonZeroUsize>,
        /// Header of the idempotency key. Default: `idempotency-key`.
        pub idempotency_header: Option<String>,
    }
}

/// Signature of requests: Standard Webhooks, HMAC-SHA256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureConfig {
    /// Key: `whsec_` and base64, or any text.
    pub secret: SecretRef,
}

/// One effect of an HTTP upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpEffectConfig {
    /// HTTP method; any.
    #[serde(default = "method")]
    pub method: String,
    /// Path after the base URL; `{a.b}` is replaced by a field of the arguments.
    pub path: Option<String>,
    /// Complete URL, instead of the path.
    pub url: Option<String>,
    /// Additional headers besides those of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `true`: the arguments (default for POST, PUT and PATCH). `false`: no body. Anything else: a
    /// template, JSON or text.
    pub body: Option<Value>,
    /// Response rules; the first match decides.
    #[serde(default)]
    pub responses: Vec<HttpResponseRule>,
    /// Request that asks whether an attempt in doubt was executed.
    pub probe: Option<HttpProbeConfig>,
}

impl UpstreamConfig for HttpConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        if self.base_url.is_none() && self.effects.is_empty() {
            return Err(Error::upstream(site.name, "the configuration is empty; set base_url and effects"));
        }
        let limits = RequestLimits {
            has_base: self.base_url.is_some(),
            has_credentials: self.auth.is_some() || self.tls.as_ref().is_some_and(|tls| tls.cert.is_some()),
            lists_hosts: lists_hosts(self.egress.as_ref()),
        };
        let compile = |_: &EffectName, config: &HttpEffectConfig| config.operation(limits);
        let operations = Operations::new(site.name, "operation", &self.effects, compile)?;
        let options = self.client_options().map_err(|reason| Error::upstream(site.name, reason))?;
        let client = HttpClient::new(site.name, self.base_url.as_deref(), options)?;
        Ok(self.finish(Http::upstream(client, operations, self.policy(Policy::default()))))
    }
}

impl HttpConfig {
    fn client_options(&self) -> Result<HttpClientOptions, String> {
        let usual = HttpClientOptions::default();
        let tls = self.tls.clone().unwrap_or_default();
        tls.check()?;
        self.auth.as_ref().map_or(Ok(()), HttpAuthConfig::check)?;
        let key_header = match &self.idempotency_header {
            Some(header) => header.parse().map_err(|_| format!("{header:?} is not a valid header name"))?,
            None => usual.key_header,
        };
        Ok(HttpClientOptions {
            tls,
            egress: self.egress.clone().unwrap_or_default(),
            redirects: self.redirects.unwrap_or(usual.redirects),
            max_response: self.max_response_bytes.map_or(usual.max_response, NonZeroUsize::get),
            key_header,
            auth: self.auth.clone(),
            signing_keys: self.signature.iter().map(|signature| signature.secret.clone()).collect(),
        })
    }
}

impl HttpEffectConfig {
    pub(crate) fn operation(&self, limits: RequestLimits) -> Result<HttpOperation, String> {
        let request = RequestConfig {
            method: &self.method,
            path: self.path.as_deref(),
            url: self.url.as_deref(),
            headers: &self.headers,
            body: self.body.as_ref(),
        };
        let request = RequestTemplate::compile(&request, limits)?;
        check_rules(&self.responses)?;
        let probe = self.probe.as_ref().map(|probe| probe.compile(limits)).transpose()?;
        Ok(HttpOperation { request, responses: self.responses.clone(), probe: probe.map(Box::new) })
    }
}

pub(crate) fn lists_hosts(egress: Option<&Egress>) -> bool {
    egress.is_some_and(|egress| egress.allow.is_some())
}

fn method() -> String {
    "POST".to_owned()
}
