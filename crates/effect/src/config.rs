//! Upstreams as the configuration file describes them.
//!
//! ```toml
//! [upstreams.payments]
//! base_url = "http://127.0.0.1:8081"
//! [upstreams.payments.effects."payments.charge"]
//! path = "/charges"
//! [gateway]
//! base_url = "http://127.0.0.1:8080"
//! ```
//!
//! Every key but the URLs and the paths has a default; an unknown key is refused.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::breaker;
use crate::gateway::{DEFAULT_PATH, Gateway};
use crate::http::{self, Http, Method, Operation, TemplateError};
use crate::policy::Policy;
use crate::upstream::Upstream;

/// A description that makes no upstream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The upstream cannot be spoken to.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// A path cannot be read.
    #[error("upstream {upstream}, {place}: {source}")]
    Path {
        /// Whose.
        upstream: String,
        /// Which effect, or `path`.
        place: String,
        /// What is wrong.
        source: TemplateError,
    },
    /// A method or a header is wrong.
    #[error("upstream {upstream}, effect {effect}: {reason}")]
    Operation {
        /// Whose.
        upstream: String,
        /// Which effect.
        effect: EffectName,
        /// What is wrong.
        reason: String,
    },
}

/// All upstreams, as `[upstreams.<name>]` and `[gateway]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EffectsConfig {
    /// By name.
    pub upstreams: BTreeMap<String, HttpConfig>,
    /// Where commands go; without it, commands have nowhere to go.
    pub gateway: Option<GatewayConfig>,
}

/// One HTTP upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Begins every URL.
    pub base_url: String,
    /// Attempts at once.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroU32,
    /// Attempts in all for one item; as many as the deadline allows where absent.
    #[serde(default)]
    pub attempts: Option<NonZeroU32>,
    /// The time one attempt may take.
    #[serde(default = "attempt_timeout", with = "crate::duration")]
    pub attempt_timeout: Duration,
    /// The time all attempts may take together.
    #[serde(default = "deadline", with = "crate::duration")]
    pub deadline: Duration,
    /// The pauses between attempts.
    #[serde(default)]
    pub backoff: BackoffConfig,
    /// When to stop asking.
    #[serde(default)]
    pub breaker: BreakerConfig,
    /// What it performs, by the effect's name.
    #[serde(default)]
    pub effects: BTreeMap<EffectName, OperationConfig>,
}

/// One effect of an HTTP upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationConfig {
    /// The method.
    #[serde(default = "method")]
    pub method: String,
    /// The path after the base URL; `{a.b}` stands for a field of the arguments.
    pub path: String,
    /// Headers besides those that every request has.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether the arguments are sent as the body; with POST, PUT and PATCH where absent.
    #[serde(default)]
    pub body: Option<bool>,
}

/// Where commands go.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Begins every URL.
    pub base_url: String,
    /// May hold `{aggregate_type}`, `{aggregate_id}` and `{name}`.
    #[serde(default = "gateway_path")]
    pub path: String,
    /// Attempts at once.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroU32,
    /// Attempts in all for one command; until it is accepted or refused where absent.
    #[serde(default)]
    pub attempts: Option<NonZeroU32>,
    /// The time one attempt may take.
    #[serde(default = "attempt_timeout", with = "crate::duration")]
    pub attempt_timeout: Duration,
    /// The time all attempts may take together; any where absent.
    #[serde(default, with = "crate::duration::option")]
    pub deadline: Option<Duration>,
    /// The pauses between attempts.
    #[serde(default)]
    pub backoff: BackoffConfig,
    /// When to stop asking.
    #[serde(default)]
    pub breaker: BreakerConfig,
}

/// The pauses between attempts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffConfig {
    /// The shortest.
    #[serde(with = "crate::duration")]
    pub first: Duration,
    /// The longest.
    #[serde(with = "crate::duration")]
    pub max: Duration,
    /// A pause is at most this many times the one before it.
    pub multiplier: NonZeroU32,
}

