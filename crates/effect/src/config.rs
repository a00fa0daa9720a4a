//! Configuration of upstreams.
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
//! Every kind of upstream has its own keys, and all kinds have those of `policy`. A separate file
//! specifies `kind` unless it is HTTP, see [`UpstreamFile`].
//!
//! Every key except the URLs and the paths has a default; an unknown key is rejected.

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

pub use grpc::{GrpcConfig, GrpcEffectConfig};
pub use http::{HttpConfig, HttpEffectConfig};
pub use nats::NatsConfig;
pub use policy::{
    BackoffConfig, BreakerConfig, FailureRateConfig, InDoubtConfig, RateConfig, RetryBudgetConfig,
    TenantLimitsConfig,
};
pub(crate) use policy::{PolicyKeys, upstream_config};
pub use script::{InterpreterConfig, ResourceLimitsConfig, ScriptConfig, ScriptEffectConfig};
pub use smtp::{AttachmentsConfig, EmailEffectConfig, SmtpConfig};
pub use sql::{ExpectConfig, RowsConfig, SqlConfig, SqlEffectConfig, StatementConfig};
pub use worker::WorkerConfig;

use crate::gateway::{DEFAULT_PATH, HttpGateway};
use crate::http::TemplateError;
use crate::policy::Policy;
use crate::provider::Provider;
use crate::upstream::Upstream;

/// Error for an invalid upstream configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP client of the upstream cannot be created.
    #[error(transparent)]
    Http(#[from] crate::http::Error),
    /// A path is invalid.
    #[error("upstream {upstream}, {place}: {source}")]
    Path {
        /// Name of the upstream.
        upstream: String,
        /// Effect name, or `path`.
        place: String,
        /// Template error.
        source: TemplateError,
    },
    /// The configuration of one effect is invalid.
    #[error("upstream {upstream}, effect {effect}: {reason}")]
    Operation {
        /// Name of the upstream.
        upstream: String,
        /// Effect name.
        effect: EffectName,
        /// Reason.
        reason: String,
    },
    /// The configuration of the whole upstream is invalid.
    #[error("upstream {upstream}: {reason}")]
    Upstream {
        /// Name of the upstream.
        upstream: String,
        /// Reason.
        reason: String,
    },
}

/// All upstreams: `[upstreams.<name>]` and `[gateway]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EffectsConfig {
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, HttpConfig>,
    /// Gateway for commands; without it, commands cannot be sent.
    pub gateway: Option<GatewayConfig>,
}

/// Kind of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamKind {
    /// Requests over HTTP.
    #[default]
    Http,
    /// Calls over gRPC.
    Grpc,
    /// Email over SMTP.
    Smtp,
    /// Scripts.
    Script,
    /// Statements in a database.
    Sql,
    /// Workers outside the process.
    Worker,
    /// Workers that receive commands from NATS.
    Nats,
}

/// Upstream in a separate file.
#[derive(Clone, Debug)]
pub enum UpstreamFile {
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

/// Reason of an error if the configuration requires NATS.
const NEEDS_NATS: &str = "requires NATS; set bus.kind = \"nats\" and add [nats] to the configuration";

upstream_config! {
    /// Gateway for commands: over HTTP, or as requests over NATS.
    GatewayConfig {
        /// Prefix of every URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub base_url: Option<String>,
        /// Path; may contain `{aggregate_type}`, `{aggregate_id}` and `{name}`.
        #[serde(default = "gateway_path")]
        pub path: String,
        /// NATS subject of requests instead; may contain `{tenant}`, `{aggregate_type}`, `{aggregate_id}` and
        /// `{name}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subject: Option<String>,
    }
}

impl EffectsConfig {
    /// Builds the configured upstreams.
    ///
    /// # Errors
    /// If one of them is invalid; the text gives its name and the location.
    pub fn upstreams(&self) -> Result<Vec<Upstream>, Error> {
        let named = self.upstreams.iter().map(|(name, config)| config.upstream(name));
        named.chain(self.gateway.iter().map(GatewayConfig::upstream)).collect()
    }
}

impl UpstreamFile {
    /// Reads a file of this kind.
    ///
    /// # Errors
    /// The error of the deserializer.
    pub fn read<'de, D: Deserializer<'de>>(kind: UpstreamKind, file: D) -> Result<Self, D::Error> {
        match kind {
            UpstreamKind::Http => Ok(Self::Http(Box::new(HttpConfig::deserialize(file)?))),
            UpstreamKind::Grpc => Ok(Self::Grpc(Box::new(GrpcConfig::deserialize(file)?))),
            UpstreamKind::Smtp => Ok(Self::Smtp(Box::new(SmtpConfig::deserialize(file)?))),
            UpstreamKind::Script => Ok(Self::Script(Box::new(ScriptConfig::deserialize(file)?))),
            UpstreamKind::Sql => Ok(Self::Sql(Box::new(SqlConfig::deserialize(file)?))),
            UpstreamKind::Worker => Ok(Self::Worker(Box::new(WorkerConfig::deserialize(file)?))),
            UpstreamKind::Nats => Ok(Self::Nats(Box::new(NatsConfig::deserialize(file)?))),
        }
    }

