//! An HTTP upstream as the configuration describes it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use orlog_model::EffectName;
use reqwest::header::HeaderName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Kind, origin, upstream_config};
use crate::egress::Egress;
use crate::http::{
    Address, AuthConfig, Body, Http, Manner, Method, Operation, ResponseConfig, SignatureConfig, Speaker,
    Tls, is_bare_reference, is_reserved,
};
use crate::placeholders::{Json, Text};
use crate::policy::Policy;
use crate::upstream::Upstream;

upstream_config! {
    /// One HTTP upstream.
    HttpConfig {
        /// Begins every URL, but those of effects with a `url` of their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub base_url: Option<String>,
        /// What it performs, by the effect's name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, OperationConfig>,
        /// How requests are authorized.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub auth: Option<AuthConfig>,
        /// How requests are signed, as webhooks are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub signature: Option<SignatureConfig>,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<Tls>,
        /// Where requests may go whose address a payload or a redirect names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub egress: Option<Egress>,
        /// How many redirects are followed; none where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub redirects: Option<u8>,
        /// The most that is read of a response, in bytes; 1048576 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_response_bytes: Option<NonZeroUsize>,
        /// The header with the idempotency key; `idempotency-key` where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub idempotency_header: Option<String>,
    }
}

/// One effect of an HTTP upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationConfig {
    /// The method; any.
    #[serde(default = "method")]
    pub method: String,
    /// The path after the base URL; `{a.b}` stands for a field of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The whole URL, in place of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers besides those that every request has.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `true`: the arguments, as POST, PUT and PATCH do where it is absent. `false`: nothing. Anything else: a template, JSON
    /// or text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// What responses mean; the first that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<ResponseConfig>,
}

impl HttpConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When the URL, a path, a method, a header or a rule is wrong.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        if self.kind.is_some_and(|kind| kind != Kind::Http) {
            let reason = "upstreams in the configuration are HTTP; others have files of their own".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        if self.base_url.is_none() && self.effects.is_empty() {
            let reason = "nothing is said of it; write its base_url and its effects".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let operations = self
            .effects
            .iter()
            .map(|(effect, config)| Ok((effect.clone(), self.operation(name, effect, config)?)));
        let operations = operations.collect::<Result<BTreeMap<_, _>, Error>>()?;
        let speaker = Speaker::new(name, self.base_url.as_deref(), self.manner(name)?)?;
        let http = Http::new(speaker, operations);
        let policy = self.policy(Policy::default());
        let upstream = Upstream::effects(name, http.effects(), Arc::new(http), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).made_from(origin(self)))
    }

    fn manner(&self, name: &str) -> Result<Manner, Error> {
        let wrong = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let usual = Manner::default();
        let tls = self.tls.clone().unwrap_or_default();
        tls.check().map_err(wrong)?;
        self.auth.as_ref().map_or(Ok(()), AuthConfig::check).map_err(wrong)?;
        let key_header = match &self.idempotency_header {
            Some(header) => header.parse().map_err(|_| wrong(format!("{header:?} is no header name")))?,
            None => usual.key_header,
        };
        Ok(Manner {
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
        config: &OperationConfig,
    ) -> Result<Operation, Error> {
        let wrong =
            |reason| Error::Operation { upstream: upstream.to_owned(), effect: effect.clone(), reason };
        let method: Method = config
            .method
            .parse()
            .map_err(|_| wrong(format!("the method {:?} is none; write for example POST", config.method)))?;
        let address = self.address(config).map_err(|error| match error {
            Ok(source) => {
                Error::Path { upstream: upstream.to_owned(), place: format!("effect {effect}"), source }
            }
            Err(reason) => wrong(reason),
        })?;
        let headers = config.headers.iter().map(|(name, value)| header(name, value));
        let headers = headers.collect::<Result<Vec<_>, String>>().map_err(wrong)?;
        let body =
            body(config.body.as_ref(), &method).map_err(|reason| wrong(format!("the body: {reason}")))?;
        for (index, rule) in config.responses.iter().enumerate() {
            rule.check().map_err(|reason| wrong(format!("responses[{index}]: {reason}")))?;
        }
        Ok(Operation { method, address, headers, body, responses: config.responses.clone() })
    }

    fn address(
        &self,
        config: &OperationConfig,
    ) -> Result<Address, Result<crate::http::TemplateError, String>> {
        match (&config.path, &config.url) {
            (Some(_), None) if self.base_url.is_none() => {
                Err(Err("its path needs a base_url of the upstream".to_owned()))
            }
            (Some(path), None) => path.parse().map(Address::Path).map_err(Ok),
            (None, Some(url)) => self::url(url).map_err(Err),
            (Some(_), Some(_)) => Err(Err("it has a path and a url; keep one".to_owned())),
            (None, None) => Err(Err("it has neither path nor url".to_owned())),
        }
    }
}

/// The host is written out when the first `/` after it comes before the first placeholder.
fn url(text: &str) -> Result<Address, String> {
    let template = Text::parse(text).map_err(|reason| format!("the url: {reason}"))?;
    if template.has_secrets() {
        return Err("a secret cannot stand in a url; send it in a header".to_owned());
    }
    let begins = ["http://", "https://"].iter().find_map(|scheme| template.beginning().strip_prefix(scheme));
    if begins.is_none() && !template.beginning().is_empty() {
        return Err(format!("the url {text:?} begins with neither http://, https:// nor a placeholder"));
    }
    let written_out = begins.is_some_and(|rest| rest.contains(['/', '?']) || template.is_plain());
    Ok(Address::Url { text: template, dynamic: !written_out })
}

/// A value is not repeated in the message: it may be a secret.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, Text), String> {
    let parsed = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no header name"))?;
    if is_reserved(&parsed) {
        return Err(format!("the header {name:?} is set by Orlog itself"));
    }
    if is_bare_reference(value) {
        return Err(format!("the header {name:?} would send a reference; write {{env:…}} for the secret"));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("the value of {name:?} is no header value"));
    }
    Ok((parsed, Text::parse(value).map_err(|reason| format!("the header {name:?}: {reason}"))?))
}

fn body(config: Option<&Value>, method: &Method) -> Result<Body, String> {
    Ok(match config {
        None if [Method::POST, Method::PUT, Method::PATCH].contains(method) => Body::Arguments,
        None | Some(Value::Bool(false)) => Body::Nothing,
        Some(Value::Bool(true)) => Body::Arguments,
        Some(Value::String(text)) => {
            let text = Text::parse(text)?;
            if text.has_secrets() {
                return Err("a secret cannot stand in a body; send it in a header".to_owned());
            }
            Body::Text(text)
        }
        Some(json) => Body::Json(Json::parse(json)?),
    })
}

fn method() -> String {
    "POST".to_owned()
}
