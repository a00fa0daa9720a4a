//! Configuration of an HTTP upstream.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use orlog_model::EffectName;
use reqwest::header::HeaderName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, UpstreamKind, origin, upstream_config};
use crate::egress::Egress;
use crate::http::{
    BodyTemplate, Http, HttpAuthConfig, HttpClient, HttpClientOptions, HttpOperation, HttpResponseRule,
    Method, SignatureConfig, TlsConfig, UrlTemplate, is_bare_reference, is_reserved,
};
use crate::placeholders::{JsonTemplate, TextTemplate};
use crate::policy::Policy;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of an HTTP upstream.
    HttpConfig {
        /// Prefix of every URL, except for effects with their own `url`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub base_url: Option<String>,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, HttpEffectConfig>,
        /// Authorization of requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub auth: Option<HttpAuthConfig>,
        /// Signature of requests, as for webhooks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub signature: Option<SignatureConfig>,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<TlsConfig>,
        /// Egress rules for addresses from a payload or a redirect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub egress: Option<Egress>,
        /// Maximum number of redirects. Default: 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub redirects: Option<u8>,
        /// Maximum number of bytes that are read of a response. Default: 1048576.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_response_bytes: Option<NonZeroUsize>,
        /// Header of the idempotency key. Default: `idempotency-key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub idempotency_header: Option<String>,
    }
}

/// One effect of an HTTP upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpEffectConfig {
    /// HTTP method; any.
    #[serde(default = "method")]
    pub method: String,
    /// Path after the base URL; `{a.b}` is replaced by a field of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Complete URL, instead of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Additional headers besides those of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `true`: the arguments (default for POST, PUT and PATCH). `false`: no body. Anything else: a
    /// template, JSON or text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Response rules; the first match decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<HttpResponseRule>,
}

impl HttpConfig {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If the URL, a path, a method, a header or a rule is invalid.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        if self.kind.is_some_and(|kind| kind != UpstreamKind::Http) {
            let reason = "upstreams in the main configuration must be HTTP; define others in separate files"
                .to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        if self.base_url.is_none() && self.effects.is_empty() {
            let reason = "the configuration is empty; set base_url and effects".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let operations = self
            .effects
            .iter()
            .map(|(effect, config)| Ok((effect.clone(), self.operation(name, effect, config)?)));
        let operations = operations.collect::<Result<BTreeMap<_, _>, Error>>()?;
        let speaker = HttpClient::new(name, self.base_url.as_deref(), self.client_options(name)?)?;
        let http = Http::new(speaker, operations);
        let policy = self.policy(Policy::default());
        let upstream = Upstream::effects(name, http.effects(), Arc::new(http), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).with_origin(origin(self)))
    }

    fn client_options(&self, name: &str) -> Result<HttpClientOptions, Error> {
        let invalid = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let usual = HttpClientOptions::default();
        let tls = self.tls.clone().unwrap_or_default();
        tls.check().map_err(invalid)?;
        self.auth.as_ref().map_or(Ok(()), HttpAuthConfig::check).map_err(invalid)?;
        let key_header = match &self.idempotency_header {
            Some(header) => {
                header.parse().map_err(|_| invalid(format!("{header:?} is not a valid header name")))?
            }
            None => usual.key_header,
        };
        Ok(HttpClientOptions {
            tls,
            egress: self.egress.clone().unwrap_or_default(),
            redirects: self.redirects.unwrap_or(usual.redirects),
            max_response: self.max_response_bytes.map_or(usual.max_response, NonZeroUsize::get),
            key_header,
            auth: self.auth.clone(),
            signature: self.signature.clone(),
        })
    }

