//! Configuration of `[auth.oidc]`: log-in of users of the web UI. `config/default.toml` describes
//! the keys.

use std::time::Duration;

use orlog_effect::secret::SecretRef;
use serde::{Deserialize, Serialize};

use super::loopback::is_protected;
use super::units;
use super::violations::Violations;

/// Path of the route to which the provider sends the browser back.
const CALLBACK: &str = "/auth/callback";

/// Configuration of `[auth.oidc]`: the client of the OpenID provider, and the sessions of its
/// users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    /// Id of the client at the provider; empty: no log-in.
    pub client_id: String,
    /// Secret of the client; none: a public client.
    #[serde(with = "units::optional")]
    pub client_secret: Option<SecretRef>,
    /// URL of `/auth/callback` as browsers reach this node.
    pub redirect_url: String,
    /// Requested scopes.
    pub scopes: Vec<String>,
    /// Maximum duration of a session.
    #[serde(with = "units::text")]
    pub session_max_age: Duration,
}

impl OidcConfig {
    /// Returns whether users can log in.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.client_id.is_empty()
    }

    /// Validates rules that involve several keys.
    pub(super) fn validate(
        &self,
        is_jwt: bool,
        issuer: &str,
        many_pods: bool,
        found: &mut Violations,
    ) {
        // Without a client id there is no log-in, so its other keys have no effect.
        if !self.is_enabled() {
            return;
        }

        found.require(
            is_jwt,
            "auth.oidc.client_id",
            "the log-in requires auth.mode = \"jwt\", whose keys verify its tokens",
        );

        found.require(
            !many_pods,
            "auth.oidc.client_id",
            "sessions belong to one node, and pods forward requests to each other; use a gateway \
             in front of the pods",
        );

        found.require(
            !is_jwt || is_protected(issuer),
            "auth.jwt.issuer",
            "the log-in reads the endpoints of the issuer; set its https URL. A loopback address \
             may use http",
        );

        let is_callback =
            reqwest::Url::parse(&self.redirect_url).is_ok_and(|url| url.path() == CALLBACK);
        found.require(
            is_callback && is_protected(&self.redirect_url),
            "auth.oidc.redirect_url",
            "set the https URL of /auth/callback as browsers reach this node. A loopback address \
             may use http",
        );

        found.require(
            self.scopes.iter().any(|scope| scope == "openid"),
            "auth.oidc.scopes",
            "the scope openid is missing; without it, the provider returns no ID token",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_in_requires_https_and_one_node() {
        let check = |oidc: &OidcConfig, is_jwt, issuer, many, expected: &[&str]| {
            assert_eq!(
                Violations::keys(|found| oidc.validate(is_jwt, issuer, many, found)),
                expected
            );
        };
        let issuer = "https://id.example.com/";
        check(&OidcConfig::default(), false, "", true, &[]);
        let mut oidc = OidcConfig {
            client_id: "orlog".to_owned(),
            redirect_url: "https://orlog.example.com/auth/callback".to_owned(),
            ..OidcConfig::default()
        };
        check(&oidc, true, issuer, false, &[]);
        check(&oidc, false, issuer, true, &["auth.oidc.client_id"; 2]);
        check(
            &oidc,
            true,
            "http://id.example.com/",
            false,
            &["auth.jwt.issuer"],
        );
        oidc.scopes = vec!["profile".to_owned()];
        for url in [
            "",
            "http://orlog.example.com/auth/callback",
            "https://orlog.example.com/",
        ] {
            url.clone_into(&mut oidc.redirect_url);
            check(
                &oidc,
                true,
                issuer,
                false,
                &["auth.oidc.redirect_url", "auth.oidc.scopes"],
            );
        }
    }
}