/// When to stop asking, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Opens after this many failures in a row.
    pub failures: NonZeroU32,
    /// Opens also at this share of failures.
    pub rate: Option<RateConfig>,
    /// How long it refuses before it tries one.
    #[serde(with = "crate::duration")]
    pub open_for: Duration,
}

/// A share of the latest answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Failures in a hundred.
    pub percent: u8,
    /// How many of the latest answers are looked at.
    pub window: NonZeroU32,
}

impl EffectsConfig {
    /// The upstreams it describes.
    ///
    /// # Errors
    /// When one of them cannot be made; the text names it and the place.
    pub fn upstreams(&self) -> Result<Vec<Upstream>, Error> {
        let named = self.upstreams.iter().map(|(name, config)| config.upstream(name));
        named.chain(self.gateway.iter().map(GatewayConfig::upstream)).collect()
    }
}

impl HttpConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When the URL, a path, a method or a header is wrong.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        let operations =
            self.effects.iter().map(|(effect, config)| Ok((effect.clone(), config.build(name, effect)?)));
        let http = Http::new(name, &self.base_url, operations.collect::<Result<_, Error>>()?)?;
        let policy = Policy {
            attempts: self.attempts.map(NonZeroU32::get),
            attempt_timeout: self.attempt_timeout,
            deadline: Some(self.deadline),
            backoff: self.backoff.into(),
            concurrency: self.concurrency.get() as usize,
            breaker: Some(self.breaker.into()),
        };
        Ok(Upstream::effects(name, http.effects(), Arc::new(http), policy))
    }
}

impl OperationConfig {
    fn build(&self, upstream: &str, effect: &EffectName) -> Result<Operation, Error> {
        let wrong =
            |reason| Error::Operation { upstream: upstream.to_owned(), effect: effect.clone(), reason };
        let path = self.path.parse().map_err(|source| Error::Path {
            upstream: upstream.to_owned(),
            place: format!("effect {effect}"),
            source,
        })?;
        let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = methods.into_iter().find(|known| known.as_str() == self.method).ok_or_else(|| {
            wrong(format!("the method {:?} is none of GET, HEAD, POST, PUT, PATCH, DELETE", self.method))
        })?;
        let headers = self.headers.iter().map(|(name, value)| header(name, value));
        let headers = headers.collect::<Result<HeaderMap, String>>().map_err(wrong)?;
        Ok(Operation { headers, body: self.body, ..Operation::new(method, path) })
    }
}

impl GatewayConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When the URL or the path is wrong.
    pub fn upstream(&self) -> Result<Upstream, Error> {
        let wrong = |source| Error::Path { upstream: "gateway".to_owned(), place: "path".to_owned(), source };
        let gateway = Gateway::new(&self.base_url, self.path.parse().map_err(wrong)?)?;
        let policy = Policy {
            attempts: self.attempts.map(NonZeroU32::get),
            attempt_timeout: self.attempt_timeout,
            deadline: self.deadline,
            backoff: self.backoff.into(),
            concurrency: self.concurrency.get() as usize,
            breaker: Some(self.breaker.into()),
        };
        Ok(Upstream::gateway(Arc::new(gateway), policy))
    }
}

/// A value is not repeated in the message: it may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no header name"))?;
    if http::is_reserved(&parsed) {
        return Err(format!("the header {name:?} is set by Orlog itself"));
    }
    let value =
        HeaderValue::try_from(value).map_err(|_| format!("the value of {name:?} is no header value"))?;
    Ok((parsed, value))
}

impl Default for BackoffConfig {
    fn default() -> Self {
        let Backoff { first, max, multiplier } = Backoff::default();
        Self { first, max, multiplier: NonZeroU32::new(multiplier).expect("the default is not zero") }
    }
}

impl From<BackoffConfig> for Backoff {
    fn from(config: BackoffConfig) -> Self {
        Self { first: config.first, max: config.max, multiplier: config.multiplier.get() }
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let breaker::Options { failures, open_for, .. } = breaker::Options::default();
        Self { failures: NonZeroU32::new(failures).expect("the default is not zero"), rate: None, open_for }
    }
}

