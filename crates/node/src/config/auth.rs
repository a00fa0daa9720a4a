//! Configuration of `[auth]`: authentication of API callers. `config/default.toml` describes the
//! keys.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use orlog_effect::secret::SecretRef;
use orlog_model::ActorId;
use orlog_signature::KeyId;
use serde::{Deserialize, Serialize};

use super::actors::{ActorConfig, SignaturesConfig};
use super::loopback::is_protected;
use super::oidc::OidcConfig;
use super::units;
use super::violations::Violations;

/// Maximum clock difference between issuer and node.
const MAX_LEEWAY: Duration = Duration::from_mins(5);
/// Routes that can be public.
const CAN_BE_PUBLIC: [&str; 2] = ["/metrics", "/info"];

/// Configuration of `[auth]`: authentication of API callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// Authentication mode.
    pub mode: AuthMode,
    /// Allows unauthenticated access on a non-loopback address.
    pub allow_unauthenticated: bool,
    /// Routes without authentication.
    pub public_routes: Vec<String>,
    /// Token that grants access to the metrics only.
    #[serde(with = "units::optional")]
    pub metrics_token: Option<SecretRef>,
    /// Token of the administrator.
    pub token: AdminTokenConfig,
    /// Bearer tokens.
    pub jwt: JwtConfig,
    /// Headers of a trusted gateway.
    pub gateway: TrustedGatewayConfig,
    /// Log-in of users of the web UI.
    pub oidc: OidcConfig,
    /// Time of signed requests.
    pub signatures: SignaturesConfig,
    /// Actors whose signed requests are accepted, by id.
    #[serde(default)]
    pub actors: BTreeMap<ActorId, ActorConfig>,
}

/// Authentication mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// No authentication.
    #[default]
    Off,
    /// Token of the administrator.
    Token,
    /// Signed token (JWT).
    Jwt,
    /// Headers of a trusted gateway.
    Gateway,
}

impl AuthMode {
    /// Returns the name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AuthMode::Off => "off",
            AuthMode::Token => "token",
            AuthMode::Jwt => "jwt",
            AuthMode::Gateway => "gateway",
        }
    }
}

/// Configuration of `[auth.token]`: the token of the administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminTokenConfig {
    /// File with the token; created in the data directory if empty.
    #[serde(with = "units::optional")]
    pub file: Option<PathBuf>,
}

/// Configuration of `[auth.jwt]`: tokens and the keys that sign them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// URL of the key set of the issuer; empty: none.
    pub jwks_url: String,
    /// File with a JSON Web Key Set.
    #[serde(with = "units::optional")]
    pub jwks_file: Option<PathBuf>,
    /// Inline keys, each a JSON Web Key.
    pub keys: Vec<BTreeMap<String, String>>,
    /// Required issuer of a token.
    pub issuer: String,
    /// Accepted audiences; a token requires one of them.
    pub audience: Vec<String>,
    /// Allowed clock skew.
    #[serde(with = "units::text")]
    pub leeway: Duration,
    /// Maximum age of a token since `iat`; none: only `exp` limits it.
    #[serde(with = "units::optional")]
    pub max_age: Option<Duration>,
    /// Accepted types (`typ`) of tokens that state one.
    pub types: Vec<String>,
    /// File with denied token ids, key ids and subjects.
    #[serde(with = "units::optional")]
    pub denied_file: Option<PathBuf>,
    /// Interval between key refreshes.
    #[serde(with = "units::text")]
    pub refresh_interval: Duration,
    /// Minimum interval between attempts to fetch keys.
    #[serde(with = "units::text")]
    pub min_refresh_interval: Duration,
    /// Claim with the tenant, or the list of tenants.
    pub tenant_claim: String,
    /// Claim with the role, or the list of roles.
    pub role_claim: String,
    /// Claim with the roles for human tasks.
    pub groups_claim: String,
}

/// Configuration of `[auth.gateway]`: the trusted gateway and its headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedGatewayConfig {
    /// Source addresses and networks of the gateway.
    pub sources: Vec<String>,
    /// Secret that the gateway sends in `secret_header`.
    #[serde(with = "units::optional")]
    pub secret: Option<SecretRef>,
    /// Header with the secret.
    pub secret_header: String,
    /// Header with the user name.
    pub user_header: String,
    /// Header with the role of the user.
    pub role_header: String,
    /// Header with the tenants of the user.
    pub tenants_header: String,
    /// Header with the roles for human tasks.
    pub groups_header: String,
}