    /// Builds the upstream. Paths of files are relative to `dir`.
    ///
    /// # Errors
    /// If it is invalid; the text gives the location.
    pub fn upstream(&self, name: &str, dir: &Path) -> Result<Upstream, Error> {
        match self {
            Self::Http(config) => config.upstream(name),
            Self::Grpc(config) => config.upstream(name, dir),
            Self::Smtp(config) => config.upstream(name, dir),
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

/// Returns the text of a configuration. Upstreams with equal text are equal. It contains references to
/// secrets, not secrets.
fn origin(config: &impl Serialize) -> String {
    serde_json::to_string(config).expect("a configuration is plain data")
}

impl GatewayConfig {
    /// Builds the gateway upstream over HTTP.
    ///
    /// # Errors
    /// If the URL or the path is invalid, or if it is not an HTTP upstream.
    pub fn upstream(&self) -> Result<Upstream, Error> {
        let reason =
            |reason: &str| Error::Upstream { upstream: "gateway".to_owned(), reason: reason.to_owned() };
        let base_url = match (&self.base_url, &self.subject) {
            (Some(base_url), None) => base_url,
            (None, Some(_)) => return Err(reason(&format!("the subject {NEEDS_NATS}"))),
            (Some(_), Some(_)) => {
                return Err(reason("base_url and subject are mutually exclusive; remove one"));
            }
            (None, None) => return Err(reason("base_url or subject is required")),
        };
        let path_error =
            |source| Error::Path { upstream: "gateway".to_owned(), place: "path".to_owned(), source };
        let gateway = HttpGateway::new(base_url, self.path.parse().map_err(path_error)?)?;
        let policy = self.policy(Policy::gateway());
        Ok(Upstream::gateway(Arc::new(gateway), policy).with_origin(origin(self)))
    }

    /// Builds the gateway upstream with `provider` as its client.
    #[must_use]
    pub fn over_nats(&self, provider: Arc<dyn Provider>) -> Upstream {
        Upstream::gateway(provider, self.policy(Policy::gateway())).with_origin(origin(self))
    }
}

fn gateway_path() -> String {
    DEFAULT_PATH.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::breaker;
    use crate::retry::Backoff;
    use crate::upstream::UpstreamScope;

    const FULL: &str = r#"
        [upstreams.payments]
        base_url = "http://127.0.0.1:8081"
        max_concurrency = 8
        max_attempts = 10
        attempt_timeout = "2s"
        deadline = "10m"
        backoff = { initial = "50ms", max = "1m30s" }
        breaker = { failure_threshold = 3, open_duration = "5s", rate = { percent = 50, window = 20 } }
        [upstreams.payments.effects."payments.charge"]
        method = "POST"
        path = "/charges"
        headers = { "x-api-version" = "2" }
        [gateway]
        base_url = "http://127.0.0.1:8080"
    "#;

    #[track_caller]
    fn check_rejected(text: &str, expected: &str) {
        let upstreams = toml::from_str::<EffectsConfig>(text).map_err(|error| error.to_string());
        let upstreams = upstreams.and_then(|config| config.upstreams().map_err(|error| error.to_string()));
        let error = upstreams.err().expect("the configuration is invalid");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn parses_the_file_and_applies_defaults() {
        let upstreams = toml::from_str::<EffectsConfig>(FULL).unwrap().upstreams().unwrap();
        let [payments, gateway] = upstreams.as_slice() else { panic!("there are two") };
        assert_eq!(payments.scope, UpstreamScope::Effects(vec![EffectName::new("payments.charge").unwrap()]));
        assert_eq!(payments.policy.backoff.max, Duration::from_secs(90));
        assert_eq!(payments.policy.backoff.multiplier, Backoff::default().multiplier);
        assert_eq!(
            payments.policy.breaker.unwrap().rate,
            Some(breaker::FailureRate { percent: 50, window: 20 })
        );
        assert_eq!((gateway.name.as_str(), &gateway.policy), ("gateway", &Policy::gateway()));
    }

    #[test]
    fn config_round_trips() {
        let config: EffectsConfig = toml::from_str(FULL).unwrap();
        let text = toml::to_string(&config).unwrap();
        let reparsed: EffectsConfig = toml::from_str(&text).unwrap();
        assert_eq!(text, toml::to_string(&reparsed).unwrap());
    }

    #[test]
    fn rejects_invalid_config_with_location() {
        let effect = |line: &str| {
            format!(
                "[upstreams.p]\nbase_url = \"http://h\"\n[upstreams.p.effects.\"p.x\"]\npath = \"/x\"\n{line}"
            )
        };
        check_rejected("[gateway]\nbase_url = \"http://h\"\ntimeout = \"2s\"", "unknown field `timeout`");
        check_rejected(
            "[gateway]\nbase_url = \"http://h\"\ndeadline = \"2 moons\"",
            "is not a valid duration",
        );
        check_rejected("[gateway]\nbase_url = \"http://h\"\ndeadline = \"0s\"", "greater than zero");
        check_rejected("[gateway]\nbase_url = \"http://h\"\npath = \"x\"", "upstream gateway, path");
        check_rejected("[gateway]\nbase_url = \"h\"", "base URL \"h\" of upstream gateway");
        check_rejected(&effect("method = \"A B\""), "upstream p, effect p.x: invalid method \"A B\"");
        check_rejected(&effect("headers = { \"x-tenant-id\" = \"a\" }"), "is reserved for Orlog");
        check_rejected(&effect("headers = { \"x y\" = \"a\" }"), "is not a valid header name");
    }
}