impl From<BreakerConfig> for breaker::Options {
    fn from(config: BreakerConfig) -> Self {
        let rate = config.rate.map(|rate| breaker::Rate { percent: rate.percent, window: rate.window.get() });
        Self { failures: config.failures.get(), rate, open_for: config.open_for }
    }
}

fn concurrency() -> NonZeroU32 {
    u32::try_from(Policy::default().concurrency).ok().and_then(NonZeroU32::new).expect("the default is small")
}

fn attempt_timeout() -> Duration {
    Policy::default().attempt_timeout
}

fn deadline() -> Duration {
    Policy::default().deadline.expect("the default has a deadline")
}

fn method() -> String {
    "POST".to_owned()
}

fn gateway_path() -> String {
    DEFAULT_PATH.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Serves;

    const FULL: &str = r#"
        [upstreams.payments]
        base_url = "http://127.0.0.1:8081"
        concurrency = 8
        attempts = 10
        attempt_timeout = "2s"
        deadline = "10m"
        backoff = { first = "50ms", max = "1m30s" }
        breaker = { failures = 3, open_for = "5s", rate = { percent = 50, window = 20 } }
        [upstreams.payments.effects."payments.charge"]
        method = "POST"
        path = "/charges"
        headers = { "x-api-version" = "2" }
        [gateway]
        base_url = "http://127.0.0.1:8080"
    "#;

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let upstreams = toml::from_str::<EffectsConfig>(text).map_err(|error| error.to_string());
        let upstreams = upstreams.and_then(|config| config.upstreams().map_err(|error| error.to_string()));
        let error = upstreams.err().expect("it is refused");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn reads_what_the_file_says_and_fills_in_the_rest() {
        let upstreams = toml::from_str::<EffectsConfig>(FULL).unwrap().upstreams().unwrap();
        let [payments, gateway] = upstreams.as_slice() else { panic!("there are two") };
        assert_eq!(payments.serves, Serves::Effects(vec![EffectName::new("payments.charge").unwrap()]));
        assert_eq!(payments.policy.backoff.max, Duration::from_secs(90));
        assert_eq!(payments.policy.backoff.multiplier, Backoff::default().multiplier);
        assert_eq!(payments.policy.breaker.unwrap().rate, Some(breaker::Rate { percent: 50, window: 20 }));
        assert_eq!((gateway.name.as_str(), gateway.policy), ("gateway", Policy::gateway()));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let config: EffectsConfig = toml::from_str(FULL).unwrap();
        let text = toml::to_string(&config).unwrap();
        let again: EffectsConfig = toml::from_str(&text).unwrap();
        assert_eq!(text, toml::to_string(&again).unwrap());
    }

    #[test]
    fn refuses_mistakes_and_names_the_place() {
        let effect = |line: &str| {
            format!(
                "[upstreams.p]\nbase_url = \"http://h\"\n[upstreams.p.effects.\"p.x\"]\npath = \"/x\"\n{line}"
            )
        };
        check_refused("[gateway]\nbase_url = \"http://h\"\ntimeout = \"2s\"", "unknown field `timeout`");
        check_refused("[gateway]\nbase_url = \"http://h\"\ndeadline = \"2 moons\"", "no duration such as");
        check_refused("[gateway]\nbase_url = \"http://h\"\ndeadline = \"0s\"", "greater than zero");
        check_refused("[gateway]\nbase_url = \"http://h\"\npath = \"x\"", "upstream gateway, path");
        check_refused("[gateway]\nbase_url = \"h\"", "base URL \"h\" of gateway");
        check_refused(&effect("method = \"CHARGE\""), "upstream p, effect p.x: the method \"CHARGE\"");
        check_refused(&effect("headers = { \"x-tenant-id\" = \"a\" }"), "set by Orlog itself");
        check_refused(&effect("headers = { \"x y\" = \"a\" }"), "no header name");
    }
}
