//! Configuration of an HTTP upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::probe::HttpProbeConfig;
use super::request::{RequestConfig, RequestLimits, RequestTemplate};
use super::rules::HttpResponseRule;
use super::{Http, HttpOperation};
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
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
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

impl UpstreamConfig for HttpConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        if self.base_url.is_none() && self.effects.is_empty() {
            return Err(Error::upstream(
                site.name,
                "the configuration is empty; set base_url and effects",
            ));
        }

        let limits = RequestLimits {
            has_base: self.base_url.is_some(),
            // A client certificate is a credential too.
            has_credentials: self.auth.is_some()
                || self.tls.as_ref().is_some_and(|tls| tls.cert.is_some()),
            lists_hosts: lists_hosts(self.egress.as_ref()),
        };

        let compile = |_: &EffectName, config: &HttpEffectConfig| config.operation(limits);
        let operations = Operations::new(site.name, "operation", &self.effects, compile)?;

        let options = self
            .client_options()
            .map_err(|reason| Error::upstream(site.name, reason))?;
        let client = HttpClient::new(site.name, self.base_url.as_deref(), options)?;

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

impl HttpConfig {
    fn client_options(&self) -> Result<HttpClientOptions, String> {
        let usual = HttpClientOptions::default();
        let tls = self.tls.clone().unwrap_or_default();
        tls.check()?;
        self.auth.as_ref().map_or(Ok(()), HttpAuthConfig::check)?;

        let key_header = match &self.idempotency_header {
            Some(header) => header
                .parse()
                .map_err(|_| format!("{header:?} is not a valid header name"))?,
            None => usual.key_header,
        };

        Ok(HttpClientOptions {
            tls,
            egress: self.egress.clone().unwrap_or_default(),
            redirects: self.redirects.unwrap_or(usual.redirects),
            max_response: self
                .max_response_bytes
                .map_or(usual.max_response, NonZeroUsize::get),
            key_header,
            auth: self.auth.clone(),
            signing_keys: self
                .signature
                .iter()
                .map(|signature| signature.secret.clone())
                .collect(),
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
        let probe = self
            .probe
            .as_ref()
            .map(|probe| probe.compile(limits))
            .transpose()?;

        Ok(HttpOperation {
            request,
            responses: self.responses.clone(),
            probe: probe.map(Box::new),
        })
    }
}

pub(crate) fn lists_hosts(egress: Option<&Egress>) -> bool {
    egress.is_some_and(|egress| egress.allow.is_some())
}

fn method() -> String {
    "POST".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(config: &str) -> Result<Upstream, String> {
        let config: HttpConfig = toml::from_str(config).unwrap();
        config
            .upstream(UpstreamSite::new("bank"))
            .map_err(|error| error.to_string())
    }

    /// Requirements: F2.
    #[test]
    fn contexts_of_an_effect_narrow_those_of_the_upstream() {
        let config = |of_upstream: &str, of_refund: &str| {
            upstream(&format!(
                "base_url = 'http://127.0.0.1:1'\n{of_upstream}\n[effects.'bank.charge']\npath = '/c'\n\
                 [effects.'bank.refund']\npath = '/r'\n{of_refund}\n"
            ))
        };
        let permitted = |upstream: &Upstream, effect: &str| {
            let contexts = ["acme", "beta", "gamma"].map(|name| TenantId::new(name).unwrap());
            contexts.map(|context| upstream.permits(&context, effect))
        };
        let two = "contexts = ['acme', 'beta']";
        let narrowed = config(two, "contexts = ['acme']").unwrap();
        assert_eq!(permitted(&narrowed, "bank.charge"), [true, true, false]);
        assert_eq!(permitted(&narrowed, "bank.refund"), [true, false, false]);
        let closed = config("contexts = ['*']", "contexts = []").unwrap();
        assert_eq!(permitted(&closed, "bank.refund"), [false; 3]);
        let all = config(two, "contexts = ['*']").unwrap();
        assert_eq!(
            permitted(&all, "bank.refund"),
            [true, true, false],
            "it extends nothing"
        );
        let of_tenant = config("tenants = ['acme']", "contexts = ['acme']").unwrap();
        assert_eq!(permitted(&of_tenant, "bank.refund"), [true, false, false]);
        assert!(
            !narrowed.has_same_config(&config(two, "").unwrap()),
            "a reload applies the change"
        );
        let error = config(two, "contexts = ['gamma']").err().unwrap();
        assert!(
            error.contains("effect bank.refund: contexts lists gamma"),
            "{error}"
        );
        assert!(
            error.contains("add it to contexts of the upstream"),
            "{error}"
        );
    }
}
