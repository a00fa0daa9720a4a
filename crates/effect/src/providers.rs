//! The kinds of upstreams: a module for each, and the registry.
//!
//! A kind is a module below this one with its configuration, its client, the classification of
//! responses and the lookup of earlier attempts. To add a kind, add its module and one line to the
//! registry below, from which its name, its parser and the errors for an unknown kind follow.

pub mod function;
pub mod gateway;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod http;
pub mod nats;
#[cfg(feature = "script")]
pub mod script;
#[cfg(feature = "smtp")]
pub mod smtp;
#[cfg(feature = "sql")]
pub mod sql;
pub mod webhook;
pub mod worker;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::{Error, UpstreamConfig, UpstreamSite};
use crate::upstream::Upstream;
use gateway::GatewayConfig;
use http::HttpConfig;

/// Declares the kinds: name, description and configuration, and the Cargo feature of an optional
/// one.
macro_rules! registry {
    (
        $(
            $(#[$meta:meta])*
            $kind:ident($name:literal, $text:literal) => $config:ty $(, feature $feature:literal)?;
        )*
    ) => {
        /// Kind of an upstream.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum UpstreamKind {
            $(#[doc = $text] #[serde(rename = $name)] $(#[$meta])* $kind,)*
        }

        impl UpstreamKind {
            /// All kinds, also those that are not part of this build.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the name in configurations.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// Reads the configuration of an upstream of this kind.
            ///
            /// # Errors
            /// The error of the deserializer, or the missing Cargo feature.
            pub fn read<'de, D>(self, file: D) -> Result<Box<dyn UpstreamConfig>, D::Error>
            where
                D: Deserializer<'de>,
            {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$kind => Ok(Box::new(<$config>::deserialize(file)?)),
                        $(
                            #[cfg(not(feature = $feature))]
                            Self::$kind => Err(<D::Error as serde::de::Error>::custom(concat!(
                                "kind = \"", $name, "\" is not part of this program; ",
                                "build it with the Cargo feature `", $feature, "`"
                            ))),
                        )?
                    )*
                }
            }
        }
    };
}

registry! {
    #[default]
    Http("http", "Requests over HTTP.") => HttpConfig;
    Grpc("grpc", "Calls over gRPC.") => grpc::GrpcConfig, feature "grpc";
    Smtp("smtp", "Email over SMTP.") => smtp::SmtpConfig, feature "smtp";
    Script("script", "Scripts.") => script::ScriptConfig, feature "script";
    Sql("sql", "Statements in a database.") => sql::SqlConfig, feature "sql";
    Worker("worker", "Workers outside the process.") => worker::WorkerConfig;
    Nats("nats", "Workers that receive commands from NATS.") => nats::NatsConfig;
    Webhook("webhook", "Signed notifications over HTTP.") => webhook::WebhookConfig;
}

/// Upstreams of the node configuration: `[upstreams.<name>]` and `[gateway]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EffectsConfig {
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, HttpConfig>,
    /// Gateway for commands; without it, commands cannot be sent.
    pub gateway: Option<GatewayConfig>,
}

impl EffectsConfig {
    /// Builds the configured upstreams.
    ///
    /// # Errors
    /// If one of them is invalid; the text gives its name and the location.
    pub fn upstreams(&self) -> Result<Vec<Upstream>, Error> {
        let mut upstreams = Vec::with_capacity(self.upstreams.len() + 1);
        for (name, config) in &self.upstreams {
            match config.kind.as_deref() {
                None | Some("http") => upstreams.push(config.upstream(UpstreamSite::new(name))?),
                Some(kind) => {
                    let reason = format!(
                        "kind {kind:?}: upstreams in the main configuration must have the kind \
                        \"http\"; define others in files of `upstreams_dir`"
                    );
                    return Err(Error::upstream(name, reason));
                }
            }
        }

        if let Some(gateway) = &self.gateway {
            upstreams.push(gateway.upstream()?);
        }
        Ok(upstreams)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orlog_model::EffectName;

    use super::*;
    use crate::limits::breaker;
    use crate::policy::Policy;
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
        let upstreams =
            upstreams.and_then(|config| config.upstreams().map_err(|error| error.to_string()));
        let error = upstreams.err().expect("the configuration is invalid");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn parses_the_file_and_applies_defaults() {
        let upstreams = toml::from_str::<EffectsConfig>(FULL)
            .unwrap()
            .upstreams()
            .unwrap();
        let [payments, gateway] = upstreams.as_slice() else {
            panic!("there are two")
        };
        assert_eq!(
            payments.scope,
            UpstreamScope::Effects(vec![EffectName::new("payments.charge").unwrap()])
        );
        assert_eq!(payments.policy.backoff.max, Duration::from_secs(90));
        assert_eq!(
            payments.policy.backoff.multiplier,
            Backoff::default().multiplier
        );
        assert_eq!(
            payments.policy.breaker.unwrap().rate,
            Some(breaker::FailureRate {
                percent: 50,
                window: 20
            })
        );
        assert_eq!(
            (gateway.name.as_str(), &gateway.policy),
            ("gateway", &Policy::gateway())
        );
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
        check_rejected(
            "[gateway]\nbase_url = \"http://h\"\ntimeout = \"2s\"",
            "unknown field `timeout`",
        );
        check_rejected(
            "[gateway]\nbase_url = \"http://h\"\ndeadline = \"2 moons\"",
            "is not a valid duration",
        );
        check_rejected(
            "[gateway]\nbase_url = \"http://h\"\ndeadline = \"0s\"",
            "greater than zero",
        );
        check_rejected(
            "[gateway]\nbase_url = \"http://h\"\npath = \"x\"",
            "upstream gateway, path",
        );
        check_rejected(
            "[gateway]\nbase_url = \"h\"",
            "base URL \"h\" of upstream gateway",
        );
        check_rejected(
            &effect("method = \"A B\""),
            "upstream p, effect p.x: invalid method \"A B\"",
        );
        check_rejected(
            &effect("headers = { \"x-tenant-id\" = \"a\" }"),
            "is reserved for Orlog",
        );
        check_rejected(
            &effect("headers = { \"x y\" = \"a\" }"),
            "is not a valid header name",
        );
    }

    #[test]
    fn every_kind_has_one_name_and_a_page() {
        let pages = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/providers/README.md"
        );
        let pages = std::fs::read_to_string(pages).unwrap();
        for kind in UpstreamKind::ALL {
            let name = kind.as_str();
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
            assert!(
                pages.contains(&format!("| `{name}` | [")),
                "{name} has no line in docs/providers/README.md"
            );
        }
    }

    #[cfg(not(feature = "smtp"))]
    #[test]
    fn kind_without_its_feature_is_rejected() {
        let error = UpstreamKind::Smtp
            .read(serde_json::json!({}))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("build it with the Cargo feature `smtp`"),
            "{error}"
        );
    }
}
