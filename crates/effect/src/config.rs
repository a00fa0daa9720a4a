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
//! Every kind of upstream has keys of its own, and all have those of `terms`. A file of its own says `kind` where it is not
//! HTTP, see [`Described`].
//!
//! Every key but the URLs and the paths has a default; an unknown key is refused.

pub(crate) mod grpc;
pub(crate) mod http;
mod nats;
mod policy;
mod script;
pub(crate) mod smtp;
mod sql;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use orlog_model::EffectName;
use serde::{Deserialize, Deserializer, Serialize};

pub use grpc::{CallConfig, GrpcConfig};
pub use http::{HttpConfig, OperationConfig};
pub use nats::NatsConfig;
pub use policy::{
    BackoffConfig, BreakerConfig, BudgetConfig, FailureRateConfig, InDoubtConfig, RateConfig, ShareConfig,
};
pub(crate) use policy::{Terms, upstream_config};
pub use script::{InterpreterConfig, LimitsConfig, RunConfig, ScriptConfig};
pub use smtp::{CabinetConfig, LetterConfig, SmtpConfig};
pub use sql::{ExpectConfig, RowsConfig, SqlConfig, StatementConfig, StatementsConfig};
pub use worker::WorkerConfig;

use crate::gateway::{DEFAULT_PATH, Gateway};
use crate::http::TemplateError;
use crate::policy::Policy;
use crate::provider::Provider;
use crate::upstream::Upstream;

/// A description that makes no upstream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The upstream cannot be spoken to.
    #[error(transparent)]
    Http(#[from] crate::http::Error),
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
    /// Something about one effect is wrong.
    #[error("upstream {upstream}, effect {effect}: {reason}")]
    Operation {
        /// Whose.
        upstream: String,
        /// Which effect.
        effect: EffectName,
        /// What is wrong.
        reason: String,
    },
    /// Something about the upstream as a whole is wrong.
    #[error("upstream {upstream}: {reason}")]
    Upstream {
        /// Which.
        upstream: String,
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

/// The kinds of upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Requests over HTTP.
    #[default]
    Http,
    /// Calls over gRPC.
    Grpc,
    /// Mails over SMTP.
    Smtp,
    /// Scripts.
    Script,
    /// Statements in a database.
    Sql,
    /// Workers outside the process.
    Worker,
    /// Whoever takes the commands from NATS.
    Nats,
}

/// An upstream as a file of its own describes it.
#[derive(Clone, Debug)]
pub enum Described {
    /// See [`HttpConfig`].
    Http(Box<HttpConfig>),
    /// See [`GrpcConfig`].
    Grpc(Box<GrpcConfig>),
    /// See [`SmtpConfig`].
    Smtp(Box<SmtpConfig>),
    /// See [`ScriptConfig`].
    Script(Box<ScriptConfig>),
    /// See [`SqlConfig`].
    Sql(Box<SqlConfig>),
    /// See [`WorkerConfig`].
    Worker(Box<WorkerConfig>),
    /// See [`NatsConfig`].
    Nats(Box<NatsConfig>),
}

/// What is told to whoever asks for more than there is without NATS.
const NEEDS_NATS: &str = "needs NATS; write bus.kind = \"nats\" and [nats] into the configuration";

upstream_config! {
    /// Where commands go: over HTTP, or as requests over NATS.
    GatewayConfig {
        /// Begins every URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub base_url: Option<String>,
        /// May hold `{aggregate_type}`, `{aggregate_id}` and `{name}`.
        #[serde(default = "gateway_path")]
        pub path: String,
        /// Where requests go instead; may hold `{tenant}`, `{aggregate_type}`, `{aggregate_id}` and `{name}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subject: Option<String>,
    }
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

impl Described {
    /// Reads a file of this kind.
    ///
    /// # Errors
    /// What the deserializer says.
    pub fn read<'de, D: Deserializer<'de>>(kind: Kind, file: D) -> Result<Self, D::Error> {
        match kind {
            Kind::Http => Ok(Self::Http(Box::new(HttpConfig::deserialize(file)?))),
            Kind::Grpc => Ok(Self::Grpc(Box::new(GrpcConfig::deserialize(file)?))),
            Kind::Smtp => Ok(Self::Smtp(Box::new(SmtpConfig::deserialize(file)?))),
            Kind::Script => Ok(Self::Script(Box::new(ScriptConfig::deserialize(file)?))),
            Kind::Sql => Ok(Self::Sql(Box::new(SqlConfig::deserialize(file)?))),
            Kind::Worker => Ok(Self::Worker(Box::new(WorkerConfig::deserialize(file)?))),
            Kind::Nats => Ok(Self::Nats(Box::new(NatsConfig::deserialize(file)?))),
        }
    }

    /// The upstream it describes. Files that it names are in `folder`.
    ///
    /// # Errors
    /// When it cannot be made; the text names the place.
    pub fn upstream(&self, name: &str, folder: &Path) -> Result<Upstream, Error> {
        match self {
            Self::Http(config) => config.upstream(name),
            Self::Grpc(config) => config.upstream(name, folder),
            Self::Smtp(config) => config.upstream(name, folder),
            Self::Script(config) => config.upstream(name),
            Self::Sql(config) => config.upstream(name),
            Self::Worker(config) => config.upstream(name),
            Self::Nats(_) => Err(Error::Upstream {
                upstream: name.to_owned(),
                reason: format!("kind = \"nats\" {NEEDS_NATS}"),
            }),
        }
    }
}

/// Two descriptions of one text make upstreams that do the same. They hold references to secrets, not secrets.
fn origin(config: &impl Serialize) -> String {
    serde_json::to_string(config).expect("a description is plain data")
}

impl GatewayConfig {
    /// The upstream it describes, over HTTP.
    ///
    /// # Errors
    /// When the URL or the path is wrong, or it is no upstream over HTTP.
    pub fn upstream(&self) -> Result<Upstream, Error> {
        let reason =
            |reason: &str| Error::Upstream { upstream: "gateway".to_owned(), reason: reason.to_owned() };
        let base_url = match (&self.base_url, &self.subject) {
            (Some(base_url), None) => base_url,
            (None, Some(_)) => return Err(reason(&format!("its subject {NEEDS_NATS}"))),
            (Some(_), Some(_)) => return Err(reason("it has a base_url and a subject; keep one")),
            (None, None) => return Err(reason("it has neither base_url nor subject; write one")),
        };
        let wrong = |source| Error::Path { upstream: "gateway".to_owned(), place: "path".to_owned(), source };
        let gateway = Gateway::new(base_url, self.path.parse().map_err(wrong)?)?;
        let policy = self.policy(Policy::gateway());
        Ok(Upstream::gateway(Arc::new(gateway), policy).made_from(origin(self)))
    }

    /// The upstream it describes, asked by `provider`.
    #[must_use]
    pub fn asked_by(&self, provider: Arc<dyn Provider>) -> Upstream {
        Upstream::gateway(provider, self.policy(Policy::gateway())).made_from(origin(self))
    }
}

fn gateway_path() -> String {
    DEFAULT_PATH.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backoff::Backoff;
    use crate::limits::breaker;
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
        assert_eq!((gateway.name.as_str(), &gateway.policy), ("gateway", &Policy::gateway()));
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
        check_refused(&effect("method = \"A B\""), "upstream p, effect p.x: the method \"A B\"");
        check_refused(&effect("headers = { \"x-tenant-id\" = \"a\" }"), "set by Orlog itself");
        check_refused(&effect("headers = { \"x y\" = \"a\" }"), "no header name");
    }
}