impl TrustedGatewayConfig {
    /// Returns the source networks of the gateway.
    ///
    /// # Errors
    /// The first text that is not an address or network.
    pub fn networks(&self) -> Result<Vec<IpNet>, String> {
        self.sources
            .iter()
            .map(|text| {
                let network = text
                    .parse()
                    .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
                network.map_err(|_| {
                    format!(
                        "invalid address or network {text:?}; expected for example 10.0.0.7 or \
                    10.0.0.0/8"
                    )
                })
            })
            .collect()
    }
}

impl AuthConfig {
    /// Validates rules that involve several keys.
    /// Adds the keys of the actors to `known`.
    pub(super) fn validate(
        &self,
        listen: SocketAddr,
        many_pods: bool,
        known: &mut BTreeSet<KeyId>,
        found: &mut Violations,
    ) {
        if let Some(other) = self
            .public_routes
            .iter()
            .find(|route| !CAN_BE_PUBLIC.contains(&route.as_str()))
        {
            let can = CAN_BE_PUBLIC.join(" and ");
            found.report(
                "auth.public_routes",
                format_args!("{other:?} cannot be public; only {can} can"),
            );
        }

        match self.mode {
            // Only processes of this host reach a loopback address.
            AuthMode::Off if !listen.ip().is_loopback() && !self.allow_unauthenticated => {
                let message = format_args!(
                    "{listen} is reachable without authentication; set auth.mode = \"token\", \
                     \"jwt\" or \"gateway\", listen on 127.0.0.1, or set \
                     auth.allow_unauthenticated = true inside a trusted network"
                );
                found.report("auth.mode", message);
            }
            AuthMode::Token if many_pods && self.token.file.is_none() => {
                let message = "pods forward requests to each other, so all of them need the same \
                    token; set a file";
                found.report("auth.token.file", message);
            }
            AuthMode::Off | AuthMode::Token => {}
            AuthMode::Jwt => self.jwt.validate(found),
            AuthMode::Gateway => self.gateway.validate(many_pods, found),
        }

        self.oidc.validate(
            self.mode == AuthMode::Jwt,
            &self.jwt.issuer,
            many_pods,
            found,
        );

        self.signatures.validate(found);
        for (id, actor) in &self.actors {
            actor.validate(id, known, found);
        }
    }
}

impl JwtConfig {
    fn validate(&self, found: &mut Violations) {
        found.require(
            !self.jwks_url.is_empty() || self.jwks_file.is_some() || !self.keys.is_empty(),
            "auth.jwt.jwks_url",
            "no keys are configured; set jwks_url, jwks_file or keys",
        );

        found.require(
            self.jwks_url.is_empty() || is_protected(&self.jwks_url),
            "auth.jwt.jwks_url",
            "the URL does not start with https://, so a changed response could add keys; set an \
             https URL or jwks_file. A loopback address may use http",
        );

        let message = "the issuer is missing; set the expected iss claim of tokens";
        found.require(!self.issuer.is_empty(), "auth.jwt.issuer", message);
        found.require(
            !self.audience.is_empty(),
            "auth.jwt.audience",
            "the audience is missing; set the expected aud claim, otherwise tokens of other \
             services are accepted",
        );

        found.require(
            self.leeway <= MAX_LEEWAY,
            "auth.jwt.leeway",
            "the leeway is longer than 5m, so expired tokens would stay valid; synchronize the \
             clocks",
        );

        let message = "no token type is accepted; set for example [\"JWT\"]";
        found.require(!self.types.is_empty(), "auth.jwt.types", message);

        let tenant = &self.tenant_claim;
        let role = &self.role_claim;
        let groups = &self.groups_claim;

        for (key, claim) in [
            ("tenant_claim", tenant),
            ("role_claim", role),
            ("groups_claim", groups),
        ] {
            found.require(
                !claim.is_empty(),
                format_args!("auth.jwt.{key}"),
                "the claim name is missing",
            );
        }
    }
}

