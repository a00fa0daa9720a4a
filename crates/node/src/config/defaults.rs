//! Default values: `config/default.toml` is their only source.

use std::sync::LazyLock;

use toml::Table;

use super::actors::SignaturesConfig;
use super::audit::AuditConfig;
use super::auth::{AuthConfig, JwtConfig, TrustedGatewayConfig};
use super::cluster::{ClusterConfig, ClusterTlsConfig};
use super::http_server::{CallerQuotaConfig, HttpServerConfig};
use super::limits::LimitsConfig;
use super::nats::{NatsConfig, SigningConfig};
use super::oidc::OidcConfig;
use super::peers::IdentityConfig;
use super::retention::RetentionConfig;
use super::roles::QueueConfig;
use super::sections::{
    BusConfig, DrainConfig, ExportConfig, HistoryConfig, JobsConfig, LogConfig, MessagesConfig,
    ResultsConfig, StoreConfig, TelemetryConfig,
};
use super::{Config, DEFAULT};

/// Every key with its default.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    DEFAULT
        .parse()
        .expect("a test parses the default configuration")
});

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    TABLE
        .clone()
        .try_into()
        .expect("a test reads the default configuration")
});

/// Implements `Default` with the value of a table of the default configuration.
macro_rules! defaults {
    ($($section:ty: $($key:ident).+;)+) => {
        $(impl Default for $section {
            fn default() -> Self {
                CONFIG.$($key).+.clone()
            }
        })+
    };
}

defaults! {
    StoreConfig: store;
    BusConfig: bus;
    NatsConfig: nats;
    SigningConfig: nats.signing;
    QueueConfig: queue;
    ClusterConfig: cluster;
    ClusterTlsConfig: cluster.tls;
    LimitsConfig: limits;
    HistoryConfig: history;
    JobsConfig: jobs;
    MessagesConfig: messages;
    ResultsConfig: results;
    RetentionConfig: retention;
    ExportConfig: export;
    HttpServerConfig: http;
    CallerQuotaConfig: http.per_caller;
    AuthConfig: auth;
    JwtConfig: auth.jwt;
    TrustedGatewayConfig: auth.gateway;
    OidcConfig: auth.oidc;
    SignaturesConfig: auth.signatures;
    IdentityConfig: identity;
    AuditConfig: audit;
    DrainConfig: drain;
    LogConfig: log;
    TelemetryConfig: telemetry;
}

impl Default for Config {
    fn default() -> Self {
        CONFIG.clone()
    }
}