    fn operation(
        &self,
        upstream: &str,
        effect: &EffectName,
        config: &HttpEffectConfig,
    ) -> Result<HttpOperation, Error> {
        let invalid =
            |reason| Error::Operation { upstream: upstream.to_owned(), effect: effect.clone(), reason };
        let method: Method = config
            .method
            .parse()
            .map_err(|_| invalid(format!("invalid method {:?}; example: POST", config.method)))?;
        let address = self.address(config).map_err(|error| match error {
            Ok(source) => {
                Error::Path { upstream: upstream.to_owned(), place: format!("effect {effect}"), source }
            }
            Err(reason) => invalid(reason),
        })?;
        let headers = config.headers.iter().map(|(name, value)| header(name, value));
        let headers = headers.collect::<Result<Vec<_>, String>>().map_err(invalid)?;
        if address.is_dynamic() && !self.lists_hosts() && self.has_credentials(&headers) {
            return Err(invalid(
                "the payload determines the host of the url, and the request has credentials (auth, tls.cert or a \
                 secret in a header); list the hosts that may receive them in egress.allow"
                    .to_owned(),
            ));
        }
        let body = body(config.body.as_ref(), &method)
            .map_err(|reason| invalid(format!("invalid body: {reason}")))?;
        for (index, rule) in config.responses.iter().enumerate() {
            rule.check().map_err(|reason| invalid(format!("responses[{index}]: {reason}")))?;
        }
        Ok(HttpOperation { method, address, headers, body, responses: config.responses.clone() })
    }

    /// Returns whether the configuration names the hosts that a payload may choose. Hosts of single tenants do
    /// not suffice: without `allow`, other tenants may choose any host.
    fn lists_hosts(&self) -> bool {
        self.egress.as_ref().is_some_and(|egress| egress.allow.is_some())
    }

    fn has_credentials(&self, headers: &[(HeaderName, TextTemplate)]) -> bool {
        self.auth.is_some()
            || self.tls.as_ref().is_some_and(|tls| tls.cert.is_some())
            || headers.iter().any(|(_, value)| value.has_secrets())
    }

    fn address(
        &self,
        config: &HttpEffectConfig,
    ) -> Result<UrlTemplate, Result<crate::http::TemplateError, String>> {
        match (&config.path, &config.url) {
            (Some(_), None) if self.base_url.is_none() => {
                Err(Err("a path requires a base_url of the upstream".to_owned()))
            }
            (Some(path), None) => path.parse().map(UrlTemplate::Path).map_err(Ok),
            (None, Some(url)) => UrlTemplate::parse_url(url).map_err(Err),
            (Some(_), Some(_)) => Err(Err("path and url are mutually exclusive; remove one".to_owned())),
            (None, None) => Err(Err("path or url is required".to_owned())),
        }
    }
}

/// Parses a header. Errors never contain the value: it may be a secret.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, TextTemplate), String> {
    let parsed = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a valid header name"))?;
    if is_reserved(&parsed) {
        return Err(format!("the header {name:?} is reserved for Orlog"));
    }
    if is_bare_reference(value) {
        return Err(format!(
            "the header {name:?} would send the reference itself; use {{env:…}} for the secret"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("the value of {name:?} is not a valid header value"));
    }
    Ok((parsed, TextTemplate::parse(value).map_err(|reason| format!("invalid header {name:?}: {reason}"))?))
}

fn body(config: Option<&Value>, method: &Method) -> Result<BodyTemplate, String> {
    Ok(match config {
        None if [Method::POST, Method::PUT, Method::PATCH].contains(method) => BodyTemplate::Arguments,
        None | Some(Value::Bool(false)) => BodyTemplate::Nothing,
        Some(Value::Bool(true)) => BodyTemplate::Arguments,
        Some(Value::String(text)) => {
            let text = TextTemplate::parse(text)?;
            if text.has_secrets() {
                return Err("a secret is not allowed in a body; send it in a header".to_owned());
            }
            BodyTemplate::Text(text)
        }
        Some(json) => BodyTemplate::Json(JsonTemplate::parse(json)?),
    })
}

fn method() -> String {
    "POST".to_owned()
}