impl TrustedGatewayConfig {
    fn validate(&self, many_pods: bool, found: &mut Violations) {
        if let Err(message) = self.networks() {
            found.report("auth.gateway.sources", message);
        }

        let message = "any client can send the gateway headers; set sources, a secret, or both";
        found.require(
            !self.sources.is_empty() || self.secret.is_some(),
            "auth.gateway.sources",
            message,
        );

        let Self {
            secret_header,
            user_header,
            role_header,
            tenants_header,
            groups_header,
            ..
        } = self;

        let headers = [
            secret_header,
            user_header,
            role_header,
            tenants_header,
            groups_header,
        ];

        // The names of the headers of a request are in lower case.
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        for name in headers.into_iter().filter(|name| !is_name(name)) {
            let message = format_args!(
                "invalid header name {name:?}; use only lowercase letters, digits and -"
            );
            found.report("auth.gateway", message);
        }

        found.require(
            !many_pods || self.secret.is_some(),
            "auth.gateway.secret",
            "pods forward requests to each other from addresses other than the gateway's; set a \
             secret to authenticate them",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(auth: &AuthConfig, listen: &str, many: bool, expected: &[&str]) {
        let listen = listen.parse().unwrap();
        assert_eq!(
            Violations::keys(|found| auth.validate(listen, many, &mut BTreeSet::new(), found)),
            expected
        );
    }

    #[test]
    fn unauthenticated_access_requires_opt_in() {
        let off = AuthConfig::default();
        check(&off, "127.0.0.1:7070", false, &[]);
        check(&off, "[::1]:7070", false, &[]);
        check(&off, "0.0.0.0:7070", false, &["auth.mode"]);
        check(
            &AuthConfig {
                allow_unauthenticated: true,
                ..off.clone()
            },
            "0.0.0.0:7070",
            false,
            &[],
        );
        check(
            &AuthConfig {
                public_routes: vec!["/admin/drain".to_owned()],
                ..off
            },
            "[::1]:1",
            false,
            &["auth.public_routes"],
        );
    }

    #[test]
    fn pods_share_the_token_of_the_administrator() {
        let mut auth = AuthConfig {
            mode: AuthMode::Token,
            ..AuthConfig::default()
        };
        check(&auth, "0.0.0.0:1", false, &[]);
        check(&auth, "0.0.0.0:1", true, &["auth.token.file"]);
        auth.token.file = Some("/etc/orlog/admin/token".into());
        check(&auth, "0.0.0.0:1", true, &[]);
    }

    #[test]
    fn reports_every_jwt_config_error() {
        let auth = AuthConfig {
            mode: AuthMode::Jwt,
            ..AuthConfig::default()
        };
        check(
            &auth,
            "0.0.0.0:1",
            false,
            &["auth.jwt.jwks_url", "auth.jwt.issuer", "auth.jwt.audience"],
        );
    }

    #[test]
    fn key_set_url_is_https_or_loopback() {
        let with = |url: &str| AuthConfig {
            mode: AuthMode::Jwt,
            jwt: JwtConfig {
                jwks_url: url.to_owned(),
                issuer: "urn:issuer".to_owned(),
                audience: vec!["orlog".to_owned()],
                ..JwtConfig::default()
            },
            ..AuthConfig::default()
        };
        for url in [
            "https://id.example.com/jwks",
            "http://127.0.0.1:1/jwks",
            "http://[::1]/",
            "http://localhost:8/",
        ] {
            check(&with(url), "0.0.0.0:1", false, &[]);
        }
        for url in [
            "http://id.example.com/jwks",
            "http://10.0.0.1/",
            "http://localhost.evil.example/",
            "file:///etc/jwks",
        ] {
            check(&with(url), "0.0.0.0:1", false, &["auth.jwt.jwks_url"]);
        }
    }

    #[test]
    fn trusted_gateway_requires_a_criterion() {
        let mut auth = AuthConfig {
            mode: AuthMode::Gateway,
            ..AuthConfig::default()
        };
        check(&auth, "0.0.0.0:1", false, &["auth.gateway.sources"]);
        auth.gateway.sources = vec!["10.0.0.0/8".to_owned(), "::1".to_owned()];
        check(&auth, "0.0.0.0:1", false, &[]);
        check(&auth, "0.0.0.0:1", true, &["auth.gateway.secret"]);
        auth.gateway.sources.push("gateway".to_owned());
        check(&auth, "0.0.0.0:1", false, &["auth.gateway.sources"]);
    }
}
